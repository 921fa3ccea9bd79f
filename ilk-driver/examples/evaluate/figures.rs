//! The figures of an experiment, accumulated over runs of this program.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::table::Tables;

/// The results of all runs of one experiment.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    /// Number of runs by kernel.
    runs: BTreeMap<String, usize>,
    pub(crate) tables: Tables,
}

impl Figures {
    /// Reads the figures of earlier runs; returns none if there is no such file.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("reading {}", file.display()))?,
        };
        serde_json::from_str(&text)
            .with_context(|| format!("{} holds no figures of earlier runs", file.display()))
    }

    pub(crate) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    }

    /// Returns whether the experiment was never run.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Counts a run.
    pub(crate) fn ran_on(&mut self, kernel: &str) {
        *self.runs.entry(kernel.to_owned()).or_default() += 1;
    }

    /// Returns the number of runs, by kernel if they differ.
    pub(crate) fn runs(&self) -> String {
        let mut numbers = self.runs.values();
        let first = numbers.next();
        if let Some(first) = first
            && numbers.all(|number| number == first)
        {
            return first.to_string();
        }
        let each = self
            .runs
            .iter()
            .map(|(kernel, runs)| format!("{runs} on {kernel}"));
        each.collect::<Vec<_>>().join(", ")
    }
}
