//! Tracks, for formats whose readers draw them: samples of one kind next to each other.
//!
//! A track holds the samples of one instrument on one CPU. Overlapping durations (a timer runs for
//! every thread) cannot share a track, so each is assigned to the first track whose last duration
//! ended before it began. Samples arrive in order of their ends, so this greedy assignment needs no
//! look-back.
//!
//! A level has one track for all of its instruments and CPUs.

use std::collections::HashMap;

use crate::metadata::{InstrumentInfo, Metadata};
use crate::record::ALL_CPUS;
use crate::{InstrumentId, Meaning, Sample, level};

/// Greatest number that every reader keeps exact: doubles have 53 bits (RFC 8259, 6).
pub(super) const EXACT: u64 = 1 << 53;

/// Drawing of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// An event; its value, if any, is an annotation.
    Instant,
    /// The height of a curve.
    Counter,
    /// A duration that ended at the sample's time.
    Slice,
}

/// Identity of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TrackKey {
    id: u64,
    cpu: u16,
    shape: Shape,
    /// Index among the tracks of overlapping durations.
    slot: u32,
}

/// Track and shape of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrackPlace {
    /// Number of the track, from 1.
    pub(super) track: u64,
    /// This sample is the first on its track.
    pub(super) is_new: bool,
    pub(super) shape: Shape,
}

/// Properties of an instrument.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) label: String,
    pub(super) unit: String,
    pub(super) meaning: Meaning,
    /// For a level: its first instrument and its name.
    level: Option<(u64, String)>,
}

/// Allocator of tracks.
#[derive(Debug)]
pub(super) struct Tracks<'a> {
    names: HashMap<u64, Name>,
    numbers: HashMap<TrackKey, u64>,
    /// Source of CPU names.
    pub(super) metadata: &'a Metadata,
    /// End of the last duration in each slot.
    ends: HashMap<(u64, u16), Vec<u64>>,
}

/// Returns the properties of every instrument.
pub(super) fn names(metadata: &Metadata) -> HashMap<u64, Name> {
    let heads = level::heads(metadata);
    let name = |instrument: &InstrumentInfo| Name {
        label: instrument.label.clone(),
        unit: instrument.unit.clone(),
        meaning: instrument.meaning,
        level: heads
            .get(&instrument.id)
            .map(|head| (*head, instrument.whole())),
    };
    let instruments = metadata.instruments.iter();
    instruments
        .map(|instrument| (instrument.id, name(instrument)))
        .collect()
}

/// Returns properties for an instrument that is not in the metadata, named after its identifier.
pub(super) fn unknown(id: u64) -> Name {
    Name {
        label: plain_id(id),
        unit: String::new(),
        meaning: Meaning::Value,
        level: None,
    }
}

/// Formats an identifier: `7.pre.0.0`, or as a number if it is not a valid one.
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

    /// Returns the properties of an instrument.
    pub(super) fn name(&mut self, id: u64) -> &Name {
        self.names.entry(id).or_insert_with(|| unknown(id))
    }

    /// Returns the title of the track of `id` on `cpu`.
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

    /// Returns the track of a sample.
    pub(super) fn place(&mut self, cpu: u16, sample: &Sample) -> TrackPlace {
        let shape = match self.name(sample.id).meaning {
            Meaning::Duration => Shape::Slice,
            Meaning::Count | Meaning::Value | Meaning::Level if sample.value < EXACT => {
                Shape::Counter
            }
            _ => Shape::Instant,
        };
        self.place_as(shape, cpu, sample)
    }

    /// Returns the track of a sample that is text, an event at its time.
    pub(super) fn event(&mut self, cpu: u16, sample: &Sample) -> TrackPlace {
        self.place_as(Shape::Instant, cpu, sample)
    }

    fn place_as(&mut self, shape: Shape, cpu: u16, sample: &Sample) -> TrackPlace {
        let slot = match shape {
            Shape::Slice => self.slot(cpu, sample),
            Shape::Instant | Shape::Counter => 0,
        };
        let (id, cpu) = match &self.name(sample.id).level {
            Some((head, _)) => (*head, ALL_CPUS),
            None => (sample.id, cpu),
        };
        let key = TrackKey {
            id,
            cpu,
            shape,
            slot,
        };
        let next = self.numbers.len() as u64 + 1;
        let track = *self.numbers.entry(key).or_insert(next);
        TrackPlace {
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
        if let Some(end) = ends.get_mut(slot) {
            *end = sample.tsc;
        }
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
