//! The manual: its sections, a search through them, and links to other sections and to commands.

pub(crate) mod view;

use std::ops::Range;
use std::sync::LazyLock;

use crate::command::Command;

/// Its text: sections begin with `# Title`; `[words](Title)` is a link to a section, and
/// `[words](!Name)` one that executes a command of a menu, by its name.
const TEXT: &str = include_str!("../manual.md");

/// State of the open manual.
#[derive(Clone, Debug, Default)]
pub struct Manual {
    /// Letters that are searched.
    pub search: String,
    /// Title of the section to scroll to.
    scroll_to: Option<&'static str>,
}

/// A part of a paragraph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Text(&'static str),
    /// Words and their target.
    Link(&'static str, &'static str),
}

/// Titles, with their paragraphs.
type Sections = Vec<(&'static str, Vec<&'static str>)>;

/// Returns the sections; the text is read once.
fn sections() -> &'static Sections {
    static SECTIONS: LazyLock<Sections> = LazyLock::new(read);
    &SECTIONS
}

fn read() -> Sections {
    let mut sections: Sections = Vec::new();
    for part in TEXT.split("\n\n").map(str::trim) {
        match (part.strip_prefix("# "), sections.last_mut()) {
            (Some(title), _) => sections.push((title, Vec::new())),
            (None, Some((_, paragraphs))) => paragraphs.push(part),
            (None, None) => debug_assert!(part.is_empty(), "text before the first title"),
        }
    }
    sections
}

/// Divides a paragraph at its links.
fn parts(paragraph: &'static str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = paragraph;
    while let Some((before, link, after)) = next_link(rest) {
        parts.push(Part::Text(before));
        parts.push(link);
        rest = after;
    }
    parts.push(Part::Text(rest));
    parts
}

fn next_link(text: &'static str) -> Option<(&'static str, Part, &'static str)> {
    let (words, rest) = text.split_once("](")?;
    let (before, words) = words.rsplit_once('[')?;
    let (target, after) = rest.split_once(')')?;
    Some((before, Part::Link(words, target), after))
}

/// Returns the text of a paragraph as it is shown.
fn shown(paragraph: &'static str) -> String {
    let parts = parts(paragraph).into_iter();
    parts
        .map(|part| match part {
            Part::Text(words) | Part::Link(words, _) => words,
        })
        .collect()
}

/// Returns the ranges of `text` that match `wanted`, which is in lower case.
fn matches(text: &str, wanted: &str) -> Vec<Range<usize>> {
    if wanted.is_empty() {
        return Vec::new();
    }
    // The manual is ASCII but for its quotes, so that lower case keeps the places.
    let lower = text.to_ascii_lowercase();
    let found = lower.match_indices(wanted);
    found.map(|(at, _)| at..at + wanted.len()).collect()
}

/// Returns the command of a menu with this name.
fn command(name: &str) -> Option<Command> {
    Command::listed().find(|one| one.name() == name).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_of_the_manual_has_a_target() {
        let all = sections();
        let mut links = 0;
        for (_, paragraphs) in all {
            for part in paragraphs.iter().flat_map(|paragraph| parts(paragraph)) {
                let Part::Link(words, target) = part else {
                    continue;
                };
                links += 1;
                let is_known = match target.strip_prefix('!') {
                    Some(name) => command(name).is_some(),
                    None => all.iter().any(|(title, _)| *title == target),
                };
                assert!(is_known, "[{words}]({target})");
            }
        }
        assert!(links >= 12, "{links}");
    }

    #[test]
    fn a_paragraph_is_its_text_and_its_links() {
        let text = "Press [here](!Tour) or [there](Targets).";
        let expected = [
            Part::Text("Press "),
            Part::Link("here", "!Tour"),
            Part::Text(" or "),
            Part::Link("there", "Targets"),
            Part::Text("."),
        ];
        assert_eq!(parts(text), expected);
        assert_eq!(shown(text), "Press here or there.");
        assert_eq!(matches("Add, add", "add"), [0..3, 5..8]);
    }
}
