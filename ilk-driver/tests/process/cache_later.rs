//! Instruments in the code cache of libraries that a process loads while it is there: no hit of them is missed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gilk_samples::recording::Recording;
use gilk_samples::totals::TotalValue;

use super::cache_instruments::{in_cache, is_traced, total};
use super::loaded::loading;

/// The program and its two libraries, compiled.
struct Loading {
    program: PathBuf,
    libraries: [PathBuf; 2],
    folder: tempfile::TempDir,
}

/// Numbers of one library that the program knows.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    calls: u64,
    sum: u64,
    loads: u64,
}

impl Loading {
    fn compiled() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = ["-rdynamic"];
        let program = super::compiled_from(folder.path(), include_str!("later.c"), &options);
        let source = folder.path().join("library.c");
        std::fs::write(&source, include_str!("later_library.c")).unwrap();
        let libraries = [("one", 0, 3), ("two", 1, 5)].map(|(name, number, factor)| {
            let library = folder.path().join(format!("lib{name}.so"));
            let mut compiler = Command::new("cc");
            compiler
                .args(["-O2", "-shared", "-fPIC", "-o"])
                .arg(&library)
                .args([format!("-DNUMBER={number}"), format!("-DFACTOR={factor}")]);
            super::compile(compiler.arg(&source));
            library
        });
        Self {
            program,
            libraries,
            folder,
        }
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let libraries = self.libraries.iter();
        let libraries = libraries.map(|library| library.to_str().unwrap());
        libraries.chain(more.iter().copied()).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Reads the lines that the program has printed.
fn known(text: &str) -> [Known; 2] {
    let lines: Vec<&str> = text.lines().filter(|line| *line != "ready").collect();
    let known = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [calls, sum, loads] = numbers[..] else {
            panic!("{line}");
        };
        Known { calls, sum, loads }
    };
    [known(lines[0]), known(lines[1])]
}

/// The loads of a library that the command reports.
fn loads(said: &str, library: &str) -> u64 {
    let wanted = format!("{library} was loaded ");
    let line = said.lines().find(|line| line.contains(&wanted));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    let number = line.split("was loaded ").nth(1).unwrap();
    match number.split(' ').next().unwrap() {
        "once." => 1,
        times => times.parse().unwrap(),
    }
}

/// The total of a library's instrument.
fn total_of(said: &str, name: &str, library: &str) -> u64 {
    let all = said.lines();
    let all = all.filter(|line| line.contains(name) && line.contains(library));
    all.map(|line| total(line, name)).sum()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

const SCRIPT: &str = "entry:lib*.so:work { @calls = count(); @sum = sum(*(u32 *)arg0) } \
                      return:lib*.so:work { @returns = count() } \
                      entry:libone.so:work { sample(arg0) }";

#[test]
fn every_call_of_a_library_that_is_loaded_later_is_counted() {
    let loading = Loading::compiled();
    let file = loading.file("calls.arrow");
    let output = file.to_str().unwrap();
    for (held, count) in [(false, false), (true, false), (false, true)] {
        let more: &[&str] = if held { &["held"] } else { &[] };
        let mut options = vec!["--force", "-o", output, "-e", SCRIPT];
        options.extend(count.then_some("--count"));
        let cached = in_cache(&options, &loading.program, &loading.arguments(more));
        let (text, said) = texts(&cached);
        assert!(cached.status.success(), "{text}{said}");
        assert!(!said.contains("Not instrumented"), "{said}");
        assert!(!said.contains("let go"), "{said}");
        let known = known(&text);
        for (known, library) in known.iter().zip(["libone.so", "libtwo.so"]) {
            let counted = |name| total_of(&said, name, library);
            assert_eq!(counted("@calls"), known.calls, "{library}: {text}{said}");
            assert_eq!(counted("@returns"), known.calls, "{library}: {text}{said}");
            assert_eq!(counted("@sum"), known.sum, "{library}: {text}{said}");
            assert_eq!(loads(&said, library), known.loads, "{library}: {said}");
        }
        assert!(known[0].loads > 4 && known[1].loads > 4, "{known:?}");
        recorded(&file, &known, &said);
    }
}

/// The recording has the samples, the totals and the places of the libraries.
fn recorded(file: &Path, known: &[Known; 2], said: &str) {
    let recording = Recording::open(file).unwrap();
    assert_eq!(recording.recovered(), None);
    let instruments = &recording.metadata().instruments;
    let of = |label: &str| {
        let found = instruments.iter().filter(|one| one.label.contains(label));
        found.map(|one| one.id).collect::<Vec<u64>>()
    };
    let one = of("libone.so:work");
    assert!(!one.is_empty() && !of("libtwo.so:work").is_empty());
    let (mut samples, mut last) = (0, 0);
    for batch in recording.batches() {
        let batch = batch.unwrap();
        // Addresses of numbers; counters are samples, too.
        let sampled = batch.samples.iter().filter(|sample| sample.value > 1 << 32);
        for sample in sampled {
            assert!(one.contains(&sample.id), "{sample:?}");
            samples += 1;
        }
        let mut times = batch.samples.iter().map(|sample| sample.tsc);
        assert!(times.all(|tsc| tsc > 0));
        last = last.max(
            batch
                .samples
                .iter()
                .map(|sample| sample.tsc)
                .max()
                .unwrap_or(0),
        );
    }
    assert!(last > 0);
    let taken = said.lines().find(|line| line.contains(" samples, "));
    assert!(
        taken.is_some_and(|line| line.contains(" 0 lost.")),
        "{said}"
    );
    assert_eq!(samples, known[0].calls, "{said}");
    let added_up = &recording.totals().added_up;
    let sum = |name: &str| -> i128 {
        let named = added_up.iter().filter(|total| total.name == name);
        let numbers = named.map(|total| match total.value {
            TotalValue::Number(number) => number,
            _ => panic!("{total:?}"),
        });
        numbers.sum()
    };
    let expected: u64 = known.iter().map(|known| known.sum).sum();
    assert_eq!(sum("sum"), i128::from(expected), "{added_up:?}");
}

/// A process that has one of them already is attached to, and let go.
#[test]
fn a_library_that_is_mapped_at_the_start_is_unloaded_and_loaded_in_the_cache() {
    let loading = Loading::compiled();
    let mut program = Command::new(&loading.program);
    program.args(loading.arguments(&["held", "wait"]));
    let mut program = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let script = "block:lib*.so:work:* { @n = count() } entry:lib*.so:work { @calls = count() }";
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", loading.folder.path())
        .args(["clone", "-e", script, "-p", &program.id().to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(ilk.stderr.take().unwrap()).lines();
    let mut said = String::new();
    while !said.contains("is ready") {
        said += &lines.next().unwrap().unwrap();
    }
    program.stdin.take().unwrap().write_all(b"\n").unwrap();
    let text: Vec<String> = output.lines().map(Result::unwrap).collect();
    let known = known(&text.join("\n"));
    assert!(program.wait().unwrap().success());
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    let said = said.join("\n");
    assert!(ilk.wait().unwrap().success(), "{said}");
    // Three calls by the constructor were before.
    let calls = [known[0].calls - 3, known[1].calls];
    for (calls, library) in calls.into_iter().zip(["libone.so", "libtwo.so"]) {
        assert_eq!(total_of(&said, "@calls", library), calls, "{said}");
        let label = format!("{library}:work block 0");
        assert_eq!(total_of(&said, "@n", &label), calls, "{said}");
    }
    assert_eq!(loads(&said, "libone.so"), known[0].loads - 1, "{said}");
}

/// While four threads load and unload a library, by SIGKILL of the command too.
#[test]
fn a_process_that_loads_and_unloads_is_let_go() {
    let mut program = loading(false);
    let pid = program.pid();
    program.does("alone");
    program.does("begin");
    for round in 0..6 {
        let script = "entry:libwork.so:work { @n = count(); @all = sum(arg0) }";
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .args(["clone", "-e", script, "-p", &pid.to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(ilk.stderr.take().unwrap()).lines();
        let mut said = String::new();
        while !said.contains("is ready") {
            said += &lines.next().unwrap_or_else(|| panic!("{said}")).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300 + 70 * round));
        let number = ilk.id().to_string();
        let signal = if round % 2 == 0 { "-INT" } else { "-KILL" };
        let sent = Command::new("kill").args([signal, &number]).status();
        assert!(sent.unwrap().success());
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        ilk.wait().unwrap();
        let rest = rest.join("\n");
        if round % 2 == 0 {
            assert!(loads(&rest, "libwork.so") > 0, "{said}{rest}");
            assert!(total(&rest, "@n") > 100, "{said}{rest}");
        }
        assert!(!rest.contains("Not instrumented"), "{said}{rest}");
        let begun = Instant::now();
        while program.maps().contains("memfd:gilk") || is_traced(pid) {
            let waited = begun.elapsed() < Duration::from_secs(20);
            assert!(waited, "{}", program.maps());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    writeln!(program.input, "end").unwrap();
    program.line();
    program.does("alone");
    program.end();
}

/// Extension modules of perl, with a counter at each of their blocks.
#[test]
fn modules_of_perl_are_counted_as_by_splices() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("modules.pl");
    let text = "use List::Util qw(sum max); use POSIX qw(floor); use Digest::MD5 qw(md5_hex);\n\
                my @all = map { $_ * 3 } 1..500; my $sum = 0;\n\
                for my $i (1..50) { $sum += sum(@all) + max(@all) + floor($i / 3); }\n\
                print $sum, md5_hex($sum), \"\\n\";\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let script = "block:Util.so:*:*, block:POSIX.so:*:*, block:MD5.so:*:* { @n = count() }";
    let counted = |command: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .env("XDG_CACHE_HOME", folder.path())
            .env("PERL_HASH_SEED", "0")
            .args([command, "-e", script, "--", "perl", file])
            .output()
            .unwrap();
        let (text, said) = texts(&output);
        let all = format!("{text}{said}");
        assert!(output.status.success(), "{all}");
        let lines = all.lines().filter(|line| line.contains("@n of"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        (lines, all)
    };
    let (spliced, said) = counted("process");
    for module in ["Util.so", "POSIX.so", "MD5.so"] {
        let counts = |line: &&String| line.contains(&format!("{module}:"));
        assert!(spliced.iter().filter(counts).count() > 10, "{said}");
    }
    let (cached, said) = counted("clone");
    assert_eq!(cached, spliced, "{said}");
    assert_eq!(loads(&said, "POSIX.so"), 1);
}
