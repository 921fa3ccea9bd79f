//! `ilk clone`: a program or a process in a code cache.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use gilk_engine::Addr;
use gilk_samples::chart::{scale, totals};
use gilk_samples::output::Contents;
use ilk_driver::note;
use ilk_driver::process::{
    AccessOptions, AgentProcess, CacheRecording, CachedChildren, CloneEnd, CloneOptions,
    CloneReport, CloneThreads, Exec, StartedProgram, blocks_path,
};

use crate::clone_executions::{CacheExecutions, live};
use crate::clone_instruments::CacheWork;
use crate::output::Force;
use crate::program::exit;

/// Blocks that are shown, unless --all is given.
const SHOWN: usize = 20;

/// Execute a program, or a running process, from a code cache: translated code in place of its own, which is only read.
///
/// With -e, a script's instruments run in the cache: with --thread in one thread alone, with --while only while a function
/// is called. With --count, every block of the program and of its libraries counts its executions. Ctrl-C or the time of --for
/// lets a process go: it continues in its original code. What cannot be in the cache, such as code on a
/// stack, lets it go too, and the rule is named. So does the end of this program, even by `kill -9`: its agent, a
/// process of its own, outlives it.
#[derive(Args)]
#[command(group = ArgGroup::new("recorded").multiple(true))]
pub(crate) struct Clone {
    /// The process.
    #[arg(
        short = 'p',
        long,
        value_name = "PID",
        required_unless_present = "program"
    )]
    pub(crate) pid: Option<u32>,
    /// Count the executions of every block.
    #[arg(long, group = "recorded")]
    pub(crate) count: bool,
    /// Run a script in the cache: 'entry:parse { sample(arg1) }', as in `ilk process`; `ilk help probes` and `ilk help
    /// language` have the words.
    #[arg(
        short = 'e',
        long = "execute",
        value_name = "SCRIPT",
        group = "recorded"
    )]
    script: Option<String>,
    /// Run the instruments of a session's file in the cache.
    #[arg(
        long,
        value_name = "FILE.ron",
        group = "recorded",
        conflicts_with = "script"
    )]
    session: Option<PathBuf>,
    /// Show all blocks that were executed, not only the twenty with the most instructions; with -e, places without hits.
    #[arg(long, requires = "recorded")]
    pub(crate) all: bool,
    /// Record what is counted or sampled, and the numbers of the cache, in this file: with --count the executions of the
    /// blocks of all functions. 'ilk stats' shows them, and the window. An existing file is kept, unless --force is given.
    #[arg(short, long, value_name = "FILE", requires = "recorded")]
    pub(crate) output: Option<PathBuf>,
    /// Meanwhile, write the recording up to now to FILE.live, about each second; it is removed at the end. With -e and
    /// --session it has counts and totals, beside --count the executions of blocks, too, and FILE itself grows by the samples.
    /// With --children own and --exec follows it has all processes, and the whole recording of each that has ended.
    #[arg(long, requires = "output", requires = "recorded")]
    live: bool,
    /// Write to the standard output which recordings the processes have, while they grow: lines for the window.
    #[arg(long, hide = true, requires = "live", requires = "pid")]
    pub(crate) announce: bool,
    #[command(flatten)]
    force: Force,
    /// Record every access of memory in this file, which 'ilk accesses' reads. With --children own and --exec follows it has
    /// those of all processes. An existing file is kept, unless --force is given.
    #[arg(long, value_name = "FILE", conflicts_with = "recorded")]
    accesses: Option<PathBuf>,
    /// Bytes of records after which accesses are only counted as lost: 5000000, 500M, 2G (in powers of 1,024).
    #[arg(
        long,
        value_name = "BYTES",
        requires = "accesses",
        default_value = "1G",
        value_parser = bytes
    )]
    most: u64,
    /// Only while a thread executes this function: 'parse', or 'libc.so.6:malloc' of a library. It enters the cache where
    /// it calls the function, and leaves it as the call returns.
    #[arg(long = "while", value_name = "FUNCTION")]
    function: Option<String>,
    /// Only in calls for which this holds at the function's entry: 'arg1 > 4096', 'str(request->path) == "/index"', in the
    /// language of instruments.
    #[arg(long = "if", value_name = "CONDITION", requires = "function")]
    condition: Option<String>,
    /// Only this thread; the others execute the original code.
    #[arg(
        long,
        value_name = "TID",
        requires = "pid",
        conflicts_with = "function"
    )]
    thread: Option<u32>,
    /// The children that the process forks: `clean`, they execute their original code; or `own`, each is in a cache of its
    /// own, with counts of its own. Each is stopped first, which its parent may see.
    #[arg(
        long,
        value_name = "CHOICE",
        default_value = "clean",
        conflicts_with = "thread"
    )]
    pub(crate) children: CachedChildren,
    /// A process that executes another program: it `ends` to be in the cache, or `follows`, and is in the cache in that
    /// program, too, from its entry on. Meanwhile it is stopped, which its parent may see.
    #[arg(long, value_name = "CHOICE", default_value = "ends")]
    pub(crate) exec: Exec,
    /// Let it go after this time: 10s, 2m.
    #[arg(long = "for", value_name = "TIME", value_parser = crate::process::time)]
    length: Option<f64>,
    /// Show the numbers of the cache at the end.
    #[arg(long)]
    numbers: bool,
    /// Start this program with its arguments, in the cache from its entry on, and end with its exit status.
    #[arg(last = true, value_name = "PROGRAM", conflicts_with = "pid")]
    program: Vec<String>,
}

impl Clone {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let session = self.session.as_deref();
        let work = CacheWork::of(self.script.as_deref(), session, self.length)?;
        if let Some(output) = &self.output {
            let mut goals = self.force.goals();
            if let Some(session) = &self.session {
                goals = goals.reads(session);
            }
            goals.goal(output, Contents::Other)?;
        }
        if let Some(accesses) = &self.accesses {
            self.force.goals().goal(accesses, Contents::Other)?;
        }
        let length = work.as_ref().map_or(self.length, CacheWork::length);
        let live = self.output.as_ref().filter(|_| self.live);
        let live = live.map(|output| self::live(output));
        let blocks = self.output.as_deref().filter(|_| work.is_some());
        let blocks = blocks.filter(|_| self.count).map(blocks_path);
        for meanwhile in live.iter().chain(&blocks) {
            self.force.goals().goal(meanwhile, Contents::Other)?;
        }
        let forked = AgentProcess::start().context("The agent cannot be started")?;
        if let AgentProcess::Command(status) = forked {
            if let Some(signal) = status.signal() {
                anyhow::bail!("the agent has been ended by signal {signal}");
            }
            return Ok(ended(status));
        }
        let options = CloneOptions {
            count: self.count,
            over_time: self.count && self.output.is_some(),
            live,
            live_stays: false,
            length: length.map(Duration::from_secs_f64),
            threads: match (&self.function, self.thread) {
                (Some(function), _) => CloneThreads::While {
                    function: function.clone(),
                    condition: self.condition.clone(),
                },
                (None, Some(thread)) => CloneThreads::One(thread),
                (None, None) => CloneThreads::All,
            },
            exec: self.exec,
            children: self.children == CachedChildren::Own,
            accesses: self
                .accesses
                .clone()
                .map(|file| AccessOptions::new(file, self.force.replaces(), self.most)),
        };
        let mut launched = match self.program.split_first() {
            // The agent outlives a killed command.
            Some((program, arguments)) => {
                Some(StartedProgram::start(program, arguments, |_| Ok(()))?)
            }
            None => None,
        };
        AgentProcess::leave_group().context("The agent cannot leave its group")?;
        let started = launched.as_ref().map(StartedProgram::pid);
        let pid = started.or(self.pid).unwrap_or_default();
        let executions = CacheExecutions::new(&self, &options, work.as_ref())?;
        match (executions.execute(pid, launched.as_mut())?, &mut launched) {
            (CloneEnd::Ended(status), Some(_)) => Ok(ended(ExitStatus::from_raw(status))),
            (_, Some(program)) => Ok(ended(program.wait()?)),
            (_, None) => Ok(ExitCode::SUCCESS),
        }
    }

    pub(crate) fn show(&self, pid: u32, report: &mut CloneReport) {
        match report.end {
            CloneEnd::Executed if self.exec == Exec::Follows => {}
            CloneEnd::Executed => {
                let hint = "With --exec follows, that is in the cache, too.";
                note!("ilk: {} {hint}", report.process_end().way);
            }
            CloneEnd::LetGo(_) => note!("ilk: {}", report.process_end().way),
            CloneEnd::Ended(_) | CloneEnd::Detached => {}
        }
        if let Some(why) = &report.unkept {
            note!("ilk: The next start of this program is as slow as this one: {why}.");
        }
        let mut executed: BTreeMap<(Addr, Addr), (u64, u64)> = BTreeMap::new();
        for (block, count) in report.blocks.iter().filter(|(_, count)| *count > 0) {
            let key = (block.original.start, block.original.end);
            let entry = executed.entry(key).or_default();
            entry.0 += count;
            entry.1 += count * u64::from(block.instructions);
        }
        let numbers = || {
            let instructions: u64 = executed
                .values()
                .map(|(_, instructions)| instructions)
                .sum();
            let blocks: u64 = executed.values().map(|(count, _)| count).sum();
            (blocks, instructions)
        };
        if self.count {
            let (blocks, instructions) = numbers();
            let mut sorted: Vec<_> = executed.iter().collect();
            sorted.sort_by(|one, other| other.1.1.cmp(&one.1.1).then(one.0.cmp(other.0)));
            let shown = if self.all { sorted.len() } else { SHOWN };
            note!("      executions     instructions  block");
            for ((start, end), (count, total)) in sorted.into_iter().take(shown) {
                let line = report.line(*start).map(|line| format!(" at {line}"));
                note!(
                    "{:>16} {:>16}  {}{}, {}",
                    scale::grouped(*count),
                    scale::grouped(*total),
                    report.names.known(pid, *start),
                    line.unwrap_or_default(),
                    scale::counted(end.0.saturating_sub(start.0), "byte")
                );
            }
            for why in report.unread_lines() {
                note!("ilk: Source lines of a file are not known. {why}");
            }
            note!(
                "{} executed {} in {}.",
                scale::counted(executed.len() as u64, "block"),
                scale::counted(instructions, "instruction"),
                scale::counted(blocks, "execution")
            );
        }
        for why in report.names.unread() {
            note!("ilk: Functions of a file are not named. {why}");
        }
        if let Some(function) = &self.function {
            let calls = report.numbers.calls.unwrap_or_default();
            let were = if calls == 1 { "was" } else { "were" };
            let calls = scale::counted(calls, "call");
            note!("{calls} of {function} {were} executed in the cache.");
            let numbers = &report.numbers;
            if let (Some(condition), Some(others)) = (&self.condition, numbers.other_calls) {
                let others = scale::counted(others, "other call");
                note!("For {others}, {condition} did not hold.");
            }
            if let Some(failed @ 1..) = numbers.failed_reads {
                let failed = scale::grouped(failed);
                note!("Of the reads of memory for the condition {failed} failed, and yielded 0.");
            }
        }
        if let (Some(file), Some(totals)) = (&self.accesses, report.accesses) {
            note!(
                "{} bytes of records of accesses are in {}; {} bytes were lost.",
                scale::grouped(totals.bytes),
                file.display(),
                scale::grouped(totals.bytes_lost)
            );
            if let Some(error) = totals.write_error() {
                note!(
                    "ilk: {} could not be written ({error}): what was recorded after that is lost.",
                    file.display()
                );
            }
            if totals.threads_left_out > 0 {
                note!(
                    "Threads were left out {}, since too many record.",
                    scale::counted(totals.threads_left_out, "time")
                );
            }
        }
        if self.numbers {
            note!("{}", totals::cache(&report.numbers));
        }
    }

    pub(crate) fn show_recorded(&self, recorded: &CacheRecording) {
        for why in &recorded.unread {
            note!("ilk: Blocks of an object have no functions in the recording. {why}.");
        }
        if recorded.left_out > 0 {
            note!(
                "ilk: Not in the recording, which has no numbers for more: {}.",
                scale::counted(recorded.left_out as u64, "block")
            );
        }
        note!(
            "The executions of {} of {} are in {}.",
            scale::counted(recorded.blocks as u64, "block"),
            scale::counted(recorded.functions as u64, "function"),
            recorded.summary.path.display()
        );
    }
}

/// The exit status of a program that has ended; the signal that ended it is named.
fn ended(status: ExitStatus) -> ExitCode {
    if status.code().is_none() {
        note!("ilk: The program has ended: {status}.");
    }
    match status.success() {
        true => ExitCode::SUCCESS,
        false => exit(&status.to_string()),
    }
}

/// Reads a number of bytes: digits, and `K`, `M` or `G` for 1,024 of them and its powers.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (text.strip_suffix('K'), 10),
        Some(b'M') => (text.strip_suffix('M'), 20),
        Some(b'G') => (text.strip_suffix('G'), 30),
        _ => (Some(text), 0),
    };
    let number = digits.and_then(|digits| digits.parse::<u64>().ok());
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "write a number of bytes such as 5000000, 500M or 2G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_have_a_unit_or_none() {
        let read = ["0", "7", "2K", "500M", "1G"].map(bytes);
        let expected = [0, 7, 2048, 500 << 20, 1 << 30].map(Ok);
        assert_eq!(read, expected);
        for wrong in ["", "G", "10MB", "1.5G", "-1", "99999999999G", "1 G", "x"] {
            assert!(bytes(wrong).unwrap_err().contains("500M"), "{wrong}");
        }
    }
}
