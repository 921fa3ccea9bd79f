//! The built-in tools, all in one session, held against what a program did and what the kernel accounts for it
//! (`ilk-driver/workload/acts.c`).

use std::collections::BTreeMap;
use std::path::Path;

use gilk_samples::recording::Recording;
use gilk_samples::totals::{KeyPart, Total, TotalRow, TotalValue};

use crate::support::{Turn, ilk, prepared, shared_of};

/// The tool whose events the program does not cause: it needs an array of disks.
const NOT_CAUSED: &str = "mdflush";

/// The names of the tools of each session, in order: all of them together have more counters than a target.
const PARTS: [std::ops::Range<&str>; 3] = ["a".."o", "o".."sw", "sw".."~"];

/// Returns the script of some tools: each has its variables and aggregates under its own name, and leaves the terminal
/// alone.
fn script(part: &std::ops::Range<&str>) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../instruments/tools");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let mut script = String::new();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        if name == NOT_CAUSED || !part.contains(&name) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let of_terminal = |line: &&str| !line.starts_with("interval:") && !line.starts_with("end ");
        for line in text.lines().filter(of_terminal) {
            script.push_str(&line.replace('@', &format!("@{name}_")));
            script.push('\n');
        }
    }
    script
}

/// The results of a run.
struct Results {
    totals: Vec<Total>,
    account: BTreeMap<String, i128>,
    /// Text of the terminal.
    out: String,
}

impl Results {
    /// Returns a number of the program's or the kernel's account.
    fn account(&self, subject: &str) -> i128 {
        let found = self.account.get(subject);
        *found.unwrap_or_else(|| panic!("no {subject} in {:?}", self.account))
    }

    /// Returns the number of the keys that `wanted` selects, of all places together.
    fn sum(&self, name: &str, wanted: impl Fn(&[String]) -> bool) -> i128 {
        let of_name = self.totals.iter().filter(|total| total.name == name);
        let mut sum = 0;
        let mut is_any = false;
        for total in of_name {
            is_any = true;
            match &total.value {
                TotalValue::Map(rows, others) => {
                    assert_eq!(*others, 0, "{name}: values of other keys");
                    let selected = rows.iter().filter(|row| wanted(&key(row)));
                    sum += selected.map(|row| amount(&row.value)).sum::<i128>();
                }
                TotalValue::Values(values, _) => {
                    let selected = values
                        .iter()
                        .filter(|(value, _)| wanted(&[value.to_string()]));
                    sum += selected.map(|(_, count)| i128::from(*count)).sum::<i128>();
                }
                value => sum += amount(value),
            }
        }
        assert!(is_any, "no aggregate is named {name}");
        sum
    }

    /// Returns the number that the terminal shows for a function: its count, or how many values it has.
    fn printed(&self, name: &str, function: &str) -> Option<i128> {
        let section = self
            .out
            .lines()
            .skip_while(|line| *line != format!("@{name}"));
        let section = section.skip(1).take_while(|line| !line.starts_with('@'));
        let mut numbers = section.filter_map(|line| {
            let line = line.trim().replace(',', "");
            let count = line.strip_suffix(&format!("  {function}"));
            let values = line.strip_prefix(&format!("{function}: "));
            let values = values.and_then(|rest| rest.split_whitespace().next());
            count.map(str::trim).or(values)?.parse().ok()
        });
        numbers.next()
    }

    /// Returns the number of the keys that begin with these parts.
    fn of(&self, name: &str, parts: &[&str]) -> i128 {
        self.sum(name, |key| {
            let mut pairs = key.iter().zip(parts);
            key.len() >= parts.len() && pairs.all(|(part, wanted)| part == wanted)
        })
    }
}

fn key(row: &TotalRow) -> Vec<String> {
    let part = |part: &KeyPart| match part {
        KeyPart::Number(number) => number.to_string(),
        KeyPart::Text(text) => text.clone(),
    };
    row.key.iter().map(part).collect()
}

/// Returns a number, or the number of values of a histogram.
fn amount(value: &TotalValue) -> i128 {
    match value {
        TotalValue::Number(number) => *number,
        value => value.hits().into(),
    }
}

/// Runs the tools of a part while the program acts.
fn run(turn: &Turn<'_>, part: &std::ops::Range<&str>) -> Results {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("tools.arrow");
    let mut command = ilk();
    // Swapped pages are requests of a block device too, which the tools of the first part count.
    let acts = if part.contains(&"biosnoop") {
        "/bin/acts"
    } else {
        "/bin/acts memory"
    };
    command.args(["-e", &script(part), "-c", acts, "-o"]);
    command.arg(&recording);
    command.arg("--socket").arg(turn.shared.lab.socket());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let said = out.lines().chain(err.lines());
    let account = said.filter_map(|line| {
        let (subject, number) = line.split_once("acts: ")?.1.rsplit_once(' ')?;
        Some((subject.to_owned(), number.parse().ok()?))
    });
    let opened = Recording::open(&recording).unwrap();
    Results {
        totals: opened.totals().added_up.clone(),
        account: account.collect(),
        out,
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn the_tools_count_what_a_program_does_and_what_the_kernel_accounts() {
    // A lab of its own: the kernel's first connection writes its text (net_get_random_once()).
    let shared = shared_of(&prepared());
    let turn = shared.turn();
    let [first, second, third] = PARTS.map(|part| run(&turn, &part));
    let port = "5555";
    // The aggregate of a tool, the beginning of its keys, and the account that it equals.
    let equal: &[(&Results, &str, &[&str], &str)] = &[
        (
            &first,
            "dcsnoop_searched",
            &["acts", "acts-folder"],
            "folders",
        ),
        (&first, "execsnoop_execs", &["/bin/true"], "programs"),
        (&first, "killsnoop_signals", &["acts", "0"], "kills"),
        (&first, "killsnoop_signals", &["acts", "9"], "processors"),
        (&first, "capable_checked", &["acts", "7"], "setuids"),
        (
            &first,
            "biosnoop_issued",
            &["acts", "REQ_OP_READ"],
            "device-reads",
        ),
        (
            &second,
            "opensnoop_files",
            &["acts", "/proc/version"],
            "opens",
        ),
        (&second, "opensnoop_errors", &["acts", "-2"], "absent"),
        (&second, "statsnoop_results", &["acts", "-2"], "stats"),
        (&second, "setuids_changes", &["acts"], "changes"),
        (&third, "syncsnoop_syncs", &["acts"], "syncs"),
        (&second, "oomkill_needed", &["acts"], "ended"),
        (&third, "swapin_pages", &["acts"], "swapped-in"),
        (&third, "threadsnoop_threads", &["acts"], "threads"),
        (&third, "tcpconnect_ports", &["acts", port], "connections"),
        (&third, "tcpconnect_results", &["acts", "0"], "requests"),
        (&third, "tcpaccept_ports", &["acts", port], "connections"),
        (&third, "tcplife_received", &[port], "received"),
        (&third, "tcpsynbl_waiting", &["16"], "connections"),
    ];
    let mut wrong = Vec::new();
    for (results, name, parts, subject) in equal {
        let (found, expected) = (results.of(name, parts), results.account(subject));
        if found != expected {
            wrong.push(format!("@{name}{parts:?} is {found}, {subject} {expected}"));
        }
    }
    let mut check = |good: bool, what: String| {
        if !good {
            wrong.push(what);
        }
    };
    // A slow machine may send the ends of earlier connections again, too.
    let again = third.sum("tcpretrans_again", |key| key[1] == "TCP_SYN_SENT");
    let expected = third.account("sent-again");
    check(
        again == expected,
        format!("{again} of {expected} sent again"),
    );
    // Requests of writes are issued by kernel threads. Nothing else uses the device.
    let all = |results: &Results, name: &str| results.sum(name, |_| true);
    let writes = first.sum("biosnoop_issued", |key| key[1] == "REQ_OP_WRITE");
    let expected = first.account("device-writes");
    check(writes == expected, format!("{writes} of {expected} writes"));
    let requests = first.account("device-reads") + expected;
    let bytes = 512 * first.account("device-sectors");
    let printed = all(&first, "biosnoop_bytes");
    check(printed == bytes, format!("{printed} of {bytes} bytes"));
    for name in ["bitesize_bytes", "biolatency_ns"] {
        let printed = all(&first, name);
        check(
            printed == requests,
            format!("{name}: {printed} of {requests} requests"),
        );
    }
    // The program has this name while it waits for a processor.
    let waiter = |results: &Results| format!("waiter{}", results.account("attempt"));
    let (naps, expected) = (
        first.of("naptime_requested", &[&waiter(&first)]),
        first.account("waits"),
    );
    check(naps == expected, format!("{naps} of {expected} sleeps"));
    let ticks = all(&first, "cpuwalk_ticks");
    check(ticks > 0, String::from("no tick of a busy processor"));
    // Steps of the kernel's own account.
    let printed = second.of("runqlat_total", &[&waiter(&second)]);
    let bounds = second.account("waited")..=second.account("waited-at-most");
    check(
        bounds.contains(&printed),
        format!("{printed} ns of waiting, not {bounds:?}"),
    );
    let waits = all(&second, "runqlat_ns");
    check(waits > 0, String::from("no wait for a processor"));
    let lengths = all(&second, "runqlen_threads");
    check(lengths > 0, String::from("no length of a queue"));
    let (printed, forks) = (all(&second, "pidpersec_new"), second.account("forks"));
    check(
        printed >= forks,
        format!("{printed} of {forks} new threads"),
    );
    let printed = third.printed("syscount_calls", "__x64_sys_umask");
    let expected = Some(third.account("umasks"));
    check(
        printed == expected,
        format!("{printed:?} of {expected:?} calls of umask"),
    );
    let reasons = third.of("writeback_reasons", &["WB_REASON_SYNC"]);
    check(reasons > 0, String::from("no writing back by sync(2)"));
    let printed = third.printed("vfscount_calls", "vfs_mkdir");
    let expected = Some(third.account("folders-made"));
    check(
        printed == expected,
        format!("{printed:?} of {expected:?} folders"),
    );
    for (results, name) in [
        (&first, "fsdist_ns"),
        (&third, "vfscount_calls"),
        (&third, "vfsstat_calls"),
    ] {
        let printed = results.printed(name, "vfs_fsync_range");
        let least = results.account("fsyncs");
        // Compilers inline the function into fdatasync(2), or not.
        let good = printed.is_some_and(|printed| (least..=least + 1).contains(&printed));
        check(
            good,
            format!("@{name}: {printed:?} of {least} calls of fsync"),
        );
    }
    assert!(
        wrong.is_empty(),
        "{}\n{}{}{}",
        wrong.join("\n"),
        first.out,
        second.out,
        third.out
    );
}
