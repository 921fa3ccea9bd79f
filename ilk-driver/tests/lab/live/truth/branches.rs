//! Edges that branches took, compared with counters at their target blocks.

use gilk_engine::cfg::{BlockIndex, Cfg, EdgeKind};

use super::rows::{PRIORITY, SLOWPATH, by_counters};
use super::{Case, Run};

/// The two edges of a branch: the name of each one's counter, and its kind.
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

/// Compares counts of edges with blocks: both edges together are the executions of the block, and a
/// block with only one incoming edge executed as often as that edge was taken. Returns the number
/// of edges compared with a block, and the number of blocks that took both edges.
fn compare(run: &Run, case: &Case, ways: &Ways) -> (usize, usize) {
    let image = &run.shared.image;
    let cfg = Cfg::of(image, image.function_named(case.function).unwrap().id);
    let counted = by_counters(run, case.function);
    let (mut alone, mut both) = (0, 0);
    for &placement in &case.placements {
        let block = BlockIndex(run.outcome.id(placement).block);
        let counts = ways.map(|(name, kind)| (run.number_of(placement, name), kind));
        let [(taken, _), (untaken, _)] = counts;
        if let Some(passes) = counted.get(&block.0) {
            assert_eq!(taken + untaken, *passes, "block {}", block.0);
        }
        both += usize::from(taken > 0 && untaken > 0);
        for (count, kind) in counts {
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
        "{} at {}: {} branches, {alone} edges compared with blocks, {both} blocks took both edges",
        case.instrument,
        case.function,
        case.placements.len()
    );
    (alone, both)
}

pub(super) fn taken(run: &Run, case: &Case) {
    let (alone, both) = compare(run, case, &BRANCH);
    assert!(alone >= 4 && both >= 2, "{alone} and {both}");
}

pub(super) fn laid_out(run: &Run, case: &Case) {
    let (alone, both) = compare(run, case, &HINT);
    assert!(alone >= 4 && both >= 2, "{alone} and {both}");
}

pub(super) fn retried(run: &Run, case: &Case) {
    let (alone, _) = compare(run, case, &RETRIES);
    assert!(alone >= 1, "no edge is compared with a block");
}

/// Checks that a block was hit exactly if `branch` counted a taken jump.
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

/// Checks that the slow path was entered as often as a timestamp at its entry sampled.
pub(super) fn entered(run: &Run, case: &Case) {
    let hits = run.samples(run.other("timestamp", case.function)).len() as u64;
    assert_eq!(by_counters(run, SLOWPATH)[&0], hits);
}

/// Checks also the kernel's own probe while the program ran. That probe is missing before and
/// after, when other threads may wait for a lock, for example the agent's for that of their memory.
pub(super) fn entered_concurrently(run: &Run, case: &Case) {
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
    assert!(entries > 0, "no thread waited for the lock");
}
