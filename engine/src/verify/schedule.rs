//! The batches, played over the kernel's text as it is now.

use std::collections::{BTreeMap, BTreeSet};

use super::site::SPLICE;
use super::violation::Violation;
use crate::plan::{Batch, Plan, Poke, PokeKind};
use crate::{Addr, Image, InstrumentId, Span};

/// Pokes that the driver takes in one batch (`ILK_MAX_POKES` in `ilk-driver/kmod/ilk_abi.h`).
const MAX_POKES: usize = 65536;

/// Plays every batch and says what is wrong with any. `overwritten` gives for a patch how many
/// instructions of the original text its splice overlaps.
pub(super) fn play(
    image: &Image,
    plan: &Plan,
    overwritten: &BTreeMap<usize, u32>,
    violations: &mut Vec<Violation>,
) {
    let mut player = Player {
        image,
        plan,
        overwritten,
        written: BTreeMap::new(),
        live: BTreeMap::new(),
        running: BTreeMap::new(),
        violations,
    };
    let mut last = f64::NEG_INFINITY;
    for (number, batch) in plan.batches.iter().enumerate() {
        if !(batch.at.is_finite() && batch.at > last && (0.0..=plan.duration).contains(&batch.at)) {
            let why = format!(
                "its time is not behind that of the batch before it, within the session's {} s",
                plan.duration
            );
            player.violations.push(Violation::Batch {
                batch: number,
                time: batch.at,
                why,
            });
        }
        last = batch.at;
        player.batch(number, batch);
    }
    player.at_the_end();
}

struct Player<'a> {
    image: &'a Image,
    plan: &'a Plan,
    overwritten: &'a BTreeMap<usize, u32>,
    /// Text that is not as the image has it.
    written: BTreeMap<u64, u8>,
    /// Splices in place, and the patch each leads to.
    live: BTreeMap<Addr, usize>,
    /// How many splices in place lead to code of each instrument.
    running: BTreeMap<InstrumentId, usize>,
    violations: &'a mut Vec<Violation>,
}

impl Player<'_> {
    fn batch(&mut self, number: usize, batch: &Batch) {
        if batch.pokes.is_empty() || batch.pokes.len() > MAX_POKES {
            let why = format!(
                "it has {} pokes, and must have 1 to {MAX_POKES}",
                batch.pokes.len()
            );
            self.violations.push(Violation::Batch {
                batch: number,
                time: batch.at,
                why,
            });
        }
        let mut touched: BTreeSet<InstrumentId> = BTreeSet::new();
        let mut poked: BTreeMap<Addr, Addr> = BTreeMap::new();
        for (index, poke) in batch.pokes.iter().enumerate() {
            let span = Span::new(poke.at, poke.write.len() as u64);
            let before = poked.range(..span.end).next_back();
            let again = before.is_some_and(|(_, &end)| end > span.start);
            poked.insert(span.start, span.end);
            let why = if again {
                Some("another poke of the batch writes there too".into())
            } else {
                self.poke(poke, &mut touched).err()
            };
            if let Some(why) = why {
                self.violations.push(Violation::Poke {
                    batch: number,
                    poke: index,
                    at: poke.at,
                    why,
                });
            }
        }
        self.check_running(number, batch, touched);
    }

    /// Plays one poke.
    fn poke(&mut self, poke: &Poke, touched: &mut BTreeSet<InstrumentId>) -> Result<(), String> {
        let at = poke.at;
        let span = Span::new(at, SPLICE);
        if poke.write.len() as u64 != SPLICE || poke.expect.len() as u64 != SPLICE {
            return Err(format!(
                "it expects {} bytes and writes {}, and a splice has {SPLICE}",
                poke.expect.len(),
                poke.write.len()
            ));
        }
        let inside = self
            .image
            .function_at(at)
            .is_some_and(|function| span.end <= function.span.end);
        let (true, Some(original)) = (inside, self.image.bytes(span)) else {
            return Err("it does not lie inside one function of the image".into());
        };
        let original = original.to_vec();
        let now = self.memory(at, &original);
        if poke.expect != now {
            return Err(format!(
                "it expects {:02x?} where memory holds {now:02x?}",
                poke.expect
            ));
        }
        let Some(patch) = self.plan.patches.get(poke.patch) else {
            return Err(format!("there is no patch {}", poke.patch));
        };
        if patch.site.displaced.start != at {
            return Err(format!(
                "patch {} was made for a splice at {}",
                poke.patch, patch.site.displaced.start
            ));
        }
        let before = self.live.get(&at).copied();
        let splice = if poke.kind == PokeKind::Remove {
            &poke.expect
        } else {
            &poke.write
        };
        if leads_to(at, splice) != Some(patch.address) {
            return Err(format!(
                "the bytes {splice:02x?} are not a jump to patch {} at {}",
                poke.patch, patch.address
            ));
        }
        let after = match (poke.kind, before) {
            (PokeKind::Install, None) => Some(poke.patch),
            (PokeKind::Retarget, Some(before)) if before != poke.patch => Some(poke.patch),
            (PokeKind::Remove, Some(before)) if before == poke.patch => None,
            (kind, before) => {
                return Err(format!(
                    "it is called {kind:?}, and the splice in place leads to {before:?}"
                ));
            }
        };
        if after.is_none() && poke.write != original {
            return Err(format!(
                "it puts back {:02x?} where the original has {original:02x?}",
                poke.write
            ));
        }
        let overlaps = if poke.kind == PokeKind::Retarget {
            Some(1)
        } else {
            self.overwritten.get(&poke.patch).copied()
        };
        // A site that was found wrong has been reported; nothing is known of its instructions.
        if overlaps.is_some_and(|overlaps| overlaps != poke.overwritten) {
            return Err(format!(
                "it says {} instructions are overwritten, which would make the driver wait wrongly",
                poke.overwritten
            ));
        }
        for (offset, &byte) in (0u64..).zip(&poke.write) {
            self.written.insert(at.add(offset).0, byte);
        }
        self.change(at, before, after, touched);
        Ok(())
    }

    fn memory(&self, at: Addr, original: &[u8]) -> Vec<u8> {
        (0u64..)
            .zip(original)
            .map(|(offset, &byte)| self.written.get(&at.add(offset).0).copied().unwrap_or(byte))
            .collect()
    }

    fn change(
        &mut self,
        at: Addr,
        before: Option<usize>,
        after: Option<usize>,
        touched: &mut BTreeSet<InstrumentId>,
    ) {
        let plan = self.plan;
        let of = |patch: Option<usize>| {
            let patch = patch.and_then(|patch| plan.patches.get(patch));
            patch
                .into_iter()
                .flat_map(|patch| patch.pre.iter().chain(&patch.post).copied())
        };
        for id in of(before) {
            touched.insert(id);
            if let Some(count) = self.running.get_mut(&id) {
                *count = count.saturating_sub(1);
            }
        }
        for id in of(after) {
            touched.insert(id);
            *self.running.entry(id).or_default() += 1;
        }
        match after {
            Some(patch) => drop(self.live.insert(at, patch)),
            None => drop(self.live.remove(&at)),
        }
    }

    /// After a batch exactly the instruments run that are launched and not splashed.
    fn check_running(&mut self, number: usize, batch: &Batch, mut touched: BTreeSet<InstrumentId>) {
        let at = |time: f64| time.total_cmp(&batch.at).is_eq();
        let mut wrong = Vec::new();
        for (what, time, said) in [
            (
                "launched",
                (|one| one.launch) as fn(&crate::plan::PlannedInstrument) -> f64,
                &batch.launched,
            ),
            ("splashed", |one| one.splash, &batch.splashed),
        ] {
            let planned: BTreeSet<InstrumentId> = self
                .plan
                .instruments
                .iter()
                .filter(|one| at(time(one)))
                .map(|one| one.id)
                .collect();
            let listed: BTreeSet<InstrumentId> = said.iter().copied().collect();
            if planned != listed || listed.len() != said.len() {
                wrong.push(format!(
                    "the instruments it says are {what} are not those whose time it is"
                ));
            }
            touched.extend(planned);
        }
        for id in touched {
            let runs = self.running.get(&id).copied().unwrap_or(0);
            let planned = self.plan.instruments.iter().filter(|one| one.id == id);
            let should = planned
                .filter(|one| one.launch <= batch.at && batch.at < one.splash)
                .count();
            if runs != should {
                wrong.push(format!(
                    "after it instrument {id} runs at {runs} places, and should at {should}"
                ));
            }
        }
        self.violations
            .extend(wrong.into_iter().map(|why| Violation::Batch {
                batch: number,
                time: batch.at,
                why,
            }));
    }

    fn at_the_end(&mut self) {
        let differs = self
            .written
            .iter()
            .find(|&(&at, &byte)| self.image.bytes(Span::new(Addr(at), 1)) != Some(&[byte]));
        if let Some((&at, _)) = differs {
            let why = format!("at its end the text at {} is not what it was", Addr(at));
            self.violations.push(Violation::Plan { why });
        }
        let batch_at = |time: f64| {
            self.plan
                .batches
                .iter()
                .any(|batch| batch.at.total_cmp(&time).is_eq())
        };
        for one in &self.plan.instruments {
            let in_order =
                0.0 <= one.launch && one.launch < one.splash && one.splash <= self.plan.duration;
            if !(in_order && batch_at(one.launch) && batch_at(one.splash)) {
                let why = format!(
                    "no batches launch it at {} s and splash it at {} s",
                    one.launch, one.splash
                );
                self.violations.push(Violation::Instrument {
                    id: one.id,
                    at: one.site.displaced.start,
                    why,
                });
            }
        }
    }
}

/// Where `jmp rel32` at `at` leads.
fn leads_to(at: Addr, bytes: &[u8]) -> Option<Addr> {
    let [0xe9, a, b, c, d] = *bytes else {
        return None;
    };
    let displacement = i64::from(i32::from_le_bytes([a, b, c, d]));
    Some(Addr(
        at.0.wrapping_add(SPLICE).wrapping_add_signed(displacement),
    ))
}
