//! The words and phrases that are refused, and the exceptions.

use std::collections::BTreeSet;

use super::Finding;
use super::tokens::{Kind, Piece};

/// A phrase that prose, messages and window texts do not use.
struct Phrase {
    /// Its words, in lower case; alternatives of a word are parted by `|`.
    words: &'static [&'static str],
    say: &'static str,
}

const fn phrase(words: &'static [&'static str], say: &'static str) -> Phrase {
    Phrase { words, say }
}

/// CODE_STYLE.md, "Words to replace".
const PHRASES: &[Phrase] = &[
    phrase(
        &["behind"],
        "after (time, order), below or above (addresses)",
    ),
    phrase(&["whoever|whomever"], "the thread, the CPU, the client"),
    phrase(
        &["who|whom"],
        "the thread, the CPU, the caller; people may be called who",
    ),
    phrase(
        &["nobody|somebody|everybody"],
        "no thread, a client, every CPU",
    ),
    phrase(&["anew"], "again"),
    phrase(&["once", "more"], "again"),
    phrase(&["dear|dearer|dearest"], "expensive, costs more"),
    phrase(&["by", "the", "text"], "from the original code"),
    phrase(
        &["lead|leads|leading|led"],
        "branches to, targets, points to; diverted",
    ),
    phrase(&["make|makes|made|making", "do"], "host, use"),
    phrase(&["go|goes|going|went", "over"], "iterates over, spans"),
    phrase(
        &["run|runs|running|ran", "on"],
        "falls through, continues; executes at (on a CPU)",
    ),
    phrase(&["go|goes|going|went|gone", "on"], "continues"),
    phrase(
        &["told|tell|tells|telling"],
        "reports, records, returns, shows",
    ),
    phrase(&["ask|asks|asked|asking"], "requests, requested"),
    phrase(&["see|sees|saw|seen", "to"], "ensures"),
    phrase(&["no|find|finds|found", "room"], "out of slots, allocates"),
    phrase(&["has|have", "it", "read"], "yields"),
    phrase(&["comes|come|came", "by"], "is reached from"),
    phrase(&["someone"], "the owner"),
];

/// Words that no identifier holds.
const NAMES: &[&str] = &[
    "behind",
    "whoever",
    "who",
    "whose",
    "nobody",
    "somebody",
    "everybody",
    "anew",
    "told",
    "tells",
    "asked",
    "asks",
    "deed",
    "soup",
    "comeback",
    "dearer",
    "dearest",
];

/// Words after which "who" means a person.
const PEOPLE: &[&str] = &[
    "user",
    "users",
    "person",
    "people",
    "author",
    "authors",
    "reader",
    "readers",
    "engineer",
    "engineers",
    "anyone",
    "newcomer",
];

/// Words after which "on" belongs to a place: "runs on a CPU", "runs on Linux".
const PLACES: &[&str] = &[
    "a",
    "an",
    "the",
    "any",
    "every",
    "each",
    "that",
    "this",
    "another",
    "one",
    "two",
    "its",
    "your",
    "all",
    "both",
    "other",
    "linux",
    "debian",
    "cpu",
    "cpus",
    "real",
    "plain",
    "stock",
    "which",
    "files",
    "it",
    "several",
    "whole",
    "machines",
    "kernels",
    "top",
    "your",
    "live",
    "x86",
    "their",
    "different",
    "1",
    "2",
    "6",
];

/// An exception: this file may say this.
struct Allowance {
    path: &'static str,
    word: &'static str,
    /// Printed by no program; it stands here for the reader.
    _reason: &'static str,
}

const fn allow(path: &'static str, word: &'static str, reason: &'static str) -> Allowance {
    Allowance {
        path,
        word,
        _reason: reason,
    }
}

/// A word of `*` allows everything in a file.
const ALLOWANCES: &[Allowance] = &[
    allow("CODE_STYLE.md", "*", "lists the words themselves"),
    allow(
        "xtask/src/language.rs",
        "*",
        "its tests hold what is refused",
    ),
    allow(
        "xtask/src/language/docs.rs",
        "*",
        "lists beginnings of doc comments",
    ),
    allow(
        "xtask/src/language/words.rs",
        "*",
        "lists the words themselves",
    ),
];

/// Checks prose, strings and identifiers of a file.
pub(crate) fn check(
    path: &str,
    pieces: &[Piece],
    used: &mut BTreeSet<usize>,
    findings: &mut BTreeSet<Finding>,
) {
    let mut add = |line: usize, word: &str, message: String| {
        let allowance = ALLOWANCES
            .iter()
            .position(|entry| entry.path == path && (entry.word == "*" || entry.word == word));
        if let Some(index) = allowance {
            used.insert(index);
        } else {
            findings.insert(Finding {
                path: path.to_owned(),
                line,
                message,
            });
        }
    };
    for kind in [Kind::Prose, Kind::Text] {
        let words = prose(pieces, kind);
        for at in 0..words.len() {
            let rest = words.get(at..).unwrap_or_default();
            let before = at.checked_sub(1).and_then(|at| words.get(at));
            for phrase in PHRASES {
                if let Some(said) = matches(phrase, rest, before) {
                    let line = rest.first().map_or(0, |word| word.line);
                    add(line, &said, format!("\"{said}\": say {}", phrase.say));
                }
            }
        }
    }
    let mut named = BTreeSet::new();
    for piece in pieces.iter().filter(|piece| piece.kind == Kind::Code) {
        let names = piece
            .text
            .split(|next: char| !next.is_alphanumeric() && next != '_');
        for name in names {
            let refused = humps(name)
                .into_iter()
                .find(|hump| NAMES.contains(&hump.as_str()));
            if let Some(word) = refused
                && named.insert(name)
            {
                add(
                    piece.line,
                    name,
                    format!("the name `{name}` holds \"{word}\""),
                );
            }
        }
    }
}

/// Refuses exceptions that nothing needs any longer; only where the whole tree was read.
pub(crate) fn check_allowances(used: &BTreeSet<usize>, findings: &mut BTreeSet<Finding>) {
    if used.is_empty() {
        return;
    }
    for (index, entry) in ALLOWANCES.iter().enumerate() {
        if !used.contains(&index) {
            findings.insert(Finding {
                path: "xtask/src/language/words.rs".to_owned(),
                line: 1,
                message: format!(
                    "the exception \"{}\" of {} is not needed",
                    entry.word, entry.path
                ),
            });
        }
    }
}

/// A word of prose, or the end of a sentence's part, which has no letters.
struct Word {
    line: usize,
    text: String,
}

/// Returns the words of the pieces of one kind, in lower case. What parts them keeps phrases apart.
fn prose(pieces: &[Piece], kind: Kind) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let part = |words: &mut Vec<Word>, line| {
        words.push(Word {
            line,
            text: String::new(),
        });
    };
    let mut last = 0;
    for piece in pieces.iter().filter(|piece| piece.kind == kind) {
        if piece.line > last + 1 || kind == Kind::Text && piece.line == last {
            part(&mut words, piece.line);
        }
        last = piece.line;
        let mut is_code = false;
        let mut text = String::new();
        for next in piece.text.chars().chain(" ".chars()) {
            if is_code {
                is_code = !matches!(next, '`' | '}');
            } else if next.is_alphanumeric() || next == '\'' || next == '_' {
                text.push(next);
            } else {
                if !text.is_empty() {
                    words.push(Word {
                        line: piece.line,
                        text: std::mem::take(&mut text).to_lowercase(),
                    });
                }
                is_code = next == '`' || (next == '{' && kind == Kind::Text);
                if !next.is_whitespace() && next != '*' && next != '/' && next != '!' {
                    part(&mut words, piece.line);
                }
            }
        }
    }
    words
}

/// Returns the words that a phrase matches at the beginning of `rest`.
fn matches(phrase: &Phrase, rest: &[Word], before: Option<&Word>) -> Option<String> {
    let mut said = Vec::new();
    for (alternatives, word) in phrase.words.iter().zip(rest) {
        if !alternatives.split('|').any(|other| other == word.text) {
            return None;
        }
        said.push(word.text.as_str());
    }
    if said.len() < phrase.words.len() {
        return None;
    }
    let is = |word: Option<&Word>, list: &[&str]| {
        word.is_some_and(|word| list.contains(&word.text.as_str()))
    };
    match said.as_slice() {
        ["who" | "whom"] if is(before, PEOPLE) => return None,
        ["run" | "runs" | "running" | "ran", "on"] if is(rest.get(2), PLACES) => return None,
        _ => {}
    }
    Some(said.join(" "))
}

/// Returns the words that an identifier is made of, in lower case.
pub(crate) fn humps(name: &str) -> Vec<String> {
    let mut humps: Vec<String> = Vec::new();
    let mut was_lower = false;
    for next in name.chars() {
        if next == '_' {
            humps.push(String::new());
            was_lower = false;
            continue;
        }
        if humps.is_empty() || (next.is_uppercase() && was_lower) {
            humps.push(String::new());
        }
        was_lower = !next.is_uppercase();
        if let Some(last) = humps.last_mut() {
            last.extend(next.to_lowercase());
        }
    }
    humps.retain(|hump| !hump.is_empty());
    humps
}
