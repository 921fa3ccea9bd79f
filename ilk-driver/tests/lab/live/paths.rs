//! Paths through functions, counted by a few instruments each, compared with counters at every
//! block in the same run.

use std::collections::BTreeMap;

use gilk_engine::cfg::Cfg;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::paths::Paths;
use gilk_engine::session::{Session, Workload};
use gilk_engine::{Error, HookType, Image};
use gilk_instruments::Library;

use crate::chosen::Chosen;
use crate::support::{placement, shared};

/// Functions that only the program `witness` calls in the lab, directly or indirectly.
const FUNCTIONS: [&str; 12] = [
    "__x64_sys_umask",
    "__do_sys_getpriority",
    "ksys_fadvise64_64",
    "__do_sys_copy_file_range",
    "vfs_copy_file_range",
    "__x64_sys_nanosleep",
    "shmem_fallocate",
    "vfs_fallocate",
    "ksys_fallocate",
    "generic_fadvise",
    "do_splice_direct",
    "splice_direct_to_actor",
];
const TIMES: (f64, f64) = (0.0, 7.0);

/// Returns a session with the paths of a function and counters at its blocks, if both can be placed
/// together.
fn with(
    image: &Image,
    layout: &RuntimeLayout,
    name: &str,
    session: &Session,
) -> Option<(Paths, Session)> {
    let function = image.function_named(name).ok()?;
    let paths = match Paths::of(&Cfg::of(image, function.id)) {
        Ok(paths) => paths,
        Err(refusal) => {
            println!("{name}: {refusal}");
            return None;
        }
    };
    let mut all = session.clone();
    let blocks = Chosen::of(image, &[function]).wanted.into_iter();
    let before = blocks.filter(|one| one.hook == HookType::Pre);
    all.placements
        .extend(before.map(|one| placement(name, one.block.0, "counter", TIMES)));
    paths.add_to(&mut all, TIMES).unwrap();
    match gilk_engine::plan::plan(image, &all, &Library::builtin().unwrap(), layout) {
        Ok(_) => Some((paths, all)),
        Err(Error::Refused { refusal, .. }) => {
            println!("{name}: {refusal}");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn path_counts_add_up_to_the_counters_at_blocks() {
    let shared = shared();
    let turn = shared.turn();
    let layout = turn.connect().info().layout.clone();
    let mut session = Session {
        name: "paths".into(),
        duration: TIMES.1,
        workload: Some(Workload {
            program: "/bin/witness".into(),
            arguments: Vec::new(),
            start: 0.5,
        }),
        ..Session::empty()
    };
    let mut profiled = Vec::new();
    for name in FUNCTIONS {
        if let Some((paths, all)) = with(&shared.image, &layout, name, &session) {
            session = all;
            profiled.push((name, paths));
        }
    }
    let outcome = turn.run(&session);
    let mut passed = 0;
    for (name, paths) in &profiled {
        let aggregates = outcome.summary.aggregates.iter();
        let profile = paths.read(aggregates.map(|one| (&*one.instrument, &one.value)));
        let counted = crate::support::counts_of(&outcome, &session, name, "counter");
        let blocks: BTreeMap<u32, u64> = profile
            .blocks()
            .into_iter()
            .map(|(block, count)| (block.0, count))
            .collect();
        for (block, count) in &counted {
            let aggregates = blocks.get(block).copied().unwrap_or(0);
            assert_eq!(aggregates, *count, "block {block} of {name}: {profile:?}");
        }
        assert_eq!(profile.others, 0, "{name}");
        let calls = profile.paths.iter().filter(|path| path.from_entry);
        let calls: u64 = calls.map(|path| path.count).sum();
        assert_eq!(calls, counted[&0], "{name}");
        println!(
            "{name}: {} of {} paths, {calls} calls, {} instruments for {} blocks",
            profile.paths.len(),
            paths.count(),
            session
                .placements
                .iter()
                .filter(|one| one.instrument.starts_with("path-") && *one.function == **name)
                .count(),
            counted.len()
        );
        passed += usize::from(calls > 0 && profile.paths.len() > 1);
    }
    assert!(passed >= 2, "only {passed} functions took several paths");
    turn.assert_untouched();
}
