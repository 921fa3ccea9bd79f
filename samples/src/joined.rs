//! Recordings of several machines as one, on one timeline.
//!
//! Each machine keeps its samples in a recording of its own. Joined, they are read as if one had
//! been made: times are nanoseconds since 1970 by the clock of whoever recorded
//! ([`Alignment`]), CPUs and major numbers are counted on from machine to machine, and what is
//! measured in ticks is turned into ticks of that one clock, which are nanoseconds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::clocks::Alignment;
use crate::index::{Index, KEPT};
use crate::metadata::{Clock, FunctionInfo, InstrumentInfo, MachineInfo, Metadata};
use crate::record::ALL_CPUS;
use crate::recording::{Loss, Mark, MarkKind, Recording, Summary, Writer};
use crate::{Batch, Error, InstrumentId, Meaning, Result, Sample};

mod totals;

/// Ticks a second of the joint clock.
const HZ: u64 = 1_000_000_000;
/// The unit of what is measured in ticks of the TSC.
const TICKS: &str = "ticks";

/// Several recordings, read as one.
#[derive(Debug)]
pub struct Joined {
    members: Vec<Member>,
    metadata: Metadata,
}

/// A machine's recording, and what turns its rows into those of the joint one.
#[derive(Debug)]
struct Member {
    recording: Recording,
    alignment: Alignment,
    first_cpu: u16,
    first_major: u32,
    hz: u64,
    /// Identifiers, before they were turned, of instruments that measure ticks.
    ticks: HashMap<u64, Meaning>,
}

impl Joined {
    /// Joins recordings, each under a name, which is the machine's own ([`name`]) or one that was given.
    ///
    /// # Errors
    /// [`Error::Joint`] if there are too many functions or CPUs to count through; as for
    /// [`Recording::marks`].
    pub fn new(recordings: impl IntoIterator<Item = (String, Recording)>) -> Result<Self> {
        let mut metadata = Metadata::default();
        let (mut members, mut kernels) = (Vec::new(), Vec::<String>::new());
        let (mut cpu, mut major) = (0, 0);
        for (name, recording) in recordings {
            let own = recording.metadata();
            let name = unused(&metadata.machines, name);
            let member = Member {
                alignment: Alignment::of(&recording)?,
                first_cpu: cpu,
                first_major: major,
                hz: own.clock.hz.max(1),
                ticks: ticks(own),
                recording,
            };
            let own = member.recording.metadata();
            let (first, last) = member.recording.span().unwrap_or_default();
            let machine = MachineInfo {
                kernel: own.kernel.clone(),
                first_cpu: cpu,
                start_unix_ns: member.alignment.unix_ns(own.clock.start),
                error_ns: member.alignment.worst_ns(first, last),
                name,
            };
            member.describe(own, &machine.name, &mut metadata);
            cpu = u16::try_from(u32::from(cpu).saturating_add(cpus(&member.recording)))
                .ok()
                .filter(|cpu| *cpu < ALL_CPUS)
                .ok_or(Error::Joint { what: "CPUs" })?;
            major = Some(major.saturating_add(majors(own)))
                .filter(|major| *major <= InstrumentId::MAJORS)
                .ok_or(Error::Joint { what: "functions" })?;
            if !kernels.contains(&own.kernel) {
                kernels.push(own.kernel.clone());
            }
            metadata.machines.push(machine);
            members.push(member);
        }
        let starts = metadata
            .machines
            .iter()
            .map(|machine| machine.start_unix_ns);
        let start = starts.min().unwrap_or_default();
        // Each instrument has been launched so long after second 0 of its own machine.
        for (member, machine) in members.iter().zip(&metadata.machines) {
            let later = (machine.start_unix_ns - start) as f64 / HZ as f64;
            let of = member.first_major
                ..member
                    .first_major
                    .saturating_add(majors(member.recording.metadata()));
            for instrument in &mut metadata.instruments {
                if of.contains(&((instrument.id >> 28) as u32 & (InstrumentId::MAJORS - 1))) {
                    instrument.launch += later;
                    instrument.splash += later;
                }
            }
        }
        metadata.kernel = kernels.join(", ");
        metadata.cpus = u32::from(cpu);
        metadata.clock = Clock {
            hz: HZ,
            start,
            start_unix_ns: start,
        };
        if let Some(first) = members.first() {
            first
                .recording
                .metadata()
                .session
                .clone_into(&mut metadata.session);
        }
        Ok(Self { members, metadata })
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

    /// What a recording of all of it would say of itself; `machines` says how exact its times are.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The recordings, in the order of `machines`.
    pub fn recordings(&self) -> impl Iterator<Item = &Recording> {
        self.members.iter().map(|member| &member.recording)
    }

    /// Number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.recordings().map(Recording::samples).sum()
    }

    /// Earliest and latest time of a sample, in nanoseconds since 1970; `None` without samples.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let spans = self.members.iter().filter_map(|member| {
            let (first, last) = member.recording.span()?;
            let at = |tsc| member.alignment.unix_ns(tsc);
            Some((at(first), at(last)))
        });
        spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Every batch, machine by machine, in the order of its file.
    pub fn batches(&self) -> impl Iterator<Item = Result<Batch>> {
        self.members.iter().flat_map(|member| {
            let turned = |batch: Result<Batch>| batch.map(|batch| member.batch(batch));
            member.recording.batches().map(turned)
        })
    }

    /// The index of all of it, and the errors of batches that could not be read. `progress` is told the
    /// number of samples after every batch.
    pub fn index(&self, mut progress: impl FnMut(u64)) -> (Index, Vec<Error>) {
        let mut index = Index::limited(KEPT, self.span().unwrap_or_default());
        let (mut errors, mut samples) = (Vec::new(), 0);
        for batch in self.batches() {
            match batch {
                Ok(batch) => {
                    index.append(&batch);
                    samples += batch.samples.len() as u64;
                    progress(samples);
                }
                Err(error) => errors.push(error),
            }
        }
        (index, errors)
    }

    /// Every loss.
    ///
    /// # Errors
    /// As for [`Recording::losses`].
    pub fn losses(&self) -> Result<Vec<Loss>> {
        let mut all = Vec::new();
        for member in &self.members {
            let losses = member.recording.losses()?;
            all.extend(losses.into_iter().map(|loss| Loss {
                cpu: member.cpu(loss.cpu),
                tsc: member.alignment.unix_ns(loss.tsc),
                ..loss
            }));
        }
        Ok(all)
    }

    /// Every mark but the readings of clocks, which have been used.
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
                        tsc: member.alignment.unix_ns(mark.tsc),
                        id: member.id(mark.id),
                        value: match mark.kind {
                            MarkKind::Launch | MarkKind::Splash => member.nanoseconds(mark.value),
                            _ => mark.value,
                        },
                        ..mark
                    }),
            );
        }
        Ok(all)
    }

    /// Writes all of it as one recording, which everything that reads a recording reads. `progress` is told
    /// the number of samples after every batch.
    ///
    /// # Errors
    /// As for [`Writer`]; [`Error::DamagedBatch`] if a batch cannot be read.
    pub fn write(&self, path: &Path, mut progress: impl FnMut(u64)) -> Result<Summary> {
        let mut writer = Writer::create(path, &self.metadata)?;
        let mut samples = 0;
        for batch in self.batches() {
            let batch = batch?;
            writer.write(&batch)?;
            samples += batch.samples.len() as u64;
            progress(samples);
        }
        writer.losses(&self.losses()?)?;
        self.marks()?
            .into_iter()
            .try_for_each(|mark| writer.mark(mark))?;
        writer.totals(self.totals());
        writer.finish()
    }
}

/// The recordings in a folder, by name.
///
/// # Errors
/// [`Error::Io`] if it cannot be read or has none.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |error| Error::io(folder, error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|end| end == "arrow") {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(io(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "no recording (.arrow) is in this folder",
        )));
    }
    Ok(found)
}

/// What a recording's machine is called: by itself, or else as its file is.
#[must_use]
pub fn name(recording: &Recording) -> String {
    let machine = &recording.metadata().machine;
    if !machine.is_empty() {
        return machine.clone();
    }
    let stem = recording.path().file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

impl Member {
    fn batch(&self, batch: Batch) -> Batch {
        let turned = |sample: Sample| Sample {
            id: self.id(sample.id),
            value: match self.ticks.get(&sample.id) {
                None => sample.value,
                Some(Meaning::Event) => self.alignment.unix_ns(sample.value),
                Some(_) => self.nanoseconds(sample.value),
            },
            tsc: self.alignment.unix_ns(sample.tsc),
        };
        Batch {
            cpu: self.cpu(batch.cpu),
            samples: batch.samples.into_iter().map(turned).collect(),
        }
    }

    fn cpu(&self, cpu: u16) -> u16 {
        if cpu == ALL_CPUS {
            return cpu;
        }
        self.first_cpu.saturating_add(cpu)
    }

    /// With the major number of the joint recording.
    fn id(&self, id: u64) -> u64 {
        if id == 0 && self.first_major == 0 {
            return id;
        }
        id.wrapping_add(u64::from(self.first_major) << 28) & ((1 << 48) - 1)
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        let all = u128::from(ticks) * u128::from(HZ) / u128::from(self.hz);
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Adds what this recording says of itself.
    fn describe(&self, own: &Metadata, machine: &str, joint: &mut Metadata) {
        let functions = own.functions.iter().map(|function| FunctionInfo {
            major: function.major.saturating_add(self.first_major),
            ..function.clone()
        });
        joint.functions.extend(functions);
        let instruments = own.instruments.iter().map(|instrument| InstrumentInfo {
            id: self.id(instrument.id),
            label: format!("{machine}: {}", instrument.label),
            ..instrument.clone()
        });
        joint.instruments.extend(instruments);
    }
}

/// The name, or with a number behind it if another machine has it.
fn unused(machines: &[MachineInfo], name: String) -> String {
    let taken = |name: &str| machines.iter().any(|machine| machine.name == name);
    if !taken(&name) {
        return name;
    }
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    numbered
        .take(machines.len() + 1)
        .find(|name| !taken(name))
        .unwrap_or(name)
}

/// One more than the largest major number.
fn majors(metadata: &Metadata) -> u32 {
    let functions = metadata.functions.iter().map(|function| function.major);
    let instruments = metadata
        .instruments
        .iter()
        .filter_map(|instrument| InstrumentId::unpack(instrument.id));
    let majors = functions.chain(instruments.map(|id| id.major));
    majors.max().map_or(0, |most| most.saturating_add(1))
}

/// One more than the largest CPU of the target, or of the batches if that is more.
fn cpus(recording: &Recording) -> u32 {
    let cpus = recording.blocks().iter().map(|block| block.cpu);
    let most = cpus.filter(|cpu| *cpu != ALL_CPUS).max();
    let most = most.map_or(0, |most| u32::from(most) + 1);
    most.max(recording.metadata().cpus)
}

/// The instruments whose values are ticks: how many, or of an event, its time.
fn ticks(metadata: &Metadata) -> HashMap<u64, Meaning> {
    let instruments = metadata.instruments.iter();
    let measures = instruments.filter(|instrument| instrument.unit == TICKS);
    measures
        .map(|instrument| (instrument.id, instrument.meaning))
        .collect()
}

#[cfg(test)]
mod tests;
