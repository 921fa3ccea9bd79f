//! Ways that branches took, against counters at the blocks that they lead to.

use gilk_engine::cfg::{BlockIndex, Cfg, EdgeKind};

use super::rows::{PRIORITY, SLOWPATH, by_counters};
use super::{Case, Run};

/// Each way, by what counts it and how its edge is called.
type Ways = [(&'static str, EdgeKind); 2];

const BRANCH: Ways = [
    ("taken", EdgeKind::Taken),
    ("untaken", EdgeKind::Fallthrough),
];
const HINT: Ways = [
    ("jumped", EdgeKind::Taken),
    ("ran_on", EdgeKind::Fallthrough),
];
const RETRIES: Ways = [("again", EdgeKind::Taken), ("done", EdgeKind::Fallthrough)];

/// Both ways together are the passes of the block, and a block that only one of them leads to ran as
/// often as that was taken. How many ways were held against a block so, and how many blocks went both.
fn held(run: &Run, case: &Case, ways: &Ways) -> (usize, usize) {
    let image = &run.shared.image;
    let cfg = Cfg::of(image, image.function_named(case.function).unwrap().id);
    let counted = by_counters(run, case.function);
    let (mut alone, mut both) = (0, 0);
    for &placement in &case.placements {
        let block = BlockIndex(run.outcome.id(placement).block);
        let told = ways.map(|(name, kind)| (run.number_of(placement, name), kind));
        let [(taken, _), (untaken, _)] = told;
        if let Some(passes) = counted.get(&block.0) {
            assert_eq!(taken + untaken, *passes, "block {}", block.0);
        }
        both += usize::from(taken > 0 && untaken > 0);
        for (count, kind) in told {
            let mut out = cfg.successors(block);
            let Some(edge) = out.find(|edge| edge.kind == kind) else {
                continue;
            };
            let to = cfg.block(edge.to).unwrap();
            let only = !to.entered && cfg.predecessors(edge.to).count() == 1;
            if let Some(passes) = counted.get(&edge.to.0).filter(|_| only) {
                assert_eq!(count, *passes, "from {} to {}", block.0, edge.to.0);
                alone += 1;
            }
        }
    }
    println!(
        "{} at {}: {} branches, {alone} ways held against blocks, {both} went both ways",
        case.instrument,
        case.function,
        case.placements.len()
    );
    (alone, both)
}

pub(super) fn told(run: &Run, case: &Case) {
    let (alone, both) = held(run, case, &BRANCH);
    assert!(alone >= 4 && both >= 2, "{alone} and {both}");
}

pub(super) fn laid_out(run: &Run, case: &Case) {
    let (alone, both) = held(run, case, &HINT);
    assert!(alone >= 4 && both >= 2, "{alone} and {both}");
}

pub(super) fn retried(run: &Run, case: &Case) {
    let (alone, _) = held(run, case, &RETRIES);
    assert!(alone >= 1, "no way is held against anything");
}

/// Hit where `branch` counted that the branch jumped, and nowhere else.
pub(super) fn covered(run: &Run, case: &Case) {
    let branches = run.other("branch", PRIORITY);
    let mut seen = [0, 0];
    for (own, other) in case.placements.iter().zip(&branches.placements) {
        assert_eq!(run.outcome.id(*own).block, run.outcome.id(*other).block);
        let ever = run.number_of(*other, "taken") > 0;
        assert_eq!(run.number_of(*own, "hits") > 0, ever);
        seen[usize::from(ever)] += 1;
    }
    assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}");
}

/// The slow path was entered as often as a timestamp at its entry says.
pub(super) fn entered(run: &Run, case: &Case) {
    let hits = run.samples(run.other("timestamp", case.function)).len() as u64;
    assert_eq!(by_counters(run, SLOWPATH)[&0], hits);
}

/// And while the program ran as often as the kernel's own probe says. That probe is not there before and
/// after, and then others may wait for a lock: the agent's threads for that of their memory.
pub(super) fn entered_meanwhile(run: &Run, case: &Case) {
    let (begun, ended) = (run.said("begun")[0][1], run.said("ended")[0][0]);
    let meanwhile = |tsc: &u64| (begun..ended).contains(tsc);
    let hits = run.samples(case).into_iter().map(|(tsc, ..)| tsc);
    let entries = run.entries(case).iter().map(|event| event.tsc);
    let (all, hits, entries) = (
        run.samples(case).len(),
        hits.filter(meanwhile).count(),
        entries.filter(meanwhile).count(),
    );
    println!("{all} waits for a lock, {hits} of them while the program ran");
    assert_eq!(hits, entries);
    assert!(entries > 0, "nobody waited for the lock");
}
