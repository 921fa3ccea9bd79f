//! The estimate of a hit's time, fitted on random sites, and checked on others.

use gilk_engine::cfg::Cfg;
use gilk_engine::patch::HitWork;
use gilk_engine::placement::options;
use gilk_engine::plan::Plan;
use gilk_engine::session::Placement;
use gilk_engine::{HookType, Image, Session};

use super::measure::{Clock, SEED, pairs, quartiles};
use super::numbers::Random;
use super::small::{Tables, parts};
use super::target::{RING_SLOTS, Target};
use super::trees::{LEAF, Tree};

/// A random site: a tree, a block of its leaf, and instruments before it.
struct RandomSite {
    tree: Tree,
    block: u32,
    kind: Kind,
    save_all: bool,
}

/// A site that was measured.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) work: HitWork,
    /// Added nanoseconds a hit: of the medians of all passes the lower quartile.
    pub(crate) ns: f64,
    /// The name of its instruments.
    pub(crate) what: &'static str,
}

/// Pairs of runs of a site in a pass.
const ROUNDS: usize = 16;
/// Passes over all sites: a processor whose other half, or whose host, is busy takes longer for a while.
const PASSES: usize = 5;
/// Calls by which hits are counted before a measured run.
const COUNTED_CALLS: u64 = 64;

const SUM: &str = "cpu @n; hit { @n += tsc }";
const TIMES: &str = "hit { @h = hist(tsc) }";

/// Instruments at one point.
#[derive(Clone, Copy)]
struct Kind {
    what: &'static str,
    names: &'static [&'static str],
    /// Samples of a hit.
    samples: u64,
}

const fn kind(what: &'static str, names: &'static [&'static str], samples: u64) -> Kind {
    Kind {
        what,
        names,
        samples,
    }
}

const KINDS: [Kind; 8] = [
    kind("counter", &["counter"], 0),
    kind("three counters", &["counter", "counter", "counter"], 0),
    kind("sample", &["timestamp"], 1),
    kind("counter and sample", &["counter", "timestamp"], 1),
    kind("two samples", &["timestamp", "timestamp"], 2),
    kind("sum of clocks", &["sum"], 0),
    kind("histogram of clocks", &["times"], 0),
    kind("start and stop", &["elapsed-start", "elapsed-stop"], 1),
];

/// Measures so many random sites; the sites are those of the seed.
pub(crate) fn observe(target: &mut Target, clock: Clock, seed: u64, sites: usize) -> Vec<Observed> {
    let mut random = Random(seed);
    let mut all: Vec<(RandomSite, HitWork, Vec<f64>)> = Vec::new();
    while all.len() < sites {
        let site = RandomSite::new(&mut random);
        let measured = site.as_ref().and_then(|site| site.measure(target, clock));
        if let Some((work, ns)) = measured {
            all.extend(site.map(|site| (site, work, vec![ns])));
        }
    }
    for _ in 1..PASSES {
        for (site, _, all) in &mut all {
            all.extend(site.measure(target, clock).map(|(_, ns)| ns));
        }
    }
    let observed = all.into_iter().map(|(site, work, all)| Observed {
        work,
        ns: quartiles(all)[0],
        what: site.kind.what,
    });
    observed.collect()
}

impl RandomSite {
    /// A site; `None` if the block that it draws cannot be hooked.
    fn new(random: &mut Random) -> Option<Self> {
        let tree = Tree::random(2 + random.below(9), random);
        let image = Image::from_live(&parts(&tree.functions, &Tables::default())).unwrap();
        let cfg = Cfg::of(&image, image.function_named(LEAF).unwrap().id);
        let blocks = options(&image, &cfg);
        let block = &blocks[random.below(blocks.len() as u64) as usize];
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        let save_all = random.below(8) == 0;
        block.pre.is_ok().then_some(Self {
            block: block.block.0,
            tree,
            kind,
            save_all,
        })
    }

    /// Counts the hits of some calls.
    fn hits(&self, target: &mut Target, calls: u64) -> u64 {
        let (_, counting) = target.plan(&self.tree, &session(self.block, &["counter"], false));
        target.set(&counting, true);
        target.taken();
        target.run(calls, SEED);
        target.set(&counting, false);
        target.taken().counts
    }

    /// Returns the work of a hit and the median of its added times; `None` if the site is hardly executed.
    fn measure(&self, target: &mut Target, clock: Clock) -> Option<(HitWork, f64)> {
        target.load(&self.tree);
        let few = self.hits(target, COUNTED_CALLS);
        if few < COUNTED_CALLS / 4 {
            return None;
        }
        let wanted = session(self.block, self.kind.names, self.save_all);
        let (plan, changes) = target.plan(&self.tree, &wanted);
        let most = RING_SLOTS * COUNTED_CALLS / (2 * few * self.kind.samples.max(1));
        let times = pairs(target, clock, &changes, most, ROUNDS);
        let hits = self.hits(target, times.calls) as f64;
        let [_, median, _] = quartiles(times.differences);
        Some((work(&plan)?, median / hits))
    }
}

fn session(block: u32, names: &[&str], save_all: bool) -> Session {
    let placements = names.iter().map(|&instrument| Placement {
        function: LEAF.into(),
        block,
        hook: HookType::Pre,
        instrument: instrument.into(),
        launch: 0.0,
        splash: 1.0,
    });
    let sources = [("sum", SUM), ("times", TIMES)];
    let sources = sources.map(|(name, probes)| {
        let text = format!("instrument {name} \"Measured.\"; {probes}");
        (name.to_owned(), text)
    });
    Session {
        placements: placements.collect(),
        sources: sources.into(),
        save_all,
        ..Session::empty()
    }
}

/// The work of a hit of a plan with one patch.
fn work(plan: &Plan) -> Option<HitWork> {
    let [patch] = plan.patches.as_slice() else {
        return None;
    };
    let site = plan.site(patch.site)?;
    Some(HitWork::of(site.splice, &patch.code, patch.pieces()))
}

/// Terms that are fitted: the first of [`HitWork::terms`]. The others are rows of the bench.
const FITTED: usize = 5;
/// The names of the fitted constants of [`gilk_engine::nanoseconds`].
const NAMES: [&str; FITTED] = ["JUMP", "INSTRUCTION", "CLOCK", "EXCHANGE", "ACCESS"];
/// Relative errors of sites that cost less than this are those of what costs so much: less is noise.
const SMALL_NS: f64 = 1.0;

/// Times of the fitted terms.
pub(crate) type Constants = [f64; FITTED];

/// The estimate of a hit's time, if each term takes as long as these say.
fn estimate(work: &HitWork, constants: &Constants) -> f64 {
    let terms = work.terms().into_iter();
    let pairs = terms.zip(constants);
    pairs.map(|((count, _), ns)| f64::from(count) * ns).sum()
}

/// Finds the constants with the least sum of squares of relative errors; none is negative.
pub(crate) fn fit(observed: &[Observed]) -> Constants {
    let mut zero = [false; FITTED];
    loop {
        let constants = solve(observed, zero);
        let least = (0..FITTED).min_by(|&one, &other| constants[one].total_cmp(&constants[other]));
        match least {
            Some(least) if constants[least] < 0.0 => zero[least] = true,
            _ => return constants,
        }
    }
}

/// Solves the normal equations, with some constants 0, by Gaussian elimination.
fn solve(observed: &[Observed], zero: [bool; FITTED]) -> Constants {
    let mut rows = [[0.0; FITTED + 1]; FITTED];
    for one in observed {
        let weight = one.ns.max(SMALL_NS).powi(-2);
        let terms = one.work.terms().into_iter();
        let counts: Vec<f64> = terms.map(|(count, _)| f64::from(count)).collect();
        for (row, number) in rows.iter_mut().zip(0..) {
            for column in 0..FITTED {
                row[column] += weight * counts[number] * counts[column];
            }
            row[FITTED] += weight * counts[number] * one.ns;
        }
    }
    for number in 0..FITTED {
        if zero[number] {
            for row in &mut rows {
                row[number] = 0.0;
            }
            rows[number] = [0.0; FITTED + 1];
            rows[number][number] = 1.0;
        }
    }
    for pivot in 0..FITTED {
        let row = rows[pivot];
        if row[pivot].abs() < 1e-9 {
            // No site has such a term, or only next to another one.
            rows[pivot] = [0.0; FITTED + 1];
            rows[pivot][pivot] = 1.0;
            continue;
        }
        for (number, other) in rows.iter_mut().enumerate() {
            if number != pivot {
                let factor = other[pivot] / row[pivot];
                for (value, subtracted) in other.iter_mut().zip(row) {
                    *value -= factor * subtracted;
                }
            }
        }
    }
    std::array::from_fn(|number| rows[number][FITTED] / rows[number][number])
}

/// Fits constants on three of eight random sites, and compares estimates with the measured times of the others.
pub(crate) fn report(target: &mut Target, clock: Clock, sites: usize) -> String {
    use std::fmt::Write as _;
    // In turns, since the machine is faster at some times than at others.
    let all = observe(target, clock, 1, sites);
    let numbered = all.into_iter().enumerate();
    let (trained, checked): (Vec<_>, Vec<_>) = numbered.partition(|(number, _)| number % 8 < 3);
    let [trained, checked] =
        [trained, checked].map(|sites| sites.into_iter().map(|(_, one)| one).collect::<Vec<_>>());
    let constants = fit(&trained);
    let built_in = HitWork::default().terms().map(|(_, ns)| ns);
    let built_in: Constants = std::array::from_fn(|number| built_in[number]);
    let mut out = format!(
        "{} random sites to fit on, {} others to check on.\n\n| constant | fitted now, ns | in the engine, ns |\n|---|---:|---:|\n",
        trained.len(),
        checked.len()
    );
    for ((name, fitted), built_in) in NAMES.iter().zip(constants).zip(built_in) {
        let _ = writeln!(out, "| {name} | {fitted:.2} | {built_in:.2} |");
    }
    let _ = write!(
        out,
        "\n| checked sites | | measured, median ns | within 20 %, fitted now | within 20 % or 0.5 ns | within 20 %, engine's | within 20 % or 0.5 ns | median error, fitted now |\n|---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    let kinds = KINDS.iter().map(|kind| Some(kind.what)).chain([None]);
    for kind in kinds {
        let sites = checked.iter();
        let sites: Vec<&Observed> = sites
            .filter(|one| kind.is_none_or(|kind| one.what == kind))
            .collect();
        let share = |constants: &Constants, slack: f64| {
            let near = |one: &&&Observed| {
                let error = (estimate(&one.work, constants) - one.ns).abs();
                error <= (0.2 * one.ns).max(slack)
            };
            100 * sites.iter().filter(near).count() / sites.len().max(1)
        };
        if sites.is_empty() {
            continue;
        }
        let errors = sites.iter().map(|one| {
            let error = (estimate(&one.work, &constants) - one.ns).abs();
            error / one.ns.max(SMALL_NS)
        });
        let [_, error, _] = quartiles(errors.collect());
        let [_, median, _] = quartiles(sites.iter().map(|one| one.ns).collect());
        let _ = writeln!(
            out,
            "| {} | {} | {median:.2} | {} % | {} % | {} % | {} % | {:.0} % |",
            kind.unwrap_or("all"),
            sites.len(),
            share(&constants, 0.0),
            share(&constants, 0.5),
            share(&built_in, 0.0),
            share(&built_in, 0.5),
            100.0 * error
        );
    }
    out
}
