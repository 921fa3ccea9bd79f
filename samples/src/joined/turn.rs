//! Conversion of one machine's rows to those of the joint recording, of a complete recording or
//! while it is made.

use std::collections::HashMap;

use crate::clocks::Alignment;
use crate::metadata::{Clock, MachineInfo, Metadata};
use crate::record::ALL_CPUS;
use crate::texts::Texts;
use crate::{Batch, Error, InstrumentId, Meaning, Result, Sample};

/// Frequency of the joint clock.
pub(super) const HZ: u64 = 1_000_000_000;
/// Unit of values in ticks of the TSC.
pub(super) const TICKS: &str = "ticks";

/// Converts rows of one machine: aligns its clock, offsets its CPUs and major numbers by those of
/// the machines before it, and converts ticks to nanoseconds.
#[derive(Clone, Debug)]
pub struct Turn {
    alignment: Alignment,
    first_cpu: u16,
    first_major: u32,
    pub(super) first_placement: u32,
    pub(super) hz: u64,
    /// Original identifiers of instruments that measure ticks.
    ticks: HashMap<u64, Meaning>,
}

impl Turn {
    /// Returns the alignment of the machine's clock.
    #[must_use]
    pub const fn alignment(&self) -> &Alignment {
        &self.alignment
    }

    /// Replaces the alignment of the machine's clock.
    pub fn align(&mut self, alignment: Alignment) {
        self.alignment = alignment;
    }

    /// Returns nanoseconds since 1970 at a TSC of the machine.
    #[must_use]
    pub fn unix_ns(&self, tsc: u64) -> u64 {
        self.alignment.unix_ns(tsc)
    }

    /// Converts a batch of samples.
    #[must_use]
    pub fn batch(&self, batch: &Batch) -> Batch {
        let turned = |sample: &Sample| Sample {
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
            samples: batch.samples.iter().map(turned).collect(),
        }
    }

    pub(super) fn cpu(&self, cpu: u16) -> u16 {
        if cpu == ALL_CPUS {
            return cpu;
        }
        self.first_cpu.saturating_add(cpu)
    }

    /// Converts an identifier to the joint major number.
    pub(super) fn id(&self, id: u64) -> u64 {
        InstrumentId::renumbered(id, self.first_major)
    }

    pub(super) fn nanoseconds(&self, ticks: u64) -> u64 {
        let all = u128::from(ticks) * u128::from(HZ) / u128::from(self.hz);
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

/// Metadata of a joint recording under construction, machine by machine.
#[derive(Debug, Default)]
pub struct Joint {
    metadata: Metadata,
    kernels: Vec<String>,
    cpu: u16,
    major: u32,
    placement: u32,
    /// Index of each machine's first instrument.
    firsts: Vec<usize>,
}

impl Joint {
    /// Returns the conversion for the next machine, which has `cpus` CPUs.
    ///
    /// # Errors
    /// [`Error::Joint`] if there are too many functions or CPUs to number.
    pub fn turn(&mut self, metadata: &Metadata, cpus: u32, alignment: Alignment) -> Result<Turn> {
        let turn = Turn {
            alignment,
            first_cpu: self.cpu,
            first_major: self.major,
            first_placement: self.placement,
            hz: metadata.clock.hz.max(1),
            ticks: ticks(metadata),
        };
        self.cpu = u16::try_from(u32::from(self.cpu).saturating_add(cpus))
            .ok()
            .filter(|cpu| *cpu < ALL_CPUS)
            .ok_or(Error::Joint { what: "CPUs" })?;
        self.major = Some(self.major.saturating_add(metadata.next_major()))
            .filter(|major| *major <= InstrumentId::MAJORS)
            .ok_or(Error::Joint { what: "functions" })?;
        self.placement = self.placement.saturating_add(metadata.next_placement());
        Ok(turn)
    }

    /// Adds the metadata of the machine that `turn` was made for, and the error bound of its times.
    pub fn describe(
        &mut self,
        name: &str,
        metadata: &Metadata,
        turn: &Turn,
        error_ns: Option<u64>,
    ) {
        let joint = &mut self.metadata;
        let machines = &joint.machines;
        let name = unused(name, |name| machines.iter().any(|one| one.name == name));
        if joint.machines.is_empty() {
            metadata.session.clone_into(&mut joint.session);
        }
        self.firsts.push(joint.instruments.len());
        joint.append_named(&name, metadata, turn.first_major, turn.first_placement);
        if !self.kernels.contains(&metadata.kernel) {
            self.kernels.push(metadata.kernel.clone());
        }
        joint.machines.push(MachineInfo {
            kernel: metadata.kernel.clone(),
            first_cpu: turn.first_cpu,
            start_unix_ns: turn.unix_ns(metadata.clock.start),
            error_ns,
            name,
        });
    }

    /// Returns the joint metadata, on the recording machine's clock; second 0 is that of the
    /// earliest machine.
    #[must_use]
    pub fn finish(self) -> Metadata {
        let Self {
            mut metadata,
            kernels,
            cpu,
            firsts,
            ..
        } = self;
        let starts = metadata
            .machines
            .iter()
            .map(|machine| machine.start_unix_ns);
        let start = starts.min().unwrap_or_default();
        // Launch times are relative to second 0 of the instrument's own machine.
        let ends = firsts.iter().skip(1).copied();
        let ends = ends.chain([metadata.instruments.len()]);
        for ((machine, first), end) in metadata.machines.iter().zip(&firsts).zip(ends) {
            let later = (machine.start_unix_ns - start) as f64 / HZ as f64;
            for instrument in metadata
                .instruments
                .get_mut(*first..end)
                .unwrap_or_default()
            {
                instrument.launch += later;
                instrument.splash += later;
            }
        }
        metadata.kernel = kernels.join(", ");
        metadata.cpus = u32::from(cpu);
        metadata.clock = Clock {
            hz: HZ,
            start,
            start_unix_ns: start,
        };
        metadata
    }
}

/// Returns the name, with a number appended if it is taken.
#[must_use]
pub fn unused(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..u32::MAX).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| !taken(name))
        .unwrap_or_else(|| name.to_owned())
}

/// Returns the instruments whose values are ticks, or running totals of them.
fn ticks(metadata: &Metadata) -> HashMap<u64, Meaning> {
    let instruments = metadata.instruments.iter();
    // The value of a line is the number of its format.
    let is_line = |id: u64| matches!(metadata.texts.get(id), Some(Texts::Lines(_)));
    let measures =
        instruments.filter(|instrument| instrument.unit == TICKS && !is_line(instrument.id));
    measures
        .map(|instrument| (instrument.id, instrument.meaning))
        .collect()
}
