//! Splices in the text of a module, and their removal when it is unloaded.

use gilk_engine::code::Function;
use gilk_engine::session::{Placement, Session, Workload};
use gilk_engine::{HookType, Image, Plan};
use ilk_driver::client::{Connection, Summary};

use crate::chosen::Chosen;
use crate::support::{DRIVER, placement, run_to_its_end, shared};

/// A device file that only the workload opens and closes.
const FUNCTIONS: [&str; 2] = ["tun_chr_open", "tun_chr_close"];
const DURATION: f64 = 300.0;

fn opens(times: u64) -> String {
    format!("i=0; while [ $i -lt {times} ]; do : </dev/net/tun; i=$((i+1)); done")
}

fn session(script: String) -> Session {
    Session {
        name: "a module".into(),
        duration: DURATION,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script],
            start: 0.5,
        }),
        ..Session::empty()
    }
}

/// Reads the kernel with its modules in their current state.
fn read_image(connection: &mut Connection) -> Image {
    let parts = connection.live_parts(&mut |_, _| ()).unwrap();
    let modules = connection.modules().unwrap();
    let image = Image::with_modules(&parts, &modules).unwrap();
    image.on(&connection.info().layout)
}

fn functions(image: &Image) -> Vec<&Function> {
    let named = FUNCTIONS.map(|name| format!("{DRIVER}:{name}"));
    let found = named.iter().map(|name| image.function_named(name).unwrap());
    found.collect()
}

/// Runs a session until its program ends.
fn run(
    connection: &mut Connection,
    image: &Image,
    session: &Session,
) -> (Plan, Summary, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("module.arrow");
    let (plan, outcome) = run_to_its_end(connection, image, session, &recording);
    let (summary, said) = outcome.unwrap();
    (plan, summary, said)
}

fn is_entry(placement: &Placement) -> bool {
    placement.block == 0 && placement.hook == HookType::Pre
}

fn total(summary: &Summary, number: usize) -> u64 {
    summary.instruments[number].total.unwrap()
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn every_block_of_every_module_is_counted() {
    const TIMES: u64 = 400;
    let shared = shared();
    let turn = shared.turn();
    let mut connection = turn.connect();
    let image = read_image(&mut connection);
    let of_modules = |one: &&Function| image.module_at(one.span.start).is_some();
    let all: Vec<&Function> = image.functions().iter().filter(of_modules).collect();
    let mut chosen = Chosen::of(&image, &all);
    let layout = connection.info().layout.clone();
    let (session, plan) = chosen.plan(&image, session(opens(TIMES)), &layout);
    println!(
        "{} of {} hooks of {} functions in {} splices; functions refused: {:?}, hooks: {:?}",
        chosen.wanted.len(),
        chosen.requested,
        chosen.graphs.len(),
        plan.sites.len(),
        chosen.functions,
        chosen.hooks
    );
    let (_, summary, said) = run(&mut connection, &image, &session);
    assert_eq!(summary.gone(), 0);
    let (mut entries, mut ran) = (0, 0);
    for (number, placement) in session.placements.iter().enumerate() {
        let hits = total(&summary, number);
        ran += u64::from(hits > 0);
        let is = |name: &str| placement.function.starts_with(&format!("{DRIVER}:{name}@"));
        if FUNCTIONS.iter().any(|name| is(name)) && is_entry(placement) {
            assert_eq!(hits, TIMES, "{}: {said:?}", placement.function);
            entries += 1;
        }
    }
    println!("{ran} hooks were hit");
    assert_eq!(entries, FUNCTIONS.len());
    // Only those of the two functions; far more if the agent's port is driven by a module.
    assert!(ran > 20, "{ran} hooks were hit");
    drop(connection);
    let after = read_image(&mut turn.connect());
    for function in all {
        let name = &function.name;
        assert_eq!(
            image.bytes(function.span),
            after.bytes(function.span),
            "{name}"
        );
    }
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn splices_are_removed_with_their_module() {
    const BEFORE: u64 = 200;
    const AFTER: u64 = 100;
    let shared = shared();
    let turn = shared.turn();
    let mut connection = turn.connect();
    let image = read_image(&mut connection);
    let again = format!("rmmod {DRIVER} && insmod /lab/{DRIVER}.ko");
    let script = format!("{}; {again} && {}", opens(BEFORE), opens(AFTER));
    let functions = functions(&image);
    let hooks: Vec<(String, u32)> = functions
        .iter()
        .flat_map(|function| {
            let wanted = Chosen::of(&image, &[function]).wanted;
            let before = wanted.into_iter().filter(|one| one.hook == HookType::Pre);
            before.map(|one| (function.name.to_string(), one.block.0))
        })
        .collect();
    let counters = hooks
        .iter()
        .map(|(name, block)| placement(name, *block, "counter", (0.0, DURATION)));
    let of_the_kernel = placement("do_sys_openat2", 0, "counter", (0.0, DURATION));
    let session = Session {
        placements: counters.chain([of_the_kernel]).collect(),
        ..session(script)
    };
    let (plan, summary, said) = run(&mut connection, &image, &session);
    let own = plan.sites.iter();
    let own = own.filter(|site| image.module_at(site.displaced.start).is_some());
    assert_eq!(summary.gone(), own.count() as u64, "{said:?}");
    for (number, (name, block)) in hooks.iter().enumerate() {
        if *block == 0 {
            assert_eq!(total(&summary, number), BEFORE, "{name}: {said:?}");
        }
    }
    let all = total(&summary, hooks.len());
    assert!(all >= BEFORE + AFTER, "{all} files were opened: {said:?}");

    // A new reading has the module at its new address.
    drop(connection);
    let mut connection = turn.connect();
    let image = read_image(&mut connection);
    let entry = format!("{DRIVER}:{}", FUNCTIONS[0]);
    let session = Session {
        placements: vec![placement(&entry, 0, "counter", (0.0, DURATION))],
        ..self::session(opens(AFTER))
    };
    let (_, summary, said) = run(&mut connection, &image, &session);
    assert_eq!((total(&summary, 0), summary.gone()), (AFTER, 0), "{said:?}");
    drop(connection);
    turn.assert_untouched();
}
