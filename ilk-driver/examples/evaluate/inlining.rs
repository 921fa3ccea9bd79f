//! The cost of calling an instrument instead of inlining it in the patch.

use std::process::Command;

use anyhow::{Context as _, ensure};
use gilk_engine::Session;
use gilk_instruments::{Definition, Native};

use crate::How;
use crate::grain::{BURSTS, Grain, everywhere, hooks, through, times, took};
use crate::guest::{Guest, words};
use crate::table::Tables;

const CALLS: [&str; 4] = ["null", "read", "open-close", "fork"];
const FEW: [&str; 1] = ["read"];
/// The example that comes with the header for native instruments.
const SOURCE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../instruments/native/example.c"
);
/// Columns: the code that counts, the saved registers, and the session's settings for both.
const WAYS: [(&str, &str, bool); 4] = [
    ("in the patch, what is live saved", "counter", false),
    ("in the patch, all saved", "counter", true),
    ("called, what is live saved", "count-natively", false),
    ("called, all saved", "count-natively", true),
];

/// Fills a table.
pub(crate) fn measure(guest: &mut Guest, tables: &mut Tables, how: &How) -> anyhow::Result<()> {
    if guest.library.get("count-natively").is_err() {
        for definition in Definition::natives("example.o", &compiled()?)? {
            guest.library.add(definition)?;
        }
    }
    let calls: &[&str] = if how.quick { &FEW } else { &CALLS };
    for call in calls {
        eprintln!("  {call}");
        let run_through = through(guest, call)?;
        let (hooks, _) = hooks(guest, &run_through, Grain::Blocks)?;
        let time = words(&["time", call, BURSTS, times(call)]);
        let bare = took(&guest.run(&time, Session::empty())?.lines)?;
        let title = guest.release.clone();
        let mut note = |what: &str, figure: f64| tables.add(&title, call, what, figure);
        note("bare call", bare);
        note("instruments", hooks.len() as f64);
        let mut added = Vec::new();
        for (way, instrument, save_all) in WAYS {
            let session = everywhere(&hooks, instrument, save_all);
            let answer = guest.run(&time, session)?;
            let took = took(&answer.lines)? - bare;
            note(way, took);
            added.push(took);
        }
        if let [inline, _, called, _] = added.as_slice() {
            note("called, times in the patch", called / inline);
        }
    }
    Ok(())
}

fn compiled() -> anyhow::Result<Vec<u8>> {
    let place = tempfile::tempdir()?;
    let object = place.path().join("example.o");
    let done = Command::new("cc")
        .args(Native::C_FLAGS)
        .arg("-o")
        .arg(&object)
        .arg(SOURCE)
        .status();
    let done = done.context("a C compiler is needed (cc)")?;
    ensure!(done.success(), "{SOURCE} was not compiled");
    Ok(std::fs::read(object)?)
}
