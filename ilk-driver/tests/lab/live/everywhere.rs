//! Counters before and after every block that takes one, of ever more functions at once, under load:
//! flow is conserved in each of them, and the kernel has nothing to say.
//!
//! There is no debug information to tell which file a function is from. But the kernel is linked
//! directory by directory, so the functions of one are those between two addresses: from a function of
//! its first file to one of the first file behind it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gilk_engine::cfg::Cfg;
use gilk_engine::image::Function;
use gilk_engine::placement::{Tactic, Wanted, place};
use gilk_engine::session::{Placement, Workload};
use gilk_engine::{HookType, Image, Session};
use gilk_samples::record::ALL_CPUS;
use ilk_driver::client::{Event, StopFlag, Summary};
use ilk_driver::lab::{Options, prepare};

use crate::circulation::{Counts, unexplained};
use crate::support::{Turn, shared, shared_of};

/// Directories of the kernel: the name, a function of its first file, and one of the first file behind it.
const DIRECTORIES: [(&str, &str, &str); 3] = [
    ("kernel/sched", "__sched_fork", "autogroup_free"),
    ("mm", "generic_file_read_iter", "do_truncate"),
    ("fs", "do_truncate", "get_compat_ipc64_perm"),
];
/// Threads that may be within a function, or interrupted on their way through it, when counters are read
/// at the begin and at the end: each is counted on its way in, or out, alone.
const UNDER_WAY: u64 = 16;

/// How long before the end of a calm.
const WELL_BEFORE: Duration = Duration::from_secs(1);

/// What the load calls: files and directories, pipes, processes, memory, procfs, and mounts.
const LOAD: &str = "
set -e
mkdir -p /tmp/load; cd /tmp/load
i=0; while [ $i -lt ROUNDS ]; do
  dd if=/dev/zero of=zeroes bs=4096 count=64 2>/dev/null
  cp zeroes copy; cmp zeroes copy; ln -s copy link; cat link | md5sum > sum; rm zeroes copy link
  mkdir -p a/b/c; touch a/b/c/d; mv a/b/c/d a/e; chmod 600 a/e; find a | sort | wc -l > count; rm -r a
  cat /proc/self/maps /proc/meminfo /proc/self/status /proc/mounts > proc; grep -c e proc > /dev/null
  ls -la /sys/kernel /proc/self > listed; sed s/a/b/ listed > /dev/null; truncate -s 1234 listed
  mkdir -p m; mount -t tmpfs t m; echo x > m/x; umount m; sleep 0.01 & true; wait
  i=$((i + 1))
done
cd /; rm -r /tmp/load
";

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn of_ever_more_functions_at_once() {
    let shared = shared();
    let turn = shared.turn();
    let all: Vec<&Function> = DIRECTORIES
        .iter()
        .flat_map(|directory| functions(&shared.image, directory))
        .collect();
    for many in [1, 10, 100, 400] {
        // Far apart, in all of the directories, and the same ones every time.
        let step = all.len() / many;
        let chosen: Vec<_> = all
            .iter()
            .skip(step / 2)
            .step_by(step)
            .take(many)
            .copied()
            .collect();
        let checked = run(&turn, &format!("{many} functions"), &chosen, 2);
        assert!(
            many < 100 || checked.run > 0,
            "the load ran none of {many} functions"
        );
    }
}

/// Takes minutes. `GILK_DIRECTORY` names one of [`DIRECTORIES`], or several with commas.
#[test]
#[ignore = "takes minutes; set GILK_DIRECTORY=fs to run it"]
fn of_every_function_of_a_directory() {
    let Some(named) = std::env::var_os("GILK_DIRECTORY") else {
        return;
    };
    let named = named.to_string_lossy().into_owned();
    let options = Options {
        memory_mib: 3072,
        append: vec!["ilk.arena_mib=192".into(), "ilk.counters_log2=19".into()],
        ..Options::default()
    };
    let shared =
        shared_of(&prepare(&options, &mut |_| ()).unwrap_or_else(|error| panic!("{error}")));
    let turn = shared.turn();
    let chosen: Vec<&Function> = DIRECTORIES
        .iter()
        .filter(|(name, ..)| named.split(',').any(|wanted| wanted == *name))
        .flat_map(|directory| functions(&shared.image, directory))
        .collect();
    assert!(
        !chosen.is_empty(),
        "GILK_DIRECTORY={named} names none of {DIRECTORIES:?}"
    );
    let checked = run(&turn, &named, &chosen, 20);
    assert!(
        checked.run > 500,
        "the load ran only {} functions",
        checked.run
    );
}

/// The functions of a directory, in order of address.
fn functions<'a>(
    image: &'a Image,
    (name, first, behind): &(&str, &str, &str),
) -> impl Iterator<Item = &'a Function> {
    let at = |symbol: &str| {
        let function = image.function_named(symbol);
        function
            .unwrap_or_else(|error| panic!("{error}"))
            .span
            .start
    };
    let (first, behind) = (at(first), at(behind));
    assert!(first < behind, "{name} is not where it was");
    image
        .functions()
        .iter()
        .filter(move |function| (first..behind).contains(&function.span.start))
}

/// What came of one run.
struct Checked {
    /// Functions that were entered.
    run: usize,
}

/// Counters everywhere in these functions, a load, and whether flow was conserved.
fn run(turn: &Turn<'_>, what: &str, functions: &[&Function], rounds: u32) -> Checked {
    let image = &turn.shared.image;
    let begun = Instant::now();
    let graphs: Vec<Cfg> = functions
        .iter()
        .map(|function| Cfg::of(image, function.id))
        .filter(|cfg| cfg.refusal.is_none() && !cfg.blocks.is_empty())
        .collect();
    let (hooks, asked) = hooks(image, &graphs);
    let placements = hooks.iter().map(|wanted| Placement {
        function: name(&graphs[wanted.graph]),
        block: wanted.block.0,
        hook: wanted.hook,
        instrument: "counter".into(),
        launch: 0.0,
        splash: 3600.0,
        timer: 0,
    });
    // The agent reads the more rarely the more there is to read.
    let pause = 3.0 + 0.4 * (1.0 + hooks.len() as f64 / 4096.0);
    let script = format!(
        "sleep {pause}; echo calm; {} echo still; sleep {pause}; echo calm; sleep 3600",
        LOAD.replace("ROUNDS", &rounds.to_string())
    );
    let session = Session {
        name: what.into(),
        duration: 3600.0,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script],
            start: 0.0,
        }),
        placements: placements.collect(),
        ..Session::empty()
    };
    let planned = begun.elapsed();
    let (plan, snapshots, summary) = counted(turn, &session);
    turn.assert_untouched();

    let mut by_function: BTreeMap<usize, Counts> = BTreeMap::new();
    for (placement, wanted) in hooks.iter().enumerate() {
        let id = plan.instruments[placement].id.pack();
        let at = |snapshot: &BTreeMap<u64, u64>| snapshot.get(&id).copied().unwrap_or(0);
        let count = at(&snapshots[1]) - at(&snapshots[0]);
        let counts = by_function.entry(wanted.graph).or_default();
        counts.insert((wanted.block.0, wanted.hook), count);
    }
    let mut checked = Checked { run: 0 };
    let (mut hits, mut blocks, mut exact, mut wrong) = (0, 0, 0, Vec::new());
    for (graph, counts) in &by_function {
        let total: u64 = counts.values().sum();
        if total == 0 {
            continue;
        }
        hits += total;
        checked.run += 1;
        blocks += counts.values().filter(|count| **count > 0).count();
        let left = unexplained(&graphs[*graph], counts);
        exact += usize::from(left.is_empty());
        if std::env::var_os("DUMP").is_some() && !left.is_empty() {
            println!(
                "{}",
                gilk_engine::cfg::text::listing(image, &graphs[*graph])
            );
            println!("{counts:?} LEFT {left:?}");
            for i in plan
                .instruments
                .iter()
                .filter(|i| plan.functions[i.id.major as usize].name == graphs[*graph].name)
            {
                println!(
                    "{:?} {:?} {:x?} needs {:?}",
                    i.id, i.tactic, i.points, i.needs
                );
            }
        }
        if left.iter().map(|(.., left)| left).sum::<u64>() > UNDER_WAY {
            wrong.push((graphs[*graph].name.as_str(), left));
        }
    }
    let mut tactics: BTreeMap<Tactic, usize> = BTreeMap::new();
    for instrument in &plan.instruments {
        *tactics.entry(instrument.tactic).or_default() += 1;
    }
    println!(
        "{what}: {} functions, {} of {asked} hooks, {} splices, {} bounces, {} bytes of patches, {tactics:?}; \
         chosen in {planned:.1?}, in place after {:.1} s, out after {:.1} s; \
         {} functions ran, {blocks} hooks hit {hits} times; flow exact in {exact} of them; all in {:.1?}",
        graphs.len(),
        hooks.len(),
        plan.sites.len(),
        plan.bounces.len(),
        plan.patches
            .iter()
            .map(|patch| patch.code.len())
            .sum::<usize>(),
        summary.switches[0].done - summary.switches[0].begun,
        summary.switches[1].done - summary.switches[1].begun,
        checked.run,
        begun.elapsed(),
    );
    assert!(
        wrong.is_empty(),
        "no paths explain (block, hook, count, unexplained) of {} functions: {wrong:#?}",
        wrong.len()
    );
    checked
}

/// Every hook that can be had together with the others, and how many there are in all.
fn hooks(image: &Image, graphs: &[Cfg]) -> (Vec<Wanted>, usize) {
    let references: Vec<&Cfg> = graphs.iter().collect();
    let mut wanted = Vec::new();
    for (graph, cfg) in graphs.iter().enumerate() {
        for block in &cfg.blocks {
            wanted.extend([HookType::Pre, HookType::Post].map(|hook| Wanted {
                graph,
                block: block.index,
                hook,
            }));
        }
    }
    let asked = wanted.len();
    // What is left may fall to other tactics, and then refuse others.
    loop {
        let placed = place(image, &references, &wanted);
        let mut reached = placed.hooks.iter().map(Result::is_ok);
        let before = wanted.len();
        wanted.retain(|_| reached.next().unwrap_or(false));
        if wanted.len() == before {
            break;
        }
    }
    assert!(
        wanted.len() * 100 > asked * 95,
        "only {} of {asked} hooks",
        wanted.len()
    );
    (wanted, asked)
}

fn name(cfg: &Cfg) -> String {
    format!("{}@{}", cfg.name, cfg.span.start)
}

/// Runs a session and gives what counters said in the calm before the load and in that after it.
fn counted(
    turn: &Turn<'_>,
    session: &Session,
) -> (gilk_engine::Plan, Vec<BTreeMap<u64, u64>>, Summary) {
    let image = &turn.shared.image;
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("everywhere.arrow");
    let mut connection = turn.connect();
    let library = gilk_instruments::Library::builtin().unwrap();
    let layout = connection.info().layout.clone();
    let plan = gilk_engine::plan::plan(image, session, &library, &layout)
        .unwrap_or_else(|error| panic!("{error}"));
    if std::env::var_os("DUMP").is_some() {
        for p in &plan.batches[0].pokes {
            let b = image.bytes_from(p.at, 12).unwrap();
            eprintln!("{p:x?} text {b:02x?} {:?}", image.symbol_at(p.at));
        }
        for s in &plan.sites {
            eprintln!("{s:x?}");
        }
    }
    let verified = gilk_engine::verify::verify(image, plan.clone())
        .unwrap_or_else(|violations| panic!("{:#?}", &violations[..violations.len().min(20)]));
    let (events, heard) = crossbeam_channel::unbounded();
    let stop = StopFlag::new();
    let flag = stop.clone();
    let listener = std::thread::spawn(move || {
        let mut told: Vec<(Instant, u64, u64)> = Vec::new();
        let mut snapshots = Vec::new();
        for event in heard {
            match event {
                Event::Samples(batch) if batch.cpu == ALL_CPUS => {
                    let now = Instant::now();
                    told.extend(batch.samples.iter().map(|s| (now, s.id, s.value)));
                }
                Event::Workload(line) if line == "calm" => {
                    // Well before the line was written, when nothing but a `sleep` was there.
                    let calm = told.iter().filter(|(at, ..)| at.elapsed() > WELL_BEFORE);
                    snapshots.push(calm.map(|&(_, id, hits)| (id, hits)).collect());
                    if snapshots.len() == 2 {
                        flag.stop();
                    }
                }
                Event::Workload(line) => {
                    println!("{line}");
                    if line.starts_with("ended") {
                        flag.stop();
                    }
                }
                _ => {}
            }
        }
        snapshots
    });
    let outcome = connection.run(&verified, session, &recording, &events, &stop);
    drop(events);
    let snapshots: Vec<_> = listener.join().unwrap();
    let summary = outcome.unwrap_or_else(|error| {
        panic!(
            "{error}\nThe console ends with:\n{}",
            turn.shared.lab.console().unwrap()
        )
    });
    assert_eq!(snapshots.len(), 2, "the load did not come to its end");
    assert!(
        summary.stopped && summary.switches.len() == 2,
        "{summary:?}"
    );
    (plan, snapshots, summary)
}
