//! A kernel and processes of one machine as one while they are recorded: their descriptions, samples and totals up to now.
//! At the end their recordings are put [beside](crate::beside) each other, with numbers of their own.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::metadata::Metadata;
use crate::texts::SampleTexts;
use crate::totals::{Total, Totals};
use crate::{Batch, Error, InstrumentId, Result};

/// The members of a run, which may begin at any time, and may describe further functions while they run.
#[derive(Debug)]
pub struct LiveBeside {
    metadata: Metadata,
    members: BTreeMap<u32, LiveMember>,
    next_major: u32,
    next_placement: u32,
}

#[derive(Debug, Default)]
struct LiveMember {
    name: String,
    /// In the order of their first functions.
    parts: Vec<NumberedPart>,
    /// The number after those of all its functions, and of all its placements.
    next: (u32, u32),
    added_up: Vec<Total>,
}

/// Functions and placements that a member has described at once.
#[derive(Clone, Copy, Debug)]
struct NumberedPart {
    first_major: u32,
    first_placement: u32,
    /// Added to the member's numbers of functions, and of placements.
    major_offset: u32,
    placement_offset: u32,
}

impl LiveBeside {
    /// Begins with a description of the machine, the session and the clock; its functions and instruments are left out.
    #[must_use]
    pub fn new(machine: &Metadata) -> Self {
        Self {
            metadata: Metadata {
                functions: Vec::new(),
                instruments: Vec::new(),
                texts: SampleTexts::default(),
                lines: crate::block_lines::BlockLines::default(),
                ..machine.clone()
            },
            members: BTreeMap::new(),
            next_major: 0,
            next_placement: 0,
        }
    }

    /// Adds what a member describes, and has not described before: at its begin all, later functions that follow in number.
    /// Labels of its instruments begin with its name.
    ///
    /// # Errors
    /// [`Error::Joint`] if there are too many functions to number; nothing is added then.
    pub fn describe(&mut self, member: u32, name: &str, described: &Metadata) -> Result<&Metadata> {
        let known = self.members.get(&member);
        let (first_major, first_placement) = known.map_or((0, 0), |known| known.next);
        let mut new = Metadata {
            functions: described.functions.clone(),
            instruments: described.instruments.clone(),
            ..Metadata::default()
        };
        let is_new = |id: u64| match InstrumentId::unpack(id) {
            Some(id) => id.major >= first_major,
            None => first_major == 0,
        };
        new.functions
            .retain(|function| function.major >= first_major);
        new.instruments.retain(|one| is_new(one.id));
        for (id, texts) in described.texts.iter().filter(|(id, _)| is_new(*id)) {
            new.texts.insert(id, texts.clone());
        }
        let part = NumberedPart {
            first_major,
            first_placement,
            major_offset: self.next_major.saturating_sub(first_major),
            placement_offset: self.next_placement.saturating_sub(first_placement),
        };
        let next = (
            described.next_major().max(first_major),
            described.next_placement().max(first_placement),
        );
        let next_major = next.0.saturating_add(part.major_offset);
        if next_major > InstrumentId::MAJORS {
            return Err(Error::Joint { what: "functions" });
        }
        if known.is_some() && next == (first_major, first_placement) {
            return Ok(&self.metadata);
        }
        let later = self.metadata.clock.seconds(described.clock.start);
        for instrument in &mut new.instruments {
            // Launch and splash are seconds from the start of the member.
            instrument.launch += later;
            instrument.splash += later;
        }
        self.metadata
            .append_named(name, &new, part.major_offset, part.placement_offset);
        self.metadata.cpus = self.metadata.cpus.max(described.cpus);
        self.next_major = next_major;
        self.next_placement = next.1.saturating_add(part.placement_offset);
        let member = self.members.entry(member).or_default();
        name.clone_into(&mut member.name);
        member.parts.push(part);
        member.next = next;
        Ok(&self.metadata)
    }

    /// Returns the description of all members up to now.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns samples of a member as they are among those of all; `None` of a member that is not described.
    #[must_use]
    pub fn batch<'b>(&self, member: u32, batch: &'b Batch) -> Option<Cow<'b, Batch>> {
        let member = self.members.get(&member)?;
        if member.parts.iter().all(|part| part.major_offset == 0) {
            return Some(Cow::Borrowed(batch));
        }
        let mut batch = batch.clone();
        for sample in &mut batch.samples {
            sample.id = member.renumbered(sample.id);
        }
        Some(Cow::Owned(batch))
    }

    /// Keeps the totals of a member up to now, and returns those of all; names of instruments begin with that of the member.
    pub fn add_up(&mut self, member: u32, added_up: Vec<Total>) -> Vec<Total> {
        if let Some(member) = self.members.get_mut(&member) {
            member.added_up = added_up;
        }
        let mut all = Totals::default();
        for member in self.members.values() {
            let totals = Totals {
                added_up: member
                    .added_up
                    .iter()
                    .map(|one| member.placed(one))
                    .collect(),
                ..Totals::default()
            };
            all.append(totals.named(&member.name), 0);
        }
        all.added_up
    }
}

impl LiveMember {
    fn renumbered(&self, word: u64) -> u64 {
        let major = InstrumentId::unpack(word & !crate::Sample::WORD).map_or(0, |id| id.major);
        let mut parts = self.parts.iter().rev();
        let part = parts.find(|part| part.first_major <= major);
        InstrumentId::renumbered(word, part.map_or(0, |part| part.major_offset))
    }

    fn placed(&self, total: &Total) -> Total {
        let mut parts = self.parts.iter().rev();
        let part = parts.find(|part| part.first_placement as usize <= total.placement);
        let offset = part.map_or(0, |part| part.placement_offset as usize);
        Total {
            placement: total.placement + offset,
            ..total.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Placed};
    use crate::totals::TotalValue;
    use crate::{HookType, Meaning, Sample};

    fn id(major: u32) -> u64 {
        InstrumentId::new(major, HookType::Pre, 0, 0)
            .unwrap()
            .pack()
    }

    /// A description with an instrument in each of some functions.
    fn described(start: u64, names: &[&str]) -> Metadata {
        let numbered = || (0..).zip(names);
        Metadata {
            cpus: 2,
            clock: Clock {
                hz: 1000,
                start,
                start_unix_ns: 0,
            },
            functions: numbered()
                .map(|(major, name)| FunctionInfo {
                    major,
                    name: (*name).to_owned(),
                    address: 0,
                    blocks: Vec::new(),
                    edges: Vec::new(),
                })
                .collect(),
            instruments: numbered()
                .map(|(major, name)| InstrumentInfo {
                    id: id(major),
                    label: format!("counter pre {name} block 0"),
                    instrument: "counter".to_owned(),
                    meaning: Meaning::Count,
                    unit: String::new(),
                    launch: 0.0,
                    splash: 10.0,
                    placed: Some(Placed {
                        placement: major,
                        function: (*name).to_owned(),
                        major,
                    }),
                    delivers: Delivers::Samples,
                })
                .collect(),
            ..Metadata::default()
        }
    }

    fn total(placement: usize, value: i128) -> Total {
        Total {
            placement,
            instrument: "sums".to_owned(),
            name: "sum".to_owned(),
            unit: String::new(),
            may_be_zero: false,
            value: TotalValue::Number(value),
        }
    }

    fn labels(described: &Metadata) -> Vec<(u64, &str, u32)> {
        let instruments = described.instruments.iter();
        let placed = |one: &InstrumentInfo| one.placed.as_ref().unwrap().placement;
        instruments
            .map(|one| (one.id, one.label.as_str(), placed(one)))
            .collect()
    }

    #[test]
    fn members_and_what_they_describe_later_are_numbered_one_after_the_other() {
        let start = described(1000, &[]);
        let mut beside = LiveBeside::new(&start);
        beside
            .describe(0, "kernel", &described(1000, &["vfs_write"]))
            .unwrap();
        beside
            .describe(1, "process 7", &described(1000, &["write", "main"]))
            .unwrap();
        beside
            .describe(2, "process 8", &described(3000, &["write"]))
            .unwrap();
        // A library that the first process has loaded.
        let all = ["write", "main", "libwork.so:work"];
        let whole = beside
            .describe(1, "process 7", &described(1000, &all))
            .unwrap();
        let expected = [
            (id(0), "kernel: counter pre vfs_write block 0", 0),
            (id(1), "process 7: counter pre write block 0", 1),
            (id(2), "process 7: counter pre main block 0", 2),
            (id(3), "process 8: counter pre write block 0", 3),
            (id(4), "process 7: counter pre libwork.so:work block 0", 4),
        ];
        assert_eq!(labels(whole), expected);
        let names: Vec<(u32, &str)> = whole
            .functions
            .iter()
            .map(|function| (function.major, function.name.as_str()))
            .collect();
        assert_eq!(names[4], (4, "libwork.so:work"));
        // The second process began two seconds later.
        let launches: Vec<f64> = whole.instruments.iter().map(|one| one.launch).collect();
        assert_eq!(launches, [0.0, 0.0, 0.0, 2.0, 0.0]);
        // Nothing is new.
        let again = beside.describe(1, "process 7", &described(1000, &all));
        assert_eq!(labels(again.unwrap()), expected);

        let sample = |id| Sample {
            id,
            value: 5,
            tsc: 2000,
        };
        let numbers = |beside: &LiveBeside, member: u32, ids: &[u64]| {
            let samples = ids.iter().map(|&id| sample(id)).collect();
            let batch = Batch { cpu: 1, samples };
            let batch = beside.batch(member, &batch)?;
            assert_eq!(batch.cpu, 1);
            Some(batch.samples.iter().map(|one| one.id).collect::<Vec<_>>())
        };
        let word = Sample::WORD;
        assert_eq!(numbers(&beside, 0, &[id(0)]), Some(vec![id(0)]));
        assert_eq!(
            numbers(&beside, 1, &[id(0), id(1), id(2), id(2) | word]),
            Some(vec![id(1), id(2), id(4), id(4) | word])
        );
        assert_eq!(numbers(&beside, 2, &[id(0)]), Some(vec![id(3)]));
        assert_eq!(numbers(&beside, 3, &[id(0)]), None);
    }

    #[test]
    fn totals_are_those_of_all_members_up_to_now() {
        let start = described(1000, &[]);
        let mut beside = LiveBeside::new(&start);
        beside
            .describe(0, "kernel", &described(1000, &["a"]))
            .unwrap();
        beside
            .describe(1, "process 7", &described(1000, &["b"]))
            .unwrap();
        let rows = |all: Vec<Total>| -> Vec<(usize, String, TotalValue)> {
            let rows = all.into_iter();
            rows.map(|one| (one.placement, one.instrument, one.value))
                .collect()
        };
        let number = TotalValue::Number;
        let all = beside.add_up(1, vec![total(0, 5)]);
        assert_eq!(rows(all), [(1, "process 7: sums".to_owned(), number(5))]);
        beside.add_up(0, vec![total(0, 3)]);
        beside
            .describe(1, "process 7", &described(1000, &["b", "lib.so:c"]))
            .unwrap();
        beside
            .describe(2, "process 8", &described(1000, &["b"]))
            .unwrap();
        beside.add_up(2, vec![total(0, 1)]);
        let all = beside.add_up(1, vec![total(0, 6), total(1, 9)]);
        let of = |place, name: &str, value| (place, format!("{name}: sums"), number(value));
        assert_eq!(
            rows(all),
            [
                of(0, "kernel", 3),
                of(1, "process 7", 6),
                of(2, "process 7", 9),
                of(3, "process 8", 1)
            ]
        );
    }
}
