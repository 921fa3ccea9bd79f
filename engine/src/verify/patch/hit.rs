//! One hit of an instrument: its permitted writes, their order, and its completion
//! (`ilk-driver/kmod/ilk_abi.h` has the layouts).

use crate::verify::reason::Reason;
use std::sync::Arc;

use gilk_instruments::Native;

use super::state::{Fact, State};
use crate::layout::{CounterSlot, RuntimeLayout};
use crate::patch::Probed;
use crate::verify::symbolic::atom::{Atom, Key, Value};
use crate::verify::symbolic::value::Values;
use crate::{Addr, InstrumentId};

/// An instrument of a list in the plan.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) id: InstrumentId,
    /// The counter of an instrument that counts its hits.
    pub(crate) counter: Option<CounterSlot>,
    /// The probe that it runs, if it is a program in the language.
    pub(crate) probe: Option<Arc<Probed>>,
    /// The native function that it calls.
    pub(crate) native: Option<NativeCall>,
}

/// A native function with its address.
#[derive(Clone, Debug)]
pub(crate) struct NativeCall {
    pub(crate) native: Arc<Native>,
    pub(crate) entry: Addr,
}

/// The progress of a hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    pub(crate) stage: Stage,
    /// Number of completed steps of a program.
    pub(crate) steps: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    #[default]
    Nothing,
    /// `cmpxchg` was executed with this head; the branch on its result follows.
    Trying { head: Value, tsc: Value },
    /// The hit owns the slot of `head`.
    Reserved {
        head: Value,
        tsc: Value,
        written: Written,
    },
    /// `cmpxchg` of an entry of the table of storage was executed, of a free entry or of its own;
    /// the branch on its result follows. `first` is whether it is the first attempt.
    Exchanging {
        entry: Value,
        free: bool,
        first: bool,
    },
    /// The entry is not free.
    Taken { entry: Value },
    /// The hit has locked its own entry. `written` is the value that it has stored there.
    Owned {
        entry: Value,
        written: Option<Value>,
    },
    /// No entry is free for the value: an overflow is to be counted.
    Full,
    /// The first word of an aggregate of two words is updated.
    Counted,
    /// Number of updated sums of a value's buckets.
    Tallied(u8),
    /// `cmpxchg` of a maximum was executed; the branch on its result follows.
    Raising,
}

/// The written words of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Written {
    value: bool,
    time: bool,
    identifier: bool,
}

impl Written {
    /// All except the mark.
    const ALL: Self = Self {
        value: true,
        time: true,
        identifier: true,
    };
}

impl Progress {
    /// Returns whether the hit has had no effect.
    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Returns whether no reserved slot is incomplete.
    pub(crate) fn stage_is_open(self) -> bool {
        !matches!(self.stage, Stage::Reserved { .. } | Stage::Trying { .. })
    }

    /// Returns whether the next instruction must branch on the result of `cmpxchg`.
    pub(crate) fn is_trying(self) -> bool {
        matches!(
            self.stage,
            Stage::Trying { .. } | Stage::Raising | Stage::Exchanging { .. }
        )
    }

    /// Returns whether a value that progress depends on contains `atom`.
    pub(crate) fn mentions(self, values: &Values, atom: &Atom) -> bool {
        let gone = |value| values.mentions(value, atom);
        match self.stage {
            Stage::Nothing | Stage::Full | Stage::Counted | Stage::Tallied(_) | Stage::Raising => {
                false
            }
            Stage::Trying { head, tsc } | Stage::Reserved { head, tsc, .. } => {
                gone(head) || gone(tsc)
            }
            Stage::Exchanging { entry, .. } | Stage::Taken { entry } => gone(entry),
            Stage::Owned { entry, written } => gone(entry) || written.is_some_and(gone),
        }
    }

    /// Describes the missing effect in messages.
    pub(crate) fn missing(self) -> &'static str {
        match self.stage {
            Stage::Nothing if self.steps > 0 => "some of its actions are not done",
            Stage::Nothing => "it has done nothing yet",
            Stage::Counted => "only the first word of its aggregate is written",
            Stage::Tallied(_) => "only some of the sums of its value's buckets are written",
            Stage::Raising => "whether a larger value was kept is not looked at",
            Stage::Trying { .. } => "the result of its reservation is not looked at",
            Stage::Reserved { .. } => "its slot is reserved and has no mark yet",
            Stage::Exchanging { .. } => "the result of its exchange is not looked at",
            Stage::Taken { .. } => "its entry of the table of timers is not tried as its own",
            Stage::Owned { .. } => "its own entry of the table of timers is still busy",
            Stage::Full => "what finds no room or no start is not counted",
        }
    }
}

/// The result of an effect: the new progress, or `None` when the hit is complete.
pub(crate) type Step = Result<Option<Progress>, Reason>;

/// The rules of one hit.
pub(crate) struct Hit<'a> {
    pub(crate) expected: &'a Expected,
    pub(crate) layout: &'a RuntimeLayout,
    pub(crate) values: &'a mut Values,
    /// Addresses of entries of the table of storage, as functions of the running task.
    pub(crate) entries: &'a mut Vec<(Key, Value)>,
}

impl Hit<'_> {
    fn samples(&self, progress: Progress) -> bool {
        self.is_sampling(progress) || self.has_returned(progress)
    }

    /// Completes a sample, delivered or lost.
    fn delivered(&self, progress: Progress) -> Option<Progress> {
        { self.expected.probe.as_ref() }.and_then(|_| self.next(progress))
    }

    /// Checks an increment of the per-CPU word at `gs:[word]`.
    pub(crate) fn count(&mut self, progress: Progress, word: u64, state: &State) -> Step {
        let layout = self.layout;
        if progress.stage == Stage::Nothing && self.samples(progress) && word == layout.lost_full.0
        {
            let full = state.facts().any(|fact| matches!(fact, Fact::Full(_)));
            return if full {
                Ok(self.delivered(progress))
            } else {
                Err(Reason::CountsLoss)
            };
        }
        Err(Reason::CountsForeign { word })
    }

    /// Checks `cmpxchg gs:[head], new` with `old` in rax.
    pub(crate) fn reserve(
        &mut self,
        progress: Progress,
        old: Value,
        new: Value,
        state: &State,
    ) -> Step {
        if progress.stage != Stage::Nothing || !self.samples(progress) {
            return Err(Reason::NeedlessSlot);
        }
        if !is_head(self.values, old) {
            return Err(Reason::ReservesOtherHead);
        }
        let one = self.values.constant(self.one());
        if self.values.add(old, one) != new {
            return Err(Reason::HeadStep);
        }
        if !state.knows(Fact::Room(old)) {
            return Err(Reason::RingFull);
        }
        let Some(tsc) = state.since_head.tsc else {
            return Err(Reason::StaleClock);
        };
        Ok(Some(Progress {
            stage: Stage::Trying { head: old, tsc },
            ..progress
        }))
    }

    /// Returns the progress after the branch on the result of a reservation, and the reserved head.
    pub(crate) fn tried(progress: Progress, success: bool) -> (Progress, Option<Value>) {
        match progress.stage {
            Stage::Trying { head, tsc } if success => (
                Progress {
                    stage: Stage::Reserved {
                        head,
                        tsc,
                        written: Written::default(),
                    },
                    ..progress
                },
                Some(head),
            ),
            _ => (
                Progress {
                    stage: Stage::Nothing,
                    ..progress
                },
                None,
            ),
        }
    }

    /// Checks a store of eight bytes.
    pub(crate) fn store(
        &mut self,
        progress: Progress,
        address: Value,
        stored: Value,
        state: &State,
    ) -> Step {
        match progress.stage {
            Stage::Reserved { head, tsc, written } => {
                let slot = self.slot(head);
                let offset = self.values.sub(address, slot);
                let written = match self.values.as_constant(offset) {
                    Some(0) => {
                        return if written != Written::ALL {
                            Err(Reason::EarlyMark)
                        } else if stored == head {
                            Ok(self.delivered(progress))
                        } else {
                            Err(Reason::OtherMark)
                        };
                    }
                    Some(8) => {
                        self.value(progress, stored, tsc, state)?;
                        Written {
                            value: true,
                            ..written
                        }
                    }
                    Some(16) if stored == tsc => Written {
                        time: true,
                        ..written
                    },
                    Some(16) => {
                        return Err(Reason::OtherTime);
                    }
                    Some(24)
                        if self.values.as_constant(stored) == Some(self.expected.id.pack()) =>
                    {
                        Written {
                            identifier: true,
                            ..written
                        }
                    }
                    Some(24) => {
                        return Err(Reason::OtherIdentifier {
                            id: self.expected.id,
                        });
                    }
                    _ => return Err(Reason::OutsideSlot),
                };
                Ok(Some(Progress {
                    stage: Stage::Reserved { head, tsc, written },
                    ..progress
                }))
            }
            Stage::Owned { .. } => self.keep(progress, address, stored, state),
            _ => Err(Reason::StoresForeign),
        }
    }

    /// Returns the progress after the branch on the result of a maximum's `cmpxchg`.
    pub(crate) fn raised(&self, progress: Progress, success: bool) -> Option<Progress> {
        if success {
            self.next(progress)
        } else {
            Some(Progress {
                stage: Stage::Counted,
                ..progress
            })
        }
    }

    /// Returns the increment of a head from one sample to the next.
    fn one(&self) -> u64 {
        1 << (32 - self.layout.slots_log2.min(31))
    }

    /// Returns `ring_base + (cpu << stride_log2) + slot * 32`. The slot is the bits of a head from
    /// `one` to the middle, and the CPU is the bits below; no CPU has the upper two of those, which
    /// stand for the eights in a slot.
    fn slot(&mut self, head: Value) -> Value {
        let one = self.one();
        let cpu = self.values.mask(head, one / 4 - 1);
        let cpu = self
            .values
            .scale(cpu, 1u64 << self.layout.stride_log2.min(63));
        let slot = self.values.mask(head, (1 << 32) - one / 4);
        let slot = self.values.shr(slot, (one / 4).trailing_zeros());
        let slot = self.values.scale(slot, 8);
        let base = self.values.constant(self.layout.ring_base.0);
        let ring = self.values.add(base, cpu);
        self.values.add(ring, slot)
    }

    /// Checks that `stored` is the value that the instrument samples.
    fn value(
        &mut self,
        progress: Progress,
        stored: Value,
        tsc: Value,
        state: &State,
    ) -> Result<(), Reason> {
        let right = match self.expected.native {
            Some(_) => self.is_returned(stored),
            None => self.is_sampled(progress, stored, tsc, state),
        };
        if right {
            Ok(())
        } else {
            Err(Reason::OtherValue)
        }
    }
}

/// Returns whether the value is a head that was read.
pub(crate) fn is_head(values: &Values, value: Value) -> bool {
    matches!(values.as_atom(value), Some(Atom::Head(_) | Atom::Joined(_)))
}
