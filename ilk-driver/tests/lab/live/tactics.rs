//! Tactics with a known workload: system calls that only a script makes, a fixed number of times
//! each and always in the same way. So every hook of their functions is hit the same number of
//! times in each call, or never; except after a check whether to yield to another thread, where
//! only conservation of flow holds.

use std::collections::BTreeMap;

use gilk_engine::cfg::Cfg;
use gilk_engine::code::Decision;
use gilk_engine::placement::Tactic;
use gilk_engine::session::Workload;
use gilk_engine::{Addr, HookType, Session};
use iced_x86::{Mnemonic, Register};

use crate::chosen::Chosen;
use crate::circulation::{Counts, unexplained};
use crate::support::{Turn, run_to_its_end, shared};

/// Number of times that each call is made.
const CALLS: u64 = 40;

/// Functions, each with a line of shell that calls them once.
const KNOWN: [(&[&str], &str); 12] = [
    (
        &["do_mkdirat", "vfs_mkdir", "security_inode_mkdir"],
        "mkdir d",
    ),
    (&["do_rmdir", "vfs_rmdir"], "rmdir d"),
    (&["do_symlinkat", "vfs_symlink"], "ln -s to s"),
    (&["do_linkat", "vfs_link"], "ln f h"),
    (&["do_mknodat"], "mkfifo p"),
    (&["ksys_setsid"], "(setsid true)"),
    (&["__x64_sys_chroot"], "chroot / true"),
    (&["ksys_unshare"], "unshare -u true"),
    (&["vfs_fallocate"], "fallocate -l 4096 f"),
    (&["do_sys_ftruncate"], "truncate -s 5 f"),
    (&["path_mount", "do_new_mount"], "mount -t ramfs r m"),
    (&["path_umount"], "umount m"),
];
#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn all_tactics_count_each_system_call() {
    let shared = shared();
    let turn = shared.turn();
    let functions: Vec<&str> = KNOWN
        .iter()
        .flat_map(|(names, _)| *names)
        .copied()
        .collect();
    let lines: Vec<&str> = KNOWN.iter().map(|(_, line)| *line).collect();
    let script = format!(
        "set -e; mkdir /tmp/known; cd /tmp/known; mkdir m; touch f; sleep 1; \
         i=0; while [ $i -lt {CALLS} ]; do {}; rm s h p; i=$((i + 1)); done; \
         cd /; rm -r /tmp/known; echo all of them",
        lines.join("; ")
    );
    let counted = Counted::of(&turn, &functions, &script);
    assert!(
        counted.said.iter().any(|line| line == "all of them"),
        "{:?}",
        counted.said
    );
    let mut hit: BTreeMap<Tactic, usize> = BTreeMap::new();
    for ((name, counts), cfg) in counted.counts.iter().zip(&counted.chosen.graphs) {
        // The two directories that the script creates for itself.
        let own = if name.contains("mkdir") || name.contains("rmdir") {
            2
        } else {
            0
        };
        let entries = counts[&(0, HookType::Pre)].0;
        assert_eq!(entries, CALLS + own, "calls of {name}");
        for ((block, hook), &(count, tactic)) in counts {
            assert!(
                count % entries == 0 || may_give_way(cfg),
                "{hook:?} of block {block} of {name} by {}: {count} times in {entries} calls",
                tactic.name()
            );
            if count > 0 {
                *hit.entry(tactic).or_default() += 1;
            }
        }
    }
    println!("hooks hit in each call, by tactic: {hit:?}");
    let hooks: usize = hit.values().sum();
    assert!(hooks > 300 && hit.len() > 1, "{hooks} hooks were hit");
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn tracer_splices_count_forks() {
    let shared = shared();
    let turn = shared.turn();
    // The function that copies an address space, which only Pulsar's forks execute, and the shell's that starts it:
    // other threads share or replace theirs.
    let script = "/bin/pulsar 100 5; \
                  echo 0 > /proc/sys/kernel/ftrace_enabled || echo the tracer stays on";
    let counted = Counted::of(&turn, &["uprobe_start_dup_mmap"], script);
    let refused = |line: &String| line == "the tracer stays on";
    assert!(counted.said.iter().any(refused), "{:?}", counted.said);
    let (name, counts) = &counted.counts[0];
    assert_eq!(counts[&(0, HookType::Pre)], (161, Tactic::Tracer), "{name}");
    assert_eq!(counts[&(0, HookType::Post)].0, 161, "{name}");
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn hooks_count_while_a_static_key_is_switched() {
    let shared = shared();
    let turn = shared.turn();
    let events = "/sys/kernel/debug/tracing";
    let forks = |many: u32| format!("i=0; while [ $i -lt {many} ]; do (true); i=$((i + 1)); done");
    let turned = |on| format!("echo {on} > {events}/events/sched/sched_process_fork/enable");
    let script = format!(
        "sleep 1; {}; {}; {}; {}; {}; grep -h entries: {events}/per_cpu/cpu*/stats; echo 0 > {events}/trace; echo all of them",
        forks(30),
        turned(1),
        forks(20),
        turned(0),
        forks(10),
    );
    let counted = Counted::of(&turn, &["kernel_clone"], &script);
    assert!(
        counted.said.iter().any(|line| line == "all of them"),
        "{:?}",
        counted.said
    );
    // The kernel's own count while the key was on.
    let entries = counted
        .said
        .iter()
        .filter_map(|line| line.strip_prefix("entries: "));
    let expected: u64 = entries
        .map(|count| count.trim().parse::<u64>().unwrap())
        .sum();
    assert!(expected >= 20, "{:?}", counted.said);
    let image = &turn.shared.image;
    let cfg = &counted.chosen.graphs[0];
    let on = cfg.blocks.iter().find_map(|block| {
        let last = Addr(block.instructions.last()?.ip());
        match image.decided(last)?.by {
            Decision::StaticKey { key, target, .. } => {
                let (name, _) = image.symbol_at(key)?;
                name.ends_with("sched_process_fork")
                    .then_some((block.index, cfg.block_at(target)?.index))
            }
            _ => None,
        }
    });
    let (key, on) = on.expect("kernel_clone has the static key");
    let counts = &counted.counts[0].1;
    assert_eq!(counts[&(on.0, HookType::Pre)].0, expected, "{counts:?}");
    assert!(
        counts[&(key.0, HookType::Post)].0 >= expected + 40,
        "{counts:?}"
    );
    turn.assert_untouched();
}

/// Hits and tactic, by block and hook.
type Hits = BTreeMap<(u32, HookType), (u64, Tactic)>;

/// Functions with every hook counted during a script.
/// Returns whether the function branches on the result of a preemption count's decrement: `dec
/// gs:[...]; jne`.
fn may_give_way(cfg: &Cfg) -> bool {
    cfg.blocks
        .iter()
        .any(|block| match block.instructions.to_vec().as_slice() {
            [.., count, branch] => {
                count.mnemonic() == Mnemonic::Dec
                    && count.segment_prefix() == Register::GS
                    && branch.is_jcc_short_or_near()
            }
            _ => false,
        })
}

struct Counted {
    chosen: Chosen,
    /// Counts by function name.
    counts: Vec<(String, Hits)>,
    said: Vec<String>,
}

impl Counted {
    /// Counts all hooks of functions that no thread executes at the begin and the end: flow is
    /// conserved exactly.
    fn of(turn: &Turn<'_>, functions: &[&str], script: &str) -> Self {
        let image = &turn.shared.image;
        let named = functions
            .iter()
            .filter_map(|name| image.function_named(name).ok());
        let mut chosen = Chosen::of(image, &named.collect::<Vec<_>>());
        let session = Session {
            name: "known".into(),
            duration: 60.0,
            workload: Some(Workload {
                program: "/bin/sh".into(),
                arguments: vec!["-c".into(), script.into()],
                start: 0.0,
            }),
            ..Session::empty()
        };
        let mut connection = turn.connect();
        let (session, _) = chosen.plan(image, session, &connection.info().layout.clone());
        let directory = tempfile::tempdir().unwrap();
        let recording = directory.path().join("known.arrow");
        let (plan, outcome) = run_to_its_end(&mut connection, image, &session, &recording);
        let (summary, said) = outcome.unwrap_or_else(|error| panic!("{error}"));
        let totals: BTreeMap<u64, Option<u64>> = summary
            .instruments
            .iter()
            .map(|one| (one.id, one.total))
            .collect();
        let mut counts: Vec<(String, Hits)> = chosen
            .graphs
            .iter()
            .map(|cfg| (cfg.name.clone(), Hits::new()))
            .collect();
        for (wanted, planned) in chosen.wanted.iter().zip(&plan.instruments) {
            let total = totals[&planned.id.pack()].expect("a counter has a total");
            let hits = &mut counts[wanted.graph].1;
            hits.insert((wanted.block.0, wanted.hook), (total, planned.tactic));
        }
        for (cfg, (name, hits)) in chosen.graphs.iter().zip(&counts) {
            let counts: Counts = hits.iter().map(|(at, (count, _))| (*at, *count)).collect();
            let left = unexplained(cfg, &counts);
            assert!(
                left.is_empty(),
                "no paths through {name} explain {left:?} of {hits:?}"
            );
        }
        Self {
            chosen,
            counts,
            said,
        }
    }
}
