//! The function that the dynamic linker calls for debuggers, spliced: a splice is proven, and none with another bit.

use std::path::Path;

use gilk_engine::rendezvous::{RENDEZVOUS, Rendezvous, RendezvousWords};
use gilk_engine::verify::listing::ListingViolation;
use gilk_engine::verify::rendezvous::{RendezvousViolation, verify};
use gilk_engine::{Addr, Error, Image, Rule};
use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::compiled::compiled;
use super::image;

const LINKER: &str = "/lib64/ld-linux-x86-64.so.2";
const START: Addr = Addr(0x40_0000);
const WORDS: RendezvousWords = RendezvousWords {
    start: Addr(0x10_f000),
};

fn rendezvous(image: &Image, function: &str) -> Result<Rendezvous, Error> {
    Rendezvous::new(image, function, START, WORDS, 30_000_000_000)
}

pub(super) fn instructions(code: &[u8], at: Addr) -> Vec<String> {
    let decoder = Decoder::with_ip(64, code, at.0, DecoderOptions::NONE);
    decoder
        .into_iter()
        .map(|one: Instruction| one.to_string())
        .collect()
}

/// The same with a bit of one of its parts changed.
fn flipped(
    sound: &Rendezvous,
    part: impl Fn(&mut Rendezvous) -> &mut Vec<u8>,
) -> impl Iterator<Item = Rendezvous> {
    let bits = part(&mut sound.clone()).len() * 8;
    (0..bits).map(move |bit| {
        let mut changed = sound.clone();
        part(&mut changed)[bit / 8] ^= 1 << (bit % 8);
        changed
    })
}

#[test]
fn the_rendezvous_of_the_installed_linker_is_proven_and_no_bit_of_it_may_change() {
    let image = image(Path::new(LINKER));
    let sound = rendezvous(&image, RENDEZVOUS).unwrap();
    verify(&image, sound.clone()).unwrap();
    for changed in flipped(&sound, |one| &mut one.splice) {
        let refused = verify(&image, changed).unwrap_err();
        assert!(
            matches!(refused, RendezvousViolation::Splice(_)),
            "{refused}"
        );
    }
    for changed in flipped(&sound, |one| &mut one.original) {
        let refused = verify(&image, changed).unwrap_err();
        assert!(
            matches!(refused, RendezvousViolation::Original(_)),
            "{refused}"
        );
    }
    let listing = instructions(&sound.code, START);
    for (bit, changed) in flipped(&sound, |one| &mut one.code).enumerate() {
        let other = instructions(&changed.code, START);
        let verdict = verify(&image, changed);
        assert_eq!(verdict.is_ok(), other == listing, "{verdict:?}");
        // Bits of a prefix or of a scale that the processor ignores.
        let byte = sound.code[bit / 8];
        assert!(verdict.is_err() || matches!(byte, 0x40..=0x4f | 0x25));
    }
    let mut longer = sound.clone();
    longer.code.push(0x90);
    let refused = verify(&image, longer).unwrap_err();
    assert!(
        matches!(
            refused,
            RendezvousViolation::Listing(ListingViolation::Longer(_))
        ),
        "{refused}"
    );
    for start in [0x10_f004, (1 << 31) - 24] {
        let words = RendezvousWords { start: Addr(start) };
        let elsewhere = Rendezvous::new(&image, RENDEZVOUS, START, words, 1).unwrap();
        let refused = verify(&image, elsewhere).unwrap_err();
        assert!(
            matches!(refused, RendezvousViolation::Words(_)),
            "{refused}"
        );
    }
    let other = Rendezvous {
        patience: sound.patience + 1,
        ..sound
    };
    verify(&image, other).unwrap_err();
}

#[test]
fn only_an_empty_function_with_padding_after_it_is_spliced() {
    let text = "asm(\".text; \
        .globl protected, full, crowded, entered, last; \
        .type protected, @function; \
        .type full, @function; \
        .type crowded, @function; \
        .type entered, @function; \
        .type last, @function; \
        .balign 16; \
        protected: endbr64; \
        ret; \
        .size protected, . - protected; \
        .balign 16; \
        full:   xor %eax, %eax; \
        ret; \
        .size full, . - full; \
        .balign 16; \
        crowded: ret; \
        .size crowded, . - crowded; \
        last:   mov $1, %eax; \
        jmp 1f; \
        .size last, . - last; \
        .balign 16; \
        entered: ret; \
        1:      nop; \
        nop; \
        nop; \
        nop; \
        ret; \
        .size entered, . - entered\");";
    let image = compiled(text, &[]);
    let protected = rendezvous(&image, "protected").unwrap();
    assert_eq!(protected.original.len(), 5);
    verify(&image, protected.clone()).unwrap();
    for function in ["full", "crowded", "entered"] {
        let Err(Error::Unplanned { refusal, .. }) = rendezvous(&image, function) else {
            panic!("{function} is spliced");
        };
        assert_eq!(refusal.rule, Rule::NothingToDisplace);
        // The verifier finds it, too.
        let at = image.function_named(function).unwrap().span.start;
        let original = image.bytes_from(at, 5).unwrap().to_vec();
        let mut splice = vec![0xe9];
        let distance = i32::try_from(at.add(5).to(START)).unwrap();
        splice.extend(distance.to_le_bytes());
        let forced = Rendezvous {
            at,
            original,
            splice,
            ..protected.clone()
        };
        verify(&image, forced).unwrap_err();
    }
    let far = Addr(1 << 40);
    let error = Rendezvous::new(&image, "protected", far, WORDS, 1).unwrap_err();
    assert!(error.to_string().contains("out of its reach"), "{error}");
}
