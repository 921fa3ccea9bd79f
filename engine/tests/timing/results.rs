//! Results: a file to compare with, and a table to read.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The result of a run of the bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    /// Pairs of runs of each row.
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
}

/// The machine on which it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// As the processor names itself, with family, model and stepping.
    pub(crate) processor: String,
    /// Version of Linux.
    pub(crate) kernel: String,
    /// True if a hypervisor runs below the kernel.
    pub(crate) virtual_machine: bool,
    /// Ticks of the time stamp counter a nanosecond.
    pub(crate) ticks_per_ns: f64,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) group: String,
    pub(crate) name: String,
    /// Hits of a call of the tree.
    pub(crate) hits_per_call: f64,
    /// The least time of a call without the instrument.
    pub(crate) bare_call_ns: f64,
    /// The least time with it less the least time without it, a hit.
    pub(crate) least_ns: f64,
    /// Quartiles of the differences of pairs, a hit; the second is the median.
    pub(crate) quartiles_ns: [f64; 3],
    /// Instructions of a hit beyond the original ones, where there is one patch.
    pub(crate) instructions: Option<u32>,
    pub(crate) moved_calls: usize,
}

impl Row {
    /// The added time of a hit.
    pub(crate) fn median_ns(&self) -> f64 {
        self.quartiles_ns[1]
    }

    /// Returns whether it takes longer than another: by a tenth and by half a nanosecond, in the least and in the
    /// median.
    fn is_slower_than(&self, other: &Self) -> bool {
        let slower = |this: f64, other: f64| this > 1.1 * other + 0.5;
        slower(self.least_ns, other.least_ns) && slower(self.median_ns(), other.median_ns())
    }
}

impl Machine {
    /// Returns the processor, the version of Linux, and whether a hypervisor is below it.
    pub(crate) fn text(&self) -> String {
        let below = match self.virtual_machine {
            true => ", in a virtual machine",
            false => "",
        };
        format!("{}; Linux {}{below}", self.processor, self.kernel)
    }

    /// This machine.
    pub(crate) fn this(ticks_per_ns: f64) -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let value = |key: &str| {
            let line = info.lines().find(|line| {
                let name = line.split(':').next();
                name.is_some_and(|name| name.trim() == key)
            });
            line.and_then(|line| line.split(':').nth(1))
                .unwrap_or("unknown")
                .trim()
        };
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let version = release.trim().split('-').next().unwrap_or_default();
        Self {
            processor: format!(
                "{}, family {} model {} stepping {}",
                value("model name"),
                value("cpu family"),
                value("model"),
                value("stepping")
            ),
            kernel: version.to_owned(),
            virtual_machine: value("flags")
                .split_whitespace()
                .any(|flag| flag == "hypervisor"),
            ticks_per_ns,
        }
    }
}

impl Results {
    /// The row of a name in a group.
    fn row(&self, group: &str, name: &str) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.group == group && row.name == name)
    }

    /// Returns whether other results are of a processor of the same kind: times of others are no measure.
    fn is_comparable(&self, earlier: &Self) -> bool {
        self.machine.processor == earlier.machine.processor
    }

    /// Rows that take longer than in earlier results of the same processor.
    pub(crate) fn regressions(&self, earlier: &Self) -> Vec<&Row> {
        if !self.is_comparable(earlier) {
            return Vec::new();
        }
        let rows = self.rows.iter();
        rows.filter(|row| {
            let before = earlier.row(&row.group, &row.name);
            before.is_some_and(|before| row.is_slower_than(before))
        })
        .collect()
    }

    /// Tables in Markdown, next to earlier results.
    pub(crate) fn markdown(&self, earlier: Option<&Self>) -> String {
        let mut out = String::new();
        let machine = self.machine.text();
        let _ = writeln!(out, "{machine}; {} pairs of runs a row.", self.rounds);
        if let Some(earlier) = earlier.filter(|earlier| !self.is_comparable(earlier)) {
            let _ = writeln!(
                out,
                "\nThe times before are of {}, so no row is judged: on another processor they differ.",
                earlier.machine.processor
            );
        }
        let mut group = "";
        for row in &self.rows {
            if row.group != group {
                group = &row.group;
                let _ = write!(
                    out,
                    "\n| {group} | least, ns | median, ns | quartiles, ns | bare call, ns | hits a call | instructions | moved calls |"
                );
                let _ = writeln!(out, "{}", earlier.map_or("", |_| " before, ns |"));
                let _ = write!(out, "|---|---:|---:|---:|---:|---:|---:|---:|");
                let _ = writeln!(out, "{}", earlier.map_or("", |_| "---:|"));
            }
            let [low, median, high] = row.quartiles_ns;
            let _ = write!(
                out,
                "| {} | {:.2} | {median:.2} | {low:.2} to {high:.2} | {:.1} | {} | {} | {} |",
                row.name,
                row.least_ns,
                row.bare_call_ns,
                number(row.hits_per_call),
                row.instructions
                    .map_or_else(String::new, |count| count.to_string()),
                row.moved_calls
            );
            if let Some(earlier) = earlier {
                let before = earlier.row(&row.group, &row.name);
                let _ = match before {
                    Some(before) if self.is_comparable(earlier) && row.is_slower_than(before) => {
                        write!(out, " **{:.2}, slower now** |", before.median_ns())
                    }
                    Some(before) => write!(out, " {:.2} |", before.median_ns()),
                    None => write!(out, " |"),
                };
            }
            out.push('\n');
        }
        out
    }
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value}")
    } else {
        format!("{value:.1}")
    }
}
