//! The command line.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::parts::{PARTS, Part};

/// The measured kernels by their command-line names: Debian's own, and the later series of the same
/// archive.
const KERNELS: [(&str, Option<&str>); 2] = [("debian", None), ("6.12", Some("6.12"))];

/// The parsed command line.
pub(crate) struct Options {
    pub(crate) runs: usize,
    pub(crate) quick: bool,
    pub(crate) add: bool,
    pub(crate) series: Vec<Option<&'static str>>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) parts: Vec<&'static Part>,
}

/// Parses the command line.
pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Options> {
    let mut options = Options {
        runs: 1,
        quick: false,
        add: false,
        series: KERNELS.map(|(_, series)| series).to_vec(),
        out: None,
        parts: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => options.quick = true,
            "--add" => options.add = true,
            "--runs" => {
                let number = words.next().and_then(|number| number.parse().ok());
                options.runs = number.context("--runs needs a number")?;
            }
            "--on" => {
                let name = words.next().unwrap_or_default();
                let known = KERNELS.iter().find(|(kernel, _)| *kernel == name);
                let names = KERNELS.map(|(kernel, _)| kernel).join(", ");
                let (_, series) = known.with_context(|| format!("--on needs one of {names}"))?;
                options.series = vec![*series];
            }
            "--out" => {
                let directory = words.next().context("--out needs a directory")?;
                options.out = Some(PathBuf::from(directory));
            }
            name => match PARTS.iter().find(|part| part.name == name) {
                Some(part) => options.parts.push(part),
                None => {
                    let known = PARTS.iter().map(|part| part.name);
                    let known = known.collect::<Vec<_>>().join(", ");
                    anyhow::bail!(
                        "{word:?} is none of --quick, --runs, --on, --add, --out, {known}"
                    )
                }
            },
        }
    }
    if options.parts.is_empty() {
        options.parts = PARTS.iter().collect();
    }
    if options.quick {
        options.series.truncate(1);
    }
    Ok(options)
}
