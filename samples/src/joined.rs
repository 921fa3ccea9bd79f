//! Recordings of several machines read as one, on one timeline.
//!
//! Each machine has its own recording. Joined, they read like a single one: times are nanoseconds
//! since 1970 by the recording machine's clock ([`Alignment`]), CPUs and major numbers continue
//! from machine to machine, and values in ticks become ticks of that common clock, which are
//! nanoseconds.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::clocks::Alignment;
use crate::index::{Index, KEPT};
use crate::metadata::Metadata;
use crate::output;
use crate::record::ALL_CPUS;
use crate::recording::{Loss, Mark, MarkKind, Recording, Summary, Writer};
use crate::{Batch, Error, Result};

mod totals;
mod turn;

pub use turn::{Joint, Turn, unused};

/// Several recordings, read as one.
#[derive(Debug)]
pub struct Joined {
    members: Vec<Member>,
    metadata: Metadata,
}

/// A machine's recording, and the conversion of its rows.
#[derive(Debug)]
struct Member {
    recording: Recording,
    turn: Turn,
}

impl Joined {
    /// Joins recordings, each under a name: the machine's own ([`name`]), or another one.
    ///
    /// # Errors
    /// [`Error::Joint`] if there are too many functions or CPUs to number; as for
    /// [`Recording::marks`].
    pub fn new(recordings: impl IntoIterator<Item = (String, Recording)>) -> Result<Self> {
        let mut joint = Joint::default();
        let mut members = Vec::new();
        for (name, recording) in recordings {
            let own = recording.metadata();
            let turn = joint.turn(own, cpus(&recording), Alignment::of(&recording)?)?;
            let (first, last) = recording.span().unwrap_or_default();
            joint.describe(&name, own, &turn, turn.alignment().worst_ns(first, last));
            members.push(Member { recording, turn });
        }
        Ok(Self {
            members,
            metadata: joint.finish(),
        })
    }

    /// Opens the recordings at these paths and joins them.
    ///
    /// # Errors
    /// As for [`Recording::open`] and [`Joined::new`].
    pub fn open(paths: &[impl AsRef<Path>]) -> Result<Self> {
        let open =
            |path: &Path| Recording::open(path).map(|recording| (name(&recording), recording));
        let opened: Vec<_> = paths
            .iter()
            .map(|path| open(path.as_ref()))
            .collect::<Result<_>>()?;
        Self::new(opened)
    }

    /// Returns the joint metadata; `machines` contains the accuracy of its times.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the joint metadata with the [measured](crate::statistics::measured) times of each
    /// instrument, on the joint clock.
    ///
    /// # Errors
    /// As for [`marks`](Self::marks).
    pub fn measured(&self) -> Result<Metadata> {
        let mut metadata = self.metadata.clone();
        let mut infos = metadata.instruments.iter_mut();
        for member in &self.members {
            let measured = member.recording.measured()?;
            let clock = &measured.clock;
            for (of, info) in measured.instruments.iter().zip(&mut infos) {
                debug_assert_eq!(
                    member.turn.id(of.id),
                    info.id,
                    "instruments keep their order"
                );
                let joint = |seconds| {
                    let unix_ns = member.turn.unix_ns(clock.tsc(seconds));
                    self.metadata.clock.seconds(unix_ns)
                };
                (info.launch, info.splash) = (joint(of.launch), joint(of.splash));
            }
        }
        Ok(metadata)
    }

    /// Returns the recordings, in the order of `machines`.
    pub fn recordings(&self) -> impl Iterator<Item = &Recording> {
        self.members.iter().map(|member| &member.recording)
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.recordings().map(Recording::samples).sum()
    }

    /// Returns the minimum and maximum time of all samples, in nanoseconds since 1970; `None`
    /// without samples.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let spans = self.members.iter().filter_map(|member| {
            let (first, last) = member.recording.span()?;
            let at = |tsc| member.turn.unix_ns(tsc);
            Some((at(first), at(last)))
        });
        spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Returns every batch, machine by machine, in the order of its file.
    pub fn batches(&self) -> impl Iterator<Item = Result<Batch>> {
        self.members.iter().flat_map(|member| {
            let turned = |batch: Result<Batch>| batch.map(|batch| member.turn.batch(&batch));
            member.recording.batches().map(turned)
        })
    }

    /// Builds the joint index, and returns the errors of batches that could not be read. `progress`
    /// receives the number of samples after every batch, and stops the build by breaking.
    pub fn index(&self, progress: impl FnMut(u64) -> ControlFlow<()>) -> (Index, Vec<Error>) {
        let span = self.span().unwrap_or_default();
        let index = Index::limited(KEPT, span).by_thread_and_level(self.metadata());
        index.filled(self.batches(), progress)
    }

    /// Returns every loss.
    ///
    /// # Errors
    /// As for [`Recording::losses`].
    pub fn losses(&self) -> Result<Vec<Loss>> {
        let mut all = Vec::new();
        for member in &self.members {
            let losses = member.recording.losses()?;
            all.extend(losses.into_iter().map(|loss| Loss {
                cpu: member.turn.cpu(loss.cpu),
                tsc: member.turn.unix_ns(loss.tsc),
                ..loss
            }));
        }
        Ok(all)
    }

    /// Returns every mark except the readings of clocks, which the alignment has used.
    ///
    /// # Errors
    /// As for [`Recording::marks`].
    pub fn marks(&self) -> Result<Vec<Mark>> {
        let mut all = Vec::new();
        for member in &self.members {
            let marks = member.recording.marks()?.into_iter();
            all.extend(
                marks
                    .filter(|mark| mark.kind != MarkKind::Clock)
                    .map(|mark| Mark {
                        tsc: member.turn.unix_ns(mark.tsc),
                        id: member.turn.id(mark.id),
                        value: match mark.kind {
                            MarkKind::Launch | MarkKind::Splash => {
                                member.turn.nanoseconds(mark.value)
                            }
                            _ => mark.value,
                        },
                        ..mark
                    }),
            );
        }
        Ok(all)
    }

    /// Writes everything as one recording, for everything that reads one; it replaces `path` when it
    /// is whole. `progress` receives the number of samples after every batch.
    ///
    /// # Errors
    /// As for [`Writer`]; [`Error::DamagedBatch`] if a batch cannot be read.
    pub fn write(&self, path: &Path, mut progress: impl FnMut(u64)) -> Result<Summary> {
        let written = output::recording(path, |new| self.write_to(new, &mut progress))?;
        Ok(Summary {
            path: path.to_path_buf(),
            ..written
        })
    }

    fn write_to(&self, path: &Path, progress: &mut dyn FnMut(u64)) -> Result<Summary> {
        let mut writer = Writer::create(path, &self.metadata)?;
        let mut samples = 0;
        for batch in self.batches() {
            let batch = batch?;
            writer.write(&batch)?;
            samples += batch.samples.len() as u64;
            progress(samples);
        }
        for member in &self.members {
            for words in member.recording.word_batches() {
                writer.write(&member.turn.batch(&words?))?;
            }
        }
        writer.losses(&self.losses()?)?;
        self.marks()?
            .into_iter()
            .try_for_each(|mark| writer.mark(mark))?;
        writer.totals(self.totals());
        writer.finish()
    }
}

/// Returns the recordings in a folder, sorted by name.
///
/// # Errors
/// [`Error::Io`] if it cannot be read or contains none.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |error| Error::io(folder, error);
    let mut readings = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|end| end == "arrow") {
            readings.push(path);
        }
    }
    readings.sort();
    if readings.is_empty() {
        return Err(io(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "no recording (.arrow) is in this folder",
        )));
    }
    Ok(readings)
}

/// Returns the name of a recording's machine, or else of its file.
#[must_use]
pub fn name(recording: &Recording) -> String {
    let machine = &recording.metadata().machine;
    if !machine.is_empty() {
        return machine.clone();
    }
    let stem = recording.path().file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Returns the number of CPUs of the target, or of the batches if that is more.
fn cpus(recording: &Recording) -> u32 {
    let cpus = recording.blocks().iter().map(|block| block.cpu);
    let most = cpus.filter(|cpu| *cpu != ALL_CPUS).max();
    let most = most.map_or(0, |most| u32::from(most) + 1);
    most.max(recording.metadata().cpus)
}

#[cfg(test)]
mod tests;
