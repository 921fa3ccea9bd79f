use gilk_engine::Addr;
use gilk_engine::layout::EventCounter;
use gilk_engine::verify::verify;
use gilk_instruments::program::Event;

use super::*;
use crate::client::upload;
use crate::protocol::{Bytes, MAX_ITEMS, Placed, Request};

/// The functions of kernel/fork.c.
fn image() -> Image {
    let saved = include_bytes!("../../../../engine/tests/data/fork.image");
    Image::from_live(&postcard::from_bytes(saved).unwrap()).unwrap()
}

fn layout() -> RuntimeLayout {
    RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000))
}

fn options(image: &Image) -> PlanOptions {
    PlanOptions {
        release: image.release().into(),
        duration: 10.0,
        save_all: false,
        tracepoints: false,
        unknown_kernel: false,
        storage_log2: layout().timers_log2,
        assumed_events: None,
    }
}

/// A session with an instrument of its own, one of a library that the agent lacks, and a style.
fn session() -> (Session, Library) {
    let mut library = Library::builtin().unwrap();
    let theirs = "instrument theirs \"Samples the clock.\"; hit { sample(nsecs) }";
    library.add_file("theirs.gilk", theirs).unwrap();
    let mut session = Session::empty();
    let mine = "instrument mine \"Samples the CPU.\"; hit { sample(cpu) }";
    session.sources.insert("mine".into(), mine.into());
    let whole = gilk_engine::placement::Style::Whole;
    session.styles.insert("kernel_clone".into(), whole);
    for (number, instrument) in ["counter", "mine", "theirs", "elapsed", "coverage"]
        .into_iter()
        .enumerate()
    {
        session.placements.push(Placement {
            function: ["kernel_clone", "copy_process"][number % 2].into(),
            block: 0,
            hook: gilk_engine::HookType::Pre,
            instrument: instrument.into(),
            launch: number as f64,
            splash: 8.0,
        });
    }
    (session, library)
}

fn draft(requests: Vec<Request>) -> Draft {
    let mut draft = Draft::default();
    for request in requests {
        match request {
            Request::Clear => {}
            Request::Load(part) => draft.add(part).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    draft
}

fn planned_by_the_agent(
    image: &Image,
    draft: Draft,
    options: &PlanOptions,
) -> Result<Planned, Refusal> {
    let trust = Trust::default();
    let layout = super::layout(layout(), options, trust)?;
    plan(draft, options, trust, image, &layout, &|| false)
}

#[test]
fn agent_and_client_plan_the_same() {
    let image = image();
    let (session, library) = session();
    let expected = gilk_engine::plan::plan(&image, &session, &library, &layout()).unwrap();
    let expected = verify(&image, expected).unwrap();
    let requests = upload::requests(expected.plan(), &session).unwrap();
    let planned = planned_by_the_agent(&image, draft(requests), &options(&image)).unwrap();
    let writes = Writes::of(&expected).unwrap();
    assert_eq!(planned.outline, writes.outline(expected.plan()).unwrap());
    assert_eq!(planned.writes, writes);
    assert!(planned.outline.pokes > 0);

    // Another library, and so another plan.
    let mut requests = upload::requests(expected.plan(), &session).unwrap();
    for request in &mut requests {
        if let Request::Load(part) = request
            && let Some((_, text)) = part.sources.first_mut()
        {
            *text = text.replace("sample(cpu)", "sample(cpu + 1)");
        }
    }
    let other = planned_by_the_agent(&image, draft(requests), &options(&image)).unwrap();
    assert_ne!(other.outline.checksum, planned.outline.checksum);
}

#[test]
fn a_part_that_refers_to_nothing_or_twice_to_one_name_is_refused() {
    let refused = |part: SessionPart| Draft::default().add(part).unwrap_err().text;
    let placed = Placed {
        function: 0,
        block: 0,
        hook: gilk_engine::HookType::Pre,
        instrument: 1,
        launch: 0.0,
        splash: 1.0,
    };
    let nameless = refused(SessionPart {
        names: vec!["f".into()],
        placements: vec![placed],
        ..SessionPart::default()
    });
    assert!(nameless.contains("name 1, and 1 were sent"), "{nameless}");
    let sources = refused(SessionPart {
        sources: vec![("a".into(), String::new()); 2],
        ..SessionPart::default()
    });
    assert!(sources.contains("Two sources are named \"a\""), "{sources}");
    let style = gilk_engine::placement::Style::Whole;
    let styles = refused(SessionPart {
        styles: vec![("f".into(), style); 2],
        ..SessionPart::default()
    });
    assert!(styles.contains("two styles"), "{styles}");
}

#[test]
fn a_draft_is_bounded() {
    let object = |bytes| SessionPart {
        objects: vec![ObjectFile {
            name: String::new(),
            bytes: Bytes::from(vec![0; bytes]),
        }],
        ..SessionPart::default()
    };
    let mut draft = Draft::default();
    draft.add(object(MAX_TEXT)).unwrap();
    let full = draft.add(object(1)).unwrap_err().text;
    assert!(full.contains("bytes of names"), "{full}");
    let mut draft = Draft::default();
    let names = || SessionPart {
        names: vec![String::new(); MAX_ITEMS],
        ..SessionPart::default()
    };
    for _ in 0..MAX_PLACEMENTS / MAX_ITEMS {
        draft.add(names()).unwrap();
    }
    assert!(draft.add(names()).unwrap_err().text.contains("names"));
}

#[test]
fn trust_is_checked_by_the_agent() {
    let image = image();
    let refused = |draft, options: &PlanOptions| {
        let planned = planned_by_the_agent(&image, draft, options);
        planned.map(drop).unwrap_err().text
    };
    let mut native = Draft::default();
    let file = ObjectFile {
        name: "own.o".into(),
        bytes: Bytes::from(Vec::new()),
    };
    native.objects.push(file);
    assert!(refused(native, &options(&image)).contains("--allow-native"));
    let counter = EventCounter {
        event: Event::Cycles,
        index: 0,
        width: 48,
    };
    let assumed = PlanOptions {
        assumed_events: Some(vec![counter]),
        ..options(&image)
    };
    assert!(refused(Draft::default(), &assumed).contains("runs programs"));
    let other = PlanOptions {
        release: "6.12".into(),
        ..options(&image)
    };
    assert!(refused(Draft::default(), &other).contains("Linux 6.12"));

    // The tree's image is of a kernel that was checked; one of another release is not.
    let saved = include_bytes!("../../../../engine/tests/data/fork.image");
    let mut parts: gilk_engine::kernel::LiveParts = postcard::from_bytes(saved).unwrap();
    parts.release = "5.4.0-unknown".into();
    let unknown = Image::from_live(&parts).unwrap();
    assert!(!unknown.is_known());
    let insisting = PlanOptions {
        unknown_kernel: true,
        ..options(&unknown)
    };
    let planned = planned_by_the_agent(&unknown, Draft::default(), &insisting);
    let text = planned.map(drop).unwrap_err().text;
    assert!(text.contains("--unknown-kernel"), "{text}");
}

#[test]
fn a_client_that_is_gone_ends_its_plan() {
    let image = image();
    let (session, library) = session();
    let own = gilk_engine::plan::plan(&image, &session, &library, &layout()).unwrap();
    let requests = upload::requests(&own, &session).unwrap();
    let (options, trust) = (options(&image), Trust::default());
    let planned = |draft, is_gone: &dyn Fn() -> bool| {
        plan(draft, &options, trust, &image, &layout(), is_gone).map(drop)
    };
    let counted = |draft, most: usize| {
        let polls = std::cell::Cell::new(0);
        let outcome = planned(draft, &|| {
            polls.set(polls.get() + 1);
            polls.get() > most
        });
        (outcome, polls.get())
    };
    let (outcome, all) = counted(draft(requests.clone()), usize::MAX);
    outcome.unwrap();
    let mut stages = 0;
    let watch = &mut |_| {
        stages += 1;
        ControlFlow::Continue(())
    };
    plan_watched(&image, &session, &library, &layout(), watch).unwrap();
    // Both the plan and its verification poll the client.
    assert!(all > stages && stages > 0, "{all} {stages}");
    for most in 0..all {
        let (outcome, polls) = counted(draft(requests.clone()), most);
        assert!(outcome.unwrap_err().text.contains("client is gone"));
        assert_eq!(polls, most + 1);
    }
}

/// The functions `kernel_clone` and `copy_process` have two and three instruments.
fn replanned(at: f64, replaced: &str) -> (Planned, Result<Replanned, Refusal>) {
    let image = Arc::new(image());
    let (session, library) = session();
    let expected = gilk_engine::plan::plan(&image, &session, &library, &layout()).unwrap();
    let requests = upload::requests(&expected, &session).unwrap();
    let planned = planned_by_the_agent(&image, draft(requests), &options(&image)).unwrap();
    let replaced = Replaced::of([replaced]);
    let rest = planned.replanner.rest(&image, at, &replaced, &|| false);
    (planned, rest)
}

#[test]
fn the_rest_of_a_session_has_the_numbers_and_counters_of_the_whole() {
    // Launched at 0 to 4 s; the plan has batches at 0, 1, 2, 3, 4 and 8 s.
    let (planned, rest) = replanned(2.5, "none");
    let rest = rest.unwrap();
    assert_eq!(
        (rest.past, &*rest.left_out, &*rest.replaced),
        (3, &[][..], &[][..])
    );
    let numbers: Vec<u32> = rest.later.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [3, 4, 5]);
    assert_eq!(rest.writes.counters, planned.writes.counters);
    // What is in place at that time is installed at once, and all of it is removed at the end.
    assert!(!rest.first.is_empty() && rest.first.iter().all(|poke| !poke.removes()));
    let (_, last) = rest.later.back().unwrap();
    let installed = rest.first.iter().map(|poke| poke.address);
    let later = rest.later.iter().flat_map(|(_, batch)| &batch.pokes);
    let installed: BTreeSet<u64> = installed
        .chain(
            later
                .filter(|poke| !poke.removes())
                .map(|poke| poke.address),
        )
        .collect();
    let removed: BTreeSet<u64> = last.pokes.iter().map(|poke| poke.address).collect();
    assert_eq!(installed, removed);
}

#[test]
fn instruments_of_replaced_functions_are_left_out_and_the_others_keep_their_numbers() {
    let (planned, rest) = replanned(0.5, "kernel_clone");
    let rest = rest.unwrap();
    assert_eq!(rest.replaced, ["kernel_clone"]);
    let of_clone = |one: &&NumberedInstrument| {
        let placement = &planned.replanner.source.session.placements[one.placement];
        &*placement.function == "kernel_clone"
    };
    let clone: Vec<u64> = planned
        .replanner
        .instruments
        .iter()
        .filter(of_clone)
        .map(|one| one.id)
        .collect();
    assert_eq!(rest.left_out, clone);
    assert!(clone.len() >= 3, "{clone:?}");
    // Its counter is the first, and no other has it.
    let kept = |counter: &&crate::writes::Counter| !clone.contains(&(counter.id & ((1 << 48) - 1)));
    let expected: Vec<_> = planned
        .writes
        .counters
        .iter()
        .filter(kept)
        .copied()
        .collect();
    assert!(!expected.is_empty() && expected.len() < planned.writes.counters.len());
    assert_eq!(rest.writes.counters, expected);
    // After the end of all there is nothing to install, and nothing is left out.
    let (_, over) = replanned(9.0, "kernel_clone");
    let over = over.unwrap();
    assert!(over.first.is_empty() && over.later.is_empty() && over.left_out.is_empty());
    assert_eq!(over.past, 6);
}
