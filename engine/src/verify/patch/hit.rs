//! One hit of an instrument: its permitted writes, their order, and its completion
//! (`ilk-driver/kmod/ilk_abi.h` has the layouts).

use crate::verify::reason::Reason;
use std::sync::Arc;

use gilk_instruments::Native;
use gilk_samples::Sample;

use super::descriptor::{Sequence, SequenceStep};
use super::program::steps;
use super::slot::{SlotWords, shared_mark, shared_slot, shared_slot_bytes};
use super::state::{AbstractState, Fact};
use crate::layout::{CounterSlot, RuntimeLayout};
use crate::patch::Probed;
use crate::verify::symbolic::atom::{Atom, Key, SymValue};
use crate::verify::symbolic::value::SymValues;
use crate::{Addr, InstrumentId};

/// Bytes of a word of a sample with its value, its time and its identifier.
const WORD_BYTES: u64 = 32;

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
    /// The function that replaces the original one.
    pub(crate) replacement: Option<Addr>,
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
    pub(crate) stage: HitStage,
    /// Number of completed steps of a program.
    pub(crate) steps: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum HitStage {
    #[default]
    Nothing,
    /// `cmpxchg` was executed with this head, for so many slots; the branch on its result follows.
    Trying {
        head: SymValue,
        tsc: SymValue,
        slots: u8,
    },
    /// The hit owns the slot of `head`, for a word of its sample, and so many slots after that are owned by further
    /// words, and then by the samples that follow.
    Reserved {
        head: SymValue,
        tsc: SymValue,
        written: SlotWords,
        word: u8,
        further: u8,
    },
    /// So many samples are counted as lost, besides the ones that have passed.
    Losing { further: u8 },
    /// `cmpxchg` of an entry of the table of storage was executed, of a free entry or of its own;
    /// the branch on its result follows. `first` is whether it is the first attempt.
    Exchanging {
        entry: SymValue,
        free: bool,
        first: bool,
    },
    /// The entry is not free.
    Taken { entry: SymValue },
    /// The hit has locked its own entry. `written` is the value that it has stored there.
    Owned {
        entry: SymValue,
        written: Option<SymValue>,
    },
    /// No entry is free for the value: an overflow is to be counted.
    Full,
    /// The first word of an aggregate of two words is updated.
    Counted,
    /// Number of updated sums of a value's buckets.
    Tallied(u8),
    /// `cmpxchg` of a maximum was executed; the branch on its result follows.
    Raising,
    /// Inside a restartable sequence.
    Sequence {
        sequence: Sequence,
        done: SequenceStep,
        before: WholeStage,
    },
    /// The thread has no area for restartable sequences: it updates the word of such threads.
    Unregistered { before: WholeStage },
    /// A sample is lost, because the thread has no area or the ring of its CPU is full: it is counted in this row of
    /// words.
    Lost { row: SymValue },
}

/// A stage at which a restartable sequence may begin, and to which it is set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WholeStage {
    Nothing,
    Counted,
    Tallied(u8),
    Full,
}

impl WholeStage {
    /// Returns the stage, if a sequence may begin there.
    pub(super) fn of(stage: HitStage) -> Option<Self> {
        match stage {
            HitStage::Nothing => Some(Self::Nothing),
            HitStage::Counted => Some(Self::Counted),
            HitStage::Tallied(done) => Some(Self::Tallied(done)),
            HitStage::Full => Some(Self::Full),
            _ => None,
        }
    }

    pub(super) fn stage(self) -> HitStage {
        match self {
            Self::Nothing => HitStage::Nothing,
            Self::Counted => HitStage::Counted,
            Self::Tallied(done) => HitStage::Tallied(done),
            Self::Full => HitStage::Full,
        }
    }
}

impl Progress {
    /// Returns whether the hit has had no effect.
    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Returns whether the instrument is complete, and another one has begun with its stage.
    pub(crate) fn passes(self, expected: &Expected) -> bool {
        let hands_on = matches!(
            self.stage,
            HitStage::Reserved { .. } | HitStage::Losing { .. }
        );
        let probe = expected.probe.as_ref().and_then(|probed| probed.probe());
        let all = probe.map(steps);
        hands_on && all.is_some_and(|all| usize::from(self.steps) >= all)
    }

    /// Returns the values of a reservation by an earlier sample: the mark of that one, and the time.
    pub(crate) fn begun(self, values: &mut SymValues, layout: &RuntimeLayout) -> Vec<SymValue> {
        let HitStage::Reserved { head, tsc, .. } = self.stage else {
            return Vec::new();
        };
        let one = values.constant(one(layout));
        vec![values.sub(head, one), tsc]
    }

    /// Returns whether no reserved slot is incomplete.
    pub(crate) fn stage_is_open(self) -> bool {
        !matches!(
            self.stage,
            HitStage::Reserved { .. } | HitStage::Trying { .. }
        )
    }

    /// Returns whether the next instruction must branch on the result of `cmpxchg`.
    pub(crate) fn is_trying(self) -> bool {
        matches!(
            self.stage,
            HitStage::Trying { .. } | HitStage::Raising | HitStage::Exchanging { .. }
        )
    }

    /// Returns whether a value that progress depends on contains `atom`.
    pub(crate) fn mentions(self, values: &SymValues, atom: &Atom) -> bool {
        let gone = |value| values.mentions(value, atom);
        match self.stage {
            HitStage::Nothing
            | HitStage::Full
            | HitStage::Counted
            | HitStage::Tallied(_)
            | HitStage::Losing { .. }
            | HitStage::Raising
            | HitStage::Unregistered { .. } => false,
            HitStage::Sequence { done, .. } => match done {
                SequenceStep::Armed => false,
                SequenceStep::Read(cpu)
                | SequenceStep::Compared(cpu)
                | SequenceStep::Registered(cpu) => gone(cpu),
                SequenceStep::Headed { cpu, head } | SequenceStep::Limited { cpu, head } => {
                    gone(cpu) || gone(head)
                }
                SequenceStep::Filling { cpu, head, tsc, .. } => {
                    gone(cpu) || gone(head) || gone(tsc)
                }
            },
            HitStage::Lost { row } => gone(row),
            HitStage::Trying { head, tsc, .. } | HitStage::Reserved { head, tsc, .. } => {
                gone(head) || gone(tsc)
            }
            HitStage::Exchanging { entry, .. } | HitStage::Taken { entry } => gone(entry),
            HitStage::Owned { entry, written } => gone(entry) || written.is_some_and(gone),
        }
    }

    /// Describes the missing effect in messages.
    pub(crate) fn missing(self) -> &'static str {
        match self.stage {
            HitStage::Nothing if self.steps > 0 => "some of its actions are not done",
            HitStage::Nothing => "it has done nothing yet",
            HitStage::Counted => "only the first word of its aggregate is written",
            HitStage::Tallied(_) => "only some of the sums of its value's buckets are written",
            HitStage::Raising => "whether a larger value was kept is not looked at",
            HitStage::Trying { .. } => "the result of its reservation is not looked at",
            HitStage::Reserved { .. } => "its slot is reserved and has no mark yet",
            HitStage::Losing { .. } => "more losses are counted than there are samples",
            HitStage::Exchanging { .. } => "the result of its exchange is not looked at",
            HitStage::Taken { .. } => "its entry of the table of timers is not tried as its own",
            HitStage::Owned { .. } => "its own entry of the table of timers is still busy",
            HitStage::Full => "an overflow is not counted",
            HitStage::Sequence { .. } => "its restartable sequence has not committed",
            HitStage::Lost { .. } => "its loss is not counted",
            HitStage::Unregistered { .. } => "a thread without an area does not update its word",
        }
    }
}

/// The result of an effect: the new progress, or `None` when the hit is complete.
pub(crate) type HitResult = Result<Option<Progress>, Reason>;

/// The rules of one hit.
pub(crate) struct HitRules<'a> {
    pub(crate) expected: &'a Expected,
    pub(crate) layout: &'a RuntimeLayout,
    pub(crate) values: &'a mut SymValues,
    /// Addresses of entries of the table of storage, as functions of the running task.
    pub(crate) entries: &'a mut Vec<(Key, SymValue)>,
}

impl HitRules<'_> {
    fn samples(&self, progress: Progress) -> bool {
        self.is_sampling(progress) || self.has_returned(progress)
    }

    /// Completes a sample, delivered or lost.
    fn delivered(&self, progress: Progress) -> Option<Progress> {
        self.expected
            .probe
            .as_ref()
            .and_then(|_| self.next(progress))
    }

    /// Completes a sample, after which the next one, of this instrument or another, begins with a stage. The step may be
    /// beyond the instrument's last: see [`Progress::passes`].
    fn handed_on(progress: Progress, stage: HitStage) -> Progress {
        Progress {
            stage,
            steps: progress.steps.saturating_add(1),
        }
    }

    /// Checks an addition to the per-CPU word at `gs:[word]`: the loss of so many samples.
    pub(crate) fn count(
        &mut self,
        progress: Progress,
        (word, samples): (u64, u64),
        state: &AbstractState,
    ) -> HitResult {
        let layout = self.layout;
        if progress.stage != HitStage::Nothing
            || !self.samples(progress)
            || word != layout.rings.lost_full.0
        {
            return Err(Reason::CountsForeign { word });
        }
        // So many samples need so many slots, and one of these is known to be taken.
        // A line is one sample, and needs a slot for each word, or one of the ring that all threads share.
        let needed = match self.words(progress) {
            1 => samples,
            _ if samples != 1 => return Err(Reason::CountsLoss),
            _ if layout.sequences().is_some() => 1,
            words => u64::from(words),
        };
        let full = state.facts().any(|fact| match fact {
            Fact::Full(head) => self
                .slots_after_head(head)
                .is_some_and(|free| u64::from(free) < needed),
            _ => false,
        });
        let further = samples
            .checked_sub(1)
            .and_then(|more| u8::try_from(more).ok());
        match further {
            Some(0) if full => Ok(self.delivered(progress)),
            Some(further) if full => Ok(Some(Self::handed_on(
                progress,
                HitStage::Losing { further },
            ))),
            _ => Err(Reason::CountsLoss),
        }
    }

    /// Passes one more sample of those that are counted as lost.
    pub(crate) fn lose(&self, progress: Progress, further: u8) -> HitResult {
        match further.checked_sub(1) {
            _ if !self.is_sampling(progress) || self.words(progress) != 1 => {
                Err(Reason::CountsLoss)
            }
            None => Err(Reason::CountsLoss),
            Some(0) => Ok(self.delivered(progress)),
            Some(further) => Ok(Some(Self::handed_on(
                progress,
                HitStage::Losing { further },
            ))),
        }
    }

    /// Checks `cmpxchg gs:[head], new` with `old` in rax.
    pub(crate) fn reserve(
        &mut self,
        progress: Progress,
        old: SymValue,
        new: SymValue,
        state: &AbstractState,
    ) -> HitResult {
        if progress.stage != HitStage::Nothing || !self.samples(progress) {
            return Err(Reason::NeedlessSlot);
        }
        if !is_head(self.values, old) {
            return Err(Reason::ReservesOtherHead);
        }
        let step = self.values.sub(new, old);
        let step = self.values.as_constant(step);
        let slots = step.and_then(|step| slots_of(step, self.layout));
        let words = self.words(progress);
        // A line reserves for itself alone. In a process there are no groups, and a slot has a whole line.
        let shares = self.layout.sequences().is_some();
        let fits = |&slots: &u8| match shares {
            true => slots == 1,
            false => slots > 0 && (words == 1 || slots == words),
        };
        let slots = slots.filter(fits).ok_or(Reason::HeadStep)?;
        if shares && u64::from(words) * WORD_BYTES > shared_slot_bytes(self.layout) {
            return Err(Reason::LongLine { words });
        }
        let one = self.values.constant(self.one());
        let mut head = old;
        for _ in 0..slots {
            if !state.knows(Fact::Room(head)) {
                return Err(Reason::RingFull);
            }
            head = self.values.add(head, one);
        }
        let Some(tsc) = state.since_head.tsc else {
            return Err(Reason::StaleClock);
        };
        Ok(Some(Progress {
            stage: HitStage::Trying {
                head: old,
                tsc,
                slots,
            },
            ..progress
        }))
    }

    /// Returns the number of slots from a head that was read to this one.
    fn slots_after_head(&mut self, head: SymValue) -> Option<u8> {
        slots_after_head(self.values, self.layout, head)
    }

    /// Returns the progress after the branch on the result of a reservation, and the reserved head.
    pub(crate) fn tried(progress: Progress, success: bool) -> (Progress, Option<SymValue>) {
        match progress.stage {
            HitStage::Trying { head, tsc, slots } if success => (
                Progress {
                    stage: HitStage::Reserved {
                        head,
                        tsc,
                        written: SlotWords::default(),
                        word: 0,
                        further: slots.saturating_sub(1),
                    },
                    ..progress
                },
                Some(head),
            ),
            _ => (
                Progress {
                    stage: HitStage::Nothing,
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
        address: SymValue,
        stored: SymValue,
        state: &AbstractState,
    ) -> HitResult {
        match progress.stage {
            HitStage::Reserved {
                head,
                tsc,
                written,
                word,
                further,
            } => {
                let slot = self.slot(head);
                let offset = self.values.sub(address, slot);
                let offset = self.values.as_constant(offset);
                let shares = self.layout.sequences().is_some();
                let (written, word) = match offset {
                    Some(0) => {
                        let is_whole = u16::from(word) + 1 == u16::from(self.words(progress));
                        return if written != SlotWords::ALL || shares && !is_whole {
                            Err(Reason::EarlyMark)
                        } else if !self.is_mark(stored, head, tsc) {
                            Err(Reason::OtherMark)
                        } else if let Some(further) = further.checked_sub(1) {
                            let one = self.values.constant(self.one());
                            // A line has reserved a slot for each of its words.
                            let within = self.words(progress) > 1;
                            let next = HitStage::Reserved {
                                head: self.values.add(head, one),
                                tsc,
                                written: SlotWords::default(),
                                word: if within { word.saturating_add(1) } else { 0 },
                                further,
                            };
                            Ok(Some(match within {
                                true => Progress {
                                    stage: next,
                                    ..progress
                                },
                                false => Self::handed_on(progress, next),
                            }))
                        } else if !is_whole {
                            Err(Reason::OtherValue)
                        } else {
                            Ok(self.delivered(progress))
                        };
                    }
                    offset => {
                        let (before, stored) = ((written, word), (stored, tsc));
                        match shares {
                            true => self.fill_shared(progress, before, offset, stored, state)?,
                            false => (self.fill(progress, before, offset, stored, state)?, word),
                        }
                    }
                };
                Ok(Some(Progress {
                    stage: HitStage::Reserved {
                        head,
                        tsc,
                        written,
                        word,
                        further,
                    },
                    ..progress
                }))
            }
            HitStage::Owned { .. } => self.keep(progress, address, stored, state),
            _ => Err(Reason::StoresForeign),
        }
    }

    /// Checks a store of eight bytes at an offset of a slot of the ring that all threads share, other than the mark. The
    /// words of a line are written one after the other, each 32 bytes after that before. Returns what is written then of
    /// which word.
    fn fill_shared(
        &mut self,
        progress: Progress,
        (written, word): (SlotWords, u8),
        offset: Option<u64>,
        stored: (SymValue, SymValue),
        state: &AbstractState,
    ) -> Result<(SlotWords, u8), Reason> {
        let is_next = written == SlotWords::ALL && word.saturating_add(1) < self.words(progress);
        let (written, word) = match is_next {
            true => (SlotWords::default(), word + 1),
            false => (written, word),
        };
        let offset = offset.and_then(|offset| offset.checked_sub(u64::from(word) * WORD_BYTES));
        let written = self.fill(progress, (written, word), offset, stored, state)?;
        Ok((written, word))
    }

    /// Checks a store of eight bytes at an offset of a slot other than the mark; returns the words that are written then.
    pub(super) fn fill(
        &mut self,
        progress: Progress,
        (written, word): (SlotWords, u8),
        offset: Option<u64>,
        (stored, tsc): (SymValue, SymValue),
        state: &AbstractState,
    ) -> Result<SlotWords, Reason> {
        match offset {
            Some(8) => {
                self.value((progress, word), stored, tsc, state)?;
                Ok(SlotWords {
                    value: true,
                    ..written
                })
            }
            Some(16) if stored == tsc => Ok(SlotWords {
                time: true,
                ..written
            }),
            Some(16) => Err(Reason::OtherTime),
            Some(24) if self.values.as_constant(stored) == Some(self.identifier(word)) => {
                Ok(SlotWords {
                    identifier: true,
                    ..written
                })
            }
            Some(24) => Err(Reason::OtherIdentifier {
                id: self.expected.id,
            }),
            _ => Err(Reason::OutsideSlot),
        }
    }

    /// Returns the number of slots of the sample of the step.
    pub(super) fn words(&self, progress: Progress) -> u8 {
        let words = self
            .action(progress)
            .map_or(1, |action| action.kind.sampled().len());
        u8::try_from(words.max(1)).unwrap_or(u8::MAX)
    }

    /// Returns the identifier in the slot of a word.
    fn identifier(&self, word: u8) -> u64 {
        let mark = if word == 0 { 0 } else { Sample::WORD };
        self.expected.id.pack() | mark
    }

    /// Returns the progress after the branch on the result of a maximum's `cmpxchg`.
    pub(crate) fn raised(&self, progress: Progress, success: bool) -> Option<Progress> {
        if success {
            self.next(progress)
        } else {
            Some(Progress {
                stage: HitStage::Counted,
                ..progress
            })
        }
    }

    /// Returns the increment of a head from one sample to the next.
    fn one(&self) -> u64 {
        one(self.layout)
    }

    /// Returns `ring_base + (cpu << stride_log2) + slot * 32`. The slot is the bits of a head from
    /// `one` to the middle, and the CPU is the bits below; no CPU has the upper two of those, which
    /// stand for the eights in a slot.
    fn slot(&mut self, head: SymValue) -> SymValue {
        if self.layout.sequences().is_some() {
            return shared_slot(self.values, self.layout, head);
        }
        let one = self.one();
        let cpu = self.values.mask(head, one / 4 - 1);
        let cpu = self
            .values
            .scale(cpu, 1u64 << self.layout.rings.stride_log2.min(63));
        let slot = self.values.mask(head, (1 << 32) - one / 4);
        let slot = self.values.shr(slot, (one / 4).trailing_zeros());
        let slot = self.values.scale(slot, 8);
        let base = self.values.constant(self.layout.rings.base.0);
        let ring = self.values.add(base, cpu);
        self.values.add(ring, slot)
    }

    /// Returns whether a value is the mark of the slot of a head: that itself, or with the number of the CPU that was read
    /// with the time.
    fn is_mark(&mut self, stored: SymValue, head: SymValue, tsc: SymValue) -> bool {
        let mark = match self.layout.sequences() {
            Some(_) => shared_mark(self.values, head, tsc),
            None => head,
        };
        !mark.is_unknown() && stored == mark
    }

    /// Checks that `stored` is the value that the instrument samples.
    fn value(
        &mut self,
        (progress, word): (Progress, u8),
        stored: SymValue,
        tsc: SymValue,
        state: &AbstractState,
    ) -> Result<(), Reason> {
        let right = match self.expected.native {
            Some(_) => self.is_returned(stored),
            None => self.is_sampled((progress, word), stored, tsc, state),
        };
        if right {
            Ok(())
        } else {
            Err(Reason::OtherValue)
        }
    }
}

/// Returns the increment of a head from one sample to the next.
pub(super) fn one(layout: &RuntimeLayout) -> u64 {
    match layout.sequences() {
        Some(_) => 1,
        None => 1 << (32 - layout.rings.slots_log2.min(31)),
    }
}

/// Returns the number of slots that a head moves on by an addition; never as many as the ring has.
fn slots_of(added: u64, layout: &RuntimeLayout) -> Option<u8> {
    let slots = added / one(layout);
    let within = added.is_multiple_of(one(layout)) && slots < 1 << layout.rings.slots_log2.min(31);
    u8::try_from(slots).ok().filter(|_| within)
}

/// Returns the number of slots from a head that was read to this one.
pub(crate) fn slots_after_head(
    values: &mut SymValues,
    layout: &RuntimeLayout,
    head: SymValue,
) -> Option<u8> {
    let added = values.sum(head)?.constant;
    let subtracted = values.constant(added);
    let read = values.sub(head, subtracted);
    is_head(values, read)
        .then(|| slots_of(added, layout))
        .flatten()
}

/// Returns whether the value is a head that was read.
fn is_head(values: &SymValues, value: SymValue) -> bool {
    matches!(values.as_atom(value), Some(Atom::Head(_) | Atom::Joined(_)))
}
