//! The reference of the language for terminals and manual pages: `instruments/README.md` without its marks.

pub(crate) mod entries;

/// The README of the language.
const README: &str = include_str!("../../../../instruments/README.md");
/// Its last section, which is about tests of the library.
const NOT_FOR_USERS: &str = "The test of truth";
/// Columns of a line of prose.
const COLUMNS: usize = 100;

/// A line of the reference.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Heading(String),
    Text(String),
}

/// Returns the reference: its headings, prose in lines of at most [`COLUMNS`] columns where words permit, examples
/// indented, and a row of a table as its first cell with the others below.
pub(crate) fn lines() -> Vec<Line> {
    of(README)
}

/// Returns the reference as text.
pub(crate) fn text() -> String {
    let text = lines().into_iter().map(|line| match line {
        Line::Heading(heading) => format!("{}\n", heading.to_uppercase()),
        Line::Text(text) => format!("{text}\n"),
    });
    text.collect()
}

fn of(markdown: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut example = false;
    for line in markdown.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            example = !example;
            // The results of an example follow it.
            let title = match kind {
                "hits" => "  Hits, and what each does:",
                "says" => "  It is refused:",
                _ => "",
            };
            lines.push(Line::Text(title.to_owned()));
        } else if example {
            lines.push(Line::Text(format!("    {line}").trim_end().to_owned()));
        } else if line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim();
            if heading == NOT_FOR_USERS {
                break;
            }
            lines.push(Line::Heading(heading.to_owned()));
        } else if let Some(row) = line.strip_prefix('|') {
            lines.extend(table_row(row));
        } else {
            lines.extend(wrapped(&unlinked(line), ""));
        }
    }
    lines
}

/// Returns a row of a table: its first cell, and the others below; nothing for the rule below the titles.
fn table_row(row: &str) -> Vec<Line> {
    let cells: Vec<String> = cells(row).iter().map(|cell| unlinked(cell)).collect();
    let is_rule = |cell: &String| cell.chars().all(|c| matches!(c, '-' | ':'));
    let Some((first, rest)) = cells.split_first().filter(|_| !cells.iter().all(is_rule)) else {
        return Vec::new();
    };
    let rest = rest.iter().filter(|cell| !cell.is_empty());
    let first = Line::Text(format!("  {first}"));
    let rest = rest.flat_map(|cell| wrapped(cell, "      "));
    std::iter::once(first).chain(rest).collect()
}

/// Splits a row of a table at its bars; one after a backslash is a letter.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut letters = row.trim_end_matches('|').chars().peekable();
    while let Some(letter) = letters.next() {
        let Some(cell) = cells.last_mut() else { break };
        match letter {
            '\\' if letters.peek() == Some(&'|') => cell.extend(letters.next()),
            '|' => cells.push(String::new()),
            letter => cell.push(letter),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// Returns the text without bold marks, and with the texts of links alone.
fn unlinked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        out.push_str(before);
        match link.split_once("](").and_then(|(name, target)| {
            let (_, after) = target.split_once(')')?;
            (!name.contains('[')).then_some((name, after))
        }) {
            Some((name, after)) => {
                out.push_str(name);
                rest = after;
            }
            None => {
                out.push('[');
                rest = link;
            }
        }
    }
    out.push_str(rest);
    out.replace("**", "")
}

/// Returns a paragraph in lines, each after `indent`.
fn wrapped(paragraph: &str, indent: &str) -> Vec<Line> {
    let mut lines = vec![String::from(indent)];
    for word in paragraph.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let is_empty = line.len() == indent.len();
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("{indent}{word}"));
        } else {
            line.push_str(if is_empty { "" } else { " " });
            line.push_str(word);
        }
    }
    let end = |line: String| Line::Text(line.trim_end().to_owned());
    lines.into_iter().map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_text() {
        let text = |text: &str| Line::Text(text.to_owned());
        let long = format!("{} end", "word ".repeat(20).trim());
        let markdown = format!(
            "## A **part**\n\nSee [the page](a.md#b), `@a[k]`.\n\n| word | value |\n|---|---|\n| `a \\| b` | or |\n\n\
             ```gilk\nhit {{ }}\n```\n\n{long}\n"
        );
        let expected = [
            Line::Heading("A **part**".to_owned()),
            text(""),
            text("See the page, `@a[k]`."),
            text(""),
            text("  word"),
            text("      value"),
            text("  `a | b`"),
            text("      or"),
            text(""),
            text(""),
            text("    hit { }"),
            text(""),
            text(""),
            text("word ".repeat(20).trim()),
            text("end"),
        ];
        assert_eq!(of(&markdown), expected);
    }

    #[test]
    fn the_reference_has_every_section_but_that_of_tests() {
        let text = text();
        for part in ["VALUES OF THE MACHINE", "\nKEYS\n", "    entry / arg2"] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("TEST OF TRUTH") && !text.contains("```"));
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest < Some(250), "{longest:?}");
    }
}
