//! Tactics where the kernel's work is known: system calls that nobody but a script makes, so many
//! times each and in the same way each time. So every hook of the functions that serve them is hit
//! by each call, as often as by any other, or by none; but where a function asks whether to give way to
//! another thread: there flow is all that is known.

use std::collections::BTreeMap;

use gilk_engine::cfg::Cfg;
use gilk_engine::code::Decision;
use gilk_engine::placement::Tactic;
use gilk_engine::session::Workload;
use gilk_engine::{Addr, HookType, Session};
use iced_x86::{Mnemonic, Register};

use crate::chosen::Chosen;
use crate::circulation::{Counts, unexplained};
use crate::support::{Turn, run, shared};

/// How often each call is made.
const CALLS: u64 = 40;

/// Functions, and one line of shell that has each of them called once.
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
fn count_what_system_calls_do() {
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
    let counted = Counted::of(&turn, &functions, &script, 20.0);
    assert!(
        counted.said.iter().any(|line| line == "all of them"),
        "{:?}",
        counted.said
    );
    let mut hit: BTreeMap<Tactic, usize> = BTreeMap::new();
    for ((name, counts), cfg) in counted.counts.iter().zip(&counted.chosen.graphs) {
        // The two directories that the script makes for itself.
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
fn count_forks_where_the_tracer_calls() {
    let shared = shared();
    let turn = shared.turn();
    // What copies an address space, which only forks of Pulsar do: other threads share or replace theirs.
    let counted = Counted::of(&turn, &["uprobe_start_dup_mmap"], "/bin/pulsar 100 5", 5.0);
    let (name, counts) = &counted.counts[0];
    assert_eq!(counts[&(0, HookType::Pre)], (160, Tactic::Tracer), "{name}");
    assert_eq!(counts[&(0, HookType::Post)].0, 160, "{name}");
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn count_events_while_their_key_is_turned() {
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
    let counted = Counted::of(&turn, &["kernel_clone"], &script, 10.0);
    assert!(
        counted.said.iter().any(|line| line == "all of them"),
        "{:?}",
        counted.said
    );
    // What the kernel itself counted while the key was on.
    let entries = counted
        .said
        .iter()
        .filter_map(|line| line.strip_prefix("entries: "));
    let known: u64 = entries
        .map(|count| count.trim().parse::<u64>().unwrap())
        .sum();
    assert!(known >= 20, "{:?}", counted.said);
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
    let (key, on) = on.expect("kernel_clone has the key");
    let counts = &counted.counts[0].1;
    assert_eq!(counts[&(on.0, HookType::Pre)].0, known, "{counts:?}");
    assert!(
        counts[&(key.0, HookType::Post)].0 >= known + 40,
        "{counts:?}"
    );
    turn.assert_untouched();
}

/// Hits and tactic by block and hook.
type Hits = BTreeMap<(u32, HookType), (u64, Tactic)>;

/// Functions with every hook counted while a script ran.
/// Whether it branches on what leaves the count of reasons not to preempt: `dec gs:[...]; jne`.
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
    /// By graph: the function's name and its counts.
    counts: Vec<(String, Hits)>,
    said: Vec<String>,
}

impl Counted {
    /// Counts everywhere in some functions, that nobody is in when it begins and ends: flow is conserved to
    /// the last hit.
    fn of(turn: &Turn<'_>, functions: &[&str], script: &str, duration: f64) -> Self {
        let image = &turn.shared.image;
        let named = functions
            .iter()
            .filter_map(|name| image.function_named(name).ok());
        let mut chosen = Chosen::of(image, &named.collect::<Vec<_>>());
        let session = Session {
            name: "known".into(),
            duration,
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
        let (plan, outcome) = run(&mut connection, image, &session, &recording);
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
            let total = totals[&planned.id.pack()].expect("a counter tells its hits");
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
