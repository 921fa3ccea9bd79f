//! The estimate of a hit's time, fitted on random sites, and checked on others.

use std::fmt::Write as _;

use gilk_engine::cfg::Cfg;
use gilk_engine::patch::HitWork;
use gilk_engine::placement::options;
use gilk_engine::plan::HitCosts;
use gilk_engine::session::Placement;
use gilk_engine::{HookType, Image, Session};

use super::measure::{Clock, SEED, least, pairs, quartiles};
use super::numbers::Random;
use super::results::{Machine, Row};
use super::small::{Tables, parts};
use super::target::{Changes, RING_SLOTS, Target};
use super::trees::{LEAF, Leaf, Tree};

/// A random site: a tree, a block of its leaf, and instruments before it.
struct RandomSite {
    tree: Tree,
    /// Calls from the root to the leaf.
    calls: u64,
    block: u32,
    kind: Kind,
    save_all: bool,
}

/// A site that was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pub(crate) work: HitWork,
    /// Added nanoseconds a hit: of the medians of all passes the lower quartile.
    pub(crate) ns: f64,
    /// The same of every other pass, and of the rest.
    halves_ns: [f64; 2],
    /// Hits of a call of the tree.
    hits: f64,
    /// The least time of a call of the tree without the instruments, in nanoseconds.
    call_ns: f64,
    /// The same of the hooked function alone, without its callers.
    function_ns: f64,
    /// The name of its instruments.
    pub(crate) what: &'static str,
}

/// Pairs of runs of a site in a pass.
const ROUNDS: usize = 16;
/// Passes over all sites, so that each half of them is as many: a processor whose other half, or whose host, is busy takes longer for a while.
const PASSES: usize = 6;
/// Calls by which hits are counted before a measured run.
const COUNTED_CALLS: u64 = 64;
/// Calls from the root to the leaf, at most.
const MOST_CALLS: u64 = 10;

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

/// A site in a pass.
#[derive(Clone, Copy)]
struct Pass {
    work: HitWork,
    added_ns: f64,
    hits: f64,
    call_ns: f64,
}

/// Measures so many random sites; the sites are those of the seed.
pub(crate) fn observe(target: &mut Target, clock: Clock, seed: u64, sites: usize) -> Vec<Observed> {
    let mut random = Random(seed);
    let mut all: Vec<(RandomSite, Vec<Pass>)> = Vec::new();
    while all.len() < sites {
        let site = RandomSite::new(&mut random);
        let measured = site.as_ref().and_then(|site| site.measure(target, clock));
        if let Some(pass) = measured {
            all.extend(site.map(|site| (site, vec![pass])));
        }
    }
    for _ in 1..PASSES {
        for (site, passes) in &mut all {
            passes.extend(site.measure(target, clock));
        }
    }
    let callers: Vec<f64> = (0..=MOST_CALLS)
        .map(|depth| callers_ns(target, clock, depth))
        .collect();
    let observed = all.into_iter().map(|(site, passes)| {
        let added_ns = |passes: &mut dyn Iterator<Item = &Pass>| {
            quartiles(passes.map(|pass| pass.added_ns).collect())[0]
        };
        let half = |from: usize| added_ns(&mut passes.iter().skip(from).step_by(2));
        let call_ns = passes.iter().map(|pass| pass.call_ns);
        let call_ns = call_ns.fold(f64::INFINITY, f64::min);
        Observed {
            work: passes[0].work,
            ns: added_ns(&mut passes.iter()),
            halves_ns: [half(0), half(1)],
            hits: passes[0].hits,
            call_ns,
            function_ns: (call_ns - callers[site.calls as usize]).max(0.0),
            what: site.kind.what,
        }
    });
    observed.collect()
}

/// The least time of a chain of so many calls whose last function does next to nothing.
fn callers_ns(target: &mut Target, clock: Clock, calls: u64) -> f64 {
    target.load(&Tree::chain(calls.max(1), Leaf::Plain));
    let times = pairs(
        target,
        clock,
        &Changes::default(),
        u64::MAX,
        ROUNDS * PASSES,
    );
    least(&times.without) / times.calls as f64
}

impl RandomSite {
    /// A site; `None` if the block that it draws cannot be hooked.
    fn new(random: &mut Random) -> Option<Self> {
        let calls = 2 + random.below(MOST_CALLS - 1);
        let tree = Tree::random(calls, random);
        let image = Image::from_live(&parts(&tree.functions, &Tables::default())).unwrap();
        let cfg = Cfg::of(&image, image.function_named(LEAF).unwrap().id);
        let blocks = options(&image, &cfg);
        let block = &blocks[random.below(blocks.len() as u64) as usize];
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        let save_all = random.below(8) == 0;
        block.pre.is_ok().then_some(Self {
            block: block.block.0,
            tree,
            calls,
            kind,
            save_all,
        })
    }

    /// Counts the hits of some calls.
    fn hits(&self, target: &mut Target, calls: u64) -> u64 {
        let (_, counting) = target.plan(&self.tree, &session(self.block, &["counter"], false));
        target.set(&counting, true);
        target.taken(&[]);
        target.run(calls, SEED);
        target.set(&counting, false);
        target.taken(&[]).counts
    }

    /// Measures the site in a pass; `None` if it is hardly executed.
    fn measure(&self, target: &mut Target, clock: Clock) -> Option<Pass> {
        target.load(&self.tree);
        let few = self.hits(target, COUNTED_CALLS);
        if few < COUNTED_CALLS / 4 {
            return None;
        }
        let wanted = session(self.block, self.kind.names, self.save_all);
        let (plan, changes) = target.plan(&self.tree, &wanted);
        let [patch] = plan.patches.as_slice() else {
            return None;
        };
        let work = HitCosts::of(&plan).work(patch);
        let most = RING_SLOTS * COUNTED_CALLS / (2 * few * self.kind.samples.max(1));
        let times = pairs(target, clock, &changes, most, ROUNDS);
        let hits = self.hits(target, times.calls) as f64;
        let calls = times.calls as f64;
        let call_ns = least(&times.without) / calls;
        let [_, median, _] = quartiles(times.differences);
        Some(Pass {
            work,
            added_ns: median / hits,
            hits: hits / calls,
            call_ns,
        })
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

/// Terms that are fitted: the first of [`HitWork::terms`]. The others are rows of the bench.
const FITTED: usize = 7;
/// The names of the fitted times, of [`gilk_engine::nanoseconds::Times`].
const NAMES: [&str; FITTED] = [
    "jump",
    "instruction",
    "clock",
    "exchange",
    "locked",
    "access",
    "scan",
];
/// Relative errors of sites that cost less than this are those of what costs so much: less is noise.
const SMALL_NS: f64 = 1.0;
/// An error, as a part of the measured time, below which all count alike.
const SMALL_ERROR: f64 = 0.02;
/// Number of times that weights are computed again; then they hardly change.
const FIT_ROUNDS: usize = 40;

/// Times of the fitted terms.
pub(crate) type Constants = [f64; FITTED];

/// Times where the processor waits for something else, and in loops of one block.
pub(crate) type Fitted = [Constants; 2];

fn counts(work: &HitWork) -> Constants {
    let terms = work.terms();
    std::array::from_fn(|number| f64::from(terms[number].0))
}

/// The estimate of a hit's time, if each term takes as long as these say.
fn estimate(work: &HitWork, fitted: &Fitted) -> f64 {
    let constants = &fitted[usize::from(work.in_loop)];
    let terms = counts(work).into_iter().zip(constants);
    terms.map(|(count, ns)| count * ns).sum()
}

/// Finds the times with the least sum of relative errors, for each surrounding.
pub(crate) fn fit(observed: &[Observed]) -> Fitted {
    [false, true].map(|in_loop| {
        let sites: Vec<&Observed> = { observed.iter() }
            .filter(|site| site.work.in_loop == in_loop)
            .collect();
        let relative: Vec<f64> = { sites.iter() }
            .map(|site| 1.0 / site.ns.abs().max(SMALL_NS))
            .collect();
        // Least absolute errors, by least squares whose weights fall with the error (iteratively reweighted): a few
        // sites that differ for reasons of their own do not pull all others.
        let mut weights: Vec<f64> = relative.iter().map(|weight| weight * weight).collect();
        let mut constants = least_squares(&sites, &weights);
        for _ in 0..FIT_ROUNDS {
            for ((site, weight), relative) in sites.iter().zip(&mut weights).zip(&relative) {
                let terms = counts(&site.work).into_iter().zip(&constants);
                let estimate: f64 = terms.map(|(count, ns)| count * ns).sum();
                let error = (estimate - site.ns).abs() * relative;
                *weight = relative * relative / error.max(SMALL_ERROR);
            }
            constants = least_squares(&sites, &weights);
        }
        constants
    })
}

/// Finds the constants with the least weighted sum of squares; none is negative.
fn least_squares(sites: &[&Observed], weights: &[f64]) -> Constants {
    let mut zero = [false; FITTED];
    loop {
        let constants = solve(sites, weights, zero);
        let least = (0..FITTED).min_by(|&one, &other| constants[one].total_cmp(&constants[other]));
        match least {
            Some(least) if constants[least] < 0.0 => zero[least] = true,
            _ => return constants,
        }
    }
}

/// Solves the normal equations, with some constants 0, by Gaussian elimination.
fn solve(sites: &[&Observed], weights: &[f64], zero: [bool; FITTED]) -> Constants {
    let mut rows = [[0.0; FITTED + 1]; FITTED];
    for (site, weight) in sites.iter().zip(weights) {
        let counts = counts(&site.work);
        for (row, number) in rows.iter_mut().zip(0..) {
            for column in 0..FITTED {
                row[column] += weight * counts[number] * counts[column];
            }
            row[FITTED] += weight * counts[number] * site.ns;
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

/// A time that an estimate predicts.
#[derive(Clone, Copy, PartialEq)]
enum Predicted {
    /// Time of a call of the tree, with its instruments.
    Call,
    /// Time of a call of the hooked function alone.
    Function,
    /// Time that the instruments add to a hit.
    Added,
}

impl Observed {
    /// Returns whether an estimate of a hit predicts a time within 20 % of the measured one, or within so many
    /// nanoseconds.
    fn is_near(&self, estimate: f64, what: Predicted, slack_ns: f64) -> bool {
        let (hits, bare) = match what {
            Predicted::Call => (self.hits, self.call_ns),
            Predicted::Function => (self.hits, self.function_ns),
            Predicted::Added => (1.0, 0.0),
        };
        let error = hits * (estimate - self.ns).abs();
        error <= (0.2 * (bare + hits * self.ns).abs()).max(slack_ns)
    }
}

/// Two cycles of a processor: times of counters are one or two of them, or none.
const TWO_CYCLES_NS: f64 = 0.5;

/// A fit of the estimate's times.
pub(crate) struct Model {
    /// Tables of the times, and of how near estimates with them are.
    pub(crate) report: String,
    fitted: Fitted,
}

/// Fits times on three of eight random sites, and compares estimates with the measured times of the others, and these
/// with themselves.
pub(crate) fn model(target: &mut Target, clock: Clock, sites: usize) -> Model {
    // In turns, since the machine is faster at some times than at others.
    let all = observe(target, clock, 1, sites);
    let numbered = all.into_iter().enumerate();
    let (trained, checked): (Vec<_>, Vec<_>) = numbered.partition(|(number, _)| number % 8 < 3);
    let [trained, checked] =
        [trained, checked].map(|sites| sites.into_iter().map(|(_, one)| one).collect::<Vec<_>>());
    let fitted = fit(&trained);
    let built_in = engines();
    let mut out = format!(
        "{} random sites to fit on, {} others to check on.\n\n| time, ns | fitted now | the engine's | fitted now, in a loop | the engine's, in a loop |\n|---|---:|---:|---:|---:|\n",
        trained.len(),
        checked.len()
    );
    for (number, name) in NAMES.iter().enumerate() {
        let [waiting, in_loop] = fitted.map(|constants| constants[number]);
        let [engine_waiting, engine_in_loop] =
            built_in.map(|constants: Constants| constants[number]);
        let _ = writeln!(
            out,
            "| {name} | {waiting:.2} | {engine_waiting:.2} | {in_loop:.2} | {engine_in_loop:.2} |"
        );
    }
    let fitted_now = |site: &Observed| estimate(&site.work, &fitted);
    let engine = |site: &Observed| estimate(&site.work, &built_in);
    let nothing = |_: &Observed| 0.0;
    let again = |site: &Observed| site.halves_ns[1];
    let columns: [(&str, Column<'_>); 11] = [
        ("call", (Predicted::Call, 0.0, &fitted_now)),
        ("call, the engine's times", (Predicted::Call, 0.0, &engine)),
        ("call, no estimate", (Predicted::Call, 0.0, &nothing)),
        ("function", (Predicted::Function, 0.0, &fitted_now)),
        (
            "function, the engine's times",
            (Predicted::Function, 0.0, &engine),
        ),
        (
            "function, no estimate",
            (Predicted::Function, 0.0, &nothing),
        ),
        ("added", (Predicted::Added, 0.0, &fitted_now)),
        (
            "added, or two cycles",
            (Predicted::Added, TWO_CYCLES_NS, &fitted_now),
        ),
        ("call, measured again", (Predicted::Call, 0.0, &again)),
        ("added, measured again", (Predicted::Added, 0.0, &again)),
        (
            "added, measured again, or two cycles",
            (Predicted::Added, TWO_CYCLES_NS, &again),
        ),
    ];
    let _ = write!(out, "\n| checked sites, within 20 % | | added, median ns |");
    for (name, _) in &columns {
        let _ = write!(out, " {name} |");
    }
    let _ = writeln!(out, "\n|---|---:|---:|{}", "---:|".repeat(columns.len()));
    for kind in KINDS.iter().map(|kind| Some(kind.what)).chain([None]) {
        let sites = checked.iter();
        let sites: Vec<&Observed> = sites
            .filter(|one| kind.is_none_or(|kind| one.what == kind))
            .collect();
        if sites.is_empty() {
            continue;
        }
        let [_, median, _] = quartiles(sites.iter().map(|one| one.ns).collect());
        let (kind, number) = (kind.unwrap_or("all"), sites.len());
        let _ = write!(out, "| {kind} | {number} | {median:.2} |");
        for (name, (what, slack, estimate)) in &columns {
            let near = sites.iter();
            let near = near.filter(|site| {
                // No estimate can be nearer to a measurement than another measurement is.
                let measured = if name.contains("again") {
                    site.halves_ns[0]
                } else {
                    site.ns
                };
                let site = Observed {
                    ns: measured,
                    ..***site
                };
                site.is_near(estimate(&site), *what, *slack)
            });
            let _ = write!(out, " {} % |", 100 * near.count() / number);
        }
        out.push('\n');
    }
    Model {
        report: out,
        fitted,
    }
}

/// The rows that times are differences of.
pub(crate) const ROWS: [&str; 7] = [
    "counter",
    "every block of ten, in place",
    "a call displaced, 8 calls deep",
    "jump back to the call, 8 calls deep",
    "counter that is called and saves what a callee may change",
    "a system call that the kernel refuses",
    "int3 and SIGTRAP",
];

impl Model {
    /// Returns the source of `gilk_engine::nanoseconds::fitted` with these times, and those of [`ROWS`], in their order.
    pub(crate) fn source(&self, rows: &[Row; ROWS.len()], machine: &Machine) -> String {
        let [counter, close, displaced, back, called, system_call, trap] =
            rows.each_ref().map(Row::median_ns);
        let fitted = self.fitted.map(|constants| constants.map(rounded));
        let others = [
            close / 2.0,
            displaced - back,
            called - counter,
            (system_call * trap).sqrt(),
        ];
        source(&fitted, others.map(rounded), machine)
    }
}

/// Rounds a time to two digits after the point: more are noise.
fn rounded(ns: f64) -> f64 {
    (100.0 * ns).round() / 100.0
}

/// Returns the source that has these times.
pub(crate) fn source(
    fitted: &Fitted,
    [close_jump, moved, tracer, trap]: [f64; 4],
    machine: &Machine,
) -> String {
    let [waiting, in_loop] = fitted.map(|constants| {
        let fields = NAMES.iter().zip(constants);
        fields
            .map(|(name, ns)| format!("    {name}: {ns:?},\n"))
            .collect::<String>()
    });
    format!(
        "//! Times of a processor, as `cargo xtask bench native --model --keep` writes them.
//!
//! {}.

use super::Times;

/// Times where the processor mostly waits for something else, so that the rest executes meanwhile.
pub const WAITING: Times = Times {{
{waiting}}};
/// Times in a loop of one block, where nothing hides the work.
pub const IN_LOOP: Times = Times {{
{in_loop}}};

/// A jump between the original code and a patch in a function with many sites, where processors have a jump to predict
/// every few instructions: half of the row \"every block of ten, in place\".
pub const CLOSE_JUMP: f64 = {close_jump:?};
/// A call that a patch executes, eight calls deep: a push and a jump leave the processor's stack of return addresses
/// one short, so that every outer return mispredicts. The row \"a call displaced\" less \"jump back to the call\".
pub const MOVED: f64 = {moved:?};
/// A call by the function tracer, which saves all registers that a callee may change: the row \"counter that is called\"
/// less \"counter\".
pub const TRACER: f64 = {tracer:?};
/// An `int3` that a kernel handles, which user mode cannot measure: the geometric mean of the rows \"a system call that
/// the kernel refuses\", which takes less, and \"int3 and SIGTRAP\", which takes more.
pub const TRAP: f64 = {trap:?};
",
        machine.text()
    )
}

/// Returns the fitted times that the engine has.
pub(crate) fn engines() -> Fitted {
    [false, true].map(|in_loop| {
        let terms = HitWork::default().placed(in_loop).terms();
        std::array::from_fn(|number| terms[number].1)
    })
}

/// A time, how far from it an estimate may be at least, and the estimate of a hit.
type Column<'c> = (Predicted, f64, &'c dyn Fn(&Observed) -> f64);
