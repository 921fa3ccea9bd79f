//! Counts and durations, mapped onto the control-flow graph of a function.

use std::fmt::Write as _;

mod svg;

pub use svg::svg;

use crate::chart::scale;
use crate::metadata::{FunctionInfo, Metadata};
use crate::profile::Profile;
use crate::{HookType, InstrumentId, Meaning};

/// Measurements of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// Number of times control entered it; `None` if no instrument counted.
    pub hits: Option<u64>,
    /// Median of the durations that ended there, in TSC ticks.
    pub median_ticks: Option<u64>,
}

/// Maps `profiles` onto the blocks of a function, by index. Of several instruments that count at a
/// block the greatest count is taken: none counts too much, but one may have been in place for
/// longer, or lost less.
#[must_use]
pub fn blocks(
    metadata: &Metadata,
    function: &FunctionInfo,
    profiles: &[Profile],
) -> Vec<BlockStats> {
    let mut stats = vec![BlockStats::default(); function.blocks.len()];
    for profile in profiles {
        let Some(id) = InstrumentId::unpack(profile.id).filter(|id| id.major == function.major)
        else {
            continue;
        };
        let instrument = metadata
            .instruments
            .iter()
            .find(|instrument| instrument.id == profile.id);
        let (Some(instrument), Some(block)) = (instrument, stats.get_mut(id.block as usize)) else {
            continue;
        };
        if instrument.is_elsewhere() {
            continue;
        }
        let hits = match instrument.meaning {
            Meaning::Duration => {
                if let Some(values) = &profile.values {
                    let [_, _, _, median, ..] = values.percentiles;
                    block.median_ticks = Some(median);
                }
                // A stop without a start is not a hit.
                continue;
            }
            Meaning::Count | Meaning::Event | Meaning::Value | Meaning::Block | Meaning::Level => {
                profile.hits
            }
        };
        if id.hook == HookType::Pre {
            block.hits = Some(block.hits.unwrap_or_default().max(hits));
        }
    }
    // Counters that were never hit deliver a 0; other instruments deliver nothing.
    for known in &metadata.instruments {
        let Some(id) = InstrumentId::unpack(known.id).filter(|id| id.major == function.major)
        else {
            continue;
        };
        let counts = known.counts_its_block() && known.meaning != Meaning::Duration;
        if id.hook == HookType::Pre && counts {
            // A file may name blocks that it does not have.
            if let Some(block) = stats.get_mut(id.block as usize) {
                block.hits.get_or_insert(0);
            }
        }
    }
    stats
}

/// Appearance of a block.
struct Drawn {
    lines: Vec<String>,
    /// `#rrggbb`.
    colour: String,
}

/// Returns the text of each block, and its colour: the darker, the more often it was reached, on a
/// logarithmic scale.
fn drawn(metadata: &Metadata, function: &FunctionInfo, profiles: &[Profile]) -> Vec<Drawn> {
    let stats = blocks(metadata, function, profiles);
    let hits = stats.iter().filter_map(|block| block.hits);
    let most = hits.max().unwrap_or(0);
    let spans = function.blocks.iter().zip(&stats).enumerate();
    spans
        .map(|(number, ((from, to), block))| {
            let mut lines = vec![format!("{number}  +{from:#x}..+{to:#x}")];
            let mut colour = "#ffffff".to_owned();
            if let Some(hits) = block.hits {
                lines.push(scale::counted(hits, "hit"));
                if hits > 0 {
                    let share = (hits as f64).ln_1p() / (most as f64).ln_1p();
                    let pale = 235 - (share * 130.0) as u8;
                    colour = format!("#ff{pale:02x}{pale:02x}");
                } else {
                    colour = "#eeeeee".to_owned();
                }
            }
            if let Some(ticks) = block.median_ticks {
                let words = scale::value(ticks, "ticks", &metadata.clock);
                lines.push(format!("median {words}"));
            }
            Drawn { lines, colour }
        })
        .collect()
}

/// Writes the graph of a function in DOT, for Graphviz.
#[must_use]
pub fn dot(metadata: &Metadata, function: &FunctionInfo, profiles: &[Profile]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "digraph {:?} {{\n  label={:?};\n  node [shape=box, style=filled, fontname=\"monospace\"];",
        function.name, function.name
    );
    for (number, block) in drawn(metadata, function, profiles).iter().enumerate() {
        let _ = writeln!(
            out,
            "  b{number} [label=\"{}\", fillcolor=\"{}\"];",
            block.lines.join("\\n"),
            block.colour
        );
    }
    for (from, to) in &function.edges {
        let _ = writeln!(out, "  b{from} -> b{to};");
    }
    out.push_str("}\n");
    out
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::metadata::{Delivers, InstrumentInfo};
    use crate::profile::profiles;
    use crate::recording::{Recording, Writer};
    use crate::{Batch, Sample};

    #[test]
    fn counts_and_durations_are_mapped_to_their_blocks() {
        let id = |hook, block, order| InstrumentId::new(7, hook, block, order).unwrap().pack();
        let instrument = |id, meaning| InstrumentInfo {
            id,
            label: format!("{meaning:?} {id}"),
            instrument: String::new(),
            meaning,
            unit: String::new(),
            launch: 0.0,
            splash: 1.0,
            placed: None,
            delivers: Delivers::Samples,
        };
        let function = FunctionInfo {
            major: 7,
            name: "f".to_owned(),
            address: 0,
            blocks: vec![(0, 4), (4, 9), (9, 12), (12, 20)],
            edges: vec![(0, 1), (0, 2), (1, 3), (2, 3)],
        };
        let (counter, event) = (id(HookType::Pre, 0, 0), id(HookType::Pre, 1, 0));
        let (silent, time) = (id(HookType::Pre, 2, 0), id(HookType::Post, 1, 1));
        let metadata = Metadata {
            functions: vec![function.clone()],
            instruments: vec![
                instrument(counter, Meaning::Count),
                instrument(event, Meaning::Event),
                instrument(silent, Meaning::Event),
                instrument(time, Meaning::Duration),
            ],
            ..Metadata::default()
        };
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("r.arrow");
        let mut writer = Writer::create(&path, &metadata).unwrap();
        let sample = |id, value, tsc| Sample { id, value, tsc };
        let samples = vec![
            sample(counter, 500, 1),
            sample(event, 1, 2),
            sample(time, 90, 3),
            sample(event, 1, 4),
            sample(counter, 1000, 5),
        ];
        writer.write(&Batch { cpu: 0, samples }).unwrap();
        writer.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        let measured = profiles(&recording, None, 0, |_| true).instruments;
        let stats = |hits, median_ticks| BlockStats { hits, median_ticks };
        assert_eq!(
            blocks(&metadata, &function, &measured),
            [
                stats(Some(1000), None),
                stats(Some(2), Some(90)),
                stats(Some(0), None),
                stats(None, None)
            ]
        );
        let dot = dot(&metadata, &function, &measured);
        assert!(
            dot.contains("b0 [label=\"0  +0x0..+0x4\\n1,000 hits\", fillcolor=\"#ff6969\"];"),
            "{dot}"
        );
        assert!(
            dot.contains("b2 -> b3;") && dot.contains("fillcolor=\"#ffffff\""),
            "{dot}"
        );
    }
}
