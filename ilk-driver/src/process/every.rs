//! A measurement in every process that executes a program: in those of now, and in those that begin meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use super::{Client, LOOK, PATIENCE, ProgramFile};
use crate::{Error, Result};

/// The end of a measurement in every process of a program.
#[derive(Debug)]
pub struct EveryEnd<M> {
    /// The results of all processes, in the order of their ends.
    pub measured: Vec<M>,
    /// The number of processes that had ended before they were instrumented.
    pub missed: u64,
}

/// News of such a measurement.
#[derive(Debug)]
pub enum EveryNews<'n, E> {
    /// No process executes the program at the start.
    NoneNow,
    /// A process cannot be instrumented, and is left alone.
    LeftAlone(Client, &'n E),
}

/// Measures in a process, which has a number, until the function returns that the measurement is over.
type MeasureProcess<'m, M, E> =
    dyn Fn(Client, u32, &(dyn Fn() -> bool + Sync)) -> std::result::Result<M, E> + Sync + 'm;

/// Processes that were not instrumented.
#[derive(Default)]
struct Missed {
    /// Since when each was tried.
    since: BTreeMap<Client, Instant>,
    /// Those that are left alone.
    left: BTreeSet<Client>,
    /// The number of those that had ended by then.
    ended: u64,
}

impl Missed {
    /// Adds a process that could not be instrumented. Returns whether it is left alone from now on.
    fn add(&mut self, process: Client, file: ProgramFile) -> bool {
        let since = *self.since.entry(process).or_insert_with(Instant::now);
        let lives = file.processes().is_ok_and(|all| all.contains(&process));
        if !lives {
            self.ended += 1;
            self.since.remove(&process);
        }
        lives && since.elapsed() >= PATIENCE && self.left.insert(process)
    }

    /// Counts those that have ended before they were tried again.
    fn count_ended(&mut self, processes: &[Client], is_tried: impl Fn(&Client) -> bool) {
        let left = &self.left;
        let has_ended = |process: &Client, _: &mut Instant| {
            !processes.contains(process) && !is_tried(process) && !left.contains(process)
        };
        self.ended += self.since.extract_if(.., has_ended).count() as u64;
    }
}

/// Measures in all processes that execute a program until `is_over`, each in a thread of its own: `measure` is given the
/// process, its number from 1 on, and a function that returns whether the measurement is over.
///
/// # Errors
/// [`Error::Io`] if the processes cannot be listed. All measurements have ended then.
pub fn in_every<M: Send, E: Send + From<Error>>(
    file: ProgramFile,
    is_over: &(dyn Fn() -> bool + Sync),
    measure: &MeasureProcess<'_, M, E>,
    news: &mut dyn FnMut(EveryNews<'_, E>),
) -> std::result::Result<EveryEnd<M>, E> {
    let failed = AtomicBool::new(false);
    let is_over = || failed.load(Ordering::Relaxed) || is_over();
    let (mut all, mut missed) = (Vec::new(), Missed::default());
    let mut number = 0_u32;
    std::thread::scope(|scope| {
        let mut running: BTreeMap<Client, ScopedJoinHandle<'_, _>> = BTreeMap::new();
        let mut is_first = true;
        loop {
            let is_last = is_over();
            let processes = file.processes().inspect_err(|_| {
                // Its threads end before this returns.
                failed.store(true, Ordering::Relaxed);
            })?;
            missed.count_ended(&processes, |process| running.contains_key(process));
            for process in processes {
                if is_last || running.contains_key(&process) || missed.left.contains(&process) {
                    continue;
                }
                number += 1;
                let is_over = &is_over;
                running.insert(
                    process,
                    scope.spawn(move || measure(process, number, is_over)),
                );
            }
            if std::mem::take(&mut is_first) && running.is_empty() {
                news(EveryNews::NoneNow);
            }
            let ended = running.extract_if(.., |_, thread| is_last || thread.is_finished());
            let ended: Vec<_> = ended.collect();
            let mut is_left = false;
            for (process, thread) in ended {
                let why = "A thread has failed, which is a bug in gilk.";
                let failed = |_| Err(Error::Target(why.to_owned()).into());
                match thread.join().unwrap_or_else(failed) {
                    Ok(measured) => {
                        missed.since.remove(&process);
                        all.push(measured);
                    }
                    Err(error) => {
                        if missed.add(process, file) {
                            news(EveryNews::LeftAlone(process, &error));
                        }
                        is_left |= missed.left.contains(&process);
                    }
                }
            }
            // What keeps all of the start from being instrumented would keep others.
            if is_last || is_left && running.is_empty() && all.is_empty() {
                break Ok(());
            }
            std::thread::sleep(LOOK);
        }
    })
    .map(|()| EveryEnd {
        measured: all,
        missed: missed.ended,
    })
}

impl ProgramFile {
    /// Finds the file of a program by a path, or by a name as a shell does.
    ///
    /// # Errors
    /// [`Error::Target`] if there is none.
    pub fn find(program: &Path) -> Result<(PathBuf, Self)> {
        let name = program.display();
        let is_path = program.components().count() > 1 || program.is_file();
        let path = match is_path {
            true => Some(program.to_path_buf()),
            false => {
                let search = std::env::var_os("PATH").unwrap_or_default();
                let folders = std::env::split_paths(&search);
                let mut all = folders.map(|folder| folder.join(program));
                all.find(|path| path.is_file())
            }
        };
        let path = path.ok_or_else(|| Error::Target(format!("No folder of PATH has {name}.")))?;
        let path = std::fs::canonicalize(&path)
            .map_err(|error| Error::Target(format!("{name} is no program: {error}.")))?;
        let file = Self::at(&path)?;
        Ok((path, file))
    }
}
