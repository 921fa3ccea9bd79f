//! Stacks of threads that are in patches, or asleep beneath them, as the kernel itself unwinds them:
//! for its profiler, for `/proc/PID/stack`, and for the backtraces it prints.

use std::collections::BTreeSet;

use gilk_engine::session::Workload;
use gilk_engine::{Addr, HookType, Image, Plan, Session};

use crate::chosen::Chosen;
use crate::guest::Guest;
use crate::support::{Turn, placement, prepared, run, shared, shared_of};

/// What a read of `/dev/zero`, a write and a sleep go through.
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
/// How long a session lasts: a quarter of it is needed where nothing else runs.
const SECONDS: f64 = 22.0;
/// Backtraces of all processors.
const DUMPS: u32 = 15;
/// Where stacks of threads end that came from user space.
const ENDS: [&str; 2] = ["entry_SYSCALL_64", "asm_"];

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn stacks_through_patches_are_those_without() {
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
    // Code that works with things on the stack.
    let timed = hooked.placements.iter_mut().filter(|one| {
        one.block == 0 && one.hook == HookType::Pre && one.function.contains("vfs_read")
    });
    for one in timed {
        one.instrument = "timestamp".into();
    }
    let with = Seen::of(&turn, hooked);

    assert_eq!(with.asleep, without.asleep);
    assert!(
        with.asleep
            .iter()
            .any(|line| line.contains("hrtimer_nanosleep")),
        "{:?}",
        with.asleep
    );
    with.assert_dumps_are_whole();
    with.assert_chains_are_those_of(&without, image);
}

/// A module that warns when its file is read; the kernel prints who had called.
#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_warning_beneath_hooks_has_the_backtrace_that_it_has_without() {
    let guest = Guest::new(&prepared());
    let warner = ("lab/warner.ko".to_owned(), guest.module("warner"));
    let shared = shared_of(&prepared().with(|options| options.files.push(warner)));
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
        // What the kernel itself does not vouch for has a question mark.
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

/// Where the profiler found a thread, and who had called.
struct Chain {
    /// 0 outside the arena.
    at: u64,
    count: u64,
    callers: Vec<u64>,
}

/// What the kernel said of stacks during a session.
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
        let (plan, outcome) = run(&mut connection, &turn.shared.image, &session, &recording);
        let (_, said) = outcome.unwrap_or_else(|error| panic!("{error}"));
        let told = |mark: &str| -> Vec<String> {
            let lines = said.iter().filter_map(|line| line.strip_prefix(mark));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(told("chains: "), ["0 lost"], "{said:?}");
        let chains = told("chain ")
            .iter()
            .map(|line| Chain::read(line))
            .collect();
        Self {
            plan,
            asleep: told("asleep: "),
            dumps: told("dump: "),
            chains,
        }
    }

    /// The part of each backtrace that the kernel vouches for goes down to where the thread came from.
    fn assert_dumps_are_whole(&self) {
        let (mut whole, mut inside, mut ours) = (0, 0, false);
        // Who was interrupted at the very end has no callers.
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
                // The kernel's own unwinding begins nowhere in a thunk, which has no rows.
                ours = !line.starts_with("RIP: 0010:__x86_");
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
        println!("{whole} backtraces printed, {inside} from inside patches, all of them whole");
        assert!(whole >= DUMPS, "{:#?}", self.dumps);
    }

    /// Whoever was found in a patch had callers that are found without patches too.
    fn assert_chains_are_those_of(&self, without: &Self, image: &Image) {
        let known: BTreeSet<&[u64]> = without
            .chains
            .iter()
            .flat_map(|chain| (0..chain.callers.len()).map(|from| &chain.callers[from..]))
            .collect();
        // Who has not stacked anything yet, right behind the way into the kernel, has no callers. Nor has
        // who was interrupted in a thunk, for the kernel has no rows of those.
        let is_end = |at: u64| {
            let symbol = image.symbol_at(Addr(at));
            symbol.is_some_and(|(name, _)| {
                let ends = ENDS.iter().chain(&["__x86_"]);
                { ends }.any(|end| name.starts_with(end))
            })
        };
        let (mut inside, mut pushed, mut places) = (0, 0, BTreeSet::new());
        for chain in &self.chains {
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
                known.contains(chain.callers.as_slice()),
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
             what the patch had pushed; all of them like the {} without",
            places.len(),
            without.chains.iter().map(|chain| chain.count).sum::<u64>()
        );
        assert!(inside > 50 && pushed > 0, "{inside}, {pushed}");
    }

    fn is_pushed(&self, at: u64) -> bool {
        let patches = &self.plan.patches;
        let behind = patches.partition_point(|patch| patch.address.0 <= at);
        let patch = &patches[behind - 1];
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
