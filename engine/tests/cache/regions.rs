//! Translations that are dropped or forgotten alone: others reach them by lookups only.

use gilk_engine::cache::{CounterNumbers, Counting, Link, Translation, Translator};
use gilk_engine::verify::fragments::{FragmentProver, FragmentRule};
use gilk_engine::{Addr, Span};

use super::WHOLE;
use super::mutants::{Bytes, REGION, START, offset_of, original, prover, translator};

/// Two mappings beside each other: of callers, and of what they call.
const CALLERS: Span = Span {
    start: REGION.start,
    end: Addr(START + 0x800),
};
const CALLED: Span = Span {
    start: CALLERS.end,
    end: REGION.end,
};
/// The block of the callers that ends in a jump to the other region.
const JUMPING: Addr = Addr(START + 22);

/// Code of both.
fn both() -> Bytes {
    let mut bytes = vec![0xcc; 0x1000];
    let mut put = |at: usize, code: &[u8]| bytes[at..at + code.len()].copy_from_slice(code);
    put(0, &[0x48, 0x89, 0xf8, 0x48, 0x85, 0xff]); // mov rax, rdi; test rdi, rdi
    put(6, &[0x0f, 0x84, 0xf4, 0x07, 0x00, 0x00]); // je called
    put(12, &[0xe8, 0xef, 0x07, 0x00, 0x00]); // call called
    put(17, &[0x48, 0xff, 0xc8, 0x75, 0xfb]); // dec rax; jne to it
    put(22, &[0xe9, 0xf5, 0x07, 0x00, 0x00]); // jmp to the other function
    put(0x800, &[0x48, 0x39, 0xd8, 0xc3]); // cmp rax, rbx; ret
    put(0x810, &[0x48, 0x39, 0xd8, 0xc3]);
    Bytes(bytes)
}

/// The place of a block.
fn place(translation: &Translation, original: Addr) -> Addr {
    let mut blocks = translation.blocks.iter();
    let block = blocks.find(|block| block.original.start == original);
    block.unwrap().at
}

/// A translation whose branch, with its displacement at an offset, targets another place.
fn targeting(translation: &Translation, offset: usize, to: Addr) -> Translation {
    let mut changed = translation.clone();
    let end = translation.start.add(offset as u64 + 4);
    let displacement = i32::try_from(end.to(to)).unwrap();
    changed.bytes[offset..offset + 4].copy_from_slice(&displacement.to_le_bytes());
    changed
}

/// The rules that a translation of the callers breaks.
fn broken(prover: &FragmentProver, translation: Translation) -> Vec<FragmentRule> {
    let mut prover = prover.clone();
    let proved = prover.prove(&both(), CALLERS, translation, Counting::Off);
    let violations = proved.unwrap_err();
    violations.iter().map(|one| one.rule).collect()
}

#[test]
fn regions_reach_each_other_by_lookups_alone() {
    let code = both();
    let (mut translator, mut prover) = (translator(Counting::Off), prover());
    let called = translator.translate(&code, CALLED, &[CALLED.start], WHOLE);
    let called = called.unwrap();
    prover
        .prove(&code, CALLED, called.clone(), Counting::Off)
        .unwrap();
    let callers = translator.translate(&code, CALLERS, &[CALLERS.start], WHOLE);
    let callers = callers.unwrap();
    assert!(
        callers
            .blocks
            .iter()
            .all(|block| CALLERS.contains(block.original.start))
    );
    assert_eq!(translator.block(CALLERS, CALLED.start), None);
    // Its branch goes to the block, though it was translated before.
    let taken = offset_of(&callers, &[0x0f, 0x84]) + 2;
    let wrong = targeting(&callers, taken, place(&called, CALLED.start));
    assert_eq!(broken(&prover, wrong), [FragmentRule::WrongTarget]);
    prover
        .prove(&code, CALLERS, callers.clone(), Counting::Off)
        .unwrap();
    // What is translated later is not linked.
    let other = Addr(CALLED.start.0 + 0x10);
    let other = translator
        .translate(&code, CALLED, &[other], WHOLE)
        .unwrap();
    assert_eq!(other.links, []);
    let mut linked = other.clone();
    linked.links.push(Link {
        at: callers.start.add(taken as u64),
        target: CALLED.start,
        bytes: [0; 4],
    });
    let refused = prover.prove(&code, CALLED, linked, Counting::Off);
    assert_eq!(refused.unwrap_err()[0].rule, FragmentRule::WrongLink);
    prover.prove(&code, CALLED, other, Counting::Off).unwrap();
}

#[test]
fn a_translation_of_more_than_its_region_is_refused() {
    let code = both();
    let whole = translator(Counting::Off).translate(&code, REGION, &[CALLERS.start], WHOLE);
    let rules = broken(&prover(), whole.unwrap());
    assert!(rules.contains(&FragmentRule::NoOriginal), "{rules:?}");
    // Flags are dead by code of the region, and not by what another mapping has.
    let counts = Counting::OneThread;
    let [alone, with_called] = [CALLERS, REGION].map(|region| {
        let mut translator = translator(counts);
        translator
            .translate_blocks(&code, region, &[JUMPING], &[])
            .unwrap()
    });
    assert!(alone.bytes.len() > with_called.bytes.len());
    prover().prove(&code, CALLERS, alone, counts).unwrap();
    let refused = prover().prove(&code, CALLERS, with_called.clone(), counts);
    let rules = refused.unwrap_err();
    let mut rules = rules.iter().map(|one| one.rule);
    assert!(rules.any(|rule| rule == FragmentRule::FlagsLive));
    prover().prove(&code, REGION, with_called, counts).unwrap();
}

#[test]
fn nothing_branches_to_a_region_that_is_forgotten() {
    let code = both();
    let counts = Counting::OneThread;
    let (mut translator, mut prover) = (translator(counts), prover());
    let first = Addr(CALLERS.start.0 + 17);
    let old = translator.translate_blocks(&code, CALLERS, &[CALLERS.start, first], &[first]);
    let old = old.unwrap();
    prover.prove(&code, CALLERS, old.clone(), counts).unwrap();
    let called = translator.translate(&code, CALLED, &[CALLED.start], WHOLE);
    prover
        .prove(&code, CALLED, called.unwrap(), counts)
        .unwrap();
    let mut linking = translator;
    prover.forget(CALLERS);
    // A translator that has not forgotten it links and branches to it.
    let wrong = linking
        .translate_blocks(&code, CALLERS, &[JUMPING], &[])
        .unwrap();
    assert!(!wrong.links.is_empty());
    let refused = prover.clone().prove(&code, CALLERS, wrong, counts);
    assert_eq!(refused.unwrap_err()[0].rule, FragmentRule::WrongLink);
    linking.forget(CALLERS);
    assert_eq!(linking.block(CALLERS, first), None);
    assert!(linking.block(CALLED, CALLED.start).is_some());
    let again = linking.translate_blocks(&code, CALLERS, &[CALLERS.start, first, JUMPING], &[]);
    let again = again.unwrap();
    assert_eq!(again.links, []);
    let check = |rule: FragmentRule, wrong: Translation| {
        let refused = prover.clone().prove(&code, CALLERS, wrong, counts);
        let rules = refused.unwrap_err();
        assert!(rules.iter().any(|one| one.rule == rule), "{rules:?}");
    };
    let back = offset_of(&again, &[0x0f, 0x85]) + 2;
    check(
        FragmentRule::WrongTarget,
        targeting(&again, back, place(&old, first)),
    );
    // A descriptor of a restartable sequence may be in its bytes.
    check(FragmentRule::OutsideArena, {
        let mut wrong = again.clone();
        wrong.start = old.start;
        wrong
    });
    prover.prove(&code, CALLERS, again, counts).unwrap();
}

/// A block has the counter of another one only if that is forgotten.
#[test]
fn counters_are_used_again_when_their_blocks_are_forgotten() {
    let code = both();
    let counts = Counting::OneThread;
    let (mut translator, mut prover) = (translator(counts), prover());
    let of = |translation: &Translation| -> Vec<u32> {
        let blocks = translation.blocks.iter();
        let mut counters: Vec<u32> = blocks.map(|block| block.counter.unwrap()).collect();
        counters.sort_unstable();
        counters
    };
    let release = |translator: &mut Translator, translation: &Translation| {
        let mut numbers = CounterNumbers::default();
        translator.swap_counters(&mut numbers);
        for counter in of(translation) {
            numbers.release(counter);
        }
        translator.swap_counters(&mut numbers);
    };
    let is_foreign = |prover: &FragmentProver, translation: &Translation| {
        let proved = prover
            .clone()
            .prove_apart(&code, translation.clone(), counts);
        proved.is_err_and(|all| {
            let mut all = all.iter();
            all.all(|one| one.rule == FragmentRule::ForeignCounter)
        })
    };
    let apart = |translator: &mut Translator| {
        let made = translator.translate_apart(&code, CALLED.start, WHOLE);
        made.unwrap()
    };
    let first = apart(&mut translator);
    prover.prove_apart(&code, first.clone(), counts).unwrap();
    let second = apart(&mut translator);
    assert_ne!(of(&second), of(&first));
    prover.prove_apart(&code, second, counts).unwrap();
    release(&mut translator, &first);
    let third = apart(&mut translator);
    assert_eq!(of(&third), of(&first));
    assert!(is_foreign(&prover, &third));
    prover.forget_apart(first.start);
    prover.prove_apart(&code, third.clone(), counts).unwrap();
    // The same of a region.
    release(&mut translator, &third);
    prover.forget_apart(third.start);
    let region = translator.translate(&code, CALLED, &[CALLED.start], WHOLE);
    let region = region.unwrap();
    assert_eq!(of(&region), of(&third));
    prover.prove(&code, CALLED, region.clone(), counts).unwrap();
    translator.forget(CALLED);
    release(&mut translator, &region);
    let again = apart(&mut translator);
    assert!(is_foreign(&prover, &again));
    prover.forget(CALLED);
    prover.prove_apart(&code, again, counts).unwrap();
}

/// A translation that may be dropped is proved like others; another that branches to it is refused, as is a link to it.
#[test]
fn nothing_branches_to_a_translation_that_may_be_dropped() {
    let (mut translator, mut prover) = (translator(Counting::Off), prover());
    let code = original();
    let apart = translator.translate_apart(&code, Addr(START), WHOLE);
    let apart = prover.prove_apart(&code, apart.unwrap(), Counting::Off);
    let apart = apart.unwrap().translation().clone();
    assert_eq!(translator.block(REGION, Addr(START)), None);
    // The same code again, and then with its branches to the first translation.
    let right = translator
        .translate(&code, REGION, &[Addr(START)], WHOLE)
        .unwrap();
    assert_eq!(right.links, []);
    let at = offset_of(&right, &[0x0f, 0x86]) + 2;
    let end = right.start.add(at as u64 + 4);
    let displacement = i32::from_le_bytes(*right.bytes[at..].first_chunk().unwrap());
    let target = end.add(i64::from(displacement).cast_unsigned());
    let mut targets = right.blocks.iter().filter(|block| block.at == target);
    let target = targets.next().unwrap().original.start;
    let mut wrong = right.clone();
    let to_apart = i32::try_from(end.to(place(&apart, target))).unwrap();
    wrong.bytes[at..at + 4].copy_from_slice(&to_apart.to_le_bytes());
    let refused = prover
        .clone()
        .prove(&code, REGION, wrong, Counting::Off)
        .unwrap_err();
    let rules: Vec<FragmentRule> = refused.iter().map(|one| one.rule).collect();
    assert_eq!(rules, [FragmentRule::WrongTarget]);
    let mut linked = right.clone();
    linked.links.push(Link {
        at: apart.start.add(offset_of(&apart, &[0x0f, 0x86]) as u64 + 2),
        target: Addr(START),
        bytes: [0; 4],
    });
    let refused = prover
        .clone()
        .prove(&code, REGION, linked, Counting::Off)
        .unwrap_err();
    assert_eq!(refused[0].rule, FragmentRule::WrongLink);
    prover.prove(&code, REGION, right, Counting::Off).unwrap();
}
