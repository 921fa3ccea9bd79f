//! A real load, after JIFL's authors (EuroSys 2007, section 6.2): a web server under a request
//! generator, without instruments, with system calls counted, with every call of a function traced,
//! and with every block counted.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use gilk_engine::cfg::Cfg;
use gilk_engine::placement::options;
use gilk_engine::session::{Placement, Session};
use gilk_engine::{HookType, Image};

use crate::How;
use crate::guest::{Guest, placement, words};
use crate::table::Tables;

/// Starts busybox's server.
const SERVER: &str = "ifconfig lo up; mkdir -p /www; head -c 2000 /dev/zero | tr '\\0' x > /www/index.html; \
                      httpd -p 80 -h /www";
/// Sends requests, and prints their cost.
const REQUESTS: &str = "requests 200 80 | sed 's/^/sh: /'";
const FEW_REQUESTS: &str = "requests 20 80 | sed 's/^/sh: /'";
/// Prints the functions that requests pass through.
const TRACED: &str = "mount -t tracefs none /sys/kernel/tracing 2> /dev/null; cd /sys/kernel/tracing; \
                      echo 65536 > buffer_size_kb; echo > set_ftrace_filter; echo function > current_tracer; \
                      requests 20 80 > /dev/null; echo 0 > tracing_on; \
                      sed -n 's/.*: \\([^ ]*\\) <-.*/\\1/p' trace | sort -u | sed 's/^/sh: function /'; \
                      echo nop > current_tracer; echo 1 > tracing_on; echo 64 > buffer_size_kb";

/// Fills a column of the table.
pub(crate) fn measure(guest: &mut Guest, tables: &mut Tables, how: &How) -> anyhow::Result<()> {
    let release = guest.release.clone();
    let mut sh = |script: &str, level: &str, placements: Vec<Placement>| {
        let path = how.file(&format!(
            "web-{}-{}.arrow",
            guest.release,
            level.replace(' ', "-")
        ));
        let session = Session {
            name: "web".into(),
            placements,
            ..Session::empty()
        };
        let answer = guest.run_program("/bin/sh", &words(&["-c", script]), session, &path);
        answer.map(|answer| (answer, guest.image.clone()))
    };
    let (traced, image) = sh(&format!("{SERVER}; {TRACED}"), "tracer", Vec::new())?;
    let functions: BTreeSet<String> = traced
        .lines
        .iter()
        .filter_map(|line| line.strip_prefix("function "))
        .map(str::to_owned)
        .collect();
    ensure!(
        functions.len() > 100,
        "only {} functions were traced",
        functions.len()
    );
    let levels: [(&str, Vec<Placement>); 4] = [
        ("nothing", Vec::new()),
        (
            "system calls counted",
            entries(&image, &functions, "counter", |name| {
                name.starts_with("__x64_sys_")
            }),
        ),
        (
            "every call of a function traced",
            entries(&image, &functions, "timestamp", |_| true),
        ),
        ("every block counted", blocks(&image, &functions)),
    ];
    let requests = if how.quick { FEW_REQUESTS } else { REQUESTS };
    let mut bare = None;
    for (level, placements) in levels {
        let mut note =
            |what: &str, figure: f64| tables.add("", &format!("{level}: {what}"), &release, figure);
        note("instruments", placements.len() as f64);
        let (answer, _) =
            sh(requests, level, placements).with_context(|| format!("with {level}"))?;
        let line = answer
            .lines
            .iter()
            .find(|line| line.contains("requests took"));
        let line = line.with_context(|| format!("the generator failed: {:?}", answer.lines))?;
        let numbers: Vec<f64> = line
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        let [requests, all, median, _, high] = numbers[..] else {
            anyhow::bail!("{line}");
        };
        let each = all / requests;
        note("instructions a request", each);
        note("of one in two no more than", median);
        note("of 99 in 100 no more than", high);
        note(
            "throughput, % of that with nothing",
            100.0 * *bare.get_or_insert(each) / each,
        );
        let full = answer.summary.lost();
        if answer.summary.taken > 0 {
            note("samples", answer.summary.taken as f64);
            note("samples lost and counted", full as f64);
        }
    }
    Ok(())
}

/// Returns a placement at the entry of each of the functions.
fn entries(
    image: &Image,
    functions: &BTreeSet<String>,
    instrument: &'static str,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Placement> {
    let all = functions.iter().filter(|name| wanted(name));
    let all = all.flat_map(|name| {
        hooked(image, name, instrument)
            .into_iter()
            .filter(|one| one.block == 0)
    });
    all.collect()
}

fn blocks(image: &Image, functions: &BTreeSet<String>) -> Vec<Placement> {
    functions
        .iter()
        .flat_map(|name| hooked(image, name, "counter"))
        .collect()
}

/// Returns an instrument on every hookable block of a function with a unique name.
fn hooked(image: &Image, name: &str, instrument: &'static str) -> Vec<Placement> {
    let Ok(function) = image.function_named(name) else {
        return Vec::new();
    };
    let cfg = Cfg::of(image, function.id);
    let hooked = options(image, &cfg)
        .into_iter()
        .filter(|option| option.pre.is_ok());
    hooked
        .map(|option| placement(name.to_owned(), option.block.0, HookType::Pre, instrument))
        .collect()
}
