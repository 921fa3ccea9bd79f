//! Ten thousand splices at once, and ten thousand kprobes.

use anyhow::Context as _;
use gilk_engine::Session;
use gilk_engine::cfg::Cfg;
use gilk_engine::placement::{Tactic, options};
use gilk_engine::{Addr, Image};

use crate::How;
use crate::guest::{Guest, before, listed, session, words};
use crate::table::Tables;

const SPLICES: usize = 10_000;
const FEW: usize = 500;

/// Fills a column of the table.
pub(crate) fn measure(guest: &mut Guest, tables: &mut Tables, how: &How) -> anyhow::Result<()> {
    let release = guest.release.clone();
    let hooks = hooks(&guest.image, if how.quick { FEW } else { SPLICES });
    let counters = hooks
        .iter()
        .map(|(function, block, _)| (function.clone(), *block, "counter"));
    let time = words(&["time", "null", "1", "1"]);
    let answer = guest.run(&time, session(counters))?;
    let switches = &answer.summary.switches;
    let (Some(first), Some(last)) = (switches.first(), switches.last()) else {
        anyhow::bail!("no splice was installed");
    };
    let mut note = |what: &str, figure: f64| tables.add("", what, &release, figure);
    note("ilk: splices", answer.plan.sites.len() as f64);
    note("ilk: installed in", first.done - first.begun);
    note("ilk: removed in", last.done - last.begun);
    let at: Vec<Addr> = hooks.iter().map(|&(.., at)| at).collect();
    for (how, kind) in [("left as int3", "traps"), ("made jumps", "jumps")] {
        let mut all = words(&["register", kind]);
        all.extend(listed(&at));
        let answer = guest.run(&all, Session::empty())?;
        let line = answer.lines.iter().find(|line| line.contains("registered"));
        let line = line.with_context(|| format!("{:?}", answer.lines))?;
        let said = |word: &str| before(line, word).context("a number is missing");
        note(&format!("kprobes, {how}: registered"), said("registered")?);
        note(&format!("kprobes, {how}: jumps"), said("jumps")?);
        note(
            &format!("kprobes, {how}: registered in"),
            said("ns to register")? / 1e9,
        );
        note(
            &format!("kprobes, {how}: removed in"),
            said("ns to remove")? / 1e9,
        );
    }
    Ok(())
}

/// Returns the second block of functions spread over all of the text, where a splice fits the
/// block's own instructions.
fn hooks(image: &Image, splices: usize) -> Vec<(String, u32, Addr)> {
    let mut hooks = Vec::new();
    for function in image.functions() {
        let cfg = Cfg::of(image, function.id);
        let option = options(image, &cfg).into_iter().nth(1);
        let direct = option.and_then(|option| option.pre.ok());
        if direct.is_some_and(|choice| choice.tactic == Tactic::DirectSplice)
            && let Some(block) = cfg.blocks.get(1)
        {
            let name = format!("{}@{:#x}", cfg.name, cfg.span.start.0);
            hooks.push((name, block.index.0, block.span.start));
        }
    }
    let step = (hooks.len() / splices).max(1);
    hooks.into_iter().step_by(step).take(splices).collect()
}
