//! The destination of one machine's samples: an index shared by all machines of the session.

use std::sync::{Arc, OnceLock};

use gilk_samples::Batch;
use gilk_samples::clocks::Alignment;
use gilk_samples::index::{Index, KEPT, Shared};
use gilk_samples::joined::Turn;
use gilk_samples::metadata::Metadata;

/// The state shared by the machines of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    /// The samples of all machines.
    pub(crate) index: Shared,
    /// The joint metadata, with clocks that were not read yet.
    pub(crate) described: Arc<OnceLock<Metadata>>,
    /// Set once the index is initialized.
    made: Arc<OnceLock<()>>,
}

/// A machine's access to the shared index.
pub(crate) struct MachineLane {
    /// Converts its samples to the joint clock and identifiers.
    pub(crate) turn: Turn,
    pub(crate) common: Common,
}

impl MachineLane {
    /// Sets the machine's clock; the first machine to start initializes the index for the session's
    /// time range.
    pub(crate) fn begin(&mut self, ends: [u64; 2], alignment: Alignment) {
        let [first, last] = ends;
        let Common {
            index,
            described,
            made,
        } = &self.common;
        made.get_or_init(|| {
            let empty = Index::limited(KEPT, (first, last));
            index.replace(match described.get() {
                Some(described) => empty.by_thread_and_level(described),
                None => empty,
            });
        });
        self.turn.align(alignment);
    }

    /// Appends samples of the machine.
    pub(crate) fn append(&self, batch: &Batch) {
        self.common.index.append(&self.turn.batch(batch));
    }
}

#[cfg(test)]
mod tests {
    use gilk_samples::index::threads::UNIT;
    use gilk_samples::index::{By, Owner};
    use gilk_samples::joined::Joint;
    use gilk_samples::metadata::{Clock, Delivers, InstrumentInfo};
    use gilk_samples::{Meaning, Sample};

    use super::*;

    #[test]
    fn threads_of_different_machines_have_different_lanes() {
        let recorder = InstrumentInfo {
            id: 0,
            label: "running-thread pre finish_task_switch block 0".to_owned(),
            instrument: "running-thread".to_owned(),
            meaning: Meaning::Value,
            unit: UNIT.to_owned(),
            launch: 0.0,
            splash: 1.0,
            placed: None,
            delivers: Delivers::Samples,
        };
        let clock = Clock {
            hz: 1_000_000_000,
            ..Clock::default()
        };
        let machine_metadata = Metadata {
            clock,
            cpus: 2,
            instruments: vec![recorder],
            ..Metadata::default()
        };
        let (common, mut joint) = (Common::default(), Joint::default());
        let alignment = || Alignment::new([], clock);
        let mut lanes = Vec::new();
        for name in ["left", "right"] {
            let turn = joint
                .turn(&machine_metadata, machine_metadata.cpus, alignment())
                .unwrap();
            joint.describe(name, &machine_metadata, &turn, None);
            let common = common.clone();
            lanes.push(MachineLane { turn, common });
        }
        common.described.set(joint.finish()).unwrap();
        for (lane, cpu) in lanes.iter_mut().zip([0, 1]) {
            lane.begin([0, 1000], alignment());
            let sample = Sample {
                id: 0,
                value: 40,
                tsc: 5,
            };
            let samples = vec![sample; 1 + usize::from(cpu)];
            lane.append(&Batch { cpu, samples });
        }
        let index = common.index.look();
        let described = common.described.get().unwrap();
        let ids: Vec<u64> = described.instruments.iter().map(|info| info.id).collect();
        let lanes = index.lanes_by(By::Thread, &ids);
        let threads: Vec<(usize, String, u64)> = lanes
            .into_iter()
            .map(|(lane, owner)| {
                assert_ne!(owner, Owner::All);
                let count = owner.part(&index).lane(ids[lane]).unwrap().total.count;
                (lane, owner.name(described, &index).unwrap(), count)
            })
            .collect();
        assert_eq!(
            threads,
            [
                (0, "thread 40 of left".to_owned(), 1),
                (1, "thread 40 of right".to_owned(), 2)
            ]
        );
    }
}
