//! Folded stacks and flame graphs of totals by stack: `@by[kstack] = count()`, `@both[ustack, kstack] = count()`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use super::flame::{self, Amounts};
use super::sink::Exported;
use super::stacks::StackFormat;
use crate::Result;
use crate::calls::{CallTree, Calls};
use crate::chart::scale;
use crate::kept_stacks::{KeptStacks, function};
use crate::output;
use crate::recording::Recording;
use crate::totals::{KeyPart, Total, TotalValue, Totals};

/// Returns whether totals are counted by stacks.
pub(super) fn are_counted(totals: &Totals) -> bool {
    !totals.stacks.frames.is_empty()
}

/// Writes the totals by stack: their counts and sums.
///
/// # Errors
/// As for [`export_to`](super::export_to).
pub(super) fn export(recording: &Recording, format: StackFormat, path: &Path) -> Result<Exported> {
    let totals = recording.totals();
    let mut counted = StackCounts::default();
    let with_stacks: Vec<&Total> = totals
        .added_up
        .iter()
        .filter(|total| has_stacks(total, &totals.stacks))
        .collect();
    for total in &with_stacks {
        // With several aggregates, each has a root of its own.
        let place = || {
            let place = recording.metadata().placement(total.placement);
            let place = place.unwrap_or_else(|| total.instrument.clone());
            clean(&format!("@{} of {place}", total.name))
        };
        let root = (with_stacks.len() > 1).then(place);
        counted.add(total, root.as_ref(), totals);
    }
    let mut out = Vec::new();
    match format {
        StackFormat::Folded => {
            for (stack, amount) in &counted.stacks {
                // Writing to memory cannot fail.
                let _infallible = writeln!(out, "{} {amount}", stack.join(";"));
            }
        }
        StackFormat::Flame => {
            let stacks = counted.stacks.iter();
            let calls = Calls::of_stacks(stacks.map(|(stack, amount)| (stack.as_slice(), *amount)));
            // Amounts in place of nanoseconds: they stay as they are.
            let tree = CallTree::new(&calls, 1_000_000_000);
            let _infallible = flame::draw(&mut out, &tree, Amounts::Number, None);
        }
    }
    output::write(path, &out)?;
    Ok(Exported {
        remark: counted.remark(totals.stacks.lost),
        ..Exported::default()
    })
}

fn has_stacks(total: &Total, stacks: &KeptStacks) -> bool {
    let mut numbers = total.numbers().into_iter();
    numbers.any(|number| stacks.get(number).is_some())
}

/// Replaces what the folded format separates by.
fn clean(text: &str) -> String {
    text.replace([';', '\n'], "_")
}

/// Amounts by stack, the outermost function first.
#[derive(Default)]
struct StackCounts {
    stacks: BTreeMap<Vec<String>, u64>,
    /// Number of totals that are no count and no positive sum.
    left_out: u64,
    /// Values of keys that the tables could not keep apart.
    others: u64,
}

impl StackCounts {
    fn add(&mut self, total: &Total, root: Option<&String>, totals: &Totals) {
        match &total.value {
            TotalValue::Values(values, others) => {
                self.others += others;
                for (value, count) in values {
                    self.put(root, &[KeyPart::Number(*value)], Some(*count), totals);
                }
            }
            TotalValue::Map(rows, others) => {
                self.others += others;
                for row in rows {
                    let amount = match &row.value {
                        TotalValue::Number(number) => u64::try_from(*number).ok(),
                        TotalValue::Buckets(_) => Some(row.value.hits()),
                        _ => None,
                    };
                    self.put(root, &row.key, amount, totals);
                }
            }
            _ => {}
        }
    }

    /// Adds an amount to a key, whose parts that are no stack are frames outside of it.
    fn put(
        &mut self,
        root: Option<&String>,
        key: &[KeyPart],
        amount: Option<u64>,
        totals: &Totals,
    ) {
        let Some(amount) = amount else {
            self.left_out += 1;
            return;
        };
        if amount == 0 {
            return;
        }
        let mut stack: Vec<String> = root.into_iter().cloned().collect();
        let (mut process, mut kernel) = (Vec::new(), Vec::new());
        for part in key {
            match part {
                KeyPart::Text(text) => stack.push(clean(text)),
                KeyPart::Number(number) => match totals.stacks.get(*number) {
                    Some(frames) => {
                        let functions = frames.iter().rev();
                        // A process calls the kernel.
                        let part = match totals.stacks.is_of_process(*number) {
                            true => &mut process,
                            false => &mut kernel,
                        };
                        part.extend(functions.map(|frame| clean(function(frame))));
                    }
                    None => {
                        let address = u64::try_from(*number).ok();
                        let symbol = address.and_then(|at| totals.symbols.get(&at));
                        stack.push(
                            symbol.map_or_else(|| number.to_string(), |symbol| clean(symbol)),
                        );
                    }
                },
            }
        }
        stack.extend(process);
        stack.extend(kernel);
        *self.stacks.entry(stack).or_default() += amount;
    }

    fn remark(&self, lost: u64) -> Option<String> {
        let parts = [
            (self.left_out, "means and negative sums"),
            (
                self.others,
                "values of keys that the table could not keep apart",
            ),
        ];
        let texts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let left_out =
            (!texts.is_empty()).then(|| format!("Not in the stacks: {}.", texts.join("; ")));
        let numbered = (lost > 0).then(|| {
            let hits = scale::counted(lost, "hit");
            format!("Of {hits} the stacks were not kept; they stand under the number of the stack.")
        });
        let sentences: Vec<String> = left_out.into_iter().chain(numbered).collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::super::{Format, export_to};
    use super::*;
    use crate::metadata::Metadata;
    use crate::recording::Writer;
    use crate::totals::TotalRow;

    fn total(name: &str, value: TotalValue) -> Total {
        Total {
            placement: 0,
            instrument: "stacks".to_owned(),
            name: name.to_owned(),
            unit: String::new(),
            may_be_zero: false,
            value,
        }
    }

    fn row(key: Vec<KeyPart>, value: TotalValue) -> TotalRow {
        TotalRow { key, value }
    }

    fn exported(totals: Totals, format: Format) -> (String, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.arrow");
        let mut writer = Writer::create(&path, &Metadata::default()).unwrap();
        writer.totals(totals);
        writer.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        let out = folder.path().join("out");
        let exported =
            export_to(&recording, format, &out, &mut |_| ControlFlow::Continue(())).unwrap();
        (std::fs::read_to_string(out).unwrap(), exported.remark)
    }

    fn totals(added_up: Vec<Total>, lost: u64) -> Totals {
        let frames = |frames: &[&str]| frames.iter().map(|&frame| frame.to_owned()).collect();
        Totals {
            added_up,
            stacks: KeptStacks {
                frames: [
                    (7, frames(&["vfs_read+0x1c", "ksys_read+0x5f"])),
                    (8, frames(&["vfs_read", "do;odd+0x1"])),
                    (10, frames(&["inner+0x9 (a.out)", "a.out+0x1234"])),
                ]
                .into(),
                of_processes: [10].into(),
                lost,
                ..KeptStacks::default()
            },
            symbols: [(16, "a_lock+0x8".to_owned())].into(),
            ..Totals::default()
        }
    }

    #[test]
    fn other_parts_of_keys_are_outer_frames() {
        let number = KeyPart::Number;
        let rows = vec![
            row(
                vec![KeyPart::Text("dd".into()), number(7)],
                TotalValue::Number(5),
            ),
            row(vec![number(8), number(16)], TotalValue::Number(3)),
            row(vec![number(7), number(-4)], TotalValue::Number(0)),
            row(vec![number(9), number(1)], TotalValue::Number(2)),
            // A process calls the kernel, whatever the order of the key.
            row(vec![number(7), number(10)], TotalValue::Number(4)),
            row(vec![number(7), number(2)], TotalValue::Number(-1)),
            row(vec![number(7), number(3)], TotalValue::Mean(1.0)),
        ];
        let all = totals(vec![total("by", TotalValue::Map(rows, 6))], 2);
        let (text, remark) = exported(all, Format::Folded);
        let lines = [
            "9;1 2",
            "a.out;inner;ksys_read;vfs_read 4",
            "a_lock+0x8;do_odd;vfs_read 3",
            "dd;ksys_read;vfs_read 5",
        ];
        assert!(text.lines().eq(lines), "{text}");
        let remark = remark.unwrap();
        assert!(
            remark.starts_with("Not in the stacks: 2 means and negative sums; 6 values"),
            "{remark}"
        );
        assert!(remark.contains("Of 2 hits the stacks"), "{remark}");
    }

    #[test]
    fn each_of_several_aggregates_is_a_root_and_all_are_in_the_picture() {
        let by = |name: &str, count| {
            let rows = vec![row(vec![KeyPart::Number(7)], TotalValue::Number(count))];
            total(name, TotalValue::Map(rows, 0))
        };
        let all = || {
            totals(
                vec![
                    by("a", 2),
                    by("b", 5),
                    total("plain", TotalValue::Number(9)),
                ],
                0,
            )
        };
        let (text, remark) = exported(all(), Format::Folded);
        let lines = [
            "@a of stacks;ksys_read;vfs_read 2",
            "@b of stacks;ksys_read;vfs_read 5",
        ];
        assert!(text.lines().eq(lines), "{text}");
        assert_eq!(remark, None);
        let (svg, _) = exported(all(), Format::Flame);
        assert!(
            svg.contains("Stacks, 7 in all") && svg.contains("vfs_read: 5 (71.43 %)"),
            "{svg}"
        );
    }
}
