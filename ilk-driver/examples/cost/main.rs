//! What hits cost, in guest instructions, ilk's beside those of everything else that can be attached
//! to a stock kernel; what it costs to count every block of every function that a system call runs
//! through; and how long it takes to install and remove ten thousand splices.
//!
//! `cost [--runs N] [hits] [blocks] [many]`: all three parts where none is named. Each is done on
//! Debian's own kernel and on the later one. `cargo xtask bench lab` runs this.
//!
//! Instructions are counted by an emulator whose time stamp counter counts them (QEMU's `-icount
//! shift=0`, no address randomization, one CPU): the figures are the same every time. An int3 and an
//! `rdtsc` count as one, so they are a count and no time.

mod blocks;
mod guest;
mod hits;
mod many;
mod table;

use table::Table;

/// The kernels measured on: Debian's own, and the later series of the same archive.
const SERIES: [Option<&str>; 2] = [None, Some("6.12")];

fn main() -> anyhow::Result<()> {
    let mut runs = 1;
    let mut parts = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--runs" => {
                runs = words
                    .next()
                    .and_then(|number| number.parse().ok())
                    .ok_or_else(|| anyhow::anyhow!("--runs wants a number"))?;
            }
            "hits" | "blocks" | "many" => parts.push(word),
            _ => anyhow::bail!("{word:?} is none of --runs, hits, blocks, many"),
        }
    }
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|known| known == part);
    type Part = fn(Option<&str>, &mut Table) -> anyhow::Result<()>;
    let all: [(&str, &str, Part); 3] = [
        (
            "hits",
            "Guest instructions for each hit, above the bare call of __x64_sys_getpid",
            hits::measure,
        ),
        (
            "blocks",
            "Every block of every function that one system call runs through, counted: guest \
             instructions added to each call",
            blocks::measure,
        ),
        (
            "many",
            "Ten thousand functions' inner blocks at once: seconds of an emulated machine",
            many::measure,
        ),
    ];
    for (part, title, measure) in all {
        if !wanted(part) {
            continue;
        }
        let mut table = Table::default();
        for series in SERIES {
            for run in 0..runs {
                eprintln!("{part}: run {} of {runs} on {}", run + 1, name(series));
                measure(series, &mut table)?;
            }
        }
        println!("{title}\n\n{table}");
    }
    Ok(())
}

/// What a person reads of a series.
fn name(series: Option<&str>) -> &str {
    series.unwrap_or("Debian's own kernel")
}
