//! `ilk accesses`: the accesses of memory that a program in the code cache has recorded.

mod chosen;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use gilk_samples::chart::scale;
use gilk_samples::export::field;
use ilk_driver::accesses::{self, MemoryUse, RecordedExecution, parts_of_name};
use ilk_driver::note;

use self::chosen::{Addresses, Chosen, FunctionPatterns};

/// Rows that are shown, unless --all is given.
const SHOWN: usize = 20;

/// The sentence about a file, or a process of it, whose last records are missing.
const NO_END: &str = "The file has no end, since its agent was killed, has failed, or still records: the last records are missing.";

/// The sentence about the functions of such a file.
const NO_NAMES: &str = "The names of functions are written last: a function whose name is missing is shown as ?, and in CSV as nothing.";

/// Keys that accesses are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// The function that accesses.
    Function,
    /// The page of 4096 bytes that is accessed.
    Page,
    /// The cache line of 64 bytes that is accessed.
    Line,
}

/// Kinds of accesses; one that reads and writes is of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Only {
    /// Those that read.
    Reads,
    /// Those that write.
    Writes,
}

/// Orders of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// The row with the most accesses first.
    Accesses,
    /// The row with the most bytes first.
    Bytes,
}

/// Show accesses of memory that 'ilk clone --accesses' has recorded: reads, writes and bytes.
///
/// An access counts for the page or the line of its first byte; one that reads and writes counts as both. Those of several
/// processes are shown one after the other.
#[derive(Args)]
pub(crate) struct Accesses {
    /// A file of 'ilk clone --accesses'.
    file: PathBuf,
    /// Key that the accesses are added up by.
    #[arg(long, value_enum, default_value = "function")]
    by: By,
    /// Show all rows, not only the first twenty.
    #[arg(long)]
    all: bool,
    /// Only accesses that have this byte, or one of these: 0x404010, or 0x404000..0x405000 (without the last).
    #[arg(long, value_name = "ADDRESS[..ADDRESS]")]
    address: Option<Addresses>,
    /// Only accesses by these functions: names or patterns, separated by commas, with their file or without:
    /// 'parse_*,libc.so.6:malloc'.
    #[arg(long, value_name = "FUNCTIONS")]
    function: Option<FunctionPatterns>,
    /// Only reads, or only writes: their counts and bytes alone.
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Order of the rows.
    #[arg(long, value_enum, default_value = "accesses")]
    sort: Sort,
    /// Write every access instead, as CSV: thread, address of the instruction, R, W or RW, address, bytes, process, and
    /// the function and the file of the instruction, where they are known. Those of a thread are in the order of execution.
    #[arg(long, conflicts_with_all = ["by", "all", "sort"])]
    csv: bool,
}

/// Reads, writes and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    reads: u64,
    writes: u64,
    bytes: u64,
}

impl Sums {
    fn add(&mut self, access: &MemoryUse, only: Option<Only>) {
        let reads = u64::from(access.reads && only != Some(Only::Writes));
        let writes = u64::from(access.writes && only != Some(Only::Reads));
        self.reads += reads;
        self.writes += writes;
        self.bytes += (reads + writes) * u64::from(access.size);
    }

    fn merge(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.bytes += other.bytes;
    }
}

impl Accesses {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        let mut written = Ok(());
        let mut sums: BTreeMap<usize, HashMap<u64, Sums>> = BTreeMap::new();
        let mut chosen = Chosen::new(self.address, self.function.clone());
        let mut is_any = false;
        let mut names: HashMap<(usize, u32), String> = HashMap::new();
        let mut each = |access: MemoryUse, execution: &RecordedExecution| {
            let is_of_kind = match self.only {
                None => true,
                Some(Only::Reads) => access.reads,
                Some(Only::Writes) => access.writes,
            };
            if written.is_err() || !is_of_kind || !chosen.has(&access, execution) {
                return;
            }
            if self.csv {
                let kind = match (access.reads, access.writes) {
                    (true, true) => "RW",
                    (false, true) => "W",
                    _ => "R",
                };
                let of = names
                    .entry((access.execution, access.block))
                    .or_insert_with(|| fields(execution.names.get(&access.block)));
                if !is_any {
                    written = writeln!(out, "{HEAD}");
                }
                is_any = true;
                let line = format_args!(
                    "{},{:#x},{kind},{:#x},{},{},{of}",
                    access.thread, access.instruction, access.at, access.size, execution.pid
                );
                if written.is_ok() {
                    written = writeln!(out, "{line}");
                }
                return;
            }
            is_any = true;
            let key = match self.by {
                By::Function => u64::from(access.block),
                By::Page => access.at & !0xfff,
                By::Line => access.at & !0x3f,
            };
            let sums = sums.entry(access.execution).or_default();
            sums.entry(key).or_default().add(&access, self.only);
        };
        let check = |executions: &[RecordedExecution]| match &self.function {
            Some(functions) => functions.check(&self.file, executions),
            None => Ok(()),
        };
        let found = accesses::read_if(&self.file, check, &mut each)?;
        written?;
        if !is_any
            && let Some(none) = chosen.none(
                &self.file,
                match self.only {
                    None => "access",
                    Some(Only::Reads) => "read",
                    Some(Only::Writes) => "write",
                },
            )
        {
            for execution in &found.executions {
                note_losses("", execution);
            }
            bail!("{none}");
        }
        if self.csv && !is_any {
            writeln!(out, "{HEAD}")?;
        }
        if found.executions.is_empty() {
            note!("ilk: {NO_END}");
        }
        let is_one = found.executions.len() == 1;
        for (number, execution) in found.executions.iter().enumerate() {
            let name = match is_one {
                true => String::new(),
                false => format!("Process {}, {}: ", execution.pid, execution.program),
            };
            if !self.csv {
                if !is_one {
                    writeln!(out, "{}", name.trim_end())?;
                }
                self.show(
                    &mut out,
                    execution,
                    sums.remove(&number).unwrap_or_default(),
                )?;
            }
            out.flush()?;
            note_losses(&name, execution);
        }
        out.flush()?;
        Ok(())
    }

    /// Shows the sums of a process.
    fn show(
        &self,
        out: &mut impl Write,
        execution: &RecordedExecution,
        sums: HashMap<u64, Sums>,
    ) -> std::io::Result<()> {
        let mut rows: HashMap<String, Sums> = HashMap::new();
        for (key, sum) in sums {
            let name = match self.by {
                By::Function => function(&execution.names, key),
                By::Page | By::Line => format!("{key:#x}"),
            };
            rows.entry(name).or_default().merge(sum);
        }
        let mut total = Sums::default();
        rows.values().for_each(|sum| total.merge(*sum));
        let mut sorted: Vec<(String, Sums)> = rows.into_iter().collect();
        sorted.sort_by(|(name, one), (other_name, other)| {
            let weight = |sums: &Sums| match self.sort {
                Sort::Accesses => sums.reads + sums.writes,
                Sort::Bytes => sums.bytes,
            };
            let order = weight(other).cmp(&weight(one));
            order.then_with(|| name.cmp(other_name))
        });
        let shown = if self.all { sorted.len() } else { SHOWN };
        let place = match self.by {
            By::Function => "function",
            By::Page => "page",
            By::Line => "line",
        };
        writeln!(
            out,
            "           reads           writes            bytes  {place}"
        )?;
        let row = |sum: &Sums| {
            let [reads, writes, bytes] = [sum.reads, sum.writes, sum.bytes].map(scale::grouped);
            format!("{reads:>16} {writes:>16} {bytes:>16}")
        };
        for (name, sum) in sorted.iter().take(shown) {
            writeln!(out, "{}  {name}", row(sum))?;
        }
        writeln!(
            out,
            "{}  all {}",
            row(&total),
            scale::grouped(sorted.len() as u64)
        )
    }
}

/// The first line of the accesses.
const HEAD: &str = "thread,instruction,kind,address,bytes,process,function,file";

/// The function and the file of a block as fields.
fn fields(name: Option<&String>) -> String {
    let (function, file) = name.map_or((None, None), |name| parts_of_name(name));
    let [function, file] = [function, file].map(|text| field(text.unwrap_or_default()));
    format!("{function},{file}")
}

/// Reports the accesses of a process that are not there.
fn note_losses(name: &str, execution: &RecordedExecution) {
    if execution.unrecorded > 0 {
        let count = scale::counted(execution.unrecorded, "access");
        note!(
            "ilk: {name}Not recorded: {count}, by masks, gathers, states of extensions, or bits by a register."
        );
    }
    match execution.totals {
        None => {
            note!("ilk: {name}{NO_END}");
            if execution.accesses > 0 {
                note!("ilk: {name}{NO_NAMES}");
            }
        }
        Some(totals) if totals.bytes_lost > 0 => {
            let (lost, kept) = (totals.bytes_lost, totals.bytes);
            let [lost, kept] = [lost, kept].map(scale::grouped);
            let why = match totals.write_error() {
                Some(error) => format!(", since the file could not be written ({error})"),
                None => String::new(),
            };
            note!("ilk: {name}{lost} bytes of records were lost, after {kept} bytes{why}.");
        }
        Some(_) => {}
    }
}

/// The function of a block: its name without an offset, `work (program)`.
fn function(names: &HashMap<u32, String>, block: u64) -> String {
    let name = u32::try_from(block)
        .ok()
        .and_then(|block| names.get(&block));
    let Some(name) = name else {
        return "?".to_owned();
    };
    match parts_of_name(name) {
        (Some(function), Some(file)) => format!("{function} ({file})"),
        (None, Some(file)) => file.to_owned(),
        _ => name.clone(),
    }
}
