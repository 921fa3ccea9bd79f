//! The table of a kernel's coverage, for people and for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use gilk_engine::placement::coverage::{Counts, Coverage};
use serde_json::{Value, json};

/// What was counted.
pub(super) struct Table {
    /// `uname -r`.
    pub(super) release: String,
    /// Whether it ran when it was read.
    pub(super) live: bool,
    /// Each point as if it were alone.
    pub(super) alone: Coverage,
    /// Pre-hooks, all at once with all post-hooks.
    pub(super) pre: Counts,
    /// Post-hooks, all at once with all pre-hooks.
    pub(super) post: Counts,
    /// Splices of all at once.
    pub(super) sites: u64,
    /// Bounces of all at once.
    pub(super) bounces: u64,
}

/// Characters before the first column.
const LABEL: usize = 22;
/// Characters of a column.
const COLUMN: usize = 20;

impl Table {
    /// What stands in the columns: two words of heading, the counts.
    fn columns(&self) -> [(&'static str, &'static str, &Counts); 5] {
        [
            ("pre-hooks", "one at a time", &self.alone.pre),
            ("pre-hooks", "all at once", &self.pre),
            ("post-hooks", "one at a time", &self.alone.post),
            ("post-hooks", "all at once", &self.post),
            ("any instruction", "one at a time", &self.alone.instructions),
        ]
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let alone = &self.alone;
        writeln!(
            out,
            "Linux {}: {} functions, {} blocks that can be reached, {} instructions in them.",
            self.release,
            grouped(alone.functions),
            grouped(alone.pre.all()),
            grouped(alone.instructions.all())
        )?;
        if !self.live {
            writeln!(
                out,
                "This is a file that does not run: what boot would rewrite, returns for example, counts \
                 as refused. A kernel that `ilk dump` saved has more."
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
            "Left out: {} blocks that nothing leads to.",
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
            let some = count(counts);
            let cell = match (some, counts.all()) {
                (0, _) | (_, 0) => "·".to_owned(),
                (_, all) => {
                    let percent = some as f64 * 100.0 / all as f64;
                    format!("{} {percent:>7.3} %", grouped(some))
                }
            };
            write!(out, "{cell:>COLUMN$}")?;
        }
        writeln!(out)
    }

    /// For programs. Names are those of the table, numbers are counts.
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

/// A number with a comma between its thousands.
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
    fn the_text_has_every_method_and_every_rule() {
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
    fn programs_read_the_same_numbers() {
        let json = example().json();
        assert_eq!(json["pre"]["all_at_once"]["tactics"]["int3"], 1);
        assert_eq!(json["pre"]["one_at_a_time"]["hookable"], 1501);
        assert_eq!(json["pre"]["one_at_a_time"]["rules"]["may-fault"], 499);
        assert_eq!(json["blocks"], 2000);
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
