//! One hit of an instrument: what it may write, in which order, and when it is done
//! (`ilk-driver/kmod/ilk_abi.h` has the layouts).

use crate::verify::reason::Reason;
use std::sync::Arc;

use gilk_instruments::{Native, Program, Sampled};

use super::state::{Fact, State};
use crate::layout::RuntimeLayout;
use crate::patch::Probed;
use crate::verify::symbolic::atom::{Atom, Key, Value};
use crate::verify::symbolic::value::Values;
use crate::verify::text::effects::argument_number;
use crate::{Addr, InstrumentId};

/// An instrument as its identifier and the plan's list have it.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) id: InstrumentId,
    pub(crate) program: Program,
    pub(crate) timer: u8,
    /// The per-CPU word that it counts in.
    pub(crate) counter: Option<u64>,
    /// The probe that it runs, if it is an instrument in the language.
    pub(crate) probe: Option<Arc<Probed>>,
    /// The function that it calls.
    pub(crate) native: Option<NativeCall>,
}

/// A function and where it begins.
#[derive(Clone, Debug)]
pub(crate) struct NativeCall {
    pub(crate) native: Arc<Native>,
    pub(crate) entry: Addr,
}

/// How far a hit has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    pub(crate) stage: Stage,
    /// Whether the timer is stopped.
    pub(crate) cleared: bool,
    /// Of a probe in the language: its steps that are done.
    pub(crate) steps: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    #[default]
    Nothing,
    /// `cmpxchg` has been tried with this head; the branch on its result comes next.
    Trying { head: Value, tsc: Value },
    /// The slot of `head` is this hit's.
    Reserved {
        head: Value,
        tsc: Value,
        written: Written,
    },
    /// An entry of the table of timers is made busy, if it is free, or else if it is its own; the branch on
    /// the result comes next. Whether nothing was tried before.
    Exchanging {
        entry: Value,
        free: bool,
        first: bool,
    },
    /// The entry is not free.
    Taken { entry: Value },
    /// The entry is its own and busy. What has been written there to be kept.
    Owned {
        entry: Value,
        written: Option<Value>,
    },
    /// What is to be kept finds no room, or the timer to be stopped does not run: to be counted.
    Full,
    /// An aggregate of two words: the first is counted in.
    Counted,
    /// A value is counted by its buckets: so many of their sums are written.
    Tallied(u8),
    /// `cmpxchg` of a largest value has been tried; the branch on its result comes next.
    Raising,
}

/// What of a slot is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Written {
    value: bool,
    time: bool,
    identifier: bool,
}

impl Written {
    /// All but the mark.
    const ALL: Self = Self {
        value: true,
        time: true,
        identifier: true,
    };
}

impl Progress {
    /// Whether nothing of the hit has happened.
    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Whether no slot is reserved that is being filled.
    pub(crate) fn stage_is_open(self) -> bool {
        !matches!(self.stage, Stage::Reserved { .. } | Stage::Trying { .. })
    }

    /// Whether the next instruction must branch on the result of `cmpxchg`.
    pub(crate) fn is_trying(self) -> bool {
        matches!(
            self.stage,
            Stage::Trying { .. } | Stage::Raising | Stage::Exchanging { .. }
        )
    }

    /// Whether a value that progress depends on is made of `atom`.
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

    /// What is missing, for a person.
    pub(crate) fn missing(self) -> &'static str {
        match self.stage {
            Stage::Nothing if self.cleared => "its timer is stopped and nothing is sampled",
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

/// How a step went: the hit goes on, or is done.
pub(crate) type Step = Result<Option<Progress>, Reason>;

/// The rules of one hit.
pub(crate) struct Hit<'a> {
    pub(crate) expected: &'a Expected,
    pub(crate) layout: &'a RuntimeLayout,
    pub(crate) values: &'a mut Values,
    /// Where timers' entries were found, as functions of the running task.
    pub(crate) entries: &'a mut Vec<(Key, Value)>,
}

impl Hit<'_> {
    fn samples(&self, progress: Progress) -> bool {
        match self.expected.program {
            Program::Sample(_) => true,
            Program::StopTimer => progress.cleared,
            _ => self.is_sampling(progress) || self.has_returned(progress),
        }
    }

    /// A sample is delivered or lost.
    fn delivered(&self, progress: Progress) -> Option<Progress> {
        { self.expected.probe.as_ref() }.and_then(|_| self.next(progress))
    }

    /// One is added to the per-CPU word at `gs:[word]`.
    pub(crate) fn count(&mut self, progress: Progress, word: u64, state: &State) -> Step {
        let layout = self.layout;
        if self.expected.counter == Some(word) && self.expected.program == Program::Count {
            return if progress.is_nothing() {
                Ok(None)
            } else {
                Err(Reason::CountsWithin)
            };
        }
        if progress.stage == Stage::Nothing && self.samples(progress) && word == layout.lost_full.0
        {
            let full = state.facts().any(|fact| matches!(fact, Fact::Full(_)));
            return if full {
                Ok(self.delivered(progress))
            } else {
                Err(Reason::CountsLoss)
            };
        }
        if self.expected.program == Program::StopTimer && word == layout.lost_unmatched.0 {
            return if progress.stage == Stage::Full {
                Ok(None)
            } else {
                Err(Reason::CountsUnmatched)
            };
        }
        Err(Reason::CountsForeign { word })
    }

    /// `cmpxchg gs:[head], new` with `old` in rax.
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

    /// What holds after the branch on the reservation's result: the head that is ours, or none.
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

    /// Eight bytes are written to memory.
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

    /// After the branch on the result of keeping a larger value.
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

    /// What a head grows by from one sample to the next.
    fn one(&self) -> u64 {
        1 << (32 - self.layout.slots_log2.min(31))
    }

    /// `ring_base + (cpu << stride_log2) + slot * 32`. Of a head, the slot is the bits from `one` to
    /// the middle, and the CPU the bits below; but no CPU has the upper two of those, so that they
    /// may stand for the eights in a slot.
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

    /// Whether `stored` is what the instrument samples.
    fn value(
        &mut self,
        progress: Progress,
        stored: Value,
        tsc: Value,
        state: &State,
    ) -> Result<(), Reason> {
        let right = match self.expected.program {
            Program::Sample(Sampled::Tsc) => stored == tsc,
            Program::Sample(Sampled::BlockIndex) => {
                self.values.as_constant(stored) == Some(self.expected.id.block.into())
            }
            Program::Sample(Sampled::Argument(argument)) => {
                argument_number(argument).is_some_and(|register| {
                    self.values.as_atom(stored) == Some(&Atom::Register(register))
                })
            }
            Program::StopTimer => {
                let started = self.values.sub(tsc, stored);
                progress.cleared && state.knows(Fact::Mine(started))
            }
            Program::Probe => self.is_sampled(progress, stored, tsc, state),
            Program::Native => self.is_returned(stored),
            Program::Count | Program::StartTimer => false,
        };
        if right {
            Ok(())
        } else {
            Err(Reason::OtherValue)
        }
    }
}

/// Whether the value is a head that was read.
pub(crate) fn is_head(values: &Values, value: Value) -> bool {
    matches!(values.as_atom(value), Some(Atom::Head(_) | Atom::Joined(_)))
}
