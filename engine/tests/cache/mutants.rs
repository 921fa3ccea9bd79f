//! Wrong translations: each is refused, and by the rule that it breaks.

use std::collections::BTreeMap;

use gilk_engine::cache::resident::Resident;
use gilk_engine::cache::{
    AccessPlace, CacheLayout, CodeBytes, Counting, Link, RowState, Translation, TranslationReach,
    Translator,
};
use gilk_engine::verify::fragments::{FragmentProver, FragmentRule, FragmentViolation};
use gilk_engine::{Addr, Span};
use iced_x86::code_asm::{CodeAssembler, dword_ptr, qword_ptr, registers::*};
use iced_x86::{Decoder, DecoderOptions};

use super::patched;

pub(super) const START: u64 = 0x7f00_0000_1000;
pub(super) const REGION: Span = Span {
    start: Addr(START),
    end: Addr(START + 0x1000),
};
pub(super) const ARENA: Span = Span {
    start: Addr(0x7f00_0010_0000),
    end: Addr(0x7f00_0020_0000),
};
pub(super) const LAYOUT: CacheLayout = CacheLayout {
    recent: Addr(0x10_0000),
    targets: Addr(0x20_0000),
    targets_log2: 10,
    agent: Addr(0x30_0000),
    counters: Span {
        start: Addr(0x40_0000),
        end: Addr(0x40_8000),
    },
};
const WHOLE: TranslationReach = TranslationReach {
    calls: u32::MAX,
    blocks: usize::MAX,
};

/// Code at an address.
pub(super) struct Bytes(pub(super) Vec<u8>);

impl CodeBytes for Bytes {
    fn code_from(&self, at: Addr) -> Option<&[u8]> {
        let offset = usize::try_from(at.0.checked_sub(START)?).ok()?;
        self.0.get(offset..).filter(|rest| !rest.is_empty())
    }
}

/// Every form that is translated.
pub(super) fn original() -> Bytes {
    let mut a = CodeAssembler::new(64).unwrap();
    let [mut called, mut last, mut around, mut data] = [(); 4].map(|()| a.create_label());
    a.endbr64().unwrap();
    a.push(rbx).unwrap();
    a.mov(rbx, qword_ptr(data)).unwrap();
    a.call(called).unwrap();
    a.cmp(rax, rbx).unwrap();
    a.jbe(last).unwrap();
    a.call(qword_ptr(rbx + rcx * 8)).unwrap();
    a.set_label(&mut around).unwrap();
    a.add(rax, rcx).unwrap();
    a.loop_(around).unwrap();
    a.set_label(&mut last).unwrap();
    a.pop(rbx).unwrap();
    a.ret().unwrap();
    a.set_label(&mut called).unwrap();
    a.mov(eax, 39).unwrap();
    a.syscall().unwrap();
    a.lea(rdx, qword_ptr(called)).unwrap();
    a.test(rax, rax).unwrap();
    let mut trapped = a.create_label();
    a.je(trapped).unwrap();
    a.jmp(rdx).unwrap();
    a.set_label(&mut trapped).unwrap();
    a.ud2().unwrap();
    a.set_label(&mut data).unwrap();
    a.dq(&[7]).unwrap();
    Bytes(a.assemble(START).unwrap())
}

/// Accesses of all kinds, in blocks that name `rcx` and that do not.
fn accessing() -> Bytes {
    let mut a = CodeAssembler::new(64).unwrap();
    let [mut around, mut data] = [(); 2].map(|()| a.create_label());
    a.push(rbx).unwrap();
    a.sub(rsp, 32).unwrap();
    a.test(rdi, rdi).unwrap();
    a.je(around).unwrap();
    a.mov(rax, qword_ptr(rdi + 8)).unwrap();
    a.add(qword_ptr(rdi + 16), rax).unwrap();
    a.mov(qword_ptr(rsp + 8), rax).unwrap();
    a.mov(rbx, qword_ptr(data)).unwrap();
    a.mov(rax, qword_ptr(rdi + rbx * 4 - 8)).unwrap();
    a.mov(rax, qword_ptr(0x28).fs()).unwrap();
    a.mov(rax, qword_ptr(rdi + 8).fs()).unwrap();
    a.set_label(&mut around).unwrap();
    a.mov(rdi, qword_ptr(rdi)).unwrap();
    a.mov(rax, qword_ptr(rdi)).unwrap();
    a.loop_(around).unwrap();
    a.rep().movsb().unwrap();
    a.mov(ecx, dword_ptr(rsi)).unwrap();
    a.bt(qword_ptr(rdi), rax).unwrap();
    a.mov(rax, qword_ptr(0x28).gs()).unwrap();
    a.add(rsp, 32).unwrap();
    a.pop(rbx).unwrap();
    a.ret().unwrap();
    a.set_label(&mut data).unwrap();
    a.dq(&[7]).unwrap();
    Bytes(a.assemble(START).unwrap())
}

fn recorded() -> Translation {
    translator(Counting::Accesses)
        .translate(&accessing(), REGION, &[Addr(START)], WHOLE)
        .unwrap()
}

pub(super) fn translator(counting: Counting) -> Translator {
    Translator::new(LAYOUT, ARENA, counting).unwrap()
}

pub(super) fn prover() -> FragmentProver {
    let resident = Resident::new(ARENA.start, &LAYOUT);
    FragmentProver::new(LAYOUT, ARENA, &resident).unwrap()
}

fn translation(counting: Counting) -> Translation {
    translator(counting)
        .translate(&original(), REGION, &[Addr(START)], WHOLE)
        .unwrap()
}

/// The rules that a changed translation breaks.
fn broken(counting: Counting, change: impl FnOnce(&mut Translation)) -> Vec<FragmentRule> {
    let mut translation = translation(counting);
    change(&mut translation);
    let all = prover().prove(&original(), REGION, translation, counting);
    let all = all.expect_err("the mutant passes");
    all.iter().map(|one: &FragmentViolation| one.rule).collect()
}

/// The offset of bytes in a translation.
pub(super) fn offset_of(translation: &Translation, bytes: &[u8]) -> usize {
    let mut windows = translation.bytes.windows(bytes.len());
    windows.position(|window| window == bytes).unwrap()
}

/// Changes a byte of a sequence, at a distance from its start.
fn flips(bytes: &[u8], distance: usize) -> impl FnOnce(&mut Translation) {
    move |translation| {
        let at = offset_of(translation, bytes) + distance;
        translation.bytes[at] ^= 1;
    }
}

#[test]
fn every_wrong_translation_is_refused_by_its_rule() {
    use FragmentRule as R;
    let plain = Counting::Off;
    let counts = Counting::OneThread;
    let mut refused: BTreeMap<R, usize> = BTreeMap::new();
    let mut check = |rule: R, counting, change: &dyn Fn(&mut Translation)| {
        let rules = broken(counting, change);
        assert!(rules.contains(&rule), "{rule:?} is not among {rules:?}");
        *refused.entry(rule).or_default() += 1;
    };
    let flip = |bytes: &'static [u8], distance| {
        move |translation: &mut Translation| flips(bytes, distance)(translation)
    };
    // add rax, rcx becomes another instruction.
    check(R::NotACopy, plain, &flip(&[0x48, 0x01, 0xc8], 2));
    check(R::NotACopy, plain, &flip(&[0xe2, 0x02, 0xeb, 0x05], 0));
    // The condition of jbe.
    check(R::NotACopy, plain, &flip(&[0x0f, 0x86], 1));
    check(R::WrongTarget, plain, &flip(&[0x0f, 0x86], 2));
    check(R::WrongReturn, plain, &flip(&[0x59, 0x0f, 0xb7, 0xd1], 3));
    check(R::WrongReturn, plain, &flip(&[0x59, 0x0f, 0xb7, 0xd1], 8));
    // mov rcx, [rbx+rcx*8]
    check(R::WrongIndirect, plain, &flip(&[0x48, 0x8b, 0x0c, 0xcb], 3));
    // mov rcx, rdx
    check(R::WrongIndirect, plain, &flip(&[0x48, 0x8b, 0xca], 2));
    // lea ecx, [rax-10]: munmap is watched.
    check(
        R::WrongSystemCall,
        plain,
        &flip(&[0x8d, 0x88, 0xf5, 0xff, 0xff, 0xff], 2),
    );
    check(
        R::WrongSystemCall,
        plain,
        &flip(&[0x0f, 0x05, 0x48, 0x8d, 0x0d], 5),
    );
    // The landing of the entry.
    check(R::WrongLanding, plain, &|translation| {
        let landing = translation
            .landings
            .iter()
            .find(|landing| landing.original.0 == START)
            .unwrap();
        let at = usize::try_from(landing.at.0 - translation.start.0).unwrap();
        translation.bytes[at + 6] ^= 1;
    });
    check(R::WrongLanding, plain, &|translation| {
        translation.landings[0].original = Addr(START + 1);
    });
    check(R::WrongReturnAddress, plain, &|translation| {
        let last = translation.bytes.len() - 8;
        translation.bytes[last] ^= 1;
    });
    check(R::WrongRow, plain, &|translation| {
        let row = translation
            .rows
            .iter_mut()
            .find(|row| row.state == RowState::Evaluated)
            .unwrap();
        row.state = RowState::Exact;
    });
    check(R::WrongRow, plain, &|translation| {
        let row = translation
            .rows
            .iter_mut()
            .find(|row| row.state == RowState::Returned)
            .unwrap();
        row.original = row.original.add(1);
    });
    check(R::WrongExtent, plain, &|translation| {
        translation.blocks[0].original.end = translation.blocks[0].original.end.add(1);
    });
    check(R::WrongExtent, plain, &|translation| {
        translation.blocks[1].instructions += 1;
    });
    check(R::BlockTwice, plain, &|translation| {
        let block = translation.blocks[0];
        translation.blocks.push(block);
    });
    check(R::OutsideArena, plain, &|translation| {
        translation.start = Addr(ARENA.start.0);
    });
    check(R::OutsideArena, plain, &|translation| {
        translation.start = Addr(ARENA.end.0 - 8);
    });
    check(R::Undecodable, plain, &|translation| {
        translation.bytes.truncate(20);
    });
    check(R::WrongLink, plain, &|translation| {
        translation.links.push(Link {
            at: translation.start,
            target: Addr(START),
            bytes: [0; 4],
        });
    });
    // The agent executes ud2: its address.
    check(R::NotMovable, plain, &|translation| {
        let mut blocks = translation.blocks.iter().rev();
        let block = blocks.find(|block| block.instructions == 1 && block.original.len() == 2);
        let at = usize::try_from(block.unwrap().at.0 - translation.start.0).unwrap();
        translation.bytes[at + 19] ^= 1;
    });
    check(R::NoOriginal, plain, &|translation| {
        translation.blocks[0].original.start = Addr(START - 64);
    });
    // inc qword ptr [counter]
    check(
        R::ForeignCounter,
        counts,
        &flip(&[0x3e, 0x48, 0xff, 0x04, 0x25], 6),
    );
    check(R::ForeignCounter, counts, &|translation| {
        translation.blocks[0].counter = Some(u32::MAX);
    });
    check(R::Unlocked, counts, &|translation| {
        let at = offset_of(translation, &[0x3e, 0x48, 0xff, 0x04, 0x25]);
        translation.bytes[at] = 0xf0;
    });
    check(R::CounterMissing, counts, &|changed| {
        *changed = translation(Counting::Off);
    });
    // The code reads flags that the translator was shown to be dead: `jbe` was `and eax, eax`.
    {
        let Bytes(mut bytes) = original();
        let at = bytes.windows(2).position(|two| two[0] == 0x76).unwrap();
        bytes[at] = 0x21;
        bytes[at + 1] = 0xc0;
        let cmp = bytes
            .windows(3)
            .position(|three| three == [0x48, 0x39, 0xd8])
            .unwrap();
        assert_eq!(cmp + 3, at);
        let mut translator = translator(counts);
        let seed = Addr(START + at as u64);
        let wrong = translator
            .translate(&Bytes(bytes), REGION, &[seed], WHOLE)
            .unwrap();
        let all = prover()
            .prove(&original(), REGION, wrong, counts)
            .unwrap_err();
        assert!(
            all.iter()
                .any(|translation| translation.rule == R::FlagsLive),
            "{all:?}"
        );
        *refused.entry(R::FlagsLive).or_default() += 1;
    }
    let mut check = |rule: R, change: &dyn Fn(&mut Translation)| {
        let mut mutant = recorded();
        change(&mut mutant);
        let all = prover().prove(&accessing(), REGION, mutant, Counting::Accesses);
        let rules: Vec<R> = all.unwrap_err().iter().map(|one| one.rule).collect();
        assert!(rules.contains(&rule), "{rule:?} is not among {rules:?}");
        *refused.entry(rule).or_default() += 1;
    };
    check(R::AccessMissing, &|changed| {
        *changed = translator(Counting::Off)
            .translate(&accessing(), REGION, &[Addr(START)], WHOLE)
            .unwrap();
    });
    check(R::AccessMissing, &|changed| {
        changed.recorded.remove(0);
    });
    check(R::WrongRecording, &|changed| {
        let first = changed.recorded[0].clone();
        changed.recorded.push(first);
    });
    check(R::ForeignCounter, &|changed| {
        changed.recorded[1].number = changed.recorded[0].number;
    });
    let changes: [fn(&mut AccessPlace); 9] = [
        |place| *place = AccessPlace::Unknown,
        |place| match place {
            AccessPlace::Constant { at, .. } => *at += 1,
            AccessPlace::Sum { displacement, .. } => *displacement += 1,
            AccessPlace::Repeated { copied, .. } => *copied = copied.add(1),
            AccessPlace::Unknown => {
                *place = AccessPlace::Constant {
                    at: 0,
                    thread: false,
                }
            }
        },
        |place| match place {
            AccessPlace::Constant { thread, .. } | AccessPlace::Sum { thread, .. } => {
                *thread = !*thread;
            }
            AccessPlace::Repeated { register, .. } => *register ^= 1,
            AccessPlace::Unknown => {
                *place = AccessPlace::Constant {
                    at: 0,
                    thread: false,
                }
            }
        },
        |place| match place {
            AccessPlace::Sum { base, .. } => *base = base.map_or(Some(0), |slot| Some(slot + 1)),
            AccessPlace::Repeated { first, .. } => *first += 1,
            place => {
                *place = AccessPlace::Sum {
                    base: Some(0),
                    index: None,
                    displacement: 0,
                    thread: false,
                }
            }
        },
        |place| match place {
            AccessPlace::Sum { base, .. } => *base = base.map(|slot| slot + 99),
            AccessPlace::Repeated { after, .. } => *after += 1,
            place => {
                *place = AccessPlace::Sum {
                    base: Some(0),
                    index: None,
                    displacement: 0,
                    thread: true,
                }
            }
        },
        |place| match place {
            AccessPlace::Sum { base, .. } => *base = None,
            place => {
                *place = AccessPlace::Sum {
                    base: None,
                    index: None,
                    displacement: 0,
                    thread: false,
                }
            }
        },
        |place| {
            if let AccessPlace::Sum { index, .. } = place {
                *index = index.map_or(Some((0, 1)), |(slot, scale)| Some((slot + 1, scale)));
            }
        },
        |place| {
            if let AccessPlace::Sum { index, .. } = place {
                *index = index.map(|(slot, scale)| (slot, scale + 1));
            }
        },
        |place| {
            if let AccessPlace::Sum { index, .. } = place {
                *index = None;
            }
        },
    ];
    let whole = recorded();
    assert!(whole.recorded.iter().any(|block| !block.exits.is_empty()));
    for (block, stated) in whole.recorded.iter().enumerate() {
        for access in 0..stated.accesses.len() {
            for change in changes {
                let place = stated.accesses[access].place;
                let mut changed = place;
                change(&mut changed);
                if changed != place {
                    check(R::WrongRecording, &|translation| {
                        translation.recorded[block].accesses[access].place = changed;
                    });
                }
            }
            check(R::WrongRecording, &|translation| {
                let access = &mut translation.recorded[block].accesses[access];
                access.reads = !access.reads;
            });
            check(R::WrongRecording, &|translation| {
                translation.recorded[block].accesses[access].size += 1;
            });
            check(R::WrongRecording, &|translation| {
                translation.recorded[block].accesses[access].instruction += 1;
            });
        }
        check(R::WrongRecording, &|translation| {
            translation.recorded[block].slots += 1;
        });
        check(R::WrongRecording, &|translation| {
            let from = &mut translation.recorded[block].from;
            *from = from.add(1);
        });
        check(R::WrongRecording, &|translation| {
            translation.recorded[block].pointer ^= 1;
        });
        for exit in 0..stated.exits.len() {
            check(R::WrongRecording, &|translation| {
                translation.recorded[block].exits[exit].executed += 1;
            });
            check(R::WrongRecording, &|translation| {
                let at = &mut translation.recorded[block].exits[exit].at;
                *at = at.add(1);
            });
            check(R::WrongRecording, &|translation| {
                translation.recorded[block].exits.remove(exit);
            });
        }
    }
    // `mov rax, rcx`, of the same length, in place of a load by `rdi`: the code names the recorder's register.
    {
        let Bytes(mut bytes) = accessing();
        let at = bytes
            .windows(3)
            .position(|three| three == [0x48, 0x8b, 0x07])
            .unwrap();
        let mut translator = translator(Counting::Accesses);
        bytes[at + 2] = 0xc0;
        // The block that has it ends before `loop`, which names `rcx`.
        bytes[at + 3] = 0xc3;
        let code = Bytes(bytes.clone());
        let seed = Addr(START + at as u64 - 3);
        let mut wrong = translator.translate(&code, REGION, &[seed], WHOLE).unwrap();
        let copied = offset_of(&wrong, &[0x48, 0x8b, 0xc0]);
        wrong.bytes[copied + 2] = 0xc1;
        bytes[at + 2] = 0xc1;
        let all = prover()
            .prove(&Bytes(bytes), REGION, wrong, Counting::Accesses)
            .unwrap_err();
        assert!(
            all.iter().any(|one| one.rule == R::RecorderNamed),
            "{all:?}"
        );
        *refused.entry(R::RecorderNamed).or_default() += 1;
    }
    // `sbb rax, rbx`, which reads a flag, in place of `cmp rax, rbx`: the test of the area changes it.
    {
        let code = |opcode| {
            Bytes(vec![
                0x48, 0x8b, 0x07, 0x48, opcode, 0xd8, 0x48, 0x39, 0xd8, 0xf4,
            ])
        };
        let mut translator = translator(Counting::Accesses);
        let wrong = translator.translate(&code(0x39), REGION, &[Addr(START)], WHOLE);
        let all = prover()
            .prove(&code(0x19), REGION, wrong.unwrap(), Counting::Accesses)
            .unwrap_err();
        assert!(all.iter().any(|one| one.rule == R::FlagsLive), "{all:?}");
        *refused.entry(R::FlagsLive).or_default() += 1;
    }
    patched::every_wrong_patch(&mut |rule| *refused.entry(rule).or_default() += 1);
    patched::every_wrong_read(&mut |rule| *refused.entry(rule).or_default() += 1);
    patched::every_wrong_way(&mut |rule| *refused.entry(rule).or_default() += 1);
    patched::every_wrong_end(&mut |rule| *refused.entry(rule).or_default() += 1);
    patched::every_late_instrument(&mut |rule| *refused.entry(rule).or_default() += 1);
    for change in 0..Resident::new(ARENA.start, &LAYOUT).bytes.len() {
        let mut resident = Resident::new(ARENA.start, &LAYOUT);
        let before = text_at(&resident.bytes, change);
        let is_padding = resident.bytes[change] == 0xcc;
        resident.bytes[change] ^= 1;
        if is_padding || text_at(&resident.bytes, change) == before {
            continue;
        }
        let wrong = FragmentProver::new(LAYOUT, ARENA, &resident).unwrap_err();
        assert_eq!(wrong.rule, R::Resident, "byte {change}");
        *refused.entry(R::Resident).or_default() += 1;
    }
    let entries: [fn(&mut Resident); 4] = [
        |resident| resident.second_spill = resident.search,
        |resident| resident.dropped = resident.search,
        |resident| resident.search = resident.differs,
        |resident| resident.missed = resident.stepped,
    ];
    for change in entries {
        let mut resident = Resident::new(ARENA.start, &LAYOUT);
        change(&mut resident);
        let wrong = FragmentProver::new(LAYOUT, ARENA, &resident).unwrap_err();
        assert_eq!(wrong.rule, R::Resident);
    }
    let layout = CacheLayout {
        agent: LAYOUT.recent.add(64),
        ..LAYOUT
    };
    let resident = Resident::new(ARENA.start, &layout);
    let wrong = FragmentProver::new(layout, ARENA, &resident).unwrap_err();
    assert_eq!(wrong.rule, R::Layout);
    *refused.entry(R::Layout).or_default() += 1;
    let untested: Vec<R> = R::ALL
        .iter()
        .copied()
        .filter(|rule| !refused.contains_key(rule))
        .collect();
    assert_eq!(untested, [], "rules without a mutant");
}

/// Blocks of a list are translated in one piece, and no others; they are linked to what is translated later.
#[test]
fn blocks_of_a_list_are_translated_and_no_others() {
    let code = original();
    let whole = translation(Counting::Off);
    let starts: Vec<Addr> = whole
        .blocks
        .iter()
        .map(|block| block.original.start)
        .collect();
    let every_second = |first: usize| starts.iter().copied().skip(first).step_by(2);
    let listed: Vec<Addr> = every_second(0).collect();
    let others: Vec<Addr> = every_second(1).collect();
    // Neither code that is elsewhere nor a block that is not in the list gets a landing.
    let landed = [listed[1], others[0], Addr(START - 64)];
    let unknown = [listed.as_slice(), &[Addr(START - 64)]].concat();
    let (mut translator, mut prover) = (translator(Counting::Off), prover());
    let done = translator
        .translate_blocks(&code, REGION, &unknown, &landed)
        .unwrap();
    let translated: Vec<Addr> = done
        .blocks
        .iter()
        .map(|block| block.original.start)
        .collect();
    assert_eq!(translated, listed);
    assert!(translator.has_landing(REGION, listed[1]));
    assert!(!translator.has_landing(REGION, others[0]));
    prover.prove(&code, REGION, done, Counting::Off).unwrap();
    let rest = translator.translate(&code, REGION, &others, WHOLE).unwrap();
    assert!(!rest.links.is_empty());
    prover.prove(&code, REGION, rest, Counting::Off).unwrap();
    let again = translator
        .translate_blocks(&code, REGION, &listed, &[])
        .unwrap();
    assert_eq!(again.blocks, []);
    prover.prove(&code, REGION, again, Counting::Off).unwrap();
}

/// Code whose bytes end in a block is reported, so that more of it is read.
#[test]
fn bytes_that_end_in_a_block_are_reported() {
    let Bytes(whole) = original();
    let is_cut = |length: usize| {
        let code = Bytes(whole[..length].to_vec());
        let done = translator(Counting::Off).translate_apart(&code, Addr(START), WHOLE);
        let done = done.unwrap();
        let is_cut = done.is_cut(&code);
        prover().prove_apart(&code, done, Counting::Off).unwrap();
        is_cut
    };
    assert!(!is_cut(whole.len()));
    let ret = whole.iter().position(|byte| *byte == 0xc3).unwrap();
    for length in 1..=ret {
        assert!(is_cut(length), "{length} bytes");
    }
}

/// The instruction that a byte belongs to, as text.
pub(super) fn text_at(bytes: &[u8], at: usize) -> Option<String> {
    let decoder = Decoder::with_ip(64, bytes, START, DecoderOptions::NONE);
    let place = START + at as u64;
    let mut found = decoder
        .into_iter()
        .filter(|one| one.ip() <= place && place < one.next_ip());
    found.next().map(|one| format!("{} {one}", one.len()))
}

/// No byte of a translation may change but those that are never executed or read.
#[test]
fn every_byte_that_is_executed_is_proved() {
    for (code, counting) in [
        (original(), Counting::Off),
        (original(), Counting::OneThread),
        (original(), Counting::Threads),
        (original(), Counting::Accesses),
        (accessing(), Counting::Accesses),
    ] {
        let good = translator(counting)
            .translate(&code, REGION, &[Addr(START)], WHOLE)
            .unwrap();
        let mut survivors = Vec::new();
        for at in 0..good.bytes.len() {
            for bit in 0..8 {
                let mut mutant = good.clone();
                mutant.bytes[at] ^= 1 << bit;
                let same = text_at(&good.bytes, at) == text_at(&mutant.bytes, at);
                if !same && prover().prove(&code, REGION, mutant, counting).is_ok() {
                    survivors.push((at, bit, good.bytes[at]));
                }
            }
        }
        // Padding before the return addresses.
        let others: Vec<_> = survivors
            .iter()
            .filter(|(_, _, byte)| *byte != 0xcc)
            .collect();
        assert!(others.is_empty(), "{counting:?}: {others:x?}");
        assert!(
            survivors.len() <= 7 * 8,
            "{counting:?}: {}",
            survivors.len()
        );
    }
}

/// Arbitrary bytes, and code that overlaps itself, are translated and proved, or refused; nothing fails.
#[test]
fn arbitrary_bytes_are_translated_and_proved() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    for round in 0..300 {
        let counting = [Counting::Threads, Counting::Accesses][round % 2];
        let bytes = (0..256).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        });
        let code = Bytes(bytes.collect());
        let mut translator = translator(counting);
        let mut prover = prover();
        for seed in [START, START + 1, START + 77] {
            let done = translator
                .translate(&code, REGION, &[Addr(seed)], WHOLE)
                .unwrap();
            prover.prove(&code, REGION, done, counting).unwrap();
        }
    }
}

/// A jump to what follows an `endbr64` ends its block, which has a counter and no instruction: the next counter is that
/// of another block.
#[test]
fn the_counter_of_a_block_without_instructions_is_not_the_next_ones() {
    // endbr64; dec edi; jne to it; ret
    let code = Bytes(vec![0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0xcf, 0x75, 0xfc, 0xc3]);
    for counting in [Counting::OneThread, Counting::Threads] {
        let translated = translator(counting).translate(&code, REGION, &[Addr(START)], WHOLE);
        let translated = translated.unwrap();
        let second = translated.blocks[1].at;
        assert_eq!(translated.blocks[0].original, Span::new(Addr(START), 4));
        let proved = prover().prove(&code, REGION, translated.clone(), counting);
        proved.unwrap();
        let broken = |change: &dyn Fn(&mut Translation)| -> Vec<FragmentRule> {
            let mut wrong = translated.clone();
            change(&mut wrong);
            let refused = prover().prove(&code, REGION, wrong, counting);
            let all = refused.expect_err("the mutant passes");
            all.iter().map(|one| one.rule).collect()
        };
        // Both counters are the first block's; it begins at the second one; each has the other's.
        let both = broken(&|wrong| wrong.blocks[1].at = second.add(9));
        assert!(both.contains(&FragmentRule::WrongTarget), "{both:?}");
        let none = broken(&|wrong| wrong.blocks[0].at = second);
        assert!(none.contains(&FragmentRule::WrongRow), "{none:?}");
        let others = broken(&|wrong| {
            (wrong.blocks[0].counter, wrong.blocks[1].counter) =
                (wrong.blocks[1].counter, wrong.blocks[0].counter);
        });
        assert!(others.contains(&FragmentRule::ForeignCounter), "{others:?}");
    }
}
