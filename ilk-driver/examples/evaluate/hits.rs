//! The cost of one hit by every mechanism, at one function.

use anyhow::Context as _;
use gilk_engine::{Addr, Session};

use crate::How;
use crate::guest::{Answer, Guest, per_call, session, words};
use crate::table::Tables;

/// Serves getpid. Its first instructions after the tracer's call are of a kind that the kernel also
/// optimises kprobes at.
const FUNCTION: &str = "__x64_sys_getpid";
/// Its alternative name in the kernel's types and tracer.
const ALIAS: &str = "__do_sys_getpid";
const BURSTS: &str = "20";
/// Calls in a burst; a ring that is not drained holds the samples of all bursts.
const CALLS: &str = "1000";
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// The instrument that is placed at a function's entry with `endbr64`.
const SEALED: [u8; 4] = [0x66, 0x0f, 0x1f, 0x00];

/// Cases of ilk: a name, and the instruments at the entry.
const CASES: [(&str, &[&str]); 10] = [
    ("ilk: counter", &["counter"]),
    ("ilk: sample with time", &["timestamp"]),
    ("ilk: sample with time and block", &["block-trace"]),
    ("ilk: sample with time and argument", &["argument-0"]),
    ("ilk: counter and sample", &["counter", "timestamp"]),
    ("ilk: two samples", &["timestamp", "timestamp"]),
    ("ilk: count by process", &["count-by-process"]),
    ("ilk: count by stack", &["count-by-stack"]),
    (
        "ilk: count by stack of the process",
        &["count-by-process-stack"],
    ),
    ("ilk: read of the process", &["process-sum"]),
];
/// Sources of instruments that the library does not have. A test holds the estimates of their cost against the figures
/// (`instruments/src/program/cost/tests.rs`).
const SOURCES: [(&str, &str); 4] = [
    (
        "count-by-process",
        include_str!("sources/count-by-process.ilk"),
    ),
    ("count-by-stack", include_str!("sources/count-by-stack.ilk")),
    (
        "count-by-process-stack",
        include_str!("sources/count-by-process-stack.ilk"),
    ),
    ("process-sum", include_str!("sources/process-sum.ilk")),
];

/// Fills a column of the table.
pub(crate) fn measure(guest: &mut Guest, tables: &mut Tables, _: &How) -> anyhow::Result<()> {
    let time = words(&["time", "getpid", BURSTS, CALLS]);
    let bare = took(&guest.run(&time, Session::empty())?)?;
    let release = guest.release.clone();
    let mut site = None;
    for (name, instruments) in CASES {
        let hooks = instruments.iter().map(|&one| (FUNCTION.into(), 0, one));
        let sources = SOURCES.map(|(name, source)| (name.to_owned(), source.to_owned()));
        let session = Session {
            sources: sources.into(),
            ..session(hooks)
        };
        let answer = guest
            .run(&time, session)
            .with_context(|| format!("measuring {name}"))?;
        tables.add("", name, &release, took(&answer)? - bare);
        site = answer.plan.sites.first().map(|site| site.displaced.start);
    }
    let entry = guest.image.function_named(FUNCTION)?.span.start;
    let site = site.context("there was no splice")?;
    let marked = guest.image.bytes_from(entry, ENDBR64.len());
    let tracer = if marked == Some(&ENDBR64[..]) || marked == Some(&SEALED[..]) {
        Addr(entry.0 + 4)
    } else {
        entry
    };
    let mut all = vec!["hit".into(), format!("{FUNCTION},{ALIAS}")];
    all.extend([entry, tracer, site].map(|at| format!("{:x}", at.0)));
    all.extend(words(&[BURSTS, CALLS]));
    let answer = guest.run(&all, Session::empty())?;
    for line in &answer.lines {
        if let (Some((name, _)), Some(took)) = (line.split_once(':'), per_call(line)) {
            tables.add("", name, &release, took - bare);
        }
    }
    Ok(())
}

fn took(answer: &Answer) -> anyhow::Result<f64> {
    let mut lines = answer.lines.iter();
    lines
        .find_map(|line| per_call(line))
        .with_context(|| format!("the program printed no ticks, but: {:?}", answer.lines))
}
