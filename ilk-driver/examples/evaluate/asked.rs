//! What the command line asks for.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::parts::{PARTS, Part};

/// The kernels measured on, as the command line calls them: Debian's own, and the later series of the same archive.
const KERNELS: [(&str, Option<&str>); 2] = [("debian", None), ("6.12", Some("6.12"))];

/// What was asked for.
pub(crate) struct Asked {
    pub(crate) runs: usize,
    pub(crate) quick: bool,
    pub(crate) add: bool,
    pub(crate) series: Vec<Option<&'static str>>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) parts: Vec<&'static Part>,
}

/// Reads the command line.
pub(crate) fn asked(mut words: impl Iterator<Item = String>) -> anyhow::Result<Asked> {
    let mut asked = Asked {
        runs: 1,
        quick: false,
        add: false,
        series: KERNELS.map(|(_, series)| series).to_vec(),
        out: None,
        parts: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => asked.quick = true,
            "--add" => asked.add = true,
            "--runs" => {
                let number = words.next().and_then(|number| number.parse().ok());
                asked.runs = number.context("--runs wants a number")?;
            }
            "--on" => {
                let name = words.next().unwrap_or_default();
                let known = KERNELS.iter().find(|(kernel, _)| *kernel == name);
                let names = KERNELS.map(|(kernel, _)| kernel).join(", ");
                let (_, series) = known.with_context(|| format!("--on wants one of {names}"))?;
                asked.series = vec![*series];
            }
            "--out" => {
                let directory = words.next().context("--out wants a directory")?;
                asked.out = Some(PathBuf::from(directory));
            }
            name => match PARTS.iter().find(|part| part.name == name) {
                Some(part) => asked.parts.push(part),
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
    if asked.parts.is_empty() {
        asked.parts = PARTS.iter().collect();
    }
    if asked.quick {
        asked.series.truncate(1);
    }
    Ok(asked)
}
