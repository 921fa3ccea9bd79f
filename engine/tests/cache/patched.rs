//! Wrong patches of instruments in the cache: each is refused, and by the rule that it breaks.

use std::sync::Arc;

use gilk_engine::HookType::{self, Pre, Taken, Untaken};
use gilk_engine::cache::resident::Resident;
use gilk_engine::cache::{
    CacheInstruments, CacheRow, Counting, PatchMoment, RowState, Translation, Translator,
};
use gilk_engine::cfg::Cfg;
use gilk_engine::elf::ElfParts;
use gilk_engine::layout::SegmentOffset;
use gilk_engine::reads::MemoryReader;
use gilk_engine::verify::fragments::{
    FragmentProver, FragmentRule, FragmentViolation, InstrumentProof,
};
use gilk_engine::{Addr, Image, Span};
use iced_x86::{FlowControl, Instruction};

use super::mutants::{LAYOUT, text_at};
use super::{Library, WHOLE};

/// An arena near the code of a file.
const NEAR: Span = Span {
    start: Addr(0x1000_0000),
    end: Addr(0x1010_0000),
};
/// All code of a file.
const REGION: Span = Span {
    start: Addr(0),
    end: NEAR.start,
};
/// A function of a file with instruments.
struct Instrumented {
    image: Arc<Image>,
    instruments: Arc<CacheInstruments>,
    proof: Arc<InstrumentProof>,
    seed: Addr,
}

impl Instrumented {
    /// Counters and samples at some blocks of a function, in this order; those of the hooks at a branch are at the first
    /// block that ends in one.
    fn new(blocks: &[(u32, HookType, &str)], saves_all: bool) -> Self {
        Self::of(
            "mixed",
            Instruction::is_jcc_short_or_near,
            blocks,
            saves_all,
        )
    }

    /// Counters and samples at `looping`: at the ways of its `loop`, and at the end of its first block without a branch.
    fn short(hooks: &[(HookType, &str)], saves_all: bool) -> Self {
        let ends = |last: &Instruction| match hooks {
            [(HookType::Post, _)] => last.flow_control() == FlowControl::Next,
            _ => last.is_loop(),
        };
        let hooks = hooks
            .iter()
            .map(|(hook, instrument)| (0, *hook, *instrument));
        Self::of("looping", ends, &hooks.collect::<Vec<_>>(), saves_all)
    }

    /// Counters and samples at some blocks of a function; those of other hooks than [`Pre`] are at the first block whose
    /// last instruction is this one.
    fn of(
        function: &str,
        ends: impl Fn(&Instruction) -> bool,
        blocks: &[(u32, HookType, &str)],
        saves_all: bool,
    ) -> Self {
        use super::instrumented::{gate, layout, placement, planned, session, with_arena};
        let library = Library::compiled("instrumented", &["-O2"]);
        let file = std::fs::read(&library.file).unwrap();
        let image = Image::from_elf(&ElfParts::of_file("instrumented.so", &file)).unwrap();
        let layout = layout(Addr(0x3000_0000), SegmentOffset(0xffff_ffff_ffff_f6a0));
        let layout = with_arena(&layout, Span::new(Addr(0x2000_0000), 1 << 20));
        let gate = gate(&layout);
        let mut session = session();
        let source = "instrument sampled \"x.\"; hit { sample(tsc) }";
        session.sources.insert("sampled".into(), source.into());
        let source = "instrument reading \"x.\"; hit { sample(*(u16 *)uptr(reg(\"di\"))) }";
        session.sources.insert("reading".into(), source.into());
        let graph = Cfg::of(&image, image.function_named(function).unwrap().id);
        let branching = graph.blocks.iter().find(|block| {
            let last = block.instructions.last();
            last.is_some_and(|last| ends(&last))
        });
        let branching = branching.unwrap().index.0;
        let at = |block, hook| if hook == Pre { block } else { branching };
        let placed = blocks.iter().map(|&(block, hook, instrument)| {
            placement(function, (at(block, hook), hook), instrument)
        });
        session.placements = placed.collect();
        let (plan, _) = planned(&image, &session, &layout);
        assert_eq!(plan.plan().instruments.len(), blocks.len());
        let image = Arc::new(image);
        Self {
            instruments: Arc::new(
                CacheInstruments::of(&image, plan.plan(), gate, saves_all).unwrap(),
            ),
            proof: Arc::new(InstrumentProof::new(&image, &plan, gate).unwrap()),
            seed: image.function_named(function).unwrap().span.start,
            image,
        }
    }

    fn translator(&self) -> Translator {
        let mut translator = Translator::new(LAYOUT, NEAR, Counting::Off).unwrap();
        let added = translator.add_instruments(Arc::clone(&self.instruments));
        added.unwrap();
        translator
    }

    fn translation(&self) -> Translation {
        let image: &Image = &self.image;
        let mut translator = self.translator();
        translator
            .translate(image, REGION, &[self.seed], WHOLE)
            .unwrap()
    }

    /// Proves an arena with some code that reads memory.
    fn prover(&self, reader: Option<&MemoryReader>) -> Result<FragmentProver, FragmentViolation> {
        let resident = Resident::new(NEAR.start, &LAYOUT);
        let mut prover = FragmentProver::new(LAYOUT, NEAR, &resident).unwrap();
        prover.add_instruments(Arc::clone(&self.proof), reader)?;
        Ok(prover)
    }

    fn prove(&self, translation: Translation) -> Result<(), Vec<FragmentRule>> {
        let translator = self.translator();
        let mut prover = self.prover(translator.readers().next()).unwrap();
        let image: &Image = &self.image;
        match prover.prove(image, REGION, translation, Counting::Off) {
            Ok(_) => Ok(()),
            Err(all) => Err(all.iter().map(|one| one.rule).collect()),
        }
    }

    /// A translation without its instruments.
    fn plain(&self) -> Translation {
        let image: &Image = &self.image;
        let mut translator = Translator::new(LAYOUT, NEAR, Counting::Off).unwrap();
        let plain = translator.translate(image, REGION, &[self.seed], WHOLE);
        plain.unwrap()
    }

    /// Asserts that a translation with a change is refused, by a rule among others.
    fn refuses(&self, good: &Translation, rule: FragmentRule, change: &dyn Fn(&mut Translation)) {
        let mut mutant = good.clone();
        change(&mut mutant);
        let rules = self.prove(mutant).unwrap_err();
        assert!(rules.contains(&rule), "{rule:?} is not among {rules:?}");
    }
}

/// The offset of some instructions among the first ones of a patch.
fn save(translation: &Translation, code: &[u8]) -> usize {
    let patch = &translation.patches[0];
    let start = usize::try_from(patch.span.start.0 - translation.start.0).unwrap();
    let saves = &translation.bytes[start..start + 64];
    let found = saves.windows(code.len()).position(|window| window == code);
    start + found.unwrap_or_else(|| panic!("{saves:x?}"))
}

/// Calls `refused` with the rule by which each of the wrong translations is refused.
pub(super) fn every_wrong_patch(refused: &mut dyn FnMut(FragmentRule)) {
    use FragmentRule as R;
    let instrumented = Instrumented::new(
        &[
            (0, Pre, "counter"),
            (0, Pre, "sampled"),
            (1, Pre, "counter"),
        ],
        true,
    );
    let good = instrumented.translation();
    assert_eq!(good.patches.len(), 2);
    instrumented.prove(good.clone()).unwrap();
    let mut check = |rule: R, change: &dyn Fn(&mut Translation)| {
        instrumented.refuses(&good, rule, change);
        refused(rule);
    };
    let plain = instrumented.plain();
    check(R::PatchMissing, &|changed| *changed = plain.clone());
    check(R::PatchMissing, &|changed| drop(changed.patches.remove(1)));
    // The branch to a patch.
    check(R::PatchMissing, &|changed| {
        let at = changed.patches[0].exit.0 - changed.start.0;
        changed.bytes[usize::try_from(at).unwrap() - 4] ^= 0x20;
    });
    check(R::PatchMissing, &|changed| {
        let at = changed.patches[0].exit.0 - changed.start.0;
        changed.bytes[usize::try_from(at).unwrap() - 5] = 0xe8;
    });
    check(R::WrongPatch, &|changed| {
        changed.patches[0].original = changed.patches[0].original.add(1);
    });
    check(R::WrongPatch, &|changed| {
        let first = changed.patches[0].clone();
        changed.patches.push(first);
    });
    check(R::WrongPatch, &|changed| {
        changed.patches[0].exit = changed.patches[0].exit.add(1);
    });
    check(R::WrongPatch, &|changed| changed.patches[0].sequences -= 1);
    check(R::WrongPatch, &|changed| {
        changed.patches[0].rows[0].pushed += 8;
    });
    check(R::WrongPatch, &|changed| {
        changed.patches[0].span.end = changed.patches[0].span.end.add(1 << 20);
    });
    check(R::WrongRow, &|changed| {
        let mut rows = changed.rows.iter_mut();
        let row = rows.find(|row| row.state == RowState::Instruments);
        row.unwrap().state = RowState::Exact;
    });
    // The place of `rax`, and the bytes that are pushed.
    let is_kept = |row: &&mut CacheRow| matches!(row.state, RowState::Saving { rax: Some(_), .. });
    let is_saving = |row: &&mut CacheRow| matches!(row.state, RowState::Saving { .. });
    check(R::WrongRow, &|changed| {
        let row = changed.rows.iter_mut().find(is_kept).unwrap();
        if let RowState::Saving { rax, .. } = &mut row.state {
            *rax = rax.map(|place| place + 8);
        }
    });
    check(R::WrongRow, &|changed| {
        let row = changed.rows.iter_mut().find(is_kept).unwrap();
        if let RowState::Saving { rax, .. } = &mut row.state {
            *rax = None;
        }
    });
    check(R::WrongRow, &|changed| {
        let row = changed.rows.iter_mut().rfind(is_saving).unwrap();
        if let RowState::Saving { pushed, .. } = &mut row.state {
            *pushed += 8;
        }
    });
    // The row of the branch to the patch.
    check(R::WrongRow, &|changed| {
        let begin = changed.patches[0].begin;
        let row = changed.rows.iter_mut().find(|row| row.at == begin);
        row.unwrap().state = RowState::Busy;
    });
    // Another register is pushed before `lahf`, and the step over the red zone is one up.
    check(R::WrongRow, &|changed| {
        // push rax, rdx, rcx, rsi; lahf
        let push = save(changed, &[0x50, 0x52, 0x51, 0x56, 0x9f]);
        changed.bytes[push] = 0x57;
    });
    check(R::WrongRow, &|changed| {
        let step = save(changed, &[0x48, 0x8d, 0x64, 0x24, 0x80]);
        changed.bytes[step + 4] = 0x7f;
    });
    // An instruction that works is no save.
    check(R::WrongRow, &|changed| {
        let mut rows = changed.rows.iter_mut();
        let row = rows.rfind(|row| row.state == RowState::Instruments);
        let row = row.unwrap();
        row.at = row.at.add(4);
    });
    // Of other instruments: one too few, and in another order.
    for blocks in [
        &[(0, Pre, "counter"), (1, Pre, "counter")][..],
        &[
            (0, Pre, "sampled"),
            (0, Pre, "counter"),
            (1, Pre, "counter"),
        ],
    ] {
        let other = Instrumented::new(blocks, true).translation();
        check(R::WrongPatch, &|changed| *changed = other.clone());
    }
    // `rax` is not kept where it is live, and no row has a place of it.
    let sampled = Instrumented::new(&[(1, Pre, "sampled")], true);
    sampled.refuses(&sampled.translation(), R::WrongRow, &|changed| {
        let push = save(changed, &[0x50, 0x52, 0x51, 0x56, 0x9f]);
        changed.bytes[push] = 0x57;
        for row in &mut changed.rows {
            if let RowState::Saving { rax, .. } = &mut row.state {
                *rax = None;
            }
        }
    });
    refused(R::WrongRow);
}

/// Calls `refused` with the rule by which wrong code that reads memory is refused, and blocks that do not find out whether
/// the stack has the space for it.
pub(super) fn every_wrong_read(refused: &mut dyn FnMut(FragmentRule)) {
    use FragmentRule as R;
    let instrumented = Instrumented::new(&[(0, Pre, "reading"), (1, Pre, "counter")], true);
    let translator = instrumented.translator();
    let reader = translator.readers().next().unwrap().clone();
    instrumented.prover(Some(&reader)).unwrap();
    let mut wrong = |change: &dyn Fn(&mut MemoryReader)| {
        let mut mutant = reader.clone();
        change(&mut mutant);
        let violation = instrumented.prover(Some(&mutant)).unwrap_err();
        assert_eq!(violation.rule, R::Reader);
        refused(R::Reader);
    };
    for at in 0..reader.code.len() {
        wrong(&|changed| changed.code[at] ^= 0xff);
    }
    wrong(&|changed| changed.start = NEAR.start);
    wrong(&|changed| changed.start = Addr(NEAR.end.0 - 8));
    wrong(&|changed| changed.row += 8);
    wrong(&|changed| changed.gate.closed = changed.gate.closed.add(8));
    let good = instrumented.translation();
    instrumented.prove(good.clone()).unwrap();
    // Without it, no patch may call it.
    let image: &Image = &instrumented.image;
    let mut without = instrumented.prover(None).unwrap();
    let without = without.prove(image, REGION, good.clone(), Counting::Off);
    assert!(
        without
            .unwrap_err()
            .iter()
            .any(|one| one.rule == R::WrongPatch)
    );
    let mut check = |rule: R, change: &dyn Fn(&mut Translation)| {
        instrumented.refuses(&good, rule, change);
        refused(rule);
    };
    let start = usize::try_from(good.patches[0].exit.0 - good.start.0).unwrap() - 5 - 8;
    // mov [rsp-400], rsp became a nop, and another place.
    let nop = [0x0f, 0x1f, 0x84, 0x24, 0x70, 0xfe, 0xff, 0xff];
    check(R::PatchMissing, &|changed| {
        changed.bytes[start..start + 8].copy_from_slice(&nop);
    });
    check(R::PatchMissing, &|changed| changed.bytes[start + 4] -= 8);
    // A block whose instruments do not read has it, too.
    check(R::WrongPatch, &|changed| {
        let test: Vec<u8> = changed.bytes[start..start + 8].to_vec();
        let (begin, original) = (changed.patches[1].begin, changed.patches[1].original);
        let before = Addr(begin.0 - 8);
        let at = usize::try_from(before.0 - changed.start.0).unwrap();
        changed.bytes[at..at + 8].copy_from_slice(&test);
        changed.patches[1].begin = before;
        let mut blocks = changed.blocks.iter_mut();
        let block = blocks.find(|block| block.original.start == original);
        block.unwrap().at = before;
        changed
            .rows
            .retain(|row| row.at < before || row.at >= begin);
        let next = changed.rows.partition_point(|row| row.at < before);
        let row = CacheRow {
            at: before,
            original,
            state: RowState::Exact,
        };
        changed.rows.insert(next, row);
    });
    // The block begins after it.
    check(R::StackUntested, &|changed| {
        let original = changed.patches[0].original;
        let mut blocks = changed.blocks.iter_mut();
        let block = blocks
            .find(|block| block.original.start == original)
            .unwrap();
        block.at = block.at.add(8);
        changed.patches[0].begin = changed.patches[0].begin.add(8);
    });
}

/// Calls `refused` with the rule by which instruments are refused that blocks may have passed, or that are those of two
/// plans.
pub(super) fn every_late_instrument(refused: &mut dyn FnMut(FragmentRule)) {
    use FragmentRule as R;
    let instrumented = Instrumented::new(&[(0, Pre, "reading"), (1, Pre, "counter")], true);
    let image: &Image = &instrumented.image;
    let proof = || Arc::clone(&instrumented.proof);
    let translator = || Translator::new(LAYOUT, NEAR, Counting::Off).unwrap();
    let resident = Resident::new(NEAR.start, &LAYOUT);
    let prover = || FragmentProver::new(LAYOUT, NEAR, &resident).unwrap();
    let start = instrumented.seed;
    let others = image
        .functions()
        .iter()
        .filter(|one| one.span.start != start);
    let other = others.map(|one| one.span.start).next().unwrap();
    // The function was translated without them, whole or its last block alone.
    let whole = translator()
        .translate(image, REGION, &[start], WHOLE)
        .unwrap();
    let last = whole.blocks.iter().map(|block| block.original.start);
    let end = image.function_at(start).unwrap().span.end;
    let last = last.filter(|at| *at < end).max().unwrap();
    let mut refuse = |translated: &[Addr], again: bool| {
        let (mut translator, mut prover) = (translator(), prover());
        if again {
            let added = translator.add_instruments(Arc::clone(&instrumented.instruments));
            prover.add_instruments(proof(), added.unwrap()).unwrap();
        }
        if !translated.is_empty() {
            let blocks = translator
                .translate_blocks(image, REGION, translated, &[])
                .unwrap();
            prover.prove(image, REGION, blocks, Counting::Off).unwrap();
        }
        let added = translator.add_instruments(Arc::clone(&instrumented.instruments));
        let violation = prover.add_instruments(proof(), added.unwrap());
        assert_eq!(violation.unwrap_err().rule, R::LateInstruments);
        refused(R::LateInstruments);
    };
    refuse(&[start], false);
    refuse(&[last], false);
    refuse(&[], true);
    // After other code they run as from the start; so do two parts beside each other.
    let (mut translator, mut prover) = (translator(), prover());
    let before = translator
        .translate_blocks(image, REGION, &[other], &[])
        .unwrap();
    prover.prove(image, REGION, before, Counting::Off).unwrap();
    let added = translator.add_instruments(Arc::clone(&instrumented.instruments));
    prover.add_instruments(proof(), added.unwrap()).unwrap();
    let good = translator
        .translate(image, REGION, &[start], WHOLE)
        .unwrap();
    assert_eq!(good.patches.len(), 2);
    prover.prove(image, REGION, good, Counting::Off).unwrap();
    // They are removed once what was translated with them is forgotten, and may be added again.
    let gone = Span::new(start, 1);
    let violation = prover.remove_instruments(gone).unwrap_err();
    assert_eq!(violation.rule, R::LateInstruments);
    refused(R::LateInstruments);
    prover.forget(REGION);
    translator.forget(REGION);
    prover.remove_instruments(gone).unwrap();
    assert_eq!(translator.remove_instruments(gone), MemoryReader::BYTES);
    assert_eq!(translator.readers().count(), 0);
    let plain = translator
        .translate(image, REGION, &[start], WHOLE)
        .unwrap();
    assert!(plain.patches.is_empty());
    prover.prove(image, REGION, plain, Counting::Off).unwrap();
    prover.forget(REGION);
    translator.forget(REGION);
    let added = translator.add_instruments(Arc::clone(&instrumented.instruments));
    prover.add_instruments(proof(), added.unwrap()).unwrap();
    let again = translator
        .translate(image, REGION, &[start], WHOLE)
        .unwrap();
    assert_eq!(again.patches.len(), 2);
    prover.prove(image, REGION, again, Counting::Off).unwrap();
    // Without those of a span that is mapped no more, the function has none.
    let rest = Arc::new(instrumented.instruments.outside(gone));
    let mut translator = Translator::new(LAYOUT, NEAR, Counting::Off).unwrap();
    assert!(translator.add_instruments(rest).unwrap().is_none());
    let plain = translator
        .translate(image, REGION, &[start], WHOLE)
        .unwrap();
    assert!(plain.patches.is_empty());
    let rest = Arc::new(instrumented.proof.outside(gone));
    let mut prover = FragmentProver::new(LAYOUT, NEAR, &resident).unwrap();
    prover.add_instruments(rest, None).unwrap();
    prover.prove(image, REGION, plain, Counting::Off).unwrap();
}

#[test]
fn every_byte_of_a_patch_is_proved() {
    bytes_are_proved(&[(0, Pre, "counter"), (1, Pre, "sampled")], 5);
}

/// A change of a translation.
type Change<'c> = &'c dyn Fn(&mut Translation);

/// Calls `check` with the rules by which a patch is refused that is missing, or is of another place.
fn misplaced(number: usize, check: &mut dyn FnMut(FragmentRule, Change<'_>)) {
    use FragmentRule as R;
    check(R::PatchMissing, &|changed| {
        drop(changed.patches.remove(number));
    });
    check(R::WrongPatch, &|changed| {
        let patch = &mut changed.patches[number];
        patch.begin = patch.begin.add(1);
    });
    check(R::WrongPatch, &|changed| {
        changed.patches[number].moment = PatchMoment::Before;
    });
}

/// Calls `refused` with the rule by which wrong patches of the ways of a branch are refused.
pub(super) fn every_wrong_way(refused: &mut dyn FnMut(FragmentRule)) {
    use FragmentRule as R;
    let ways = [(0, Taken, "counter"), (0, Untaken, "sampled")];
    let instrumented = Instrumented::new(&ways, true);
    let good = instrumented.translation();
    let moments: Vec<PatchMoment> = good.patches.iter().map(|one| one.moment).collect();
    assert_eq!(moments, [PatchMoment::Untaken, PatchMoment::Taken]);
    instrumented.prove(good.clone()).unwrap();
    let mut check = |rule: R, change: &dyn Fn(&mut Translation)| {
        instrumented.refuses(&good, rule, change);
        refused(rule);
    };
    for number in 0..2 {
        misplaced(number, &mut check);
        check(R::WrongPatch, &|changed| {
            let other = changed.patches[1 - number].exit;
            changed.patches[number].exit = other;
        });
    }
    // The branch after the patch goes elsewhere.
    let exit = usize::try_from(good.patches[1].exit.0 - good.start.0).unwrap();
    assert_eq!(good.bytes[exit], 0xe9);
    check(R::WrongTarget, &|changed| changed.bytes[exit + 1] ^= 1);
    // With the instruments of the other way, of one way alone, before the branch, and with none.
    for others in [
        &[(0, Untaken, "counter"), (0, Taken, "sampled")][..],
        &[(0, Taken, "counter")],
        &[(0, Untaken, "sampled")],
        &[(0, HookType::Post, "counter")],
    ] {
        let other = Instrumented::new(others, true).translation();
        let rule = match others {
            [(_, Taken | Untaken, _)] => R::PatchMissing,
            _ => R::WrongPatch,
        };
        check(rule, &|changed| *changed = other.clone());
    }
    let plain = instrumented.plain();
    check(R::PatchMissing, &|changed| *changed = plain.clone());
}

/// Calls `refused` with the rule by which wrong patches are refused that run after an instruction, or on the ways of a
/// branch that changes `rcx`.
pub(super) fn every_wrong_end(refused: &mut dyn FnMut(FragmentRule)) {
    use FragmentRule as R;
    let ways = [(Taken, "counter"), (Untaken, "sampled")];
    for hooks in [&ways[..], &[(HookType::Post, "sampled")]] {
        let instrumented = Instrumented::short(hooks, true);
        let good = instrumented.translation();
        assert_eq!(good.patches.len(), hooks.len());
        instrumented.prove(good.clone()).unwrap();
        let mut check = |rule: R, change: &dyn Fn(&mut Translation)| {
            instrumented.refuses(&good, rule, change);
            refused(rule);
        };
        let plain = instrumented.plain();
        check(R::PatchMissing, &|changed| *changed = plain.clone());
        for number in 0..hooks.len() {
            misplaced(number, &mut check);
            // The instruction is executed again, or another one than the next.
            check(R::WrongPatch, &|changed| {
                changed.patches[number].next = None;
            });
            check(R::WrongPatch, &|changed| {
                let patch = &mut changed.patches[number];
                patch.next = patch.next.map(|next| next.add(1));
            });
            let patch = &good.patches[number];
            let executed = |changed: &mut Translation, at: Addr| {
                let row = changed.rows.iter_mut().rfind(|row| row.at <= at);
                row.unwrap().original = patch.original;
            };
            check(R::WrongRow, &|changed| executed(changed, patch.begin));
            check(R::WrongRow, &|changed| {
                executed(changed, patch.span.start);
            });
        }
    }
    // With the instruments of the other way, and of one way alone.
    let instrumented = Instrumented::short(&ways, true);
    let good = instrumented.translation();
    for others in [
        &[(Untaken, "counter"), (Taken, "sampled")][..],
        &[(Taken, "counter")],
        &[(Untaken, "sampled")],
    ] {
        let other = Instrumented::short(others, true).translation();
        let rule = match others.len() {
            2 => R::WrongPatch,
            _ => R::PatchMissing,
        };
        instrumented.refuses(&good, rule, &|changed| *changed = other.clone());
        refused(rule);
    }
    // The branch goes past the patch of its way, and the jump over the other way into it.
    let [untaken, taken] = [0, 1].map(|number| &good.patches[number]);
    assert_eq!(untaken.moment, PatchMoment::Untaken);
    let offset = |at: Addr| usize::try_from(at.0 - good.start.0).unwrap();
    for field in [offset(untaken.begin) - 1, offset(taken.begin) - 1] {
        instrumented.refuses(&good, R::NotACopy, &|changed| changed.bytes[field] += 5);
        instrumented.refuses(&good, R::NotACopy, &|changed| changed.bytes[field] -= 5);
    }
    refused(R::NotACopy);
}

#[test]
fn every_byte_of_the_patches_after_instructions_is_proved() {
    for hook in [Taken, Untaken, HookType::Post] {
        every_bit_is_proved(&Instrumented::short(&[(hook, "sampled")], false), 5);
    }
}

#[test]
fn every_byte_of_the_patches_of_ways_is_proved() {
    bytes_are_proved(&[(0, Taken, "counter"), (0, Untaken, "counter")], 5);
}

#[test]
fn every_byte_of_a_patch_that_reads_memory_is_proved() {
    bytes_are_proved(&[(0, Pre, "reading"), (1, Pre, "reading")], 8 + 5);
}

/// Flips each bit of patches, and of the instructions with which their blocks begin.
fn bytes_are_proved(blocks: &[(u32, HookType, &str)], begun: u64) {
    every_bit_is_proved(&Instrumented::new(blocks, false), begun);
}

fn every_bit_is_proved(instrumented: &Instrumented, begun: u64) {
    let good = instrumented.translation();
    let first = good.patches[0].span.start.0 - good.start.0;
    let jumps = good.patches.iter().map(|patch| patch.exit.0 - good.start.0);
    let jumps = jumps.flat_map(|end| end - begun..end);
    let mut survivors = Vec::new();
    for at in jumps.chain(first..good.bytes.len() as u64) {
        let at = usize::try_from(at).unwrap();
        for bit in 0..8 {
            let mut mutant = good.clone();
            mutant.bytes[at] ^= 1 << bit;
            let text = |bytes: &[u8]| text_at(bytes, at).unwrap_or_default();
            let (before, after) = (text(&good.bytes), text(&mutant.bytes));
            // A signature is the operand of a `nop`, which may be of another form.
            let is_nop = before.starts_with("7 nop") && after.contains(" nop");
            // Numbers of CPUs and slots, and the addresses of descriptors here, have 32 bits.
            let is_low = good.bytes[at] >> 4 == 4 && bit == 3;
            // Of the number of a shift, the processor takes six bits.
            let is_shift = before.starts_with("4 shl") && after.contains(" shl ") && bit >= 6;
            // Sums of numbers that have no bit in common.
            let or_and_add = [("3 or ", "3 add "), ("3 add ", "3 or ")];
            let mut pairs = or_and_add.iter();
            let is_sum = pairs.any(|(one, other)| before.replace(one, other) == after);
            let same = good.bytes[at] == 0xcc || before == after;
            // Two words of the call of a read are popped into a register that a third one overwrites.
            let length = before
                .bytes()
                .next()
                .map_or(1, |digit| usize::from(digit - b'0'));
            let following = text_at(&good.bytes, at + length);
            let is_popped = before.contains(" pop ") && following.as_ref() == Some(&before);
            let harmless = same || is_popped || is_nop || is_low || is_shift || is_sum;
            if !harmless && instrumented.prove(mutant).is_ok() {
                survivors.push(format!("{at} {bit}: {before} became {after}"));
            }
        }
    }
    assert!(survivors.is_empty(), "{survivors:#?}");
}
