//! All that an editor shows of a text while it is typed: colours, faults, what it costs, where it can be
//! placed. One call a change; a source is at most 64 KiB, and this takes under a millisecond for one of
//! the library's.

use crate::program::{Checked, Cost, Probe, Span};
use crate::source::{Class, highlight};
use crate::{Context, Definition, Error, Fault, Faults, Source};

/// A text that is being written, looked at once.
#[derive(Clone, Debug)]
pub struct Edited {
    /// Its coloured stretches, in order, right or wrong; white space is in none of them.
    pub colours: Vec<(Span, Class)>,
    /// The instrument, if there is nothing wrong with it.
    pub good: Option<Good>,
    /// Faults in the order of the source; empty if `good` is there.
    pub faults: Vec<Marked>,
}

/// An instrument that can be placed.
#[derive(Clone, Debug)]
pub struct Good {
    /// As the library holds its own: name, summary, unit, meaning, where it stands.
    pub definition: Definition,
    /// The program for the function of the context.
    pub checked: Checked,
    /// Each probe's head (`entry:__schedule`), with its line if several have the same, and what a hit of
    /// it costs at most.
    pub costs: Vec<(String, Cost)>,
    /// The text in the common layout.
    pub formatted: String,
}

/// A fault with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The fault, with the span to mark and a suggestion.
    pub fault: Fault,
}

impl Edited {
    /// Looks at a text. `context` says the kernel's types and the function, as far as they are known; a
    /// text that names arguments is wrong without them.
    #[must_use]
    pub fn look(text: &str, context: &Context<'_>) -> Self {
        let (good, faults) = match good(text, context) {
            Ok(good) => (Some(good), Vec::new()),
            Err(faults) => (None, marked(&faults)),
        };
        Self {
            colours: highlight(text),
            good,
            faults,
        }
    }
}

fn good(text: &str, context: &Context<'_>) -> Result<Good, Faults> {
    let checked = Source::parse(text)?.check(context)?;
    let definition = Definition::from_source("", text).map_err(|error| match error {
        Error::Source { faults, .. } => faults,
        _ => nameless(text),
    })?;
    let head = |probe: &Probe| {
        let of = probe.function.iter().map(|name| format!(":{name}"));
        format!("{}{}", probe.hook, of.collect::<String>())
    };
    let costs = checked.probes.iter().map(|probe| {
        let mut words = head(probe);
        if checked
            .probes
            .iter()
            .filter(|other| head(other) == words)
            .count()
            > 1
        {
            // Probes at the same hook differ by their lines.
            words += &format!(" on line {}", line(text, probe.span));
        }
        (words, checked.cost(probe))
    });
    Ok(Good {
        costs: costs.collect(),
        formatted: Source::parse(text)?.formatted(),
        definition,
        checked,
    })
}

/// Returns the line, from 1, on which a span begins.
fn line(text: &str, span: Span) -> usize {
    let before = text.bytes().take(span.start as usize);
    before.filter(|&byte| byte == b'\n').count() + 1
}

/// A source that can be tried, but not placed.
fn nameless(text: &str) -> Faults {
    let fault = Fault::new(Span::default(), "The instrument has no name.").help(
        "Begin with `instrument my-name \"What it does.\";`: lower-case letters, digits and dashes.",
    );
    Faults::new(text, vec![fault])
}

fn marked(faults: &Faults) -> Vec<Marked> {
    let mark = |fault: &Fault| {
        let (line, column) = faults.place(fault.span.start);
        Marked {
            line,
            column,
            fault: fault.clone(),
        }
    };
    faults.list.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Library, Stand};

    #[test]
    fn every_text_of_the_library_is_good_as_it_stands() {
        for known in Library::builtin().unwrap().iter() {
            let Some(text) = known.text() else { continue };
            let edited = Edited::look(text, &Context::default());
            assert_eq!(edited.faults, []);
            let good = edited.good.unwrap();
            assert_eq!(good.definition, *known);
            assert_eq!(good.formatted, text);
            assert_eq!(good.costs.len(), good.checked.probes.len());
        }
    }

    #[test]
    fn what_is_wrong_has_a_place_and_colours() {
        let text =
            "instrument mine \"Mine.\";\n\nentry:__schedule { sample(tsc) }\nhit { sample(czu) }\n";
        let edited = Edited::look(text, &Context::default());
        assert!(edited.good.is_none());
        let [only] = edited.faults.as_slice() else {
            panic!("{:?}", edited.faults)
        };
        assert_eq!((only.line, only.column), (4, 14));
        assert!(only.fault.help.contains("cpu"), "{only:?}");
        let good = Edited::look(&text.replace("czu", "cpu"), &Context::default())
            .good
            .unwrap();
        assert_eq!(good.definition.stand(), Stand::Hook);
        let heads: Vec<_> = good.costs.iter().map(|(head, _)| head.as_str()).collect();
        assert_eq!(heads, ["entry:__schedule", "hit"]);
        assert!(
            edited
                .colours
                .iter()
                .any(|(_, class)| *class == Class::Hook)
        );
    }

    #[test]
    fn a_replacement_in_place_of_the_span_mends_the_text() {
        let head = "instrument mine \"Mine.\"";
        let wrong = [
            format!("{head};\n\nhit {{ sample(czu) }}\n"),
            format!(
                "{head};\n\ncall @start;\n\nentry {{ @start = tsc }}\nreturn {{ sample(tsc - @strt) }}\n"
            ),
            format!("{head} evnt;\n\nhit {{ sample(tsc) }}\n"),
            format!("{head};\n\nentri {{ sample(tsc) }}\n"),
        ];
        for text in wrong {
            let edited = Edited::look(&text, &Context::default());
            let fault = &edited.faults.first().unwrap().fault;
            let replacement = fault.replacement.as_deref();
            let replacement = replacement.unwrap_or_else(|| panic!("{text}: {fault:?}"));
            assert!(fault.help.contains(replacement), "{fault:?}");
            let span = fault.span.start as usize..fault.span.end as usize;
            let mut mended = text.clone();
            mended.replace_range(span, replacement);
            let again = Edited::look(&mended, &Context::default());
            assert_eq!(again.faults, [], "{mended}");
        }
    }

    #[test]
    fn a_text_without_a_name_cannot_be_placed() {
        let edited = Edited::look("hit { sample(cpu) }", &Context::default());
        let [only] = edited.faults.as_slice() else {
            panic!("{:?}", edited.faults)
        };
        assert!(only.fault.message.contains("no name"), "{only:?}");
        assert_eq!((only.line, only.column), (1, 1));
    }
}
