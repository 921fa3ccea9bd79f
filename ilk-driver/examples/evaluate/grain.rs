//! The cost of observing system calls at three levels of detail, measured as JIFL's authors did
//! (EuroSys 2007, section 6.1): each call counted, each call of a function traced, and every block
//! of those functions counted.

use std::collections::BTreeSet;

use anyhow::Context as _;
use gilk_engine::cfg::Cfg;
use gilk_engine::collection::{Collection, Strategy};
use gilk_engine::placement::{Style, options};
use gilk_engine::{Addr, Error, Image, Session};

use crate::How;
use crate::bars::Bars;
use crate::guest::{Guest, before, listed, per_call, session, words};
use crate::table::Tables;

/// The system calls of lmbench's table.
const CALLS: [&str; 12] = [
    "null",
    "read",
    "write",
    "fstat",
    "stat",
    "open-close",
    "select",
    "signal-install",
    "signal-catch",
    "pipe",
    "mmap-touch-munmap",
    "fork",
];
/// The calls of a quick run.
const FEW: [&str; 2] = ["read", "open-close"];
pub(crate) const BURSTS: &str = "10";
/// Minimum ratio of the added cost to the variation of bare calls for a ratio to be printed.
const MUCH: f64 = 10.0;
/// Assumed relative variation of a call of many thousand instructions.
const STEADY: f64 = 0.0001;
/// Calls in a burst; fewer for fork, which costs as much as hundreds of the others.
pub(crate) fn times(call: &str) -> &'static str {
    if call == "fork" { "5" } else { "50" }
}

/// The level of detail at which a call is observed.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Grain {
    Calls,
    Functions,
    Blocks,
}

impl Grain {
    const ALL: [Self; 3] = [Self::Calls, Self::Functions, Self::Blocks];

    const fn title(self) -> &'static str {
        match self {
            Self::Calls => "the system call counted",
            Self::Functions => "every call of a function sampled (by kprobes counted)",
            Self::Blocks => "every block counted",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Calls => "1-calls",
            Self::Functions => "2-functions",
            Self::Blocks => "3-blocks",
        }
    }

    const fn instrument(self) -> &'static str {
        match self {
            Self::Functions => "timestamp",
            Self::Calls | Self::Blocks => "counter",
        }
    }
}

/// Fills a table for each grain.
pub(crate) fn measure(guest: &mut Guest, tables: &mut Tables, how: &How) -> anyhow::Result<()> {
    let calls: &[&str] = if how.quick { &FEW } else { &CALLS };
    let mut drawn: [Vec<(String, Vec<f64>)>; Grain::ALL.len()] = Default::default();
    for call in calls {
        eprintln!("  {call}");
        let added = one(guest, call, tables).with_context(|| format!("measuring {call}"))?;
        for (drawn, added) in drawn.iter_mut().zip(added) {
            drawn.push(((*call).to_owned(), added));
        }
    }
    for (grain, groups) in Grain::ALL.into_iter().zip(drawn) {
        let release = &guest.release;
        Bars {
            title: format!("What it adds to a call: {}, Linux {release}", grain.title()),
            unit: "guest instructions a call",
            names: vec![
                "ilk",
                "ilk, all saved",
                "kprobes, none optimised",
                "kprobes, optimised where they can be",
            ],
            groups,
            logarithmic: true,
        }
        .draw(&how.file(&format!("grain-{}-{release}", grain.word())))?;
    }
    Ok(())
}

/// Returns the cost added by each mechanism, for each level of detail.
fn one(guest: &mut Guest, call: &str, tables: &mut Tables) -> anyhow::Result<Vec<Vec<f64>>> {
    let run_through = through(guest, call)?;
    let time = words(&["time", call, BURSTS, times(call)]);
    let bare = took(&guest.run(&time, Session::empty())?.lines)?;
    let again = took(&guest.run(&time, Session::empty())?.lines)?;
    let unsteady = (bare - again).abs();
    let bare = bare.min(again);
    let mut all_added = Vec::new();
    for grain in Grain::ALL {
        let (hooks, refused) = hooks(guest, &run_through, grain)?;
        let title = format!("{}: {}", guest.release, grain.title());
        let mut note = |what: &str, figure: f64| tables.add(&title, call, what, figure);
        note("bare call", bare);
        note("bare call, differs by", unsteady);
        note("instruments", hooks.len() as f64);
        if grain == Grain::Blocks {
            note("refused", refused as f64);
        }
        let ilk = took(
            &guest
                .run(&time, everywhere(&hooks, grain.instrument(), false))?
                .lines,
        )? - bare;
        note("ilk", ilk);
        let saved = took(
            &guest
                .run(&time, everywhere(&hooks, grain.instrument(), true))?
                .lines,
        )? - bare;
        note("ilk, all saved", saved);
        let mut added = vec![ilk, saved];
        let at: Vec<Addr> = hooks.iter().map(|&(.., at)| at).collect();
        for (how, factor, kind) in [
            ("kprobes, none optimised", "times ilk's", "traps"),
            (
                "kprobes, optimised where they can be",
                "times ilk's, optimised",
                "jumps",
            ),
        ] {
            let mut all = words(&["points", kind, call, BURSTS, times(call)]);
            all.extend(listed(&at));
            let answer = guest.run(&all, Session::empty())?;
            let line = answer.lines.iter().find(|line| line.contains("registered"));
            let line = line.context("the program printed nothing about its kprobes")?;
            let said = |word: &str| before(line, word).context("a number is missing");
            if kind == "jumps" {
                note("kprobes refused", said("refused")?);
                note("kprobes optimised", said("jumps")?);
            }
            let kprobes = took(&answer.lines)? - bare;
            note(how, kprobes);
            if ilk > MUCH * unsteady.max(bare * STEADY) {
                note(factor, kprobes / ilk);
            }
            added.push(kprobes);
        }
        all_added.push(added);
    }
    Ok(all_added)
}

/// Returns a session with an instrument at each hook.
pub(crate) fn everywhere(hooks: &[Hook], instrument: &'static str, save_all: bool) -> Session {
    let wanted = hooks
        .iter()
        .map(|(function, block, _)| (function.clone(), *block, instrument));
    let names = hooks.iter().map(|(function, ..)| function.clone());
    Session {
        styles: names.map(|name| (name, Style::Auto)).collect(),
        save_all,
        // The ring is not drained while calls are timed.
        collection: Collection {
            samples: Strategy::Newest,
            ..Collection::default()
        },
        ..session(wanted)
    }
}

pub(crate) fn took(lines: &[String]) -> anyhow::Result<f64> {
    let found = lines.iter().find_map(|line| per_call(line));
    found.with_context(|| format!("the program printed no ticks, but: {lines:?}"))
}

/// Returns the functions that the kernel's tracer sees in the call.
pub(crate) fn through(guest: &mut Guest, call: &str) -> anyhow::Result<BTreeSet<Addr>> {
    let answer = guest.run(&words(&["trace", call]), Session::empty())?;
    let lines = answer.lines.iter();
    let seen = lines
        .filter_map(|line| line.strip_prefix("function "))
        .filter_map(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .filter_map(|at| guest.image.function_at(Addr(at)));
    let seen: BTreeSet<Addr> = seen.map(|function| function.span.start).collect();
    anyhow::ensure!(!seen.is_empty(), "nothing was traced: {:?}", answer.lines);
    Ok(seen)
}

/// A function's name with its address, and a block of it with its start.
pub(crate) type Hook = (String, u32, Addr);

/// Returns the hooks of these functions at a level of detail, placed together, and the number of
/// refused blocks.
pub(crate) fn hooks(
    guest: &Guest,
    functions: &BTreeSet<Addr>,
    grain: Grain,
) -> anyhow::Result<(Vec<Hook>, usize)> {
    let (mut hooks, mut refused) = offered(&guest.image, functions, grain);
    // A hook that is available alone may be refused together with its neighbours.
    while let Err(error) = guest.plan(&everywhere(&hooks, grain.instrument(), false)) {
        let Error::Refused {
            function, block, ..
        } = &error
        else {
            return Err(error.into());
        };
        let before = hooks.len();
        hooks.retain(|hook| (&hook.0, hook.1) != (function, *block));
        anyhow::ensure!(hooks.len() < before, error);
        refused += before - hooks.len();
    }
    Ok((hooks, refused))
}

/// Returns the hooks that are available alone.
fn offered(image: &Image, functions: &BTreeSet<Addr>, grain: Grain) -> (Vec<Hook>, usize) {
    let (mut hooks, mut refused) = (Vec::new(), 0);
    for function in functions.iter().filter_map(|&at| image.function_at(at)) {
        let cfg = Cfg::of(image, function.id);
        if grain == Grain::Calls && !cfg.name.starts_with("__x64_sys_") {
            continue;
        }
        let name = format!("{}@{:#x}", cfg.name, cfg.span.start.0);
        for (option, block) in options(image, &cfg).into_iter().zip(&cfg.blocks) {
            if grain != Grain::Blocks && block.index.0 > 0 {
                break;
            }
            match option.pre {
                Ok(_) => hooks.push((name.clone(), option.block.0, block.span.start)),
                Err(_) => refused += 1,
            }
        }
    }
    (hooks, refused)
}
