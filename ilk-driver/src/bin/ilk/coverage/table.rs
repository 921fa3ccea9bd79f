//! The table of a kernel's coverage, as text and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use gilk_engine::placement::Tactic;
use gilk_engine::placement::coverage::{Counts, Coverage};
use gilk_samples::chart::scale::counted;
use serde_json::{Value, json};

/// Counts of one kernel.
pub(super) struct Table {
    /// The target: `Linux 6.1.0`, or a file.
    pub(super) title: String,
    /// True of a kernel.
    pub(super) boots: bool,
    /// `uname -r`; of a program or library, its file.
    pub(super) release: String,
    /// True if the kernel ran when it was read.
    pub(super) live: bool,
    /// Tactics that were switched off.
    pub(super) without: Vec<Tactic>,
    /// Points, each as if it were alone in a session.
    pub(super) alone: Coverage,
    /// Pre-hooks, all in one session with all post-hooks.
    pub(super) pre: Counts,
    /// Post-hooks, all in one session with all pre-hooks.
    pub(super) post: Counts,
    /// Number of splices of that session.
    pub(super) sites: u64,
    /// Number of bounces of that session.
    pub(super) bounces: u64,
    /// The files, if there are several, each with a session of its own.
    pub(super) files: Option<Files>,
}

/// Numbers of files.
pub(super) struct Files {
    /// Number of those in the counts.
    pub(super) read: usize,
    /// Number of those that are too large.
    pub(super) large: usize,
    /// The reasons why others could not be read.
    pub(super) unread: Vec<String>,
}

/// Characters before the first column.
const LABEL: usize = 22;
/// Characters of a column.
const COLUMN: usize = 20;

impl Table {
    /// Adds the counts of another.
    pub(super) fn merge(&mut self, other: &Self) {
        self.alone.merge(&other.alone);
        self.pre.merge(&other.pre);
        self.post.merge(&other.post);
        self.sites += other.sites;
        self.bounces += other.bounces;
    }

    /// The columns: two lines of heading, and the counts.
    fn columns(&self) -> [(&'static str, &'static str, &Counts); 5] {
        [
            ("pre-hooks", "one at a time", &self.alone.pre),
            ("pre-hooks", "all at once", &self.pre),
            ("post-hooks", "one at a time", &self.alone.post),
            ("post-hooks", "all at once", &self.post),
            ("any instruction", "one at a time", &self.alone.instructions),
        ]
    }

    /// The table as text.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let result = self.write(&mut out);
        debug_assert!(result.is_ok(), "writing to a string does not fail");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let alone = &self.alone;
        writeln!(
            out,
            "{}: {}, {}, {} in them.",
            self.title,
            counted(alone.functions, "function"),
            counted(alone.pre.all(), "reachable block"),
            counted(alone.instructions.all(), "instruction")
        )?;
        if let Some(Files { large, unread, .. }) = &self.files {
            if *large > 0 {
                writeln!(out, "Left out: {large} larger files.")?;
            }
            for why in unread {
                writeln!(out, "Not read: {why}")?;
            }
        }
        if !self.live && self.boots {
            writeln!(
                out,
                "This is a file, not a running kernel: code that boot would rewrite, returns for example, \
                 counts as refused. A kernel saved by `ilk dump` has more."
            )?;
        }
        if !self.without.is_empty() {
            let names = self.without.iter().map(|tactic| tactic.name());
            writeln!(out, "Without: {}.", names.collect::<Vec<_>>().join(", "))?;
        }
        for (rule, refused) in &alone.refused {
            writeln!(
                out,
                "Left out: {} of {} ({:.3} % of all), {rule}.",
                counted(refused.functions, "function"),
                counted(refused.bytes, "byte"),
                refused.bytes as f64 * 100.0 / alone.bytes.max(1) as f64
            )?;
        }
        let pre = &alone.pre;
        let with = (pre.all() + alone.trampolines).max(1);
        writeln!(
            out,
            "Left out: {} trampolines of static calls, which the kernel rewrites as a whole (with \
             them {:.3} % of the blocks have a pre-hook).",
            grouped(alone.trampolines),
            pre.reached() as f64 * 100.0 / with as f64
        )?;
        writeln!(
            out,
            "Left out: {}.",
            counted(alone.unreachable, "unreachable block")
        )?;
        writeln!(
            out,
            "All at once: {} and {}.\n",
            counted(self.sites, "splice"),
            counted(self.bounces, "bounce")
        )?;
        for heading in [0, 1] {
            write!(out, "{:LABEL$}", "")?;
            for (first, second, _) in self.columns() {
                let word = if heading == 0 { first } else { second };
                write!(out, "{word:>COLUMN$}")?;
            }
            writeln!(out)?;
        }
        let tactics: BTreeSet<_> = self.keys(|counts| &counts.by_tactic);
        for tactic in tactics {
            self.row(out, tactic.name(), |counts| {
                counts.by_tactic.get(&tactic).copied().unwrap_or(0)
            })?;
        }
        self.row(out, "can be hooked", Counts::reached)?;
        writeln!(out)?;
        let rules: BTreeSet<_> = self.keys(|counts| &counts.by_rule);
        for rule in rules {
            self.row(out, rule.name(), |counts| {
                counts.by_rule.get(&rule).copied().unwrap_or(0)
            })?;
        }
        self.row(out, "refused", |counts| counts.all() - counts.reached())
    }

    fn keys<K: Ord + Copy>(&self, of: impl Fn(&Counts) -> &BTreeMap<K, u64>) -> BTreeSet<K> {
        self.columns()
            .iter()
            .flat_map(|(_, _, counts)| of(counts).keys().copied())
            .collect()
    }

    fn row(
        &self,
        out: &mut String,
        label: &str,
        count: impl Fn(&Counts) -> u64,
    ) -> std::fmt::Result {
        write!(out, "{label:LABEL$}")?;
        for (_, _, counts) in self.columns() {
            let number = count(counts);
            let cell = match (number, counts.all()) {
                (0, _) | (_, 0) => "·".to_owned(),
                (_, all) => {
                    let percent = number as f64 * 100.0 / all as f64;
                    format!("{} {percent:>7.3} %", grouped(number))
                }
            };
            write!(out, "{cell:>COLUMN$}")?;
        }
        writeln!(out)
    }

    /// The table as JSON. Names are those of the text, numbers are counts.
    pub(super) fn json(&self) -> Value {
        let alone = &self.alone;
        let left_out: BTreeMap<&str, Value> = alone
            .refused
            .iter()
            .map(|(rule, refused)| {
                let counts = json!({ "functions": refused.functions, "bytes": refused.bytes });
                (rule.name(), counts)
            })
            .collect();
        json!({
            "release": self.release,
            "files": self.files.as_ref().map(|Files { read, large, unread }| {
                json!({ "read": read, "large": large, "unread": unread })
            }),
            "live": self.live,
            "without": self.without.iter().map(|tactic| tactic.name()).collect::<Vec<_>>(),
            "functions": alone.functions,
            "bytes": alone.bytes,
            "blocks": alone.pre.all(),
            "instructions": alone.instructions.all(),
            "left_out": { "functions": left_out, "trampolines": alone.trampolines, "unreachable_blocks": alone.unreachable },
            "all_at_once": { "splices": self.sites, "bounces": self.bounces },
            "pre": { "one_at_a_time": counts(&alone.pre), "all_at_once": counts(&self.pre) },
            "post": { "one_at_a_time": counts(&alone.post), "all_at_once": counts(&self.post) },
            "instruction": { "one_at_a_time": counts(&alone.instructions) },
        })
    }
}

fn counts(counts: &Counts) -> Value {
    let tactics: BTreeMap<&str, u64> = counts
        .by_tactic
        .iter()
        .map(|(tactic, &count)| (tactic.name(), count))
        .collect();
    let rules: BTreeMap<&str, u64> = counts
        .by_rule
        .iter()
        .map(|(rule, &count)| (rule.name(), count))
        .collect();
    json!({
        "all": counts.all(),
        "hookable": counts.reached(),
        "tactics": tactics,
        "rules": rules,
    })
}

/// Formats a number with a comma between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use gilk_engine::Rule;
    use gilk_engine::placement::coverage::Refused;

    use super::*;

    const REFUSED: Refused = Refused {
        functions: 2,
        bytes: 1_000,
    };

    fn example() -> Table {
        let some = Counts {
            by_tactic: BTreeMap::from([(Tactic::DirectSplice, 1500), (Tactic::Trap, 1)]),
            by_rule: BTreeMap::from([(Rule::MayFault, 499)]),
        };
        Table {
            title: "Linux 6.1.0".into(),
            boots: true,
            release: "6.1.0".into(),
            live: true,
            without: vec![Tactic::Edges],
            alone: Coverage {
                functions: 3,
                bytes: 40_000,
                refused: [(Rule::JumpUnknown, REFUSED)].into(),
                pre: some.clone(),
                ..Coverage::default()
            },
            pre: some,
            post: Counts::default(),
            sites: 1501,
            bounces: 0,
            files: None,
        }
    }

    #[test]
    fn the_text_has_every_tactic_and_every_rule() {
        let text = example().text();
        let row = |label: &str| {
            let line = text.lines().find(|line| line.starts_with(label));
            line.unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            row("direct splice"),
            "direct splice 1,500 75.000 % 1,500 75.000 % · · ·"
        );
        assert_eq!(row("int3"), "int3 1 0.050 % 1 0.050 % · · ·");
        assert_eq!(
            row("may-fault"),
            "may-fault 499 24.950 % 499 24.950 % · · ·"
        );
        assert_eq!(row("refused"), "refused 499 24.950 % 499 24.950 % · · ·");
        assert!(text.contains("3 functions, 2,000 reachable blocks"));
        let refused = "Left out: 2 functions of 1,000 bytes (2.500 % of all), jump-unknown.";
        assert!(text.contains(refused), "{text}");
        assert!(text.contains("Without: edges."));
    }

    #[test]
    fn json_has_the_same_numbers() {
        let json = example().json();
        assert_eq!(json["pre"]["all_at_once"]["tactics"]["int3"], 1);
        assert_eq!(json["pre"]["one_at_a_time"]["hookable"], 1501);
        assert_eq!(json["pre"]["one_at_a_time"]["rules"]["may-fault"], 499);
        assert_eq!(json["blocks"], 2000);
        assert_eq!(json["bytes"], 40_000);
        assert_eq!(
            json["left_out"]["functions"]["jump-unknown"]["bytes"],
            1_000
        );
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
