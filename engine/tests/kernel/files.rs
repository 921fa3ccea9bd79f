//! A kernel's file against the same kernel running. Needs both: `GILK_VMLINUZ` names the vmlinuz, and
//! `GILK_IMAGE` what was read from that kernel; cargo xtask test has a pair.

use std::collections::BTreeMap;
use std::fmt::Debug;

use gilk_engine::code::Why;
use gilk_engine::kernel::{FileParts, LiveParts};
use gilk_engine::{Addr, Image};

fn bytes(variable: &str) -> Vec<u8> {
    let path = std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} must name a kernel; cargo xtask test has one"));
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{} cannot be read: {error}", path.display()))
}

fn live_parts() -> LiveParts {
    postcard::from_bytes(&bytes("GILK_IMAGE")).expect("GILK_IMAGE is a saved image")
}

/// Both kernels, and how far the running one was moved.
struct Pair {
    file: Image,
    live: Image,
    slide: u64,
}

fn pair() -> Pair {
    let file = Image::from_file(&bytes("GILK_VMLINUZ")).expect("GILK_VMLINUZ is a kernel");
    let live = Image::from_live(&live_parts()).expect("the saved image is a kernel's");
    let slide = live.text().start.0 - file.text().start.0;
    Pair { file, live, slide }
}

/// Counts of what is in the one and not in the other, with some examples.
fn differences<T: Ord + Debug>(
    one: impl Iterator<Item = T>,
    other: impl Iterator<Item = T>,
) -> Vec<String> {
    let mut counts: BTreeMap<T, i64> = BTreeMap::new();
    for element in one {
        *counts.entry(element).or_default() += 1;
    }
    for element in other {
        *counts.entry(element).or_default() -= 1;
    }
    counts
        .iter()
        .filter(|&(_, &count)| count != 0)
        .map(|(element, count)| format!("{count:+} {element:x?}"))
        .collect()
}

#[track_caller]
fn same<T: Ord + Debug>(
    what: &str,
    file: impl Iterator<Item = T>,
    live: impl Iterator<Item = T>,
    at_least: usize,
) {
    let file: Vec<T> = file.collect();
    println!("{what}: {}", file.len());
    assert!(file.len() >= at_least, "only {} {what}", file.len());
    let found = differences(file.into_iter(), live);
    let some: Vec<&String> = found.iter().take(12).collect();
    assert!(
        found.is_empty(),
        "{what} differ {} times: {some:#?}",
        found.len()
    );
}

/// Lines of kallsyms that are not a module's.
fn symbols(kallsyms: &str, slide: u64) -> impl Iterator<Item = (u64, &str, &str)> {
    kallsyms.lines().filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let (at, kind, name) = (fields.next()?, fields.next()?, fields.next()?);
        let at = u64::from_str_radix(at, 16).ok()?;
        // Per-CPU symbols are offsets.
        let at = if at >> 63 == 1 { at - slide } else { at };
        fields.next().is_none().then_some((at, kind, name))
    })
}

#[test]
#[ignore = "needs GILK_VMLINUZ and GILK_IMAGE of one kernel; cargo xtask test has them"]
fn a_vmlinuz_has_the_symbols_and_the_blacklist_of_the_running_kernel() {
    let file = FileParts::read(&bytes("GILK_VMLINUZ"))
        .expect("GILK_VMLINUZ is a kernel")
        .parts;
    let live = live_parts();
    assert_eq!(file.release, live.release);
    let text = |parts: &LiveParts| {
        symbols(&parts.kallsyms, 0)
            .find(|&(_, _, name)| name == "_text")
            .map(|(at, ..)| at)
            .expect("there is a _text")
    };
    let slide = text(&live) - text(&file);
    println!("moved by {slide:#x}");
    same(
        "symbols",
        symbols(&file.kallsyms, 0),
        symbols(&live.kallsyms, slide),
        80_000,
    );
    let listed = |list: &str, slide: u64| -> Vec<(u64, u64, String)> {
        let ranges = list.lines().filter_map(|line| {
            let (range, name) = line.split_once('\t')?;
            let (start, end) = range.split_once('-')?;
            let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            let moved = |at: u64| at.wrapping_sub(slide);
            Some((
                moved(address(start)?),
                moved(address(end)?),
                name.to_owned(),
            ))
        });
        let mut ranges: Vec<_> = ranges.collect();
        // Modules have theirs; the kernel says some of its own twice.
        ranges.retain(|(_, _, name)| !name.contains('['));
        ranges.sort();
        ranges.dedup();
        ranges
    };
    let lists = (listed(&file.blacklist, 0), listed(&live.blacklist, slide));
    same("blacklisted", lists.0.into_iter(), lists.1.into_iter(), 300);
    // The file has them in its code, the running kernel in its list.
    let notifiers = |list: &str| -> Vec<String> {
        let lines = list.lines().filter(|line| line.starts_with("notifier "));
        let names = lines.filter_map(|line| line.split('\t').nth(1));
        names.map(str::to_owned).collect()
    };
    let (file, live) = (notifiers(&file.blacklist), notifiers(&live.blacklist));
    println!("notifiers of traps before the driver's: {live:?}");
    assert!(live.contains(&"hw_breakpoint_exceptions_notify".to_owned()));
    same("notifiers", file.into_iter(), live.into_iter(), 2);
}

#[test]
#[ignore = "needs GILK_VMLINUZ and GILK_IMAGE of one kernel; cargo xtask test has them"]
fn a_vmlinuz_has_the_functions_and_sites_of_the_running_kernel() {
    let Pair { file, live, slide } = pair();
    assert!(live.is_live() && !file.is_live());
    let starts = |image: &Image, slide: u64| -> Vec<(u64, String)> {
        let functions = image.functions().iter();
        functions
            .map(|function| (function.span.start.0 - slide, function.name.clone()))
            .collect()
    };
    same(
        "functions",
        starts(&file, 0).into_iter(),
        starts(&live, slide).into_iter(),
        40_000,
    );
    // Boot writes shorter instructions and fills up with what looks like padding.
    let ends = file.functions().iter().zip(live.functions());
    let shorter = ends
        .filter(|(file, live)| {
            let less = file.span.end.to(live.span.end) - slide.cast_signed();
            assert!(
                (-15..=0).contains(&less),
                "{} ends {less} bytes later",
                file.name
            );
            less != 0
        })
        .count();
    println!("functions that boot makes shorter: {shorter}");

    type Kind = fn(Why) -> bool;
    let kinds: [(&str, Kind, usize); 4] = [
        ("static keys", |kind| kind == Why::StaticKey, 5_000),
        ("static calls", |kind| kind == Why::StaticCall, 1_000),
        (
            "exceptions",
            |kind| matches!(kind, Why::Exception { .. }),
            500,
        ),
        ("bugs", |kind| matches!(kind, Why::Bug { .. }), 7_000),
    ];
    for (what, wanted, at_least) in kinds {
        let of = |image: &Image, slide: u64| -> Vec<(u64, Why, Option<u64>)> {
            let sites = image.fixed().iter().filter(|site| wanted(site.why));
            let moved = |at: Addr| at.0 - slide;
            sites
                .map(|site| (moved(site.span.start), site.why, site.target.map(moved)))
                .collect()
        };
        same(
            what,
            of(&file, 0).into_iter(),
            of(&live, slide).into_iter(),
            at_least,
        );
    }
    // Where boot writes a nop over a jump at an entry, it looks like the tracer's.
    let traced = |image: &Image, slide: u64| -> Vec<u64> {
        let functions = image.functions().iter();
        functions
            .map(|function| function.span.start)
            .filter(|&start| image.keeps_convention(start))
            .map(|start| start.0 - slide)
            .collect()
    };
    let (in_file, in_live) = (traced(&file, 0), traced(&live, slide));
    let only_live = in_live
        .iter()
        .filter(|at| in_file.binary_search(at).is_err())
        .count();
    println!(
        "functions with a tracer's site: {}, and {only_live} that look so",
        in_file.len()
    );
    assert!(only_live < 20 && in_live.len() - only_live == in_file.len());
}
