use gilk_engine::layout::RuntimeLayout;
use gilk_engine::{Addr, Image, Span};

use super::*;

/// The functions of kernel/fork.c.
fn image() -> Image {
    let saved = include_bytes!("../../../../engine/tests/data/fork.image");
    Image::from_live(&postcard::from_bytes(saved).unwrap()).unwrap()
}

fn target(image: &Image) -> TargetInfo {
    TargetInfo {
        host: "here".into(),
        release: image.release().into(),
        cpus: 1,
        tsc_hz: 1,
        layout: RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000)),
        runs_programs: true,
        boot: String::new(),
    }
}

fn session() -> Session {
    let placement = |block, instrument: &str| Placement {
        function: "kernel_clone".into(),
        block,
        hook: gilk_engine::HookType::Pre,
        instrument: instrument.into(),
        launch: 0.0,
        splash: 1.0,
    };
    let mut session = Session::empty();
    session.placements = vec![
        placement(0, "counter"),
        placement(1, "counter"),
        placement(0, "mine"),
        placement(0, "theirs"),
    ];
    let mine = "instrument mine \"Samples the CPU.\"; hit { sample(cpu) }";
    session.sources.insert("mine".into(), mine.into());
    session
}

fn plan(image: &Image) -> Plan {
    let mut library = Library::builtin().unwrap();
    let theirs = "instrument theirs \"Samples the clock.\"; hit { sample(nsecs) }";
    library.add_file("theirs.gilk", theirs).unwrap();
    let layout = target(image).layout;
    gilk_engine::plan::plan(image, &session(), &library, &layout).unwrap()
}

#[test]
fn a_session_is_sent_with_the_sources_that_the_agent_lacks() {
    let requests = requests(&plan(&image()), &session()).unwrap();
    assert!(requests.iter().all(|request| request.check().is_ok()));
    let [Request::Clear, parts @ ..] = requests.as_slice() else {
        panic!("{requests:?}")
    };
    let parts: Vec<_> = parts
        .iter()
        .map(|request| match request {
            Request::Load(part) => part,
            other => panic!("{other:?}"),
        })
        .collect();
    let sources = parts.iter().flat_map(|part| &part.sources);
    let sources: Vec<&str> = sources.map(|(name, _)| name.as_str()).collect();
    assert_eq!(sources, ["mine", "theirs"]);
    let placements = parts.last().unwrap();
    assert_eq!(
        placements.names,
        ["kernel_clone", "counter", "mine", "theirs"]
    );
    let placed = placements.placements.iter();
    let placed: Vec<_> = placed
        .map(|one| (one.function, one.block, one.instrument))
        .collect();
    assert_eq!(placed, [(0, 0, 1), (0, 1, 1), (0, 0, 2), (0, 0, 3)]);
}

#[test]
fn a_plan_for_another_target_is_not_sent() {
    let image = image();
    let plan = plan(&image);
    let right = target(&image);
    check_target(&plan, &right).unwrap();
    let refused = |change: fn(&mut TargetInfo)| {
        let mut other = right.clone();
        change(&mut other);
        check_target(&plan, &other).unwrap_err().to_string()
    };
    let released = refused(|other| other.release = "6.12".into());
    assert!(released.contains("target runs 6.12"), "{released}");
    let moved = refused(|other| other.layout.arena = Span::new(Addr(0x9000), 0x1000));
    assert!(moved.contains("loaded again"), "{moved}");
}

#[test]
fn the_demonstration_is_a_valid_session() {
    let text = include_str!("../../../sessions/pulsar.ron");
    let session = Session::from_ron(text).unwrap();
    assert_eq!(session.workload.unwrap().program, "/bin/pulsar");
    let at_once = session.placements.iter();
    assert!(at_once.filter(|placement| placement.launch == 0.0).count() > 3);
}
