//! `user [--runs N] [--quick] [PROGRAM...]`: processor time of programs with every block counted, over their native time.
//!
//! gzip, sqlite3, perl and python3 of this machine do their work natively, with a splice at every block of the program
//! and of its libraries (`ilk process --blocks`), with `--sparing`, in the code cache, and there with every block counted
//! (`ilk clone --count`): in turns, in one run, each attached to while the program waits for its input. The time is the
//! smallest of all runs, user and system, from there to the end of the process; that of `ilk` is stated beside. All
//! outputs must be equal, and each way must count. `cargo xtask evaluate user` runs this.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// Executions of a program's work, of which each takes a tenth to a half of a second natively.
const ROUNDS: u32 = 6;
/// Time between two looks at the output of `ilk`.
const LOOK: Duration = Duration::from_millis(50);

/// A program and its work: text that it reads from its standard input, which `ROUNDS` stands in for.
struct Work {
    /// Its path: what the shell finds by a name may be a script that executes another program.
    program: &'static str,
    arguments: &'static [&'static str],
    input: fn(rounds: u32) -> Vec<u8>,
}

const WORKS: [Work; 4] = [
    Work {
        program: "/usr/bin/gzip",
        arguments: &["-c"],
        input: words,
    },
    Work {
        program: "/usr/bin/sqlite3",
        arguments: &[],
        input: |rounds| SQL.repeat(rounds as usize).into_bytes(),
    },
    Work {
        program: "/usr/bin/perl",
        arguments: &[],
        input: |rounds| PERL.replace("ROUNDS", &rounds.to_string()).into_bytes(),
    },
    Work {
        program: "/usr/bin/python3",
        arguments: &[],
        input: |rounds| PYTHON.replace("ROUNDS", &rounds.to_string()).into_bytes(),
    },
];

/// Inserts, an index, an aggregate and a search.
const SQL: &str = "
create table t(a integer primary key, b text, c integer);
with recursive n(i) as (select 1 union all select i+1 from n where i<150000)
  insert into t select i, 'row '||i, (i*7919)%10007 from n;
create index tc on t(c);
select count(*), sum(c), max(b) from t where c between 1000 and 6000;
select c%100, count(*), avg(a) from t group by 1 order by 2 desc limit 5;
select length(group_concat(upper(b))) from t where b like '%77%';
drop table t;
";

/// Hashes, regular expressions and strings.
const PERL: &str = r#"
for my $round (1..ROUNDS) {
    my %h; my $s = 0;
    for my $i (1..400000) {
        my $k = "k" . ($i % 5003);
        $h{$k} += $i;
        $s += length($1) if $k =~ /^k(\d+)7$/;
    }
    my $j = join(",", map { "$_=$h{$_}" } sort keys %h);
    $j =~ s/(\d+)=(\d+)/$2:$1/g;
    print length($j), " $s\n";
}
"#;

/// Dictionaries, regular expressions, strings and objects.
const PYTHON: &str = r#"
import re
class A:
    def __init__(self, x): self.x = x
    def f(self, y): return self.x * y + 1
def work():
    d = {}
    s = t = 0
    for i in range(240000):
        k = "k%d" % (i % 5003)
        d[k] = d.get(k, 0) + i
        m = re.match(r"k(\d+)7$", k)
        if m: s += len(m.group(1))
    j = ",".join("%s=%d" % (k, d[k]) for k in sorted(d))
    j = re.sub(r"(\d+)=(\d+)", lambda m: m.group(2) + ":" + m.group(1), j)
    for i in range(200000): t += A(i).f(3)
    return len(j), s, t
for round in range(ROUNDS): print(*work())
"#;

/// Text of words of two to nine letters: the same each time.
fn words(rounds: u32) -> Vec<u8> {
    // Knuth's generator (MMIX).
    let mut state = 1_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) % below
    };
    let mut dictionary: Vec<Vec<u8>> = Vec::new();
    for _ in 0..5000 {
        let letters = 2 + next(8);
        let letters = (0..letters).filter_map(|_| u8::try_from(next(16)).ok());
        dictionary.push(letters.map(|number| b'a' + number).collect());
    }
    let mut text = Vec::new();
    for _ in 0..u64::from(rounds) * 500_000 {
        let word = dictionary.get(next(5000) as usize);
        text.extend(word.into_iter().flatten());
        text.push(b' ');
    }
    text
}

/// A way to execute a program.
struct Way {
    name: &'static str,
    /// Arguments of `ilk` before the number of the process.
    arguments: Option<&'static [&'static str]>,
    /// Words of its messages once it has begun.
    begun: &'static str,
    /// True if it counts blocks, which its messages at the end then have.
    counts: bool,
}

const WAYS: [Way; 5] = [
    Way {
        name: "native",
        arguments: None,
        begun: "",
        counts: false,
    },
    Way {
        name: "spliced",
        arguments: Some(&["process", "--blocks", "*,*:*"]),
        begun: "places in process",
        counts: true,
    },
    Way {
        name: "spliced, sparing",
        arguments: Some(&["process", "--blocks", "--sparing", "*,*:*"]),
        begun: "places in process",
        counts: true,
    },
    Way {
        name: "cache",
        arguments: Some(&["clone"]),
        begun: "is ready. Ctrl-C",
        counts: false,
    },
    Way {
        name: "cache, counted",
        arguments: Some(&["clone", "--count"]),
        begun: "is ready. Ctrl-C",
        counts: true,
    },
];

/// Processor time in seconds.
#[derive(Clone, Copy)]
struct Spent {
    process: f64,
    ilk: f64,
}

impl Spent {
    fn least(self, other: Self) -> Self {
        Self {
            process: self.process.min(other.process),
            ilk: self.ilk.min(other.ilk),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let (mut runs, mut rounds, mut names) = (2, ROUNDS, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--runs" => {
                let number = arguments.next().context("--runs needs a number")?;
                runs = number.parse().context("--runs needs a number")?;
                ensure!(runs > 0, "--runs needs a number from 1 on");
            }
            "--quick" => (runs, rounds) = (1, 1),
            name => {
                let known = WORKS.iter().any(|work| work.name() == name);
                ensure!(known, "there is no work for {name}");
                names.push(name.to_owned());
            }
        }
    }
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).context("an example's folder")?;
    let ilk = folder.join("ilk");
    ensure!(
        ilk.is_file(),
        "{} is missing: build ilk before",
        ilk.display()
    );
    let bench = Bench {
        ilk,
        folder: tempfile::tempdir()?,
        rounds,
    };
    println!("{}, load {}", processor()?, load()?);
    println!("\n{}", heading());
    for work in &WORKS {
        if names.is_empty() || names.iter().any(|name| name == work.name()) {
            let spent = bench.all(work, runs)?;
            println!("{}", line(work, &spent));
        }
    }
    println!("\nload {}", load()?);
    Ok(())
}

fn heading() -> String {
    let mut names = String::from("| | native, s |");
    let mut rule = String::from("|---|---|");
    for way in WAYS.iter().skip(1) {
        let _infallible = write!(names, " {} |", way.name);
        rule += "---|";
    }
    format!("{names}\n{rule}")
}

/// The ratios to the native time, of the process alone, and of the process and `ilk` together.
fn line(work: &Work, spent: &[Spent]) -> String {
    let native = spent.first().map_or(f64::NAN, |spent| spent.process);
    let mut line = format!("| {} | {native:.2} |", work.name());
    for spent in spent.iter().skip(1) {
        let _infallible = write!(
            line,
            " {:.2} ({:.2} with ilk) |",
            spent.process / native,
            (spent.process + spent.ilk) / native
        );
    }
    line
}

struct Bench {
    ilk: PathBuf,
    folder: tempfile::TempDir,
    rounds: u32,
}

impl Work {
    fn name(&self) -> &'static str {
        self.program.rsplit('/').next().unwrap_or(self.program)
    }
}

impl Bench {
    /// The smallest time of each way, which are taken in turns.
    fn all(&self, work: &Work, runs: u32) -> anyhow::Result<Vec<Spent>> {
        let input = (work.input)(self.rounds);
        let mut least: Vec<Spent> = Vec::new();
        let mut expected: Option<Vec<u8>> = None;
        for run in 0..runs {
            for (number, way) in WAYS.iter().enumerate() {
                let what = || format!("{}, {}", work.name(), way.name);
                let (spent, output) = self.once(work, way, &input).with_context(what)?;
                eprintln!("{}: {:.2} s, ilk {:.2} s", what(), spent.process, spent.ilk);
                ensure!(!output.is_empty(), "{}: it has no output", what());
                let expected = expected.get_or_insert_with(|| output.clone());
                ensure!(output == *expected, "{}: its output differs", what());
                match least.get_mut(number).filter(|_| run > 0) {
                    Some(least) => *least = least.least(spent),
                    None => least.push(spent),
                }
            }
        }
        Ok(least)
    }

    /// Executes a program once; returns the times and its output.
    fn once(&self, work: &Work, way: &Way, input: &[u8]) -> anyhow::Result<(Spent, Vec<u8>)> {
        let at = |name: &str| self.folder.path().join(name);
        let (output, messages) = (at("output"), at("messages"));
        let mut program = Command::new(work.program);
        program
            .args(work.arguments)
            .env("LC_ALL", "C")
            .env("PYTHONHASHSEED", "0")
            .env("PERL_HASH_SEED", "0")
            .stdin(Stdio::piped())
            .stdout(File::create(&output)?);
        let mut program = program.spawn().context("it does not start")?;
        waits(program.id())?;
        let began = used(program.id())?;
        let mut ilk = None;
        if let Some(arguments) = way.arguments {
            let both = File::create(&messages)?;
            let mut command = Command::new(&self.ilk);
            command
                .args(arguments)
                .args(["-p", &program.id().to_string()])
                .env("HOME", self.folder.path())
                .env_remove("XDG_CACHE_HOME")
                .stdin(Stdio::null())
                .stdout(both.try_clone()?)
                .stderr(both);
            let mut child = command.spawn().context("ilk does not start")?;
            begun(&mut child, way, program.id(), &messages)?;
            ilk = Some(child);
        }
        let mut pipe = program.stdin.take().context("it has an input")?;
        pipe.write_all(input)
            .context("it does not read its input")?;
        drop(pipe);
        let whole = ended(&program, work.name())?;
        let ilk = match ilk {
            Some(ilk) => {
                let spent = ended(&ilk, "ilk")?;
                let messages = fs::read_to_string(&messages)?;
                let results = ["counter pre", "blocks executed"];
                let counted = results.iter().any(|words| messages.contains(words));
                let left = ["was let go", "has executed another program"];
                let has_left = left.iter().any(|words| messages.contains(words));
                ensure!(counted == way.counts && !has_left, "{messages}");
                spent
            }
            None => 0.0,
        };
        let process = whole - began;
        Ok((Spent { process, ilk }, fs::read(&output)?))
    }
}

/// Waits until `ilk` has begun with a process.
fn begun(ilk: &mut Child, way: &Way, pid: u32, messages: &Path) -> anyhow::Result<()> {
    loop {
        if let Some(status) = ilk.try_wait()? {
            anyhow::bail!("ilk has ended, {status}: {}", fs::read_to_string(messages)?);
        }
        if fs::read_to_string(messages)?.contains(way.begun) {
            return waits(pid);
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until a process waits for its input.
fn waits(pid: u32) -> anyhow::Result<()> {
    let mut before = f64::NAN;
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, fields) = stat.rsplit_once(") ").context("a line of stat")?;
        let now = used(pid)?;
        // Asleep, and without an instruction since the last look.
        if fields.starts_with('S') && now.to_bits() == before.to_bits() {
            return Ok(());
        }
        before = now;
        std::thread::sleep(LOOK);
    }
}

/// Processor time of a process that has one thread, in seconds.
fn used(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let nanoseconds = text.split_whitespace().next().context("schedstat")?;
    Ok(nanoseconds.parse::<f64>()? / 1e9)
}

/// Waits for the end of a child; returns its processor time, with that of its children that it has waited for.
#[expect(unsafe_code, reason = "the standard library has no wait4")]
fn ended(child: &Child, name: &str) -> anyhow::Result<f64> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let pid = libc::pid_t::try_from(child.id())?;
    // SAFETY: both places are valid for writes, and zeroes are an rusage.
    let usage = unsafe {
        if libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) != pid {
            return Err(std::io::Error::last_os_error()).context(format!("cannot wait for {name}"));
        }
        usage.assume_init()
    };
    ensure!(status == 0, "{name} has ended with status {status:#x}");
    #[expect(clippy::cast_precision_loss, reason = "seconds of a measurement")]
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

fn processor() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let values = |name: &str| {
        let lines = text.lines().filter(|line| line.starts_with(name));
        let values = lines.filter_map(|line| line.split_once(": "));
        values
            .map(|(_, value)| value.to_owned())
            .collect::<Vec<_>>()
    };
    let [names, families, models] = ["model name", "cpu family", "model\t"].map(values);
    let first = |values: &[String]| values.first().cloned().unwrap_or_default();
    Ok(format!(
        "{} CPUs, {} (family {}, model {})",
        names.len(),
        first(&names),
        first(&families),
        first(&models)
    ))
}

fn load() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let words: Vec<&str> = text.split(' ').take(3).collect();
    Ok(words.join(", "))
}
