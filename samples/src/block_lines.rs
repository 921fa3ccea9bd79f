//! Source lines of the blocks that instruments stand at.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Source lines by the packed identifiers of instruments, where they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLines {
    files: Vec<String>,
    /// The index of the file, and the line.
    lines: BTreeMap<u64, (u32, u32)>,
}

impl BlockLines {
    /// Returns whether no line is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Adds the line of an instrument.
    pub fn insert(&mut self, id: u64, file: &str, line: u32) {
        // The instruments of a function are added one after the other.
        let known = self.files.iter().rposition(|known| known == file);
        let number = known.unwrap_or_else(|| {
            self.files.push(file.to_owned());
            self.files.len() - 1
        });
        if let Ok(number) = u32::try_from(number) {
            self.lines.insert(id, (number, line));
        }
    }

    /// Returns the line of an instrument: `parse.c:120`.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<String> {
        let (number, line) = self.lines.get(&id)?;
        let file = self.files.get(usize::try_from(*number).ok()?)?;
        Some(format!("{file}:{line}"))
    }

    /// Adds the lines of others, whose identifiers become others.
    pub(crate) fn append(&mut self, other: &Self, renumbered: impl Fn(u64) -> u64) {
        for (id, (number, line)) in &other.lines {
            let file = usize::try_from(*number)
                .ok()
                .and_then(|at| other.files.get(at));
            if let Some(file) = file {
                self.insert(renumbered(*id), file, *line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_by_instrument_and_renumbered() {
        let mut lines = BlockLines::default();
        assert!(lines.is_empty());
        lines.insert(7, "a.c", 12);
        lines.insert(9, "b.h", 3);
        lines.insert(8, "a.c", 13);
        let mut all = BlockLines::default();
        all.insert(8, "b.h", 1);
        all.append(&lines, |id| id + 100);
        let shown = [107, 108, 109, 8, 7].map(|id| all.get(id));
        let expected = [
            Some("a.c:12"),
            Some("a.c:13"),
            Some("b.h:3"),
            Some("b.h:1"),
            None,
        ];
        assert_eq!(shown, expected.map(|line| line.map(str::to_owned)));
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<BlockLines>(&text).unwrap(), all);
        // A file that is damaged has no line where it names none.
        let text = r#"{"files":[],"lines":{"1":[3,4]}}"#;
        let damaged: BlockLines = serde_json::from_str(text).unwrap();
        assert_eq!(damaged.get(1), None);
    }
}
