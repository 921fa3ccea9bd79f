//! The choice of what follows when an instrumented process executes another program, and its measurements in one program
//! after the other.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use gilk_samples::beside::Beside;
use gilk_samples::recording::{Recording, Summary};
use serde::{Deserialize, Serialize};

use super::Client;
use crate::{Error, Result};

/// Time between two looks at processes.
pub const LOOK: Duration = Duration::from_millis(50);
/// Time after which a process that cannot be instrumented is left alone: one that begins is not ready at first.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The fate of the measurement of a process that executes another program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Exec {
    /// It ends.
    #[default]
    Ends,
    /// It is made in that program, too.
    Follows,
}

impl Exec {
    /// Returns why a process with a part of the kernel cannot be measured so, if so.
    #[must_use]
    pub fn refused_with_kernel(self) -> Option<&'static str> {
        (self == Self::Follows)
            .then_some("A process with a part of the kernel is measured in one program")
    }
}

/// Measures in the programs that a process executes after the one in which it was measured, until it ends or `is_over`.
/// `measure` is given the number of each, from 1 on, and `left_alone` the reason why one cannot be measured, once.
pub fn executions<M, E>(
    process: Client,
    is_over: &dyn Fn() -> bool,
    mut measure: impl FnMut(usize) -> std::result::Result<M, E>,
    mut left_alone: impl FnMut(E),
) -> Vec<M> {
    let mut all = Vec::new();
    loop {
        let measure = || measure(all.len() + 1);
        match next_execution(process, is_over, measure, &mut left_alone) {
            Some(measured) => all.push(measured),
            None => return all,
        }
    }
}

/// Measures in the program that a process executes now, as soon as that can be instrumented; `None` if the process has
/// ended by then.
fn next_execution<M, E>(
    process: Client,
    is_over: &dyn Fn() -> bool,
    mut measure: impl FnMut() -> std::result::Result<M, E>,
    mut left_alone: impl FnMut(E),
) -> Option<M> {
    let (begun, mut is_noted) = (Instant::now(), false);
    let mut tried = begun;
    while process.is_alive() && !is_over() {
        // A program that cannot be instrumented may execute another.
        let interval = if is_noted { PATIENCE } else { LOOK };
        if tried.elapsed() >= interval || tried == begun {
            let measured = measure();
            tried = Instant::now();
            match measured {
                Ok(measured) => return Some(measured),
                // One that begins is not ready at first.
                Err(error) if !is_noted && begun.elapsed() >= PATIENCE => {
                    is_noted = true;
                    left_alone(error);
                }
                Err(_) => {}
            }
        }
        std::thread::sleep(LOOK);
    }
    None
}

/// The name of a process among those of a recording.
#[must_use]
pub fn process_label(pid: u32) -> String {
    format!("process {pid}")
}

/// Writes the recordings of processes, or of the programs that one has executed, as one: their labels begin with their
/// names.
///
/// # Errors
/// [`Error::Recording`] if one cannot be read, or the whole cannot be written.
pub fn write_beside<'p>(
    recordings: impl Iterator<Item = (String, &'p Path)>,
    output: &Path,
) -> Result<Summary> {
    let failed = |source| Error::Recording { source };
    let opened = recordings.map(|(name, recording)| Ok((name, Recording::open(recording)?)));
    let opened = opened
        .collect::<gilk_samples::Result<Vec<_>>>()
        .map_err(failed)?;
    let beside = Beside::new(opened).map_err(failed)?;
    beside.write(output).map_err(failed)
}
