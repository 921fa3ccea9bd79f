use super::*;
use crate::{Context, Stand, trial};

#[test]
fn the_builtin_files_are_good_and_named_as_their_instrument() {
    let library = Library::builtin().unwrap();
    for (file, text) in FILES {
        let name = file.strip_suffix(".gilk").unwrap();
        let definition = library
            .iter()
            .find(|definition| definition.name == name)
            .unwrap_or_else(|| panic!("{file} names itself otherwise"));
        assert!(
            definition.summary.ends_with('.'),
            "{file}: the summary is not a sentence"
        );
        assert!(text.starts_with("// "), "{file} says no more of itself");
        let source = definition.source().unwrap();
        assert_eq!(source.formatted(), *text, "{file}");
        // None needs a kernel's types, so each is good on any kernel.
        let program = source
            .check(&Context::default())
            .unwrap_or_else(|faults| panic!("{file}\n{faults}"));
        assert_eq!(program.meaning, definition.meaning);
        for probe in &program.probes {
            assert!(
                program.cost(probe).instructions <= 200,
                "{file}: {}",
                program.cost(probe)
            );
        }
    }
}

#[test]
fn only_a_bare_count_of_hits_is_a_counter() {
    let library = Library::builtin().unwrap();
    let counters = library.iter().filter(|known| known.counts());
    let counters: Vec<&str> = counters.map(|known| known.name.as_str()).collect();
    assert_eq!(counters, ["counter"]);
    for text in [
        "instrument x \"X.\"; pre { @hits = count() }",
        "instrument x \"X.\" once; hit { @hits = count() }",
        "instrument x \"X.\"; hit / cpu / { @hits = count() }",
        "instrument x \"X.\"; hit { @hits = sum(1) }",
        "instrument x \"X.\"; hit { @a = count(); @b = count() }",
        "instrument x \"X.\"; cpu @a; hit { @hits = count() } pre { @a = 1 }",
    ] {
        let definition = Definition::from_source("x.gilk", text).unwrap();
        assert!(!definition.counts(), "{text}");
    }
}

#[test]
fn sources_that_name_arguments_are_checked_for_each_function() {
    let library = Library::builtin().unwrap();
    let depends = |name: &str| {
        library
            .get(name)
            .unwrap()
            .source()
            .unwrap()
            .depends_on_function()
    };
    for name in [
        "counter",
        "timestamp",
        "block-trace",
        "elapsed",
        "cache-misses",
        "register",
        "by-process",
    ] {
        assert!(!depends(name), "{name}");
    }
    for name in [
        "argument-0",
        "memory",
        "return-value",
        "errors",
        "histogram",
        "usage",
    ] {
        assert!(depends(name), "{name}");
    }
}

#[test]
fn each_says_where_it_stands_and_more() {
    let library = Library::builtin().unwrap();
    for (name, stand) in [
        ("counter", Stand::Hook),
        ("elapsed-stop", Stand::Hook),
        ("usage", Stand::Hook),
        ("branch", Stand::Branch),
        ("elapsed", Stand::Function),
        ("processor-time", Stand::Function),
    ] {
        assert_eq!(library.get(name).unwrap().stand(), stand, "{name}");
    }
    let elapsed = library.get("elapsed").unwrap();
    let more = elapsed.explanation();
    assert!(
        more.starts_with("Each call has a start of its own") && more.ends_with("is not timed."),
        "{more}"
    );
    assert_eq!(library.get("counter").unwrap().text(), Some(FILES[0].1));
}

#[test]
fn every_file_of_the_folder_is_built_in_and_documented() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/library");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), FILES.len());
    let reference = include_str!("../../README.md");
    let library = Library::builtin().unwrap();
    for definition in library.iter() {
        let row = format!("| `{}` | {} |", definition.name, definition.summary);
        assert!(reference.contains(&row), "the reference has no row\n{row}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let library = Library::builtin().unwrap();
    let unknown = library.get("conter").unwrap_err().to_string();
    assert!(
        unknown.contains("\"conter\"") && unknown.contains("counter"),
        "{unknown}"
    );

    let bad = Definition::from_source("mine.gilk", "entri { }")
        .unwrap_err()
        .to_string();
    assert!(
        bad.contains("mine.gilk") && bad.contains("Did you mean `entry`?"),
        "{bad}"
    );
    let nameless = Definition::from_source("mine.gilk", "entry { sample(1) }").unwrap_err();
    assert_eq!(
        nameless,
        Error::Unnamed {
            file: "mine.gilk".into(),
        }
    );

    for name in ["counter", "elapsed"] {
        let twice = Library::builtin().unwrap().add_file(
            "mine.gilk",
            &format!("instrument {name} \"X.\"; hit {{ sample(1) }}"),
        );
        assert_eq!(twice, Err(Error::Twice { name: name.into() }));
    }
}

/// Runs hits on an instrument of the library.
fn tried(name: &str, hits: &str) {
    let (_, text) = FILES
        .iter()
        .find(|(file, _)| file.strip_suffix(".gilk") == Some(name))
        .unwrap();
    let program = trial::check(text, "nowhere").unwrap();
    trial::run(&program, hits);
}

#[test]
fn times_are_right_under_recursion_and_preemption() {
    tried(
        "elapsed",
        "entry call=1 tid=1 tsc=10 -> @start = 10
         entry call=2 tid=1 tsc=20 -> @start = 20
         entry call=3 tid=2 tsc=25 -> @start = 25
         return call=2 tid=1 tsc=30 -> sample 10
         return call=1 tid=1 tsc=50 -> sample 40
         return call=3 tid=2 tsc=60 -> sample 35
         return call=4 tid=3 tsc=70 -> nothing",
    );
    tried(
        "elapsed-total",
        "return tid=9 tsc=5 -> nothing
         entry tid=1 tsc=10 -> @depth = 1
         entry tid=1 tsc=20 -> @depth = 2, @start = 10
         return tid=1 tsc=30 -> @depth = 1
         return tid=1 tsc=50 -> @total = 40, @calls = 1, @depth = 0
         entry tid=2 tsc=60 cpu=1 -> @start = 60
         return tid=2 tsc=65 cpu=0 -> @total = 45, @calls = 2",
    );
    tried(
        "processor-time",
        "entry:__schedule tid=1 tsc=5 -> nothing
         return:__schedule tid=1 tsc=6 -> nothing
         entry tid=1 tsc=10 -> @start = 10
         entry:__schedule tid=1 tsc=20 -> @left = 20
         entry tid=2 tsc=25 -> @start = 25
         return tid=2 tsc=35 -> sample 10
         return:__schedule tid=1 tsc=70 -> @away = 50
         return tid=1 tsc=80 -> sample 20
         entry tid=1 tsc=90 -> @away = 0
         return tid=1 tsc=91 -> sample 1",
    );
    // A pair of instruments shares the variable.
    let pair = "instrument pair \"X.\"; shared thread @timer;
        pre { @timer = tsc } post / @timer != 0 / { sample(tsc - @timer); @timer = 0 }";
    trial::run(
        &trial::check(pair, "nowhere").unwrap(),
        "post tid=1 tsc=5 -> nothing
         pre tid=1 tsc=10 -> @timer = 10
         post tid=2 tsc=11 -> nothing
         post tid=1 tsc=30 -> sample 20, @timer = 0",
    );
    tried("elapsed-start", "hit tsc=7 -> @timer = 7");
    tried("elapsed-stop", "hit tsc=7 -> nothing");
    tried(
        "elapsed-histogram",
        "entry call=1 tsc=0x100 -> @start = 256
         return call=1 tsc=0x105 -> @ticks[4..7] = 1",
    );
    tried(
        "lock-wait",
        "entry call=1 tsc=1 -> @start = 1
         return call=1 tsc=1001 -> sample 1000, @waits[512..1023] = 1
         return call=7 tsc=1002 -> nothing",
    );
}

#[test]
fn events_belong_to_calls_that_stay_on_their_processor() {
    tried(
        "cache-misses",
        "entry call=1 cpu=0 cache_misses=100 -> @from = 1
         entry call=2 cpu=1 cache_misses=7 -> @from = 2
         return call=1 cpu=0 cache_misses=130 -> sample 30
         return call=2 cpu=0 cache_misses=140 -> nothing
         return call=3 cpu=0 cache_misses=150 -> nothing",
    );
    tried(
        "event-totals",
        "entry call=1 cpu=0 cycles=10 instructions=20 cache_misses=3 branch_misses=4 -> @from = 1
         return call=1 cpu=0 cycles=110 instructions=70 cache_misses=3 branch_misses=6 \
             -> @cycles = 100, @instructions = 50, @cache_misses = 0, @branch_misses = 2, @calls = 1
         entry call=1 cpu=0 cycles=200 instructions=100 cache_misses=9 branch_misses=9 -> @from = 1
         return call=1 cpu=1 cycles=900 instructions=900 -> @calls = 1, @cycles = 100",
    );
}

#[test]
fn threads_are_counted_while_they_are_inside_or_wait() {
    tried(
        "threads-inside",
        "return call=9 -> nothing
         entry call=1 -> sample 1
         entry call=2 -> sample 2
         return call=1 -> sample 1
         return call=2 -> sample 0",
    );
    tried(
        "threads-waiting",
        "entry:__schedule tid=1 -> nothing
         return:__schedule tid=1 -> nothing
         entry tid=1 -> @depth = 1
         entry:__schedule tid=1 -> sample 1
         entry tid=2 -> @depth = 1
         entry:__schedule tid=2 -> sample 2
         return:__schedule tid=1 -> sample 1
         return tid=1 -> @depth = 0
         return:__schedule tid=2 -> sample 0",
    );
}

#[test]
fn values_are_those_of_the_machine() {
    tried("return-value", "return retval=-5 -> sample -5");
    tried("register", "hit ax=9 -> sample 9");
    tried(
        "memory",
        "hit arg0=0x10 [0x10]=77 -> sample 77\nhit arg0=0 -> sample 0, faults 1",
    );
    tried(
        "errors",
        "return retval=0 -> nothing
         return retval=0xffff_fff4 -> @errors[12] = 1
         return retval=-12 -> @errors[12] = 2
         return retval=0x1_ffff_fff4 -> nothing
         return retval=-5000 -> nothing",
    );
    tried("histogram", "hit arg2=4096 -> @values[4096..8191] = 1");
    tried(
        "linear-histogram",
        "hit arg2=300 -> @values[256..511] = 1\nhit arg2=20000 -> @values[16384..] = 1",
    );
    tried(
        "usage",
        "hit arg1=3 -> @values[3] = 1\nhit arg1=3 cpu=1 -> @values[3] = 2, @values[other] = 0",
    );
    tried("by-process", "hit pid=30 -> @processes[30] = 1");
    tried("running-thread", "hit pid=30 tid=31 -> sample 31");
    tried(
        "thread-name",
        "hit pid=30 tid=31 comm=\"make\" -> line \"30 31 make\"",
    );
}

#[test]
fn edges_and_callers_are_distinguished() {
    tried(
        "branch",
        "taken -> @taken = 1, @untaken = 0\nuntaken -> @untaken = 1",
    );
    tried(
        "branch-hint",
        "taken -> @jumped = 1\nuntaken -> @ran_on = 1, @jumped = 1",
    );
    tried("lock-retries", "taken -> @again = 1\nuntaken -> @done = 1");
    tried("edge-coverage", "taken -> @hits = 1\nuntaken -> nothing");
    tried(
        "caller",
        "return tid=1 -> nothing\nentry tid=1 -> @called = 1\nreturn tid=1 -> @called = 0",
    );
    tried(
        "elapsed-when-called",
        "entry tid=1 tsc=1 -> @start = 0\nreturn tid=1 tsc=2 -> nothing",
    );
    tried(
        "call-trace",
        "entry tid=1 call=1 -> nothing\nreturn tid=1 call=1 -> nothing",
    );
    // Together: what the caller's instrument stores is what the others read.
    let both = "instrument both \"X.\"; shared thread @called; call @start;
        entry:outer { @called++ } return:outer / @called > 0 / { @called-- }
        entry / @called > 0 / { @start = tsc } return / @start != 0 / { sample(tsc - @start) }";
    trial::run(
        &trial::check(both, "nowhere").unwrap(),
        "entry:outer tid=1 -> @called = 1
         entry tid=1 call=1 tsc=10 -> @start = 10
         entry tid=2 call=2 tsc=11 -> @start = 0
         return tid=1 call=1 tsc=30 -> sample 20
         return:outer tid=1 -> @called = 0
         entry tid=1 call=1 tsc=40 -> @start = 0
         return tid=1 call=1 tsc=50 -> nothing",
    );
}

/// Returns the probes of a built-in instrument, without its comments and declarations.
fn probes(name: &str) -> String {
    let text = FILES
        .iter()
        .find(|(file, _)| *file == format!("{name}.gilk"));
    let (_, text) = text.expect("it is built in");
    let (_, probes) = text.split_once("\nentry").expect("it has an entry probe");
    format!("entry{probes}")
}

#[test]
fn a_call_trace_beside_its_caller_has_an_end_for_each_begin_in_either_order() {
    let together = |first: &str, second: &str| {
        let source = format!(
            "instrument both \"X.\"; shared thread @called; call @begun; {} {}",
            probes(first),
            probes(second)
        );
        trial::check(&source, "nowhere").unwrap()
    };
    // The function calls itself, and is left twice.
    trial::run(
        &together("caller", "call-trace"),
        "entry tid=1 call=1 -> sample 3
         entry tid=1 call=2 -> sample 3
         return tid=1 call=2 -> sample 2
         return tid=1 call=1 -> sample 2, @called = 0, @begun = 0",
    );
    trial::run(
        &together("call-trace", "caller"),
        "entry tid=1 call=1 -> @called = 1
         entry tid=1 call=2 -> sample 3
         return tid=1 call=2 -> sample 2
         return tid=1 call=1 -> @called = 0, @begun = 0",
    );
}
