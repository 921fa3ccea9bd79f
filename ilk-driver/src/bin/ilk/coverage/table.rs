//! The table of a kernel's coverage, as text and JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use gilk_engine::placement::coverage::{Counts, Coverage};
use serde_json::{Value, json};

/// The counts of a kernel.
pub(super) struct Table {
    /// The kernel's release.
    pub(super) release: String,
    /// The image was read from a running kernel.
    pub(super) live: bool,
    /// Each hook by itself.
    pub(super) alone: Coverage,
    /// Pre-hooks, together with all post-hooks.
    pub(super) pre: Counts,
    /// Post-hooks, together with all pre-hooks.
    pub(super) post: Counts,
    /// Number of splices for all hooks together.
    pub(super) sites: u64,
    /// Number of bounces for all hooks together.
    pub(super) bounces: u64,
}

/// Width of the row labels.
const LABEL: usize = 22;
/// Width of a column.
const COLUMN: usize = 20;

impl Table {
    /// Returns the columns: two lines of heading, and the counts.
    fn columns(&self) -> [(&'static str, &'static str, &Counts); 5] {
        [
            ("pre-hooks", "one at a time", &self.alone.pre),
            ("pre-hooks", "all at once", &self.pre),
            ("post-hooks", "one at a time", &self.alone.post),
            ("post-hooks", "all at once", &self.post),
            ("any instruction", "one at a time", &self.alone.instructions),
        ]
    }

    /// Returns the table as text.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _infallible = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let alone = &self.alone;
        writeln!(
            out,
            "Linux {}: {} functions, {} reachable blocks, {} instructions in them.",
            self.release,
            grouped(alone.functions),
            grouped(alone.pre.all()),
            grouped(alone.instructions.all())
        )?;
        if !self.live {
            writeln!(
                out,
                "This kernel is read from a file: code that boot would rewrite, for example returns, counts \
                 as refused. A kernel saved by `ilk dump` has fewer refusals."
            )?;
        }
        for (rule, refused) in &alone.refused {
            writeln!(
                out,
                "Left out: {} functions of {} bytes, {rule}.",
                grouped(refused.functions),
                grouped(refused.bytes)
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
            "Left out: {} unreachable blocks.",
            grouped(alone.unreachable)
        )?;
        writeln!(
            out,
            "All at once: {} splices and {} bounces.\n",
            grouped(self.sites),
            grouped(self.bounces)
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

    /// Returns the table as JSON. Keys are the names in the table, values are counts.
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
            "live": self.live,
            "functions": alone.functions,
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

/// Formats a number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use gilk_engine::Rule;
    use gilk_engine::placement::Tactic;

    use super::*;

    fn example() -> Table {
        let some = Counts {
            by_tactic: BTreeMap::from([(Tactic::DirectSplice, 1500), (Tactic::Trap, 1)]),
            by_rule: BTreeMap::from([(Rule::MayFault, 499)]),
        };
        Table {
            release: "6.1.0".into(),
            live: true,
            alone: Coverage {
                functions: 3,
                pre: some.clone(),
                ..Coverage::default()
            },
            pre: some,
            post: Counts::default(),
            sites: 1501,
            bounces: 0,
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
        assert!(text.contains("3 functions, 2,000 blocks"));
    }

    #[test]
    fn the_json_has_the_same_numbers() {
        let json = example().json();
        assert_eq!(json["pre"]["all_at_once"]["tactics"]["int3"], 1);
        assert_eq!(json["pre"]["one_at_a_time"]["hookable"], 1501);
        assert_eq!(json["pre"]["one_at_a_time"]["rules"]["may-fault"], 499);
        assert_eq!(json["blocks"], 2000);
    }

    #[test]
    fn thousands_are_separated_by_commas() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
