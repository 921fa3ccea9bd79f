//! Places where a program forks, spliced so that the child waits: each is proven, and none with another bit.

use std::path::Path;

use gilk_engine::elf::ElfParts;
use gilk_engine::forks::{ForkWait, ForkWords, WaitingFrame};
use gilk_engine::verify::forks::{ForkViolation, verify};
use gilk_engine::verify::listing::ListingViolation;
use gilk_engine::{Addr, Error, Image, Rule};

use super::compiled::compiled;
use super::image;
use super::rendezvous::instructions;

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const START: Addr = Addr(0x40_0000);
const WORDS: ForkWords = ForkWords {
    start: Addr(0x10_f000),
};

fn wait(image: &Image, at: Addr) -> Result<ForkWait, Error> {
    ForkWait::new(image, at, START, WORDS, 30_000_000_000)
}

/// Places in functions of assembly.
const PLACES: &str = "asm(\".text; \
    .globl forks, clones, apart, middle, other, wide; \
    .type forks, @function; .type clones, @function; .type apart, @function; \
    .type middle, @function; .type other, @function; .type wide, @function; \
    .balign 16; forks: push %rbx; mov $57, %eax; syscall; pop %rbx; ret; \
    .size forks, . - forks; \
    .balign 16; clones: endbr64; mov $17, %edi; xor %esi, %esi; mov $56, %eax; syscall; ret; \
    .size clones, . - clones; \
    .balign 16; apart: mov $57, %eax; nop; syscall; ret; \
    .size apart, . - apart; \
    .balign 16; middle: test %edi, %edi; je 1f + 1; 1: mov $57, %eax; syscall; ret; \
    .size middle, . - middle; \
    .balign 16; other: mov $58, %eax; syscall; ret; \
    .size other, . - other; \
    .balign 16; wide: mov $57, %rax; syscall; ret; \
    .size wide, . - wide\");";

/// Proves a place, and refuses it with any other bit.
fn proven(image: &Image, at: Addr) {
    let sound = wait(image, at).unwrap();
    verify(image, sound.clone()).unwrap();
    let flipped = |part: &dyn Fn(&mut ForkWait) -> &mut Vec<u8>| -> Vec<ForkWait> {
        let bits = part(&mut sound.clone()).len() * 8;
        let changed = (0..bits).map(|bit| {
            let mut changed = sound.clone();
            part(&mut changed)[bit / 8] ^= 1 << (bit % 8);
            changed
        });
        changed.collect()
    };
    for changed in flipped(&|one| &mut one.splice) {
        let refused = verify(image, changed).unwrap_err();
        assert!(matches!(refused, ForkViolation::Splice(_)), "{refused}");
    }
    for changed in flipped(&|one| &mut one.original) {
        let refused = verify(image, changed).unwrap_err();
        assert!(matches!(refused, ForkViolation::Original(_)), "{refused}");
    }
    let listing = instructions(&sound.code, START);
    for (bit, changed) in flipped(&|one| &mut one.code).into_iter().enumerate() {
        let other = instructions(&changed.code, START);
        let verdict = verify(image, changed);
        assert_eq!(verdict.is_ok(), other == listing, "{verdict:?}");
        // Bits of a prefix or of a scale that the processor ignores, and one of `test`, which has two encodings.
        let byte = sound.code[bit / 8];
        assert!(
            verdict.is_err() || matches!(byte, 0x40..=0x4f | 0x24 | 0x25 | 0xc7),
            "{byte:#x} {verdict:?}"
        );
    }
    let mut longer = sound.clone();
    longer.code.push(0x90);
    let refused = verify(image, longer).unwrap_err();
    let is_longer = ForkViolation::Listing(ListingViolation::Longer(START));
    assert_eq!(refused, is_longer);
    let stated = |change: &dyn Fn(&mut ForkWait)| {
        let mut other = sound.clone();
        change(&mut other);
        verify(image, other).unwrap_err()
    };
    stated(&|one| one.patience += 1);
    stated(&|one| one.at = one.at.add(1));
    let waiting = stated(&|one| one.waiting.start = one.waiting.start.add(1));
    assert!(matches!(waiting, ForkViolation::Waiting(_)), "{waiting}");
    let waiting = stated(&|one| one.waiting.end = one.waiting.end.add(1));
    assert!(matches!(waiting, ForkViolation::Waiting(_)), "{waiting}");
    for start in [0x10_f004, (1 << 31) - 64] {
        let words = ForkWords { start: Addr(start) };
        let elsewhere = ForkWait::new(image, at, START, words, 1).unwrap();
        let refused = verify(image, elsewhere).unwrap_err();
        assert!(matches!(refused, ForkViolation::Words(_)), "{refused}");
    }
    let far = ForkWait::new(image, at, Addr(1 << 40), WORDS, 1);
    let error = far.unwrap_err().to_string();
    assert!(error.contains("out of its reach"), "{error}");
}

#[test]
fn the_place_where_the_installed_library_forks_is_proven_and_no_bit_of_it_may_change() {
    let image = image(Path::new(LIBC));
    let places = ForkWait::places(&image);
    let names: Vec<String> = places.iter().filter_map(|at| image.named(*at)).collect();
    assert!(
        names.iter().any(|name| name.contains("_Fork+")),
        "{names:?}"
    );
    for at in &places {
        proven(&image, *at);
    }
    // Tables of jumps make no difference.
    let file = std::fs::read(LIBC).unwrap();
    let without = ElfParts {
        tables: false,
        ..ElfParts::of_file(LIBC, &file)
    };
    let without = Image::from_elf(&without).unwrap();
    assert_eq!(ForkWait::places(&without), places);
    for at in places {
        proven(&without, at);
        verify(&image, wait(&without, at).unwrap()).unwrap();
    }
}

#[test]
fn only_a_number_right_before_its_system_call_is_displaced() {
    let image = compiled(PLACES, &[]);
    let start = |name: &str| image.function_named(name).unwrap().span.start;
    let places = ForkWait::places(&image);
    let [forks, clones, middle] = places[..] else {
        panic!("{places:?}");
    };
    assert_eq!(forks, start("forks").add(1));
    assert_eq!(clones, start("clones").add(11));
    assert_eq!(middle, start("middle").add(4));
    proven(&image, forks);
    proven(&image, clones);
    let sound = wait(&image, forks).unwrap();
    for at in ["apart", "other", "wide"].map(start) {
        let Err(Error::Unplanned { refusal, .. }) = wait(&image, at) else {
            panic!("{at} is spliced");
        };
        assert_eq!(refusal.rule, Rule::NothingToDisplace);
        // The verifier finds it, too.
        let original = image.bytes_from(at, 5).unwrap().to_vec();
        let other = ForkWait {
            at,
            original,
            ..sound.clone()
        };
        let refused = verify(&image, other).unwrap_err();
        assert!(matches!(refused, ForkViolation::Place(_)), "{refused}");
    }
    // So it does with a way into the middle.
    let entered = wait(&image, middle).map(|one| verify(&image, one).map(drop));
    assert!(!matches!(entered, Ok(Ok(()))), "{entered:?}");
    let original = image.bytes_from(middle, 5).unwrap().to_vec();
    let forced = ForkWait {
        at: middle,
        original,
        ..sound
    };
    verify(&image, forced).unwrap_err();
}

/// The agent moves a waiting child by these distances.
#[test]
fn the_stack_of_a_waiting_child_is_as_stated() {
    let image = compiled(PLACES, &[]);
    let at = ForkWait::places(&image)[0];
    let sound = wait(&image, at).unwrap();
    let before = (sound.waiting.start.0 - START.0) as usize;
    let before = instructions(&sound.code[..before], START);
    let mut depth = 0_u64;
    let mut pushed = Vec::new();
    for line in &before {
        if line == "lea rsp,[rsp-80h]" {
            depth += 128;
        } else if let Some(what) = line.strip_prefix("push") {
            depth += 8;
            pushed.insert(0, what.trim().to_owned());
        }
    }
    assert_eq!(depth, WaitingFrame::LEN_BYTES);
    let saved = ["r10", "r9", "r8", "rdx", "rsi", "rdi"];
    let first = (WaitingFrame::REGISTERS / 8) as usize;
    assert_eq!(pushed[first..first + saved.len()], saved);
    assert_eq!(pushed[(WaitingFrame::FLAGS / 8) as usize], "f");
    assert_eq!(
        pushed[(WaitingFrame::BLOCKED / 8) as usize],
        "0FFFFFFFFFFFFFFFFh"
    );
}
