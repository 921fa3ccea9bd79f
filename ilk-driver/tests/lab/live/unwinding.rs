//! Stacks of threads inside patches, or asleep below them, as the kernel itself unwinds them: for
//! its profiler, for `/proc/PID/stack`, and for its backtraces.

use std::collections::BTreeSet;

use gilk_engine::session::Workload;
use gilk_engine::{Addr, HookType, Image, Plan, Session};

use super::beside::lab_with_modules;
use crate::chosen::Chosen;
use crate::support::{Turn, placement, run_to_its_end, shared};

/// Functions that a read of `/dev/zero`, a write and a sleep pass through.
const FUNCTIONS: [&str; 11] = [
    "__x64_sys_read",
    "ksys_read",
    "vfs_read",
    "rw_verify_area",
    "read_zero",
    "ksys_write",
    "vfs_write",
    "__x64_sys_clock_nanosleep",
    "common_nsleep",
    "hrtimer_nanosleep",
    "do_nanosleep",
];
/// Duration of a session, which ends with its workload.
const SECONDS: f64 = 22.0;
/// Sessions that may pass before a stack is sampled below what a patch has pushed, which few instructions are.
const SESSIONS: usize = 4;
/// Command for backtraces of all CPUs.
const DUMPS: u32 = 15;
/// Outermost functions of stacks of threads that entered from user space.
///
/// `syscall_return_via_sysret` is a label in `entry_SYSCALL_64`, from which it returns.
const ENDS: [&str; 3] = ["entry_SYSCALL_64", "syscall_return_via_sysret", "asm_"];

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn stacks_through_patches_equal_those_without() {
    let shared = shared();
    let turn = shared.turn();
    let image = &shared.image;
    let plain = Session {
        duration: SECONDS,
        placements: vec![placement("__x64_sys_chroot", 0, "counter", (0.0, SECONDS))],
        ..Session::empty()
    };
    let without = Seen::of(&turn, plain);
    assert!(without.chains.iter().all(|chain| chain.at == 0));

    let named = FUNCTIONS.iter();
    let functions: Vec<_> = named
        .filter_map(|name| image.function_named(name).ok())
        .collect();
    let mut chosen = Chosen::of(image, &functions);
    let hooked = Session {
        duration: SECONDS,
        ..Session::empty()
    };
    let layout = turn.connect().info().layout.clone();
    assert!(layout.unwinds, "the arena is the module's own text");
    let (mut hooked, _) = chosen.plan(image, hooked, &layout);
    // Code that uses values on the stack.
    let timed = hooked.placements.iter_mut().filter(|one| {
        one.block == 0 && one.hook == HookType::Pre && one.function.contains("vfs_read")
    });
    for one in timed {
        one.instrument = "timestamp".into();
    }
    let below_pushed = (0..SESSIONS).any(|_| {
        let with = Seen::of(&turn, hooked.clone());
        assert_eq!(with.asleep, without.asleep);
        assert!(
            with.asleep
                .iter()
                .any(|line| line.contains("hrtimer_nanosleep")),
            "{:?}",
            with.asleep
        );
        with.assert_dumps_are_whole(image);
        with.assert_chains_are_those_of(&without, image) > 0
    });
    assert!(below_pushed, "no stack below what a patch has pushed");
}

/// Checks the backtrace of a module that warns when its file is read.
#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_warning_below_hooks_has_the_same_backtrace_as_without() {
    let shared = lab_with_modules();
    let turn = shared.turn();
    let image = &shared.image;
    let script = "insmod /lab/warner.ko 2>/dev/null; dmesg -c > /tmp/before; cat /proc/warner; \
                  dmesg -c | sed 's/^/warned: /'";
    let session = Session {
        name: "a warning".into(),
        duration: 3.0,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            start: 0.5,
        }),
        ..Session::empty()
    };
    let layout = turn.connect().info().layout.clone();
    let above = ["__x64_sys_read", "ksys_read", "vfs_read", "proc_reg_read"];
    let backtrace = |functions: &[&str]| {
        let named = functions.iter().map(|name| image.function_named(name));
        let functions: Vec<_> = named.map(Result::unwrap).collect();
        let mut chosen = Chosen::of(image, &functions);
        let (session, _) = chosen.plan(image, session.clone(), &layout);
        let outcome = turn.run(&session);
        let hits: u64 = (0..session.placements.len())
            .map(|at| outcome.total(at))
            .sum();
        let said = outcome.said.iter();
        let lines = said.filter_map(|line| line.strip_prefix("warned: ")?.split_once("] "));
        let lines: Vec<_> = lines.map(|(_, line)| line.to_owned()).collect();
        let of_stack = lines
            .iter()
            .skip_while(|line| !line.contains("Call Trace:"));
        // Uncertain entries have a question mark.
        let known = of_stack.take_while(|line| !line.contains("</TASK>"));
        let known = known.filter(|line| line.contains("+0x") && !line.contains(" ? "));
        let known: Vec<String> = known.map(|line| line.trim().to_owned()).collect();
        assert!(known.len() > 3, "{lines:#?}");
        (known, hits)
    };
    let (without, _) = backtrace(&["__x64_sys_chroot"]);
    let (with, hits) = backtrace(&above);
    println!("{hits} hits; {with:#?}");
    assert_eq!(with, without);
    for name in ["proc_reg_read", "vfs_read", "ksys_read"] {
        assert!(
            with.iter()
                .any(|line| line.starts_with(&format!("{name}+"))),
            "{name}: {with:#?}"
        );
    }
    assert!(hits > 10, "{hits}");
}

/// A sample of the profiler: the function and its callers.
struct Chain {
    /// The address in the arena, 0 outside.
    at: u64,
    count: u64,
    callers: Vec<u64>,
}

/// The kernel's stacks during a session.
struct Seen {
    plan: Plan,
    asleep: Vec<String>,
    dumps: Vec<String>,
    chains: Vec<Chain>,
}

impl Seen {
    fn of(turn: &Turn<'_>, session: Session) -> Self {
        let mut connection = turn.connect();
        let arena = connection.info().layout.arena;
        let script = format!(
            "sleep 100 & p=$!; chains 5 {:x} {:x} > /tmp/chains & c=$!; sleep 1; \
             sed 's/^/asleep: /' /proc/$p/stack; kill $p; dmesg -c > /tmp/before; \
             i=0; while [ $i -lt {DUMPS} ]; do echo l > /proc/sysrq-trigger; usleep 50000; i=$((i + 1)); done; \
             dmesg -c | sed 's/^/dump: /'; wait $c; cat /tmp/chains; rm /tmp/chains /tmp/before",
            arena.start.0, arena.end.0
        );
        let session = Session {
            name: "stacks".into(),
            workload: Some(Workload {
                program: "/bin/sh".into(),
                arguments: vec!["-c".into(), script],
                start: 0.5,
            }),
            ..session
        };
        let directory = tempfile::tempdir().unwrap();
        let recording = directory.path().join("stacks.arrow");
        let (plan, outcome) =
            run_to_its_end(&mut connection, &turn.shared.image, &session, &recording);
        let (_, said) = outcome.unwrap_or_else(|error| panic!("{error}"));
        let lines_with = |mark: &str| -> Vec<String> {
            let lines = said.iter().filter_map(|line| line.strip_prefix(mark));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(lines_with("chains: "), ["0 lost"], "{said:?}");
        let chains = lines_with("chain ")
            .iter()
            .map(|line| Chain::read(line))
            .collect();
        Self {
            plan,
            asleep: lines_with("asleep: "),
            dumps: lines_with("dump: "),
            chains,
        }
    }

    /// Returns whether an address is that of a bounce. The kernel has no row of its own for it: a thread that is
    /// interrupted there has no callers.
    fn is_bounce(&self, at: u64) -> bool {
        self.plan.bounces.iter().any(|bounce| bounce.at.0 == at)
    }

    /// Checks that the certain part of each backtrace extends to the thread's outermost function.
    fn assert_dumps_are_whole(&self, image: &Image) {
        let bounces = self.plan.bounces.iter();
        let bounces = bounces.filter_map(|bounce| image.symbol_at(bounce.at));
        let bounces: Vec<String> = bounces
            .map(|(name, into)| format!("{name}+{into:#x}/"))
            .collect();
        let (mut whole, mut inside, mut ours) = (0, 0, false);
        // A thread interrupted in its outermost function has no callers.
        let (mut top, mut last) = (None, None);
        for line in &self.dumps {
            let line = line
                .split_once("] ")
                .map_or(line.as_str(), |(_, said)| said);
            if line.contains(" Comm: ") {
                top = None;
                ours = line.contains(" Comm: chains ") || line.contains(" Comm: sh ");
            } else if line.starts_with("RIP: 0010:") && ours {
                inside += u32::from(line.contains("ilk_arena_text"));
                top = line.strip_prefix("RIP: 0010:");
                // The kernel's unwinder has no rows for thunks, nor for bounces.
                let is_bounce = |rip: &str| bounces.iter().any(|at| rip.starts_with(at));
                ours = !line.starts_with("RIP: 0010:__x86_") && !top.is_some_and(is_bounce);
            } else if line.contains("Call Trace:") {
                last = top;
            } else if line.contains("</TASK>") && ours {
                let last: &str = last.unwrap_or("nothing");
                assert!(
                    ENDS.iter().any(|end| last.starts_with(end)),
                    "a backtrace ends at {last}: {:#?}",
                    self.dumps
                );
                whole += 1;
            } else if line.starts_with(' ') && !line.contains(" ? ") && line.contains("+0x") {
                last = Some(line.trim());
            }
        }
        println!("{whole} backtraces printed, {inside} from inside patches, all of them complete");
        assert!(whole >= DUMPS, "{:#?}", self.dumps);
    }

    /// Checks that the callers of threads inside patches also occur without patches. Returns how many of these
    /// threads were below what the patch had pushed.
    fn assert_chains_are_those_of(&self, without: &Self, image: &Image) -> u64 {
        let stacks: BTreeSet<&[u64]> = without
            .chains
            .iter()
            .flat_map(|chain| (0..chain.callers.len()).map(|from| &chain.callers[from..]))
            .collect();
        // A thread right at the kernel's entry has no callers yet, nor does one interrupted in a
        // thunk, which has no rows.
        let is_end = |at: u64| {
            let symbol = image.symbol_at(Addr(at));
            symbol.is_some_and(|(name, _)| {
                let mut ends = ENDS.iter().chain(&["__x86_"]);
                ends.any(|end| name.starts_with(end))
            })
        };
        let (mut inside, mut pushed, mut places) = (0, 0, BTreeSet::new());
        let mut at_bounces = 0;
        for chain in &self.chains {
            if chain.callers.last().is_some_and(|&end| self.is_bounce(end)) {
                at_bounces += chain.count;
                continue;
            }
            let names = || -> Vec<_> {
                let symbol = |&at| image.symbol_at(Addr(at));
                chain.callers.iter().map(symbol).collect()
            };
            assert!(
                chain.callers.last().is_none_or(|&end| is_end(end)),
                "{:#x} x {}: {:x?} {:?}",
                chain.at,
                chain.count,
                chain.callers,
                names()
            );
            if chain.at == 0 {
                continue;
            }
            assert!(
                stacks.contains(chain.callers.as_slice()),
                "{:#x}: {:x?} {:?}",
                chain.at,
                chain.callers,
                names()
            );
            inside += chain.count;
            places.insert(chain.at);
            if self.is_pushed(chain.at) {
                pushed += chain.count;
            }
        }
        let all: u64 = self.chains.iter().map(|chain| chain.count).sum();
        println!(
            "{inside} of {all} stacks were unwound from inside patches, from {} places, {pushed} of them below \
             what the patch had pushed; all of them like the {} without; {at_bounces} of threads at a bounce",
            places.len(),
            without.chains.iter().map(|chain| chain.count).sum::<u64>()
        );
        assert!(inside > 50, "{inside}");
        pushed
    }

    fn is_pushed(&self, at: u64) -> bool {
        let patches = &self.plan.patches;
        let following = patches.partition_point(|patch| patch.address.0 <= at);
        let patch = &patches[following - 1];
        let into = at - patch.address.0;
        let row = patch.rows.iter().rfind(|row| u64::from(row.at) <= into);
        row.is_some_and(|row| row.pushed > 0)
    }
}

impl Chain {
    fn read(line: &str) -> Self {
        let mut words = line.split(' ');
        let mut next = |radix| u64::from_str_radix(words.next().unwrap(), radix).unwrap();
        let (at, count) = (next(16), next(10));
        let callers = words.map(|word| u64::from_str_radix(word, 16).unwrap());
        Self {
            at,
            count,
            callers: callers.collect(),
        }
    }
}
