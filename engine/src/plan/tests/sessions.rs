//! Names, numbers, versions and refusals of sessions written by hand.

use gilk_instruments::Library;
use gilk_instruments::program::VariableId;
use iced_x86::code_asm::registers::*;

use super::layout;
use crate::kernel::fixture::Fixture;
use crate::layout::{RuntimeLayout, SegmentOffset};
use crate::plan::{Plan, PokeKind, plan};
use crate::session::{Placement, Session};
use crate::{Error, HookType, Image, Rule};

/// Three functions alike, each with a block of every size that matters here.
fn kernel() -> Image {
    let mut fixture = Fixture::new();
    for name in ["alpha", "beta", "gamma"] {
        fixture = fixture.compiled(name, |a| {
            let (mut far, mut short, mut end) =
                (a.create_label(), a.create_label(), a.create_label());
            // Block 0: the splices of both hooks stand apart.
            a.push(rbx)?;
            a.mov(rbx, rdi)?;
            a.mov(eax, 0x1234)?;
            a.add(rax, 0x1000)?;
            a.cmp(rbx, 0x2000)?;
            a.ja(far)?;
            // Block 1: both hooks by relocation.
            a.test(esi, esi)?;
            a.mov(ecx, edx)?;
            a.je(short)?;
            // Block 2: too short for anything.
            a.inc(eax)?;
            a.set_label(&mut short)?;
            // Block 3: falls through.
            a.lea(rax, iced_x86::code_asm::qword_ptr(rax + rdx * 4 + 0x40))?;
            a.xor(eax, 0x55)?;
            a.jmp(end)?;
            a.set_label(&mut far)?;
            a.mov(eax, 0xffff_ffeau32)?;
            a.set_label(&mut end)?;
            a.pop(rbx)?;
            a.nop()?;
            a.ret()?;
            a.int3()
        });
    }
    fixture.image()
}

fn placement(
    function: &str,
    block: u32,
    hook: HookType,
    instrument: &str,
    launch: f64,
    splash: f64,
) -> Placement {
    Placement {
        function: function.into(),
        block,
        hook,
        instrument: instrument.into(),
        launch,
        splash,
    }
}

fn session(placements: Vec<Placement>) -> Session {
    Session {
        duration: 100.0,
        placements,
        ..Session::empty()
    }
}

fn planned(image: &Image, placements: Vec<Placement>) -> Result<Plan, Error> {
    plan(
        image,
        &session(placements),
        &Library::builtin().unwrap(),
        &layout(0x1_0000),
    )
}

fn refused(result: Result<Plan, Error>) -> (Rule, String) {
    match result {
        Err(error @ Error::Refused { .. }) => {
            let text = error.to_string();
            let Error::Refused { refusal, .. } = error else {
                unreachable!()
            };
            (refusal.rule, text)
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_set_of_instruments_that_comes_back_has_one_patch() {
    let image = kernel();
    let pre = |instrument, launch, splash| {
        placement("beta", 0, HookType::Pre, instrument, launch, splash)
    };
    let plan = planned(
        &image,
        vec![
            pre("counter", 0.0, 9.0),
            pre("timestamp", 2.0, 4.0),
            pre("timestamp", 6.0, 7.0),
        ],
    )
    .unwrap();
    assert_eq!(plan.patches.len(), 3);
    let steps: Vec<_> = plan
        .batches
        .iter()
        .flat_map(|batch| &batch.pokes)
        .map(|poke| (poke.kind, poke.patch.0, poke.overwritten))
        .collect();
    let retarget = |patch| (PokeKind::Retarget, patch, 1);
    let several = plan.sites[plan.patches[0].site.0 as usize].overwritten;
    assert_eq!(
        steps,
        [
            (PokeKind::Install, 0, several),
            retarget(1),
            retarget(0),
            retarget(2),
            retarget(0),
            (PokeKind::Remove, 0, several)
        ]
    );
}

#[test]
fn names_of_functions_give_major_numbers_in_order_of_appearance() {
    let image = kernel();
    let pre = |function| placement(function, 0, HookType::Pre, "counter", -0.0, 1.0);
    let plan = planned(&image, vec![pre("gamma"), pre("alpha"), pre("gamma")]).unwrap();
    assert_eq!(
        plan.functions
            .iter()
            .map(|f| (f.major, f.name.as_str()))
            .collect::<Vec<_>>(),
        [(0, "gamma"), (1, "alpha")]
    );
    let ids: Vec<_> = plan
        .instruments
        .iter()
        .map(|one| (one.id.major, one.id.order))
        .collect();
    assert_eq!(ids, [(0, 0), (1, 0), (0, 1)]);
    assert_eq!(plan.batches.len(), 2);
    assert!(
        plan.instruments
            .iter()
            .all(|one| one.launch.is_sign_positive())
    );
}

#[test]
fn what_cannot_be_planned_is_refused_with_names() {
    let image = kernel();
    let at = |block, hook, instrument| vec![placement("alpha", block, hook, instrument, 0.0, 1.0)];
    assert!(planned(&image, at(2, HookType::Pre, "counter")).is_ok());
    // rdi is intact in block 1, ecx (argument 3) is overwritten there, before its end.
    assert!(planned(&image, at(1, HookType::Pre, "argument-0")).is_ok());
    assert!(planned(&image, at(1, HookType::Pre, "argument-3")).is_ok());
    let (rule, text) = refused(planned(&image, at(1, HookType::Post, "argument-3")));
    assert_eq!(rule, Rule::ArgumentGone);
    assert!(
        text.contains("rcx")
            && text.contains("argument-3")
            && text.contains("the post-hook of block 1 of alpha"),
        "{text}"
    );

    let missing = planned(&image, at(40, HookType::Pre, "counter")).unwrap_err();
    assert!(
        matches!(missing, Error::NoBlock { block: 40, .. }),
        "{missing}"
    );
    assert!(matches!(
        planned(&image, at(0, HookType::Pre, "counters")),
        Err(Error::Instrument(_))
    ));
    let nowhere = placement("delta", 0, HookType::Pre, "counter", 0.0, 1.0);
    assert!(matches!(
        planned(&image, vec![nowhere]),
        Err(Error::NoFunction { .. })
    ));
    let never = placement("alpha", 0, HookType::Pre, "counter", 2.0, 1.0);
    assert!(matches!(
        planned(&image, vec![never]),
        Err(Error::Session { .. })
    ));
}

#[test]
fn nanoseconds_need_the_rate_of_the_clock() {
    let image = kernel();
    let mut session = session(vec![placement(
        "alpha",
        1,
        HookType::Pre,
        "clock",
        0.0,
        1.0,
    )]);
    let source = String::from("instrument clock \"Time.\";\nhit { sample(nsecs) }");
    session.sources.insert("clock".to_owned(), source);
    let planned = |clock| {
        let layout = RuntimeLayout {
            clock,
            ..layout(0x1_0000)
        };
        plan(&image, &session, &Library::builtin().unwrap(), &layout)
    };
    planned(layout(0x1_0000).clock).unwrap();
    let (rule, text) = refused(planned(None));
    assert_eq!(rule, Rule::ProgramUnsupported);
    assert!(text.contains("the rate of its clock"), "{text}");
}

#[test]
fn what_does_not_fit_says_how_much_there_is() {
    let image = kernel();
    let library = Library::builtin().unwrap();
    let many = |n: usize, instrument: &str| {
        session(vec![
            placement(
                "alpha",
                0,
                HookType::Pre,
                instrument,
                0.0,
                1.0
            );
            n
        ])
    };
    let full = plan(&image, &many(33, "counter"), &library, &layout(0x1_0000)).unwrap_err();
    assert_eq!(
        full,
        Error::Full {
            what: "counters",
            needed: 33,
            available: 32
        }
    );
    let full = plan(
        &image,
        &many(257, "timestamp"),
        &library,
        &layout(0x10_0000),
    )
    .unwrap_err();
    assert_eq!(
        full,
        Error::Full {
            what: "instruments at one hook",
            needed: 257,
            available: 256
        }
    );

    let fits = plan(&image, &many(1, "timestamp"), &library, &layout(0x1000)).unwrap();
    let bytes = fits.patches[0].code.len() as u64;
    assert!(plan(&image, &many(1, "timestamp"), &library, &layout(bytes)).is_ok());
    let full = plan(&image, &many(1, "timestamp"), &library, &layout(bytes - 1)).unwrap_err();
    assert_eq!(
        full,
        Error::Full {
            what: "bytes of patches",
            needed: bytes,
            available: bytes - 1
        }
    );

    let mut wrong = layout(0x1000);
    wrong.rings.head = SegmentOffset(1 << 40);
    let error = plan(&image, &many(1, "timestamp"), &library, &wrong)
        .unwrap_err()
        .to_string();
    assert!(error.contains("head"), "{error}");
    let mut wrong = layout(0x1000);
    wrong.rings.stride_log2 = 20;
    assert!(matches!(
        plan(&image, &many(1, "timestamp"), &library, &wrong),
        Err(Error::Layout { .. })
    ));
}

/// An instrument that samples an argument must find it although the function itself no longer reads
/// it: no other instrument of the function may use its register as scratch.
#[test]
fn registers_that_are_sampled_are_kept_everywhere_in_the_function() {
    let image = kernel();
    let sampler = placement("alpha", 1, HookType::Pre, "argument-5", 0.0, 1.0);
    let other = placement("alpha", 0, HookType::Pre, "timestamp", 0.0, 1.0);
    let plan = planned(&image, vec![other, sampler]).unwrap();
    for patch in &plan.patches {
        let code = iced_x86::Decoder::with_ip(64, &patch.code, patch.address.0, 0);
        let mut factory = iced_x86::InstructionInfoFactory::new();
        let mut pushed = false;
        for instruction in code {
            pushed |= instruction.code() == iced_x86::Code::Push_r64
                && instruction.op0_register() == iced_x86::Register::R9;
            let writes = factory
                .info(&instruction)
                .used_registers()
                .iter()
                .any(|used| {
                    used.register().full_register() == iced_x86::Register::R9
                        && !matches!(used.access(), iced_x86::OpAccess::Read)
                });
            assert!(!writes || pushed, "{instruction:?} changes r9");
        }
    }
}

/// A shared variable is one for all instruments of the session, in each scope; others are one for each placement.
#[test]
fn shared_variables_are_the_sessions() {
    let image = kernel();
    for scope in ["global", "cpu", "thread"] {
        let homes = |shared: &str| {
            let source = |name: &str, hook: &str| {
                let text = format!(
                    "instrument {name} \"x.\"; {shared} {scope} @v; {hook} {{ @v += 1 }} entry {{ sample(@v) }}"
                );
                (name.to_owned(), text)
            };
            let session = Session {
                duration: 9.0,
                placements: ["one", "two"]
                    .map(|name| placement("alpha", 0, HookType::Pre, name, 0.0, 9.0))
                    .to_vec(),
                sources: [source("one", "pre"), source("two", "post")].into(),
                ..Session::empty()
            };
            let library = Library::builtin().unwrap();
            let plan = plan(&image, &session, &library, &layout(1 << 20)).unwrap();
            let of = |place| {
                let mut probes = plan.instruments.iter().filter(|one| one.placement == place);
                probes
                    .next()
                    .unwrap()
                    .probe
                    .clone()
                    .unwrap()
                    .homes
                    .variables[VariableId(0)]
            };
            let both = (of(0), of(1));
            crate::verify::verify(&image, plan).unwrap();
            both
        };
        let (one, two) = homes("shared");
        assert_eq!(one, two, "{scope}");
        let (one, two) = homes("");
        assert_ne!(one, two, "{scope}");
    }
}

/// Probes before and after a block, at the entry and at the exits, all of one instrument on the same words.
#[test]
fn one_instrument_may_stand_at_every_kind_of_hook() {
    let text = "instrument mine \"x.\"; global @n; entry { @n += 1 } pre { @n += 2 } post { @n += 4 } \
        return { sample(@n) } leave { @n = 0 }";
    let session = Session {
        duration: 9.0,
        placements: vec![placement("alpha", 1, HookType::Pre, "mine", 0.0, 9.0)],
        sources: [("mine".into(), text.into())].into(),
        ..Session::empty()
    };
    let image = kernel();
    let library = Library::builtin().unwrap();
    let plan = plan(&image, &session, &library, &layout(1 << 20)).unwrap();
    let hooks: Vec<_> = plan
        .instruments
        .iter()
        .map(|one| {
            (
                one.probe.as_ref().unwrap().probe().unwrap().hook,
                one.id.block,
                one.id.hook,
            )
        })
        .collect();
    use gilk_instruments::program::Hook;
    let [entry, before, after, returned, left] = &hooks[..] else {
        panic!("five: {hooks:?}");
    };
    assert_eq!(*entry, (Hook::Entry, 0, HookType::Pre));
    assert_eq!(*before, (Hook::Pre, 1, HookType::Pre));
    assert_eq!(*after, (Hook::Post, 1, HookType::Post));
    assert_eq!((returned.0, left.0), (Hook::Return, Hook::Leave));
    assert_eq!((returned.1, returned.2), (left.1, left.2));
    crate::verify::verify(&image, plan).unwrap();
}

#[test]
fn refused_placements_are_left_out_by_name_and_the_others_are_planned() {
    let image = kernel();
    let always = |function: &str, block, hook, instrument: &str| {
        placement(function, block, hook, instrument, 0.0, 1.0)
    };
    let all = vec![
        always("beta", 0, HookType::Pre, "argument-0"),
        // Refused with the sites, and after them.
        always("beta", 3, HookType::Taken, "counter"),
        always("beta", 0, HookType::Pre, "counter"),
        always("beta", 3, HookType::Pre, "argument-3"),
    ];
    let library = Library::builtin().unwrap();
    let one_by_one: Vec<bool> = all
        .iter()
        .map(|one| planned(&image, vec![one.clone()]).is_ok())
        .collect();
    assert_eq!(one_by_one, [true, false, true, false]);
    let watch = &mut |_| std::ops::ControlFlow::Continue(());
    let whole = session(all.clone());
    let possible =
        crate::plan::plan_possible(&image, &whole, &library, &layout(0x1_0000), watch).unwrap();
    let left_out: Vec<usize> = possible.left_out.iter().map(|one| one.placement).collect();
    let wrong: Vec<usize> = (0..all.len()).filter(|&n| !one_by_one[n]).collect();
    assert_eq!(left_out, wrong);
    for one in &possible.left_out {
        let (rule, _) = refused(planned(&image, vec![all[one.placement].clone()]));
        assert_eq!(one.refusal.rule, rule);
    }
    // The rest is what a session of them alone gives, and it passes the verifier.
    assert_eq!(
        Ok(&possible.plan),
        planned(&image, possible.session.placements.clone()).as_ref()
    );
    assert!(crate::verify::verify(&image, possible.plan).is_ok());
}

#[test]
fn a_session_of_refused_placements_only_leaves_all_of_them_out() {
    let image = kernel();
    let taken = placement("beta", 3, HookType::Taken, "counter", 0.0, 1.0);
    let whole = session(vec![taken.clone(), taken]);
    let watch = &mut |_| std::ops::ControlFlow::Continue(());
    let library = Library::builtin().unwrap();
    let possible =
        crate::plan::plan_possible(&image, &whole, &library, &layout(0x1_0000), watch).unwrap();
    assert_eq!(possible.left_out.len(), 2);
    assert!(possible.plan.batches.is_empty() && possible.session.placements.is_empty());
}
