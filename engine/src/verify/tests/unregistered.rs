//! Programs in a process without restartable sequences (musl, glibc before 2.35): locked instructions update their words.

use gilk_instruments::program::Input;

use super::sequence_programs::{
    PROGRAMS, instructions_of_instruments, layout_of_process, refused_without,
};
use super::*;
use crate::Rule;
use crate::layout::{RingOwner, Rings, Sequences};

/// The layout of processes with sequences, without areas and rings.
fn layout_without() -> RuntimeLayout {
    let mut layout = layout_of_process();
    let RingOwner::Rseq(sequences) = layout.rings.per else {
        panic!("it is a process's");
    };
    layout.rings = Rings::none(Sequences {
        area: None,
        ..sequences
    });
    layout.inputs.set(Input::Cpu, None);
    layout
}

/// Returns whether a program needs an area: it samples, or uses what is a CPU's.
fn needs_an_area(source: &str) -> bool {
    ["sample(", "cpu"].iter().any(|word| source.contains(word))
}

/// The plans of the programs that need none.
fn plans(image: &Image) -> impl Iterator<Item = (&'static str, Plan)> {
    let sources = PROGRAMS.iter().map(|(source, _)| *source);
    let sources = sources.filter(|source| !needs_an_area(source));
    sources.map(|source| {
        let hook = ("kept", 0, HookType::Pre);
        let plan = of_source(image, hook, source, &layout_without());
        (
            source,
            plan.unwrap_or_else(|error| panic!("{source}: {error}")),
        )
    })
}

#[test]
fn words_are_updated_without_sequences() {
    let image = super::handmade::image();
    let mut count = 0;
    for (source, plan) in plans(&image) {
        assert_eq!(plan.patches[0].sequences, 0, "{source}");
        passes(&image, &plan);
        count += 1;
    }
    assert!(count > 12, "{count}");
}

#[test]
fn samples_and_words_of_a_cpu_are_refused() {
    let image = super::handmade::image();
    for (source, _) in PROGRAMS.iter().filter(|(source, _)| needs_an_area(source)) {
        let hook = ("kept", 0, HookType::Pre);
        let error = of_source(&image, hook, source, &layout_without()).unwrap_err();
        let crate::Error::Refused { refusal, .. } = error else {
            panic!("{source}: {error}");
        };
        assert_eq!(refusal.rule, Rule::RingOwner, "{source}: {refusal}");
        assert!(refusal.why.contains("glibc from 2.35"), "{refusal}");
    }
}

#[test]
fn every_instruction_and_every_prefix_matters() {
    let image = super::handmade::image();
    let mut locked = 0;
    for (source, good) in plans(&image) {
        for instruction in instructions_of_instruments(&good) {
            refused_without(&image, (source, &good), &instruction, instruction.len());
            if instruction.has_lock_prefix() {
                locked += 1;
                refused_without(&image, (source, &good), &instruction, 1);
            }
        }
    }
    assert!(locked > 12, "{locked}");
}

/// Takes the word of another row, as a thread with an area updates it, for that of all threads.
#[test]
fn the_words_of_a_cpu_are_not_updated() {
    let image = super::handmade::image();
    for (source, good) in plans(&image) {
        let RingOwner::Rseq(sequences) = good.layout.rings.per else {
            panic!("{source} is not for a process");
        };
        for cpus in [sequences.cpus - 1, sequences.cpus + 1] {
            let mut bad = good.clone();
            bad.layout.rings.per = RingOwner::Rseq(Sequences { cpus, ..sequences });
            assert!(verify(&image, bad).is_err(), "{source}: {cpus}");
        }
    }
}
