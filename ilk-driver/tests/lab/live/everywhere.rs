//! Counters before and after every block that can be hooked, of functions of all directories or a whole directory at
//! once, under load: flow is conserved in each function, the text is identical after their removal,
//! and the kernel reports nothing.
//!
//! Counts are taken in a calm before the load and in one after it. Between the two, flow into a
//! block equals flow out of it, except for threads inside a function at one of the two moments: see
//! [`under_way`].

mod calm;
mod directories;
mod letters;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Instant;

use gilk_engine::cfg::Cfg;
use gilk_engine::code::Function;
use gilk_engine::session::Workload;
use gilk_engine::{Plan, Session};
use ilk_driver::client::Summary;
use ilk_driver::lab::{Options, prepare};

use self::calm::Calm;
pub(super) use self::directories::{DIRECTORIES, Directory, NET, functions};
use crate::chosen::Chosen;
use crate::circulation::{Counts, unexplained};
use crate::support::{Shared, Turn, number_in, shared_of};

/// A load of files and directories, pipes, processes, memory, procfs and mounts, and the calms
/// around it.
const LOAD: &str = include_str!("everywhere/load.sh");
/// Executing threads, which appear in no stack, that may be inside a function when it is read: two
/// CPUs, each possibly with an interrupt on top of a softirq on top of a thread, at each of two
/// calms.
const RUNNING: u64 = 2 * 3 * 2;

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn flow_is_conserved_in_functions_of_all_directories_at_once() {
    let shared = lab();
    // Their number: 240, or a long run's.
    let many = number_in("GILK_FUNCTIONS").unwrap_or(240) as usize;
    let chosen = spread(&everything(&shared), many);
    run(
        &shared.turn(),
        &format!("{many} functions"),
        &chosen,
        rounds(1),
    );
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn flow_is_conserved_in_a_whole_directory_at_once() {
    let shared = lab();
    let most = number_in("GILK_DIRECTORIES").unwrap_or(1) as usize;
    for directory in DIRECTORIES.iter().take(most) {
        let chosen = functions(&shared.image, directory);
        run(&shared.turn(), directory.name, &chosen, rounds(1));
    }
}

/// Tests that need a choice by the user: `cargo xtask test` leaves them out.
mod by_hand {
    use super::*;

    /// Hooks a selection: `GILK_EVERYWHERE` lists directories of [`DIRECTORIES`], joined by `+` to be hooked at
    /// once, and numbers of functions: `5000,mm,fs,kernel/sched+mm+fs`. Takes a quarter of an hour.
    #[test]
    #[ignore = "boots the lab, and needs GILK_EVERYWHERE, a selection of functions"]
    fn flow_is_conserved_in_a_selection() {
        let selection = std::env::var("GILK_EVERYWHERE")
            .expect("GILK_EVERYWHERE lists directories or numbers of functions");
        let shared = lab();
        for name in selection.split(',') {
            let chosen: Vec<&Function> = match name.parse() {
                Ok(many) => spread(&everything(&shared), many),
                Err(_) => {
                    let is_selected =
                        |directory: &&Directory| name.split('+').any(|part| part == directory.name);
                    let directories = DIRECTORIES.iter().filter(is_selected);
                    directories
                        .flat_map(|directory| functions(&shared.image, directory))
                        .collect()
                }
            };
            assert!(!chosen.is_empty(), "{name} selects no function");
            run(&shared.turn(), name, &chosen, 20);
        }
    }
}

/// Returns the number of repetitions of the load: `GILK_ROUNDS`, or `standard`.
fn rounds(standard: u32) -> u32 {
    number_in("GILK_ROUNDS").map_or(standard, |rounds| {
        u32::try_from(rounds).expect("GILK_ROUNDS is a number of rounds")
    })
}

/// The options of a lab with enough counters and arena for everything.
pub(super) fn large() -> Options {
    Options {
        memory_mib: 3072,
        append: vec!["ilk.arena_mib=64".into(), "ilk.counters_log2=19".into()],
        ..Options::default()
    }
}

/// Boots such a lab.
fn lab() -> std::sync::Arc<Shared> {
    shared_of(&prepare(&large(), &mut |_| ()).unwrap_or_else(|error| panic!("{error}")))
}

/// Returns the functions of all directories.
fn everything(shared: &Shared) -> Vec<&Function> {
    let directories = DIRECTORIES.iter();
    directories
        .flat_map(|directory| functions(&shared.image, directory))
        .collect()
}

/// Selects a number of functions: evenly spaced, and always the same.
fn spread<'a>(all: &[&'a Function], many: usize) -> Vec<&'a Function> {
    let step = all.len() / many;
    let chosen = all.iter().skip(step / 2).step_by(step).take(many);
    chosen.copied().collect()
}

/// Places counters everywhere in these functions, runs a load, and checks that flow was conserved.
fn run(turn: &Turn<'_>, what: &str, functions: &[&Function], rounds: u32) {
    let image = &turn.shared.image;
    let begun = Instant::now();
    let mut connection = turn.connect();
    let layout = connection.info().layout.clone();
    let mut chosen = Chosen::of(image, functions);
    // The interval of the agent's readings grows with the number of counters.
    let pause = 4.0 + 0.4 * (1.0 + chosen.wanted.len() as f64 / 4096.0);
    let script = LOAD
        .replace("ROUNDS", &rounds.to_string())
        .replace("PAUSE", &pause.to_string());
    let session = Session {
        name: what.into(),
        duration: 7200.0,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script],
            start: 0.0,
        }),
        ..Session::empty()
    };
    let (session, plan) = chosen.plan(image, session, &layout);
    let planned = begun.elapsed();
    let (before, after, summary) = calm::count(turn, &mut connection, &plan, &session);
    drop(connection);
    turn.assert_untouched();

    println!(
        "{what}: {} functions, {} of {} hooks, {} splices, {} bounces, {} patches of {} bytes, {:?} pokes; planned in \
         {planned:.1?}, in place after {:.1} s, out after {:.1} s, all in {:.1?}",
        chosen.graphs.len(),
        chosen.wanted.len(),
        chosen.requested,
        plan.sites.len(),
        plan.bounces.len(),
        plan.patches.len(),
        plan.patches
            .iter()
            .map(|patch| patch.code.len())
            .sum::<usize>(),
        plan.batches
            .iter()
            .map(|batch| batch.pokes.len())
            .collect::<Vec<_>>(),
        took(&summary, 0),
        took(&summary, 1),
        begun.elapsed(),
    );
    println!(
        "  reached by {:?}",
        tally(plan.instruments.iter().map(|one| one.tactic))
    );
    println!(
        "  refused: hooks {:?}, functions {:?}",
        chosen.hooks, chosen.functions
    );
    assert!(
        chosen.wanted.len() * 1000 >= chosen.requested * 995,
        "too few of its hooks"
    );
    conserved(&chosen, &plan, &before, &after);
}

fn took(summary: &Summary, batch: usize) -> f64 {
    summary.switches[batch].done - summary.switches[batch].begun
}

fn tally<T: Ord + Debug>(all: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut tally = BTreeMap::new();
    for one in all {
        *tally.entry(one).or_default() += 1;
    }
    tally
}

/// Fails unless flow into every block equals flow out of it, between the two calms.
fn conserved(chosen: &Chosen, plan: &Plan, before: &Calm, after: &Calm) {
    let mut by_function: BTreeMap<usize, Counts> = BTreeMap::new();
    for (wanted, planned) in chosen.wanted.iter().zip(&plan.instruments) {
        let at = |calm: &Calm| calm.hits.get(&planned.id.pack()).copied().unwrap_or(0);
        let counts = by_function.entry(wanted.graph).or_default();
        counts.insert((wanted.block.0, wanted.hook), at(after) - at(before));
    }
    by_function.retain(|_, counts| counts.values().any(|count| *count > 0));
    let hits: u64 = by_function.values().flat_map(BTreeMap::values).sum();
    let hooks = by_function.values().flat_map(BTreeMap::values);
    let hit = hooks.filter(|count| **count > 0).count();
    let (mut explained, mut wrong) = (Vec::new(), Vec::new());
    for (graph, counts) in &by_function {
        let cfg: &Cfg = &chosen.graphs[*graph];
        let left = unexplained(cfg, counts);
        let amount: u64 = left.iter().map(|(.., left)| left).sum();
        let allowed = under_way(&cfg.name, before, after);
        if amount > allowed {
            wrong.push((cfg.name.as_str(), allowed, left));
        } else if amount > 0 {
            explained.push((cfg.name.as_str(), amount, allowed));
        }
    }
    println!(
        "  {} functions ran, {hit} hooks hit {hits} times; flow exact in {} of them, and except for threads \
         was under way in {}: {explained:?}",
        by_function.len(),
        by_function.len() - explained.len() - wrong.len(),
        explained.len(),
    );
    assert!(
        wrong.is_empty(),
        "no paths explain, of {} functions, (what may be under way, [(block, hook, count, unexplained)]): {wrong:#?}",
        wrong.len()
    );
}

/// Returns an upper bound on the threads that were inside a function at one of the two calms, so
/// that only their entry or their exit is counted: sleeping and executing ones.
///
/// The functions of sleeping itself are omitted from a thread's stack: every sleeping thread is in
/// them. And a thread that switches to a new thread for the first time does not return through them
/// in the new thread.
fn under_way(function: &str, before: &Calm, after: &Calm) -> u64 {
    let asleep = |calm: &Calm| {
        let sleeps = calm.asleep.get(function).copied().unwrap_or(0);
        let schedules = matches!(function, "__schedule" | "schedule");
        if schedules { calm.threads } else { sleeps }
    };
    let forks = if function == "__schedule" {
        after.forks - before.forks
    } else {
        0
    };
    asleep(before) + asleep(after) + forks + RUNNING
}
