//! Metadata of a recording: session, functions, instruments, clock, kernel.

use std::collections::HashSet;

use serde::{Deserialize, Deserializer, Serialize};

use crate::block_lines::BlockLines;
use crate::record::ALL_CPUS;
use crate::texts::SampleTexts;
use crate::{InstrumentId, Meaning};

/// Everything needed to read a recording with no other file at hand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// The session as it was run, in RON.
    pub session: String,
    /// Name of the target; empty for several, or if it is unknown.
    #[serde(default)]
    pub machine: String,
    /// `uname -r` of the target.
    pub kernel: String,
    /// CPUs of the target.
    pub cpus: u32,
    /// Conversion of TSC ticks to seconds.
    pub clock: Clock,
    /// Major numbers and their functions.
    pub functions: Vec<FunctionInfo>,
    /// Every instrument of the session.
    pub instruments: Vec<InstrumentInfo>,
    /// The machines of a joined recording; empty for a single one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineInfo>,
    /// Texts of the instruments whose samples are text.
    #[serde(default, skip_serializing_if = "SampleTexts::is_empty")]
    pub texts: SampleTexts,
    /// Source lines of the blocks that instruments stand at, where they are known.
    #[serde(default, skip_serializing_if = "BlockLines::is_empty")]
    pub lines: BlockLines,
}

impl Metadata {
    /// Adds functions, instruments, texts and lines of another description, with functions numbered from `first_major` and
    /// placements from `first_placement` on.
    pub fn append(&mut self, other: &Self, first_major: u32, first_placement: u32) {
        let id = |id| InstrumentId::renumbered(id, first_major);
        let functions = other.functions.iter().map(|function| FunctionInfo {
            major: function.major.saturating_add(first_major),
            ..function.clone()
        });
        self.functions.extend(functions);
        let instruments = other.instruments.iter().map(|instrument| InstrumentInfo {
            id: id(instrument.id),
            placed: instrument.placed.as_ref().map(|placed| Placed {
                placement: placed.placement.saturating_add(first_placement),
                major: placed.major.saturating_add(first_major),
                ..placed.clone()
            }),
            ..instrument.clone()
        });
        self.instruments.extend(instruments);
        for (of, texts) in other.texts.iter() {
            self.texts.insert(id(of), texts.clone());
        }
        self.lines.append(&other.lines, id);
    }

    /// As [`append`](Self::append), of a description under a name, which the labels of its instruments begin with unless
    /// it is empty.
    pub(crate) fn append_named(
        &mut self,
        name: &str,
        other: &Self,
        first_major: u32,
        first_placement: u32,
    ) {
        let before = self.instruments.len();
        self.append(other, first_major, first_placement);
        let named = self.instruments.iter_mut().skip(before);
        for instrument in named.filter(|_| !name.is_empty()) {
            instrument.label = format!("{name}: {}", instrument.label);
        }
    }

    /// Returns the number that follows those of all functions.
    pub(crate) fn next_major(&self) -> u32 {
        let functions = self.functions.iter().map(|function| function.major);
        let instruments = self.instruments.iter();
        let instruments = instruments.filter_map(|one| InstrumentId::unpack(one.id));
        let majors = functions.chain(instruments.map(|id| id.major));
        majors.max().map_or(0, |most| most.saturating_add(1))
    }

    /// Returns the number that follows those of all placements.
    pub(crate) fn next_placement(&self) -> u32 {
        let placed = self.instruments.iter();
        let placements = placed.filter_map(|one| Some(one.placed.as_ref()?.placement));
        placements.max().map_or(0, |most| most.saturating_add(1))
    }

    /// Returns the indices of the instruments that have lanes: all that deliver samples, and of
    /// each placement that delivers none, the first.
    #[must_use]
    pub fn lanes(&self) -> Vec<usize> {
        let placement = |info: &InstrumentInfo| Some(info.placed.as_ref()?.placement);
        let sampling = self
            .instruments
            .iter()
            .filter(|info| info.delivers.is_samples());
        let mut reported: HashSet<u32> = sampling.filter_map(placement).collect();
        let has_lane = |(_, info): &(usize, &InstrumentInfo)| {
            info.delivers.is_samples()
                || placement(info).is_none_or(|placement| reported.insert(placement))
        };
        let all = self.instruments.iter().enumerate();
        all.filter(has_lane).map(|(place, _)| place).collect()
    }

    /// Returns instrument, hook and function of a placement: `sizes pre vfs_read block 0`, or, if it
    /// has several hooks, `sizes of vfs_read`. `None` for an unknown placement.
    #[must_use]
    pub fn placement(&self, placement: usize) -> Option<String> {
        let is_part = |info: &&InstrumentInfo| {
            let placed = info.placed.as_ref();
            placed.is_some_and(|placed| placed.placement as usize == placement)
        };
        let mut parts = self.instruments.iter().filter(is_part);
        let first = parts.next()?;
        Some(match parts.next() {
            Some(_) => first.whole(),
            None => first.label.clone(),
        })
    }

    /// Returns the name of a CPU: `CPU 3`; of a joined recording, `CPU 1 of web2`.
    #[must_use]
    pub fn cpu_name(&self, cpu: u16) -> String {
        if cpu == ALL_CPUS {
            return "all CPUs".to_owned();
        }
        match MachineInfo::of(&self.machines, cpu).and_then(|place| self.machines.get(place)) {
            Some(machine) => format!("CPU {} of {}", cpu - machine.first_cpu, machine.name),
            None => format!("CPU {cpu}"),
        }
    }
}

/// A machine of a joined recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Name of the machine.
    pub name: String,
    /// `uname -r`.
    pub kernel: String,
    /// Number of its CPU 0 in the joined recording.
    pub first_cpu: u16,
    /// Its second 0, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// Error bound of its times relative to the recording machine's clock, in nanoseconds; `None`
    /// if it is unknown, and the times are by the machine's own clock.
    pub error_ns: Option<u64>,
}

impl MachineInfo {
    /// Returns the index of the machine of a CPU, if there are any: their CPUs are numbered
    /// consecutively.
    #[must_use]
    pub fn of(machines: &[Self], cpu: u16) -> Option<usize> {
        machines
            .iter()
            .rposition(|machine| machine.first_cpu <= cpu)
    }
}

/// Conversion of TSC ticks to seconds and wall-clock time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// TSC ticks a second.
    pub hz: u64,
    /// TSC at the start of the instrumentation: second 0 of launch and splash.
    pub start: u64,
    /// Nanoseconds since 1970 at `start`, by the target's clock.
    pub start_unix_ns: u64,
}

impl Clock {
    /// Returns whether two clocks may be one counter. Each program measures its rate itself, in an emulator to some parts
    /// in ten thousand.
    #[must_use]
    pub fn has_rate_of(&self, other: &Self) -> bool {
        self.hz.abs_diff(other.hz) <= self.hz / 1000
    }

    /// Returns seconds from the start of the instrumentation to `tsc`; negative before it.
    #[must_use]
    pub fn seconds(&self, tsc: u64) -> f64 {
        if self.hz == 0 {
            return 0.0;
        }
        let ticks = tsc.wrapping_sub(self.start).cast_signed();
        ticks as f64 / self.hz as f64
    }

    /// Returns nanoseconds from the start of the instrumentation to `tsc`, rounded towards the
    /// start; negative before it. Exact, unlike [`seconds`](Self::seconds).
    #[must_use]
    pub fn nanoseconds(&self, tsc: u64) -> i64 {
        let ticks = tsc.wrapping_sub(self.start).cast_signed();
        let (before, ticks) = (ticks < 0, ticks.unsigned_abs());
        let Some(whole) = ticks.checked_div(self.hz) else {
            return 0;
        };
        let rest = ticks % self.hz;
        let rest = match rest.checked_mul(1_000_000_000) {
            Some(product) => product / self.hz,
            // A clock above 18 GHz, which does not exist yet.
            None => (u128::from(rest) * 1_000_000_000 / u128::from(self.hz)) as u64,
        };
        let all = whole.saturating_mul(1_000_000_000).saturating_add(rest);
        let all = i64::try_from(all).unwrap_or(i64::MAX);
        if before { -all } else { all }
    }

    /// Returns nanoseconds since 1970 at `tsc`, by the clock of the target.
    #[must_use]
    pub fn unix_nanoseconds(&self, tsc: u64) -> i64 {
        let start = i64::try_from(self.start_unix_ns).unwrap_or(i64::MAX);
        start.saturating_add(self.nanoseconds(tsc))
    }

    /// Returns the TSC that is `seconds` after the start of the instrumentation.
    #[must_use]
    pub fn tsc(&self, seconds: f64) -> u64 {
        self.start
            .wrapping_add_signed((seconds * self.hz as f64) as i64)
    }
}

/// A function of the session, with its graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionInfo {
    /// Its number in instrument identifiers.
    pub major: u32,
    /// Kernel symbol.
    pub name: String,
    /// Address in the target.
    pub address: u64,
    /// Blocks as (start, end) offsets from `address`, by index.
    pub blocks: Vec<(u32, u32)>,
    /// Edges as (from, to) block indices.
    pub edges: Vec<(u32, u32)>,
}

/// An instrument of the session, and the meaning of its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstrumentInfo {
    /// The packed identifier.
    pub id: u64,
    /// Label for people: `timestamp pre __x64_sys_clone block 0`.
    pub label: String,
    /// Name in the library: `timestamp`.
    pub instrument: String,
    /// Meaning of its values.
    #[serde(deserialize_with = "meaning")]
    pub meaning: Meaning,
    /// Unit of the values: `ticks`, `hits`, empty for none.
    pub unit: String,
    /// Launch, in seconds from the start.
    pub launch: f64,
    /// Splash, in seconds from the start.
    pub splash: f64,
    /// The placement that it is a part of: a placement may have several hooks. `None` in older
    /// recordings and in imported ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Placed>,
    /// Kind of its results.
    #[serde(default, skip_serializing_if = "Delivers::is_samples")]
    pub delivers: Delivers,
}

/// Kinds of an instrument's results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivers {
    /// Samples, or the running total of a counter.
    #[default]
    Samples,
    /// No samples: its aggregates are reported at the end of the run.
    Totals,
    /// No samples: it keeps values for other instruments, or for other parts of the same one.
    Nothing,
}

impl Delivers {
    /// Returns whether it can have samples.
    #[must_use]
    pub const fn is_samples(&self) -> bool {
        matches!(self, Self::Samples)
    }
}

/// The placement of an instrument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Index of the placement in the session; consecutive over the machines of a joined recording.
    pub placement: u32,
    /// The function where it was placed.
    pub function: String,
    /// Major number of that function. It differs from the instrument's own if the instrument is in
    /// another function: where a tail call returns, or where the instrument names one.
    pub major: u32,
}

/// Deserializes a meaning; one that a later version has added becomes a plain value, so that its
/// samples can be viewed.
fn meaning<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Meaning, D::Error> {
    let name = String::deserialize(deserializer)?;
    let name = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(&name);
    Ok(Meaning::deserialize(name).unwrap_or(Meaning::Value))
}

impl InstrumentInfo {
    /// Returns the major number of the function whose calls it is about: that of its placement, if
    /// it is known, which may differ from the function that contains it.
    #[must_use]
    pub fn about(&self) -> Option<u32> {
        let own = InstrumentId::unpack(self.id).map(|id| id.major);
        self.placed.as_ref().map(|placed| placed.major).or(own)
    }

    /// Returns whether it is in another function than its placement: then its samples report that
    /// function's calls, and not how often control reached its block.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        InstrumentId::unpack(self.id).is_some_and(|id| self.about() != Some(id.major))
    }

    /// Returns whether its samples, or their absence, report how often control reached its block.
    #[must_use]
    pub fn counts_its_block(&self) -> bool {
        self.delivers.is_samples() && !self.is_elsewhere()
    }

    /// Returns the label of its whole placement: `threads-inside of vfs_read`.
    #[must_use]
    pub fn whole(&self) -> String {
        let Some(placed) = &self.placed else {
            return self.label.clone();
        };
        // The name of a machine precedes the label.
        let machine = self.label.split_once(self.instrument.as_str());
        let machine = machine.map_or("", |(machine, _)| machine);
        format!("{machine}{} of {}", self.instrument, placed.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HookType;
    use crate::texts::Texts;

    #[test]
    fn what_is_appended_has_numbers_of_its_own() {
        let id = |major| InstrumentId::new(major, HookType::Post, 3, 1).unwrap();
        let mut part = Metadata::default();
        part.functions.push(FunctionInfo {
            major: 0,
            name: "f".into(),
            address: 0x1000,
            blocks: Vec::new(),
            edges: Vec::new(),
        });
        part.instruments.push(InstrumentInfo {
            id: id(0).pack(),
            label: "line post f block 3".into(),
            instrument: "line".into(),
            meaning: Meaning::Event,
            unit: String::new(),
            launch: 0.0,
            splash: 1.0,
            placed: Some(Placed {
                placement: 0,
                function: "f".into(),
                major: 0,
            }),
            delivers: Delivers::Samples,
        });
        part.texts.insert(id(0).pack(), Texts::Stacks);
        let mut all = part.clone();
        all.append(&part, 5, 2);
        assert_eq!(all.functions[1].major, 5);
        let placed = all.instruments[1].placed.as_ref().unwrap();
        assert_eq!((placed.placement, placed.major), (2, 5));
        assert_eq!(all.instruments[1].id, id(5).pack());
        let texts: Vec<u64> = all.texts.iter().map(|(id, _)| id).collect();
        assert_eq!(texts, [id(0).pack(), id(5).pack()]);
        let further = id(0).pack() | crate::Sample::WORD;
        assert_eq!(
            InstrumentId::renumbered(further, 5),
            id(5).pack() | crate::Sample::WORD
        );
    }

    #[test]
    fn an_unknown_meaning_is_a_value_and_older_files_have_no_placements() {
        let old = r#"{"id": 1, "label": "a pre b block 0", "instrument": "a", "meaning": "MEANING",
            "unit": "", "launch": 0.0, "splash": 1.0}"#;
        let read = |meaning: &str| {
            serde_json::from_str::<InstrumentInfo>(&old.replace("MEANING", meaning)).unwrap()
        };
        assert_eq!(read("Level").meaning, Meaning::Level);
        assert_eq!(read("Tomorrow").meaning, Meaning::Value);
        let old = read("Count");
        assert_eq!((&old.meaning, &old.placed), (&Meaning::Count, &None));
        assert_eq!(old.whole(), old.label);
        assert!(!serde_json::to_string(&old).unwrap().contains("placed"));
        assert!(old.delivers.is_samples());
        let new = InstrumentInfo {
            delivers: Delivers::Totals,
            label: "web: a pre b block 0".to_owned(),
            placed: Some(Placed {
                placement: 3,
                function: "c".to_owned(),
                major: 0,
            }),
            ..old
        };
        assert_eq!(new.whole(), "web: a of c");
        let text = serde_json::to_string(&new).unwrap();
        assert_eq!(serde_json::from_str::<InstrumentInfo>(&text).unwrap(), new);
    }

    #[test]
    fn a_placement_without_samples_has_one_lane() {
        let info = |placement: Option<u32>, delivers| InstrumentInfo {
            id: 0,
            label: String::new(),
            instrument: String::new(),
            meaning: Meaning::Value,
            unit: String::new(),
            launch: 0.0,
            splash: 1.0,
            placed: placement.map(|placement| Placed {
                placement,
                function: String::new(),
                major: 0,
            }),
            delivers,
        };
        let metadata = Metadata {
            instruments: vec![
                info(Some(0), Delivers::Nothing),
                info(Some(0), Delivers::Samples),
                info(Some(0), Delivers::Samples),
                info(Some(1), Delivers::Totals),
                info(Some(1), Delivers::Totals),
                info(None, Delivers::Nothing),
                info(None, Delivers::Samples),
            ],
            ..Metadata::default()
        };
        assert_eq!(metadata.lanes(), [1, 2, 3, 5, 6]);
    }
}
