//! Every block of every function that a system call runs through, as JIFL's authors counted them
//! (EuroSys 2007, section 6.1: their finest grain).

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use gilk_engine::cfg::Cfg;
use gilk_engine::placement::{Style, options};
use gilk_engine::{Addr, Image, Session};
use ilk_driver::lab::Accelerator;

use crate::guest::{Guest, before, listed, per_call, session, words};
use crate::table::Table;

/// System calls of lmbench's table.
const CALLS: [&str; 8] = [
    "null",
    "read",
    "write",
    "fstat",
    "stat",
    "open-close",
    "pipe",
    "mmap-touch-munmap",
];
const BURSTS: &str = "10";
const TIMES: &str = "100";

/// Fills columns of the table: a row for each system call and what was asked of it.
pub(crate) fn measure(series: Option<&str>, table: &mut Table, _: &Path) -> anyhow::Result<()> {
    let mut guest = Guest::boot(series, Accelerator::CountInstructions)?;
    for call in CALLS {
        one(&mut guest, call, table).with_context(|| format!("measuring {call}"))?;
    }
    Ok(())
}

fn one(guest: &mut Guest, call: &str, table: &mut Table) -> anyhow::Result<()> {
    let release = guest.release.clone();
    let mut note =
        |what: &str, figure: f64| table.add(&format!("{call}: {what}"), &release, figure);
    let run_through = through(guest, call)?;
    let (hooks, refused) = hooks(&guest.image, &run_through);
    note("functions", run_through.len() as f64);
    note("blocks counted by ilk", hooks.len() as f64);
    note("blocks that ilk refuses", refused as f64);

    let time = words(&["time", call, BURSTS, TIMES]);
    let took = |lines: &[String]| {
        let found = lines.iter().find_map(|line| per_call(line));
        found.with_context(|| format!("the program did not tell its ticks, but: {lines:?}"))
    };
    let bare = took(&guest.run(&time, Session::empty())?.lines)?;
    note("bare call", bare);
    let counters = hooks
        .iter()
        .map(|(function, block, _)| (function.clone(), *block, "counter"));
    let mut least = f64::INFINITY;
    for style in [Style::InPlace, Style::Auto] {
        let mut counted = session(counters.clone());
        let styles = hooks.iter().map(|(function, ..)| (function.clone(), style));
        counted.styles = styles.collect();
        let answer = guest.run(&time, counted)?;
        let added = took(&answer.lines)? - bare;
        least = least.min(added);
        note(&format!("added by ilk, functions {style}"), added);
        if style == Style::Auto {
            let totals = answer.summary.instruments.iter();
            let hits: u64 = totals.filter_map(|one| one.total).sum();
            let calls: f64 = BURSTS.parse::<f64>()? * TIMES.parse::<f64>()?;
            note("blocks run by a call, about", (hits as f64 / calls).round());
        }
    }
    let at: Vec<Addr> = hooks.iter().map(|&(.., at)| at).collect();
    for (how, kind) in [("int3", "traps"), ("jumps where the kernel can", "jumps")] {
        let mut all = words(&["points", kind, call, BURSTS, TIMES]);
        all.extend(listed(&at));
        let answer = guest.run(&all, Session::empty())?;
        let added = took(&answer.lines)? - bare;
        let line = answer.lines.iter().find(|line| line.contains("registered"));
        let line = line.context("the program did not tell of its kprobes")?;
        let said = |word: &str| before(line, word).context("a number is missing");
        if kind == "jumps" {
            note("kprobes refused by the kernel", said("refused")?);
            note("kprobes that are jumps", said("jumps")?);
        }
        note(&format!("added by kprobes, {how}"), added);
        note(&format!("times ilk's, kprobes {how}"), added / least);
    }
    Ok(())
}

/// Functions that the kernel's tracer sees in the call.
fn through(guest: &mut Guest, call: &str) -> anyhow::Result<BTreeSet<Addr>> {
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

/// A function's name with its address, a block of it, and where that begins.
type Hook = (String, u32, Addr);

/// Every block that can be counted, and how many cannot.
fn hooks(image: &Image, functions: &BTreeSet<Addr>) -> (Vec<Hook>, usize) {
    let (mut hooks, mut refused) = (Vec::new(), 0);
    for function in functions.iter().filter_map(|&at| image.function_at(at)) {
        let cfg = Cfg::of(image, function.id);
        let name = format!("{}@{:#x}", cfg.name, cfg.span.start.0);
        for (option, block) in options(image, &cfg).into_iter().zip(&cfg.blocks) {
            match option.pre {
                Ok(_) => hooks.push((name.clone(), option.block.0, block.span.start)),
                Err(_) => refused += 1,
            }
        }
    }
    (hooks, refused)
}
