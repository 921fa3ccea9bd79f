//! Faults of a source, for people: the span, a sentence, and a suggestion.

use std::fmt;

use crate::program::Span;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Span in the source.
    pub span: Span,
    /// Message, a whole sentence.
    pub message: String,
    /// Suggestion, a whole sentence; empty for none.
    pub help: String,
    /// Text to write in place of the span, if that is the suggestion.
    pub replacement: Option<String>,
}

impl Fault {
    /// A fault without advice.
    #[must_use]
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            help: String::new(),
            replacement: None,
        }
    }

    /// The same with advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// The same, with a text to write in place of the span.
    #[must_use]
    pub fn replacement(mut self, replacement: impl Into<String>) -> Self {
        self.replacement = Some(replacement.into());
        self
    }

    /// The same, with advice to write `replacement` in place of the span.
    #[must_use]
    pub fn did_you_mean(self, replacement: impl Into<String>) -> Self {
        let replacement = replacement.into();
        self.help(format!("Did you mean {replacement}?"))
            .replacement(replacement)
    }

    /// The same, with the known name that is most like the unknown one as advice.
    #[must_use]
    pub fn like<'a>(self, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(name, known) {
            Some(near) => self.did_you_mean(near),
            None => self,
        }
    }
}

/// All that is wrong with a source, in its order. Displayed as a compiler does it: line, column, the
/// line itself, and a mark under the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The source.
    pub text: String,
    /// The faults; at least one.
    pub list: Vec<Fault>,
}

impl Faults {
    pub(crate) fn new(text: &str, mut list: Vec<Fault>) -> Self {
        list.sort_by_key(|fault| fault.span.start);
        list.dedup();
        Self {
            text: text.to_owned(),
            list,
        }
    }

    /// Line and column of a byte of the source, from 1; columns are characters.
    #[must_use]
    pub fn place(&self, at: u32) -> (usize, usize) {
        let before = before(&self.text, at);
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .map_or(0, |line| line.chars().count())
            + 1;
        (line, column)
    }
}

/// The text before a byte, rounded down to a whole character.
fn before(text: &str, at: u32) -> &str {
    let at = text.floor_char_boundary((at as usize).min(text.len()));
    text.get(..at).unwrap_or_default()
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.list.iter().enumerate() {
            let (line, column) = self.place(fault.span.start);
            let shown = self.text.lines().nth(line - 1).unwrap_or_default();
            let wide = before(&self.text, fault.span.end)
                .get(before(&self.text, fault.span.start).len()..)
                .unwrap_or_default()
                .lines()
                .next()
                .map_or(0, |marked| marked.chars().count());
            if index > 0 {
                writeln!(f)?;
            }
            writeln!(f, "{line}:{column}: {}", fault.message)?;
            // Tabs stay tabs, so that the mark stands under what it marks.
            let indent: String = shown
                .chars()
                .take(column - 1)
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            writeln!(f, "    {shown}")?;
            write!(f, "    {indent}{}", "^".repeat(wide.max(1)))?;
            if !fault.help.is_empty() {
                write!(f, "\n    {}", fault.help)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Returns the known name that differs in the fewest letters, if it is like the unknown one at all.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long names are never typed wrong in most of their letters, and comparing takes their product.
    if name.len() > 64 {
        return None;
    }
    known
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= 3)
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|&(distance, candidate)| {
            distance <= name.len().max(candidate.len()).div_ceil(3) && distance < name.len()
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stands_under_the_place() {
        let text = "one\n\ttwo ärger three\n";
        let start = u32::try_from(text.find("three").unwrap()).unwrap();
        let faults = Faults::new(
            text,
            vec![
                Fault::new(
                    Span {
                        start,
                        end: start + 5,
                    },
                    "Three is wrong.",
                )
                .help("Write two."),
            ],
        );
        assert_eq!(
            faults.to_string(),
            "2:12: Three is wrong.\n    \ttwo ärger three\n    \t          ^^^^^\n    Write two."
        );
    }

    #[test]
    fn names_are_likened_to_those_that_differ_least() {
        let known = ["retval", "nsecs", "comm", "cpu", "pid"];
        assert_eq!(nearest("retvla", known), Some("retval"));
        assert_eq!(nearest("nsec", known), Some("nsecs"));
        assert_eq!(nearest("com", known), Some("comm"));
        assert_eq!(nearest("walrus", known), None);
    }
}
