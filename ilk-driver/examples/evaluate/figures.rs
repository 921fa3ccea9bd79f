//! The figures of an experiment, kept from one sitting to the next.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::table::Tables;

/// What all runs of one experiment came to.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    /// How often it was done, by kernel.
    runs: BTreeMap<String, usize>,
    pub(crate) tables: Tables,
}

impl Figures {
    /// Those of earlier runs; none where there is no such file.
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

    /// Whether it was never done.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Notes that it was done once more.
    pub(crate) fn ran_on(&mut self, kernel: &str) {
        *self.runs.entry(kernel.to_owned()).or_default() += 1;
    }

    /// How often, by kernel where they differ.
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
