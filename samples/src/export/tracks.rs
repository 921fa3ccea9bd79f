//! Tracks, for formats whose readers draw them: on one track things of one kind stand side by side.
//!
//! A track is what one instrument delivered on one CPU. Times that overlap (a timer runs for every
//! thread) would be drawn wrongly on one track, so each is put on the first whose last time had ended
//! when it began. Samples come in order of their ends, which makes this right without looking back.
//!
//! A level has one track, whichever of its instruments sampled it and wherever.

use std::collections::HashMap;

use crate::metadata::{InstrumentInfo, Metadata};
use crate::record::ALL_CPUS;
use crate::{InstrumentId, Meaning, Sample, level};

/// The greatest number that every reader keeps as it is: doubles have 53 bits (RFC 8259, 6).
pub(super) const EXACT: u64 = 1 << 53;

/// How a sample is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// Something happened; its value is told beside it, if it has one.
    Instant,
    /// The height of a curve.
    Counter,
    /// A span of time that ended with the sample.
    Slice,
}

/// A track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    id: u64,
    cpu: u16,
    shape: Shape,
    /// Among those of overlapping times.
    slot: u32,
}

/// Where a sample is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The track's number, from 1 on.
    pub(super) track: u64,
    /// Whether it is the first on its track.
    pub(super) is_new: bool,
    pub(super) shape: Shape,
}

/// What is known of an instrument.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) label: String,
    pub(super) unit: String,
    pub(super) meaning: Meaning,
    /// Of a level: its first instrument, and what it is called.
    level: Option<(u64, String)>,
}

/// Hands out tracks.
#[derive(Debug)]
pub(super) struct Tracks<'a> {
    names: HashMap<u64, Name>,
    numbers: HashMap<Key, u64>,
    /// How CPUs are called.
    pub(super) metadata: &'a Metadata,
    /// When the last time of each slot ended.
    ends: HashMap<(u64, u16), Vec<u64>>,
}

/// What is known of every instrument.
pub(super) fn names(metadata: &Metadata) -> HashMap<u64, Name> {
    let heads = level::heads(metadata);
    let name = |instrument: &InstrumentInfo| Name {
        label: instrument.label.clone(),
        unit: instrument.unit.clone(),
        meaning: instrument.meaning,
        level: { heads.get(&instrument.id) }.map(|head| (*head, instrument.whole())),
    };
    let instruments = metadata.instruments.iter();
    instruments
        .map(|instrument| (instrument.id, name(instrument)))
        .collect()
}

/// The name of an instrument that the metadata does not know, made from its identifier.
pub(super) fn unknown(id: u64) -> Name {
    Name {
        label: plain_id(id),
        unit: String::new(),
        meaning: Meaning::Value,
        level: None,
    }
}

/// The identifier as a person reads it: `7.pre.0.0`, or as a number if it is none.
pub(super) fn plain_id(id: u64) -> String {
    InstrumentId::unpack(id).map_or_else(|| id.to_string(), |id| id.to_string())
}

impl<'a> Tracks<'a> {
    pub(super) fn new(metadata: &'a Metadata) -> Self {
        Self {
            names: names(metadata),
            numbers: HashMap::new(),
            metadata,
            ends: HashMap::new(),
        }
    }

    /// What is known of an instrument.
    pub(super) fn name(&mut self, id: u64) -> &Name {
        self.names.entry(id).or_insert_with(|| unknown(id))
    }

    /// What a track of `id` on `cpu` is called.
    pub(super) fn title(&mut self, id: u64, cpu: u16) -> String {
        let name = self.name(id);
        if let Some((_, label)) = &name.level {
            return label.clone();
        }
        let label = name.label.clone();
        match cpu {
            ALL_CPUS => label,
            cpu => format!("{label} · {}", self.metadata.cpu_name(cpu)),
        }
    }

    /// The track of a sample.
    pub(super) fn place(&mut self, cpu: u16, sample: &Sample) -> Place {
        let shape = match self.name(sample.id).meaning {
            Meaning::Duration => Shape::Slice,
            Meaning::Count | Meaning::Value | Meaning::Level if sample.value < EXACT => {
                Shape::Counter
            }
            _ => Shape::Instant,
        };
        let slot = match shape {
            Shape::Slice => self.slot(cpu, sample),
            Shape::Instant | Shape::Counter => 0,
        };
        let (id, cpu) = match &self.name(sample.id).level {
            Some((head, _)) => (*head, ALL_CPUS),
            None => (sample.id, cpu),
        };
        let key = Key {
            id,
            cpu,
            shape,
            slot,
        };
        let next = self.numbers.len() as u64 + 1;
        let track = *self.numbers.entry(key).or_insert(next);
        Place {
            track,
            is_new: track == next,
            shape,
        }
    }

    fn slot(&mut self, cpu: u16, sample: &Sample) -> u32 {
        let begin = sample.tsc.saturating_sub(sample.value);
        let ends = self.ends.entry((sample.id, cpu)).or_default();
        let free = ends.iter().position(|&end| end <= begin);
        let slot = free.unwrap_or_else(|| {
            ends.push(0);
            ends.len() - 1
        });
        ends.get_mut(slot)
            .into_iter()
            .for_each(|end| *end = sample.tsc);
        slot as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::metadata::Delivers;

    proptest! {
        #[test]
        fn times_on_a_track_never_overlap(
            times in prop::collection::vec((0u64..50, 0u64..200, 0u16..2), 1..200),
        ) {
            let instrument = InstrumentInfo {
                id: 1,
                label: "time".to_owned(),
                instrument: "time".to_owned(),
                meaning: Meaning::Duration,
                unit: "ticks".to_owned(),
                launch: 0.0,
                splash: 1.0,
                placed: None,
                delivers: Delivers::Samples,
            };
            let metadata = Metadata { instruments: vec![instrument], ..Metadata::default() };
            let mut tracks = Tracks::new(&metadata);
            let mut ends: HashMap<u64, (u64, u16)> = HashMap::new();
            let mut now = 1000;
            for (gap, value, cpu) in times {
                now += gap;
                let place = tracks.place(cpu, &Sample { id: 1, value, tsc: now });
                prop_assert_eq!(place.shape, Shape::Slice);
                let before = ends.insert(place.track, (now, cpu));
                prop_assert_eq!(place.is_new, before.is_none());
                if let Some((end, of)) = before {
                    prop_assert!(end <= now - value && of == cpu);
                }
            }
        }
    }
}
