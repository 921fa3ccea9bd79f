//! The entries of a word in the reference: rows of tables and paragraphs that begin with it, with their examples.

use std::collections::BTreeSet;

use super::{Line, NOT_FOR_USERS, README, cells, table_row, unlinked, wrapped};

/// The comparison with bpftrace, whose tables have its words and those of this language.
const BPFTRACE: &str = include_str!("../../../../../docs/bpftrace.md");

/// The entries of a word in one section.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entries {
    /// The heading of the section.
    pub(crate) section: String,
    pub(crate) lines: Vec<Line>,
}

/// Returns the entries of a word in the reference, then in the comparison with bpftrace.
pub(crate) fn entries(word: &str) -> Vec<Entries> {
    let mut all = of(README, word, Cells::First);
    // Words of the terminal's blocks and of some probes stand there only, beside what bpftrace has.
    let by = if all.is_empty() {
        Cells::All
    } else {
        Cells::First
    };
    all.extend(of(BPFTRACE, word, by).into_iter().map(|found| Entries {
        section: format!("Beside bpftrace: {}", found.section),
        ..found
    }));
    all
}

/// Returns all words that have an entry.
pub(crate) fn words() -> BTreeSet<&'static str> {
    let rows = |markdown: &'static str| {
        let rows = users_part(markdown).lines();
        rows.filter(|line| line.starts_with('|')).flat_map(named_in)
    };
    rows(README).chain(rows(BPFTRACE)).collect()
}

/// The cells of a row that its entry is found by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cells {
    First,
    All,
}

fn users_part(markdown: &str) -> &str {
    let end = markdown.find(&format!("## {NOT_FOR_USERS}"));
    end.and_then(|end| markdown.get(..end)).unwrap_or(markdown)
}

fn of(markdown: &str, word: &str, by: Cells) -> Vec<Entries> {
    let mut found: Vec<Entries> = Vec::new();
    let mut section = String::new();
    let mut add = |section: &str, lines: Vec<Line>| match found.last_mut() {
        Some(last) if last.section == section => last.lines.extend(lines),
        _ => found.push(Entries {
            section: section.to_owned(),
            lines,
        }),
    };
    // The examples of an entry follow it.
    let (mut is_example, mut is_of_word) = (false, false);
    for line in users_part(markdown).lines() {
        if let Some(kind) = line.strip_prefix("```") {
            is_example = !is_example;
            if is_of_word && is_example {
                let title = match kind {
                    "hits" => "  Hits, and what each does:",
                    "says" => "  It is refused:",
                    _ => "",
                };
                add(&section, vec![Line::Text(title.to_owned())]);
            }
        } else if is_example {
            if is_of_word {
                let line = format!("    {line}");
                add(&section, vec![Line::Text(line.trim_end().to_owned())]);
            }
        } else if line.starts_with('#') {
            section = line.trim_start_matches('#').trim().to_owned();
            is_of_word = false;
        } else if let Some(row) = line.strip_prefix('|') {
            let first = cells(row).first().cloned().unwrap_or_default();
            let searched = if by == Cells::First { &first } else { row };
            if named_in(searched).any(|named| named == word) {
                add(&section, table_row(row));
            }
        } else if !line.is_empty() {
            let text = line.trim_start_matches("- ");
            let begins = text.starts_with('`') || text.starts_with("**");
            is_of_word = begins && beginning(text).any(|named| named == word);
            if is_of_word {
                add(&section, wrapped(&unlinked(line), "  "));
            }
        }
    }
    found
}

/// Returns the words in the codes that a paragraph begins with: of "`a`, `b` and `c` are …" those of three. All of it is the
/// beginning of one that has a bold title.
fn beginning(text: &str) -> impl Iterator<Item = &str> {
    let mut end = if text.starts_with('`') { 0 } else { text.len() };
    while let Some(rest) = text.get(end..) {
        let code = [", ", " and ", " or ", ""].iter().find_map(|between| {
            let code = rest.strip_prefix(between)?.strip_prefix('`')?;
            Some(between.len() + 2 + code.find('`')?)
        });
        match code {
            Some(length) => end += length,
            None => break,
        }
    }
    named_in(text.get(..end).unwrap_or(text))
}

/// Returns the words in code between backticks: names of more than one letter, but for those of variables.
fn named_in(text: &str) -> impl Iterator<Item = &str> {
    let codes = text.split('`').skip(1).step_by(2);
    codes.flat_map(|code| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        code.split(move |c| !is_letter(c) && !matches!(c, '@' | '$'))
            .filter(|word| word.len() > 1 && word.starts_with(|c: char| c.is_ascii_alphabetic()))
    })
}

#[cfg(test)]
mod tests {
    use gilk_instruments::source::words::WORDS;

    use super::*;

    #[test]
    fn an_entry_is_a_row_or_a_paragraph_with_its_examples() {
        let markdown = "## Values\n\n| word | value |\n|---|---|\n| `pid`, `tid` | numbers |\n| `@a = sum(x)` | `pid` |\n\n\
            `printf(\"%d\", pid)` and `sum` deliver lines:\n\n```gilk\nhit { }\n```\n\nOthers name `printf` later.\n\n\
            ```gilk\nentry { }\n```\n";
        let text = |word, by| {
            let found = of(markdown, word, by).into_iter();
            let lines = found.flat_map(|entries| entries.lines);
            let lines = lines.map(|line| match line {
                Line::Heading(text) | Line::Text(text) => text,
            });
            lines.collect::<Vec<String>>()
        };
        assert_eq!(
            text("tid", Cells::First),
            ["  `pid`, `tid`", "      numbers"]
        );
        let printf = [
            "  `printf(\"%d\", pid)` and `sum` deliver lines:",
            "",
            "    hit { }",
        ];
        assert_eq!(text("printf", Cells::First), printf);
        assert_eq!(
            text("sum", Cells::First)[..2],
            ["  `@a = sum(x)`", "      `pid`"]
        );
        assert_eq!(text("sum", Cells::First)[2..], printf);
        assert_eq!(text("pid", Cells::All).len(), 7);
        assert!(text("a", Cells::All).is_empty());
    }

    #[test]
    fn every_word_of_the_language_but_plain_ones_has_an_entry() {
        let without = WORDS.iter().filter(|word| entries(word.word).is_empty());
        let without: Vec<&str> = without.map(|word| word.word).collect();
        assert_eq!(without, Vec::<&str>::new());
        for word in ["counter", "kprobe", "interval", "begin", "arg0"] {
            assert!(
                !entries(word).is_empty() && words().contains(word),
                "{word}"
            );
        }
    }
}
