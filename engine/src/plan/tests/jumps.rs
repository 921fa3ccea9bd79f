//! Calls that are followed by jumps to where they come back.

use gilk_instruments::program::Hook;
use gilk_instruments::{Library, Source};
use iced_x86::code_asm::registers::*;
use iced_x86::{IcedError, code_asm::CodeAssembler};

use super::layout;
use crate::kernel::fixture::Fixture;
use crate::plan::jumps::MOST_PLACEMENTS;
use crate::plan::report::report;
use crate::plan::{Plan, plan};
use crate::session::{Placement, Session};
use crate::verify::verify;
use crate::{Addr, Error, HookType, Image, Rule};

fn inner(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(eax, 0x1234)?;
    a.add(eax, edi)?;
    a.ret()?;
    a.int3()
}

/// A function that jumps, twelve bytes after its start.
fn jumps(to: usize) -> impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError> {
    move |a| {
        a.mov(edi, 0x1234)?;
        a.xor(esi, esi)?;
        a.jmp(Fixture::address(to))?;
        a.int3()
    }
}

/// Returns for some, and jumps for others.
fn either(to: usize) -> impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError> {
    move |a| {
        let mut other = a.create_label();
        a.test(rdi, rdi)?;
        a.mov(eax, 0x1234)?;
        a.je(other)?;
        a.add(eax, 0x5678)?;
        a.ret()?;
        a.set_label(&mut other)?;
        a.mov(edi, 0x1234)?;
        a.jmp(Fixture::address(to))?;
        a.int3()
    }
}

fn session<'a>(placements: impl IntoIterator<Item = (&'a str, &'a str)>) -> Session {
    Session {
        duration: 9.0,
        placements: { placements.into_iter() }
            .map(|(function, instrument)| Placement {
                function: function.into(),
                block: 0,
                hook: HookType::Pre,
                instrument: instrument.into(),
                launch: 0.0,
                splash: 9.0,
            })
            .collect(),
        ..Session::empty()
    }
}

fn planned(image: &Image, session: &Session) -> crate::Result<Plan> {
    plan(
        image,
        session,
        &Library::builtin().unwrap(),
        &layout(1 << 20),
    )
}

/// The hooks of a plan's probes, in words, by placement; the plan is verified.
fn places(image: &Image, session: &Session) -> Vec<String> {
    let plan = planned(image, session).unwrap();
    let said = plan
        .instruments
        .iter()
        .map(|one| {
            let probed = one.probe.as_ref().unwrap();
            let name = &plan.functions[one.id.major as usize].name;
            format!("{} {name}.{}", probed.probe().unwrap().hook, one.id.block)
        })
        .collect();
    verify(image, plan).unwrap();
    said
}

fn refused(outcome: crate::Result<Plan>) -> Rule {
    match outcome {
        Err(Error::Refused { refusal, .. }) => refusal.rule,
        other => panic!("it is not refused: {other:?}"),
    }
}

#[test]
fn a_call_is_followed_to_where_it_comes_back() {
    let image = Fixture::new()
        .compiled("inner", inner)
        .compiled("outer", jumps(0))
        .image();
    let timed = session([("outer", "elapsed")]);
    assert_eq!(
        places(&image, &timed),
        [
            "entry outer.0",
            "onward outer.0",
            "back inner.0",
            "back inner.0"
        ]
    );
    // And that all calls of the other are looked at is said.
    let plan = planned(&image, &timed).unwrap();
    let [note] = &plan.notes[..] else {
        panic!("one note: {:?}", plan.notes);
    };
    // After the tracer's five bytes, and seven of two instructions.
    let jump = Addr(Fixture::address(1) + 12);
    assert_eq!((note.placement, note.at), (0, jump));
    assert!(
        note.text.contains("calls of outer by jumps into inner:"),
        "{note}"
    );
    assert!(report(&image, &plan).contains(&format!("note: {note}")));
    // What is returned is known only there.
    assert_eq!(
        places(&image, &session([("outer", "return-value")])),
        ["onward outer.0", "back inner.0", "back inner.0"]
    );
    // A function that does not jump is not observed elsewhere.
    let own = session([("inner", "elapsed")]);
    assert_eq!(places(&image, &own), ["entry inner.0", "return inner.0"]);
    assert_eq!(planned(&image, &own).unwrap().notes, []);
    // Both at once.
    let both = session([
        ("outer", "elapsed"),
        ("inner", "elapsed"),
        ("outer", "elapsed-total"),
    ]);
    assert_eq!(places(&image, &both).len(), 4 + 2 + 6);
}

#[test]
fn a_leave_probe_runs_at_jumps_too() {
    let image = Fixture::new()
        .compiled("inner", inner)
        .compiled("outer", either(0))
        .image();
    let mut session = session([("outer", "mine")]);
    let text =
        "instrument mine \"x.\"; call @a; entry { @a = 1 } leave / @a / { sample(@a); @a = 0 }";
    assert!(Source::parse(text).is_ok());
    session.sources.insert("mine".into(), text.into());
    assert_eq!(
        places(&image, &session),
        ["entry outer.0", "leave outer.1", "leave outer.2"]
    );
    let text = "instrument mine \"x.\"; leave { sample(retval) }";
    session.sources.insert("mine".into(), text.into());
    assert_eq!(places(&image, &session), ["leave outer.1"]);
}

#[test]
fn a_call_is_followed_through_many_and_back_to_none_twice() {
    let image = Fixture::new()
        .compiled("inner", inner)
        .compiled("first", either(2))
        .compiled("second", either(3))
        .compiled("third", either(2))
        .compiled("again", either(1))
        .image();
    // Second and third jump to each other: both return for first.
    let at = |function| places(&image, &session([(function, "elapsed")]));
    assert_eq!(
        at("first"),
        [
            "entry first.0",
            "return first.1",
            "onward first.2",
            "back second.1",
            "back third.1",
            "back second.1",
            "back third.1",
        ]
    );
    // From third the call reaches second itself, where it begins again.
    assert_eq!(
        at("second"),
        [
            "entry second.0",
            "return second.1",
            "onward second.2",
            "back third.1",
            "back third.2",
            "back third.1",
            "back third.2",
        ]
    );
    let plan = planned(&image, &session([("second", "elapsed")])).unwrap();
    let said: Vec<&str> = plan.notes.iter().map(|note| &*note.text).collect();
    assert!(
        said.iter()
            .any(|text| text.contains("second, which begins again")),
        "{said:?}"
    );
    let plan = planned(&image, &session([("again", "elapsed")])).unwrap();
    let text = &plan.notes[0].text;
    assert!(text.contains("first and 2 other functions"), "{text}");
}

#[test]
fn a_call_ends_at_a_jump_that_cannot_be_followed() {
    let image = Fixture::new()
        .compiled("fixup_exception", inner)
        .compiled("handled", jumps(0))
        .compiled("pointed", |a| {
            a.mov(edi, 0x1234)?;
            a.xor(esi, esi)?;
            a.jmp(rax)?;
            a.int3()
        })
        // Not to its start.
        .compiled("midst", |a| {
            a.mov(edi, 0x1234)?;
            a.jmp(Fixture::address(0) + 5)?;
            a.int3()
        })
        .image();
    for (function, why) in [
        (
            "handled",
            "fixup_exception (it is part of how the kernel handles faults)",
        ),
        ("pointed", "a function that a register names"),
        ("midst", "the middle of fixup_exception"),
    ] {
        let timed = session([(function, "elapsed")]);
        let own = [
            format!("entry {function}.0"),
            format!("return {function}.0"),
        ];
        assert_eq!(places(&image, &timed), own);
        let plan = planned(&image, &timed).unwrap();
        let [note] = &plan.notes[..] else {
            panic!("one note: {:?}", plan.notes);
        };
        assert!(note.text.contains(why), "{note}");
        let returned = planned(&image, &session([(function, "return-value")]));
        assert_eq!(refused(returned), Rule::ReturnUnknown);
    }
}

/// Each placement looks at every call of what it is followed into: there must not be too many of them, and which
/// come first does not matter.
#[test]
fn a_function_that_many_calls_come_to_is_not_looked_at() {
    let names: Vec<String> = (0..=MOST_PLACEMENTS)
        .map(|number| format!("f{number}"))
        .collect();
    let mut fixture = Fixture::new().compiled("inner", inner);
    for name in &names {
        fixture = fixture.compiled(name, jumps(0));
    }
    let image = fixture.image();
    let timed = |count| session(names[..count].iter().map(|name| (&**name, "elapsed")));
    let follow = |count| {
        let plan = planned(&image, &timed(count)).unwrap();
        let hooks = plan
            .instruments
            .iter()
            .map(|one| one.probe.as_ref().unwrap().probe().unwrap().hook);
        hooks.filter(|hook| *hook == Hook::Onward).count()
    };
    assert_eq!(follow(MOST_PLACEMENTS), MOST_PLACEMENTS);
    assert_eq!(follow(MOST_PLACEMENTS + 1), 0);
    let notes = planned(&image, &timed(MOST_PLACEMENTS + 1)).unwrap().notes;
    assert!(
        notes.iter().all(|note| note.text.contains("17 placements")),
        "{notes:?}"
    );
    verify(&image, planned(&image, &timed(MOST_PLACEMENTS)).unwrap()).unwrap();
}
