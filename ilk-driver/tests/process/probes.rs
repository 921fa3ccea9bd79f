//! Static probes of a process (`usdt:`): passes are counted where they are, with their arguments, and probes that wait
//! for a tracer are switched on and off.

use std::collections::BTreeMap;
use std::process::Command;

use gilk_engine::code::ProbeOperand;
use gilk_engine::elf::static_probes;

use super::killed::{cleaned, kill, supervisor_of};
use super::launched::{ilk, text_of};
use super::loaded::Following;
use super::{Counted, compiled_from};

const THREADS: u64 = 4;
const TURNS: u64 = 200_000;

fn probed() -> Counted {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("probed.c"), &[]);
    Counted::of(Command::new(program), folder)
}

pub(super) fn interrupt(client: u32) {
    let mut command = Command::new("kill");
    let done = command.args(["-INT", &client.to_string()]).status();
    assert!(done.unwrap().success());
}

/// The numbers of totals by their names: `@name of …   12`, added up.
pub(super) fn totals(shown: &str) -> BTreeMap<String, i64> {
    let mut totals = BTreeMap::new();
    for line in shown.lines() {
        let Some((value, name)) = line.trim().split_once("@") else {
            continue;
        };
        let name = name.split(' ').next().unwrap_or_default();
        if let Ok(value) = value.trim().replace(',', "").parse::<i64>() {
            *totals.entry(name.to_owned()).or_insert(0) += value;
        }
    }
    totals
}

#[test]
fn every_pass_of_a_static_probe_is_counted_with_its_arguments() {
    let mut program = probed();
    let before = program.text();
    assert_eq!(program.does("load"), (THREADS * TURNS * 3 / 2, 0));
    let script = "usdt:counted:pass { @passes = count(); @sum = sum(arg0); @small = sum(arg1); @seven = sum(arg2) } \
                  usdt:counted:pass / arg1 == -3 / { @three = count() } \
                  usdt:counted:guarded { @guarded = count() } \
                  usdt:*:stored { @stored = count(); @kept = sum(arg0); @pointed = sum(*(u32 *)arg1) }";
    let following = Following::start(program.pid(), &["-e", script]);
    assert_ne!(program.text(), before);
    program.does("fork");
    let (passes, guarded) = program.does("load");
    // It was switched on.
    assert_eq!(guarded, THREADS * TURNS);
    interrupt(following.client.id());
    let shown = following.end();
    let odd = (1..=TURNS).filter(|number| number % 2 == 1);
    let all = (1..=TURNS).chain(odd);
    let of = |value: &dyn Fn(u64) -> i64| THREADS as i64 * all.clone().map(value).sum::<i64>();
    let stored = (THREADS * TURNS * (TURNS + 1) / 2) as i64;
    let expected = [
        ("guarded", guarded as i64),
        ("kept", stored),
        ("passes", passes as i64),
        ("pointed", stored),
        ("seven", -7 * passes as i64),
        ("small", of(&|number| -((number & 0xff) as i64))),
        ("stored", (THREADS * TURNS) as i64),
        ("sum", of(&|number| number as i64)),
        ("three", of(&|number| i64::from(number & 0xff == 3))),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(totals(&shown), expected.into(), "{shown}");
    for place in ["pass in up+0x", "pass in down+0x", "stored in stored+0x"] {
        assert!(shown.contains(&format!(" usdt:counted:{place}")), "{shown}");
    }
    // It is switched off again, in the forked child too.
    assert_eq!(program.does("child"), (0, 0));
    assert_eq!(program.does("load"), (passes, 0));
    assert_eq!(program.text(), before);
    program.end();
}

#[test]
fn a_probe_of_another_tracer_stays_on_and_one_of_a_killed_client_is_switched_off() {
    let mut program = probed();
    let (passes, _) = program.does("load");
    assert_eq!(program.does("other"), (1, 0));
    let script = "usdt:counted:guarded { @guarded = count() }";
    let mut following = Following::start(program.pid(), &["-e", script]);
    // The number of users.
    assert_eq!(program.does("other"), (3, 0));
    kill(supervisor_of(following.client.id()));
    kill(following.client.id());
    following.client.wait().unwrap();
    let (done, said) = cleaned(program.pid());
    assert!(done, "{said}");
    assert_eq!(program.does("other"), (3, 0));
    assert_eq!(program.does("load"), (passes, THREADS * TURNS));
    program.end();
}

#[test]
fn what_a_static_probe_lacks_is_refused_by_name() {
    let program = probed();
    let pid = program.pid().to_string();
    for (script, said) in [
        (
            "usdt:counted:named { @sum = sum(arg0) }",
            "1:33: arg0 of the probe is in memory at an address that is not of registers alone (`8@passes(%rip)`).",
        ),
        (
            "usdt:counted:pass { @sum = sum(arg3) }",
            "1:32: The probe has 3 arguments, arg0 to arg2.",
        ),
        (
            "usdt:counted:pas { @n = count() }",
            "it has not mapped an object with the static probe counted:pas",
        ),
        (
            "usdt:counted:pass, usdt:counted:guarted { @n = count() } usdt:counted:guarted { @m = count() }",
            "Write `usdt:counted:guarded`.",
        ),
        ("usdt:counted { @n = count() }", "names no static probe"),
        ("usdt:counted:pass / arg0 < -1 / { @n = count() }", "1:21: "),
    ] {
        let output = ilk(&["-p", &pid, "-e", script], "");
        let errors = text_of(&output.stderr);
        assert!(!output.status.success(), "{script}");
        assert!(errors.contains(said), "{script}: {errors}");
    }
    program.end();
}

#[test]
fn the_probes_of_a_file_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("probed.c"), &["-no-pie"]);
    let file = std::fs::read(&program).unwrap();
    let probes = static_probes(&file).unwrap();
    let names: Vec<&str> = probes.iter().map(|probe| probe.name.as_str()).collect();
    assert_eq!(probes.len(), 5, "{names:?}");
    let passes: Vec<_> = probes.iter().filter(|probe| probe.name == "pass").collect();
    assert_eq!(passes.len(), 2);
    for probe in passes {
        assert_eq!(probe.semaphore, None);
        assert_eq!(probe.arguments[2].operand, ProbeOperand::Constant(-7));
    }
    let guarded = probes.iter().find(|probe| probe.name == "guarded").unwrap();
    assert!(guarded.semaphore.is_some());
    let listed = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["functions", "--probes", "counted:pass", "--image"])
        .arg(&program)
        .output()
        .unwrap();
    let lines = text_of(&listed.stdout);
    assert_eq!(
        lines.lines().count(),
        2,
        "{lines}{}",
        text_of(&listed.stderr)
    );
    assert!(
        lines.contains("usdt:counted:pass (8@%rdi, -4@%esi, -4@$-7) in up"),
        "{lines}"
    );
    // No damage of its notes ends the reader.
    for at in (0..file.len()).step_by(97) {
        let mut damaged = file.clone();
        damaged[at] ^= 0xff;
        let _read_or_refused = static_probes(&damaged);
    }
}
