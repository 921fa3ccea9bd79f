//! The search for a bottleneck, after KernInst's authors (OSDI 1999, section 4): the distribution
//! of a web server's instructions, determined by one session after another, and the effect of
//! removing the cause. docs/tour.md describes it.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use gilk_engine::cfg::Cfg;
use gilk_engine::placement::options;
use gilk_engine::session::{Placement, Session, Workload};
use gilk_engine::{HookType, Image};
use gilk_samples::recording::Recording;

use crate::How;
use crate::guest::{Answer, Guest, placement};
use crate::table::Tables;

/// Starts busybox's server if it is not running, and sends it requests.
const REQUESTS: &str = "ifconfig lo up; mkdir -p /www; head -c 2000 /dev/zero | tr '\\0' x > /www/index.html; \
                        httpd -p 80 -h /www 2> /dev/null; requests 200 80 | sed 's/^/sh: /'";
/// Bytes mapped around a fault: Linux's default, and two pages.
const AROUND: &str = "/sys/kernel/debug/fault_around_bytes";
const USUAL: u32 = 65_536;
const LESS: u32 = 8192;
/// Time limit of a step in seconds.
const LENGTH: f64 = 5.0;
const REQUEST_COUNT: f64 = 200.0;
/// Calls that a request presumably makes once.
const OFTEN: u64 = 100;
/// Functions that handle faults and that tear down an address space: the cost of a process apart
/// from its calls.
const BESIDE: [&str; 3] = ["kernel_clone", "handle_mm_fault", "exit_mmap"];
/// Share of a request below which a row is omitted, in percent.
const LITTLE: f64 = 1.0;
/// The function that maps pages around a fault.
const CULPRIT: &str = "filemap_map_pages";

/// Fills a column of the table, and saves the sessions for the window.
pub(crate) fn measure(guest: &mut Guest, tables: &mut Tables, how: &How) -> anyhow::Result<()> {
    let mut hunt = Hunt { guest, tables, how };
    let before = hunt.request_cost(USUAL)?;
    hunt.note("instructions a request", before);

    let calls = entries(
        &hunt.guest.image,
        |name| name.starts_with("__x64_sys_"),
        "counter",
    );
    let counted = hunt.session("1-calls", USUAL, calls)?;
    let labels = counted.summary.instruments.iter();
    let often: Vec<String> = counted
        .plan
        .instruments
        .iter()
        .zip(labels)
        .filter(|(_, one)| one.total.is_some_and(|total| total >= OFTEN))
        .filter_map(|(one, _)| Some(counted.plan.function(one.id.major)?.name.to_string()))
        .collect();
    hunt.note("system calls that each request makes", often.len() as f64);

    let wanted = |name: &str| often.iter().any(|call| call == name) || BESIDE.contains(&name);
    let timed = entries(&hunt.guest.image, wanted, "elapsed");
    let answer = hunt.session("2-times", USUAL, timed)?;
    let mut taken: Vec<(String, u64, u64)> = hunt.sums("2-times", &answer)?;
    taken.sort_by_key(|&(_, _, ticks)| std::cmp::Reverse(ticks));
    for (name, times, ticks) in &taken {
        let percent = *ticks as f64 / REQUEST_COUNT / before * 100.0;
        if percent >= LITTLE {
            hunt.note(
                &format!("{name}: times a request"),
                *times as f64 / REQUEST_COUNT,
            );
            hunt.note(
                &format!("{name}: from entry to exit, % of a request's instructions"),
                percent,
            );
        }
    }

    for (step, around) in [("3-blocks", USUAL), ("4-mended", LESS)] {
        let blocks = blocks(&hunt.guest.image, CULPRIT)?;
        let answer = hunt.session(step, around, blocks)?;
        let totals: BTreeMap<u32, u64> = answer
            .plan
            .instruments
            .iter()
            .zip(&answer.summary.instruments)
            .filter_map(|(planned, summary)| Some((planned.id.block, summary.total?)))
            .collect();
        let entered = totals.get(&0).copied().unwrap_or(0);
        let most = totals.values().copied().max().unwrap_or(0);
        ensure!(entered > 0, "{CULPRIT} was not called");
        let kib = around / 1024;
        hunt.note(
            &format!("{CULPRIT}, {kib} KiB around: calls a request"),
            entered as f64 / REQUEST_COUNT,
        );
        hunt.note(
            &format!("{CULPRIT}, {kib} KiB around: its hottest block, times a call"),
            most as f64 / entered as f64,
        );
    }
    let after = hunt.request_cost(LESS)?;
    hunt.note("instructions a request, mended", after);
    hunt.note("throughput, mended, % of before", before / after * 100.0);
    hunt.request_cost(USUAL)?;
    Ok(())
}

struct Hunt<'h> {
    guest: &'h mut Guest,
    tables: &'h mut Tables,
    how: &'h How,
}

impl Hunt<'_> {
    fn note(&mut self, what: &str, figure: f64) {
        self.tables.add("", what, &self.guest.release, figure);
    }

    /// Returns the instructions of a request without instruments.
    fn request_cost(&mut self, around: u32) -> anyhow::Result<f64> {
        let answer = self.session("0-nothing", around, Vec::new())?;
        let line = answer
            .lines
            .iter()
            .find_map(|line| line.split_once(" requests took "));
        let (_, rest) = line.with_context(|| format!("no answer: {:?}", answer.lines))?;
        let ticks: f64 = rest.split(' ').next().unwrap_or_default().parse()?;
        Ok(ticks / REQUEST_COUNT)
    }

    /// Runs a step, and saves its session if it has instruments.
    fn session(
        &mut self,
        step: &str,
        around: u32,
        placements: Vec<Placement>,
    ) -> anyhow::Result<Answer> {
        let name = format!("hunt-{step}-{}", self.guest.release);
        let script = format!("echo {around} > {AROUND}; {REQUESTS}");
        let words = vec![String::from("-c"), script];
        let session = Session {
            name: name.clone(),
            placements,
            ..Session::empty()
        };
        let recording = self.how.file(&format!("{name}.arrow"));
        let usual = std::mem::replace(&mut self.guest.longest, LENGTH);
        let answer = self
            .guest
            .run_program("/bin/sh", &words, session.clone(), &recording);
        self.guest.longest = usual;
        let answer = answer.with_context(|| format!("with {step}"))?;
        ensure!(answer.summary.lost() == 0, "samples of {step} were lost");
        if session.placements.is_empty() {
            return Ok(answer);
        }
        let placements = session.placements.into_iter();
        let session = Session {
            duration: LENGTH,
            workload: Some(Workload {
                program: "/bin/sh".into(),
                arguments: words,
                start: 0.2,
            }),
            placements: placements
                .map(|one| Placement {
                    splash: LENGTH,
                    ..one
                })
                .collect(),
            ..session
        };
        let file = self.how.file(&format!("{name}.ron"));
        std::fs::write(&file, session.to_ron()?)
            .with_context(|| format!("writing {}", file.display()))?;
        Ok(answer)
    }

    /// Returns for each timed function its name, the number of calls, and their ticks in total.
    fn sums(&self, step: &str, answer: &Answer) -> anyhow::Result<Vec<(String, u64, u64)>> {
        let name = format!("hunt-{step}-{}.arrow", self.guest.release);
        let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for sample in Recording::open(self.how.file(&name))?.merged() {
            let (_, sample) = sample?;
            let id = gilk_engine::InstrumentId::unpack(sample.id)
                .context("a sample belongs to no instrument")?;
            let sum = sums.entry(id.major).or_default();
            *sum = (sum.0 + 1, sum.1 + sample.value);
        }
        let named = sums.into_iter().filter_map(|(major, (times, ticks))| {
            Some((answer.plan.function(major)?.name.to_string(), times, ticks))
        });
        Ok(named.collect())
    }
}

/// Returns a placement at the entry of each function of such a name.
fn entries(
    image: &Image,
    wanted: impl Fn(&str) -> bool,
    instrument: &'static str,
) -> Vec<Placement> {
    let functions = image.functions().iter().filter(|one| wanted(&one.name));
    let hooked = functions.filter_map(|function| {
        // Functions that share a name are ambiguous.
        image.function_named(&function.name).ok()?;
        let cfg = Cfg::of(image, function.id);
        let entry = options(image, &cfg).into_iter().next()?;
        entry.pre.ok()?;
        Some(placement(
            function.name.to_string(),
            0,
            HookType::Pre,
            instrument,
        ))
    });
    hooked.collect()
}

/// Returns a counter before every block of a function.
fn blocks(image: &Image, name: &str) -> anyhow::Result<Vec<Placement>> {
    let cfg = Cfg::of(image, image.function_named(name)?.id);
    let hooked = options(image, &cfg)
        .into_iter()
        .filter(|one| one.pre.is_ok());
    let all = hooked.map(|one| placement(name.to_owned(), one.block.0, HookType::Pre, "counter"));
    Ok(all.collect())
}
