//! Recordings of one machine as one: those of its kernel and of its processes, made at the same time.
//!
//! All of them have the time-stamp counter of the machine, and its CPUs, so times and CPUs stay as they are, and samples
//! of a CPU are merged in order of time. Functions and placements are numbered from recording to recording. Machines with
//! clocks of their own are [joined](crate::joined) instead.

use std::collections::BTreeMap;
use std::path::Path;

use crate::metadata::Metadata;
use crate::output;
use crate::recording::{Mark, MarkKind, Recording, Summary, Writer};
use crate::totals::Totals;
use crate::{Batch, Error, InstrumentId, Result, Sample};

/// Samples of a CPU that are written at a time.
const BATCH: usize = 1 << 12;

/// Several recordings of a machine, read as one.
#[derive(Debug)]
pub struct Beside {
    members: Vec<RecordedPart>,
    metadata: Metadata,
}

#[derive(Debug)]
struct RecordedPart {
    recording: Recording,
    name: String,
    /// Number of its first function.
    first_major: u32,
    /// Number of its first placement.
    first_placement: u32,
}

impl Beside {
    /// Puts recordings together, each under a name, which the labels of its instruments begin with; they stay as they are if
    /// it is empty.
    ///
    /// # Errors
    /// [`Error::Joint`] if there are too many functions to number; [`Error::OtherClock`] if the clock of a recording has another
    /// rate than that of the first.
    pub fn new(recordings: impl IntoIterator<Item = (String, Recording)>) -> Result<Self> {
        let mut members: Vec<RecordedPart> = Vec::new();
        let mut metadata: Option<Metadata> = None;
        let (mut major, mut placement) = (0_u32, 0_u32);
        for (name, recording) in recordings {
            let own = recording.metadata();
            let joint = metadata.get_or_insert_with(|| Metadata {
                functions: Vec::new(),
                instruments: Vec::new(),
                texts: crate::texts::SampleTexts::default(),
                lines: crate::block_lines::BlockLines::default(),
                ..own.clone()
            });
            if !own.clock.has_rate_of(&joint.clock) || !own.machines.is_empty() {
                return Err(Error::OtherClock {
                    path: recording.path().to_path_buf(),
                });
            }
            joint.append_named(&name, own, major, placement);
            joint.cpus = joint.cpus.max(own.cpus);
            if own.clock.start < joint.clock.start {
                joint.clock = own.clock;
            }
            let (first_major, first_placement) = (major, placement);
            major = major.saturating_add(own.next_major());
            if major > InstrumentId::MAJORS {
                return Err(Error::Joint { what: "functions" });
            }
            placement = placement.saturating_add(own.next_placement());
            members.push(RecordedPart {
                first_major,
                first_placement,
                name,
                recording,
            });
        }
        let mut metadata = metadata.unwrap_or_default();
        let mut instruments = metadata.instruments.iter_mut();
        for member in &members {
            // Launch and splash are seconds from the start of their own recording.
            let own = member.recording.metadata();
            let later = metadata.clock.seconds(own.clock.start);
            for instrument in instruments.by_ref().take(own.instruments.len()) {
                instrument.launch += later;
                instrument.splash += later;
            }
        }
        Ok(Self { members, metadata })
    }

    /// Describes the session that all of them are of, in place of that of the first.
    #[must_use]
    pub fn of_session(mut self, session: String) -> Self {
        self.metadata.session = session;
        self
    }

    /// Returns the metadata of all of them.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Writes everything as one recording, which replaces `path` when it is whole.
    ///
    /// # Errors
    /// As for [`Writer`]; [`Error::DamagedBatch`] if a batch cannot be read.
    pub fn write(&self, path: &Path) -> Result<Summary> {
        let written = output::recording(path, |new| self.write_to(new))?;
        Ok(Summary {
            path: path.to_path_buf(),
            ..written
        })
    }

    fn write_to(&self, path: &Path) -> Result<Summary> {
        let mut writer = Writer::create(path, &self.metadata)?;
        self.write_samples(&mut writer)?;
        for member in &self.members {
            writer.losses(&member.recording.losses()?)?;
        }
        for (number, member) in self.members.iter().enumerate() {
            for mark in member.recording.marks()? {
                // The readings of a clock by another machine's are those of the first recording.
                if number == 0 || mark.kind != MarkKind::Clock {
                    writer.mark(member.mark(mark))?;
                }
            }
        }
        writer.totals(self.totals());
        writer.finish()
    }

    /// Writes the samples of all recordings in order of time, each with its further words, which are read in this order.
    fn write_samples(&self, writer: &mut Writer) -> Result<()> {
        let mut merged: Vec<_> = (self.members.iter())
            .map(|member| member.recording.merged().peekable())
            .collect();
        let words = self.members.iter().map(|member| member.recording.words());
        let mut words: Vec<_> = words.collect();
        let mut waiting: BTreeMap<u16, Vec<Sample>> = BTreeMap::new();
        loop {
            let mut earliest: Option<(u64, usize)> = None;
            for (number, samples) in merged.iter_mut().enumerate() {
                let at = match samples.peek() {
                    None => continue,
                    Some(Ok((_, sample))) => sample.tsc,
                    // An error is the next to be returned.
                    Some(Err(_)) => 0,
                };
                if earliest.is_none_or(|(first, _)| at < first) {
                    earliest = Some((at, number));
                }
            }
            let Some((_, number)) = earliest else {
                break;
            };
            let next = merged.get_mut(number).and_then(Iterator::next);
            let member = self.members.get(number).zip(words.get_mut(number));
            let Some((next, (member, words))) = next.zip(member) else {
                break;
            };
            let (cpu, sample) = next?;
            let count = member.recording.metadata().texts.words(&sample);
            // Without all of its words it has none.
            let words = words.take(cpu, &sample, count)?.unwrap_or_default();
            let sample = member.sample(&sample);
            let further = words.into_iter().map(|value| Sample { value, ..sample });
            let samples = waiting.entry(cpu).or_default();
            samples.push(sample);
            samples.extend(further.map(Sample::as_word));
            if samples.len() >= BATCH {
                let samples = std::mem::take(samples);
                writer.write(&Batch { cpu, samples })?;
            }
        }
        for (cpu, samples) in waiting {
            writer.write(&Batch { cpu, samples })?;
        }
        Ok(())
    }

    /// Returns the totals of all of them; names of instruments begin with that of their recording.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut all = Totals::default();
        for member in &self.members {
            let mut totals = member.recording.totals().clone();
            // Gaps are in seconds from the start of their own recording.
            let own = member.recording.metadata().clock;
            let later = self.metadata.clock.seconds(own.start);
            for mut gap in std::mem::take(&mut totals.gaps) {
                gap.out += later;
                gap.back = gap.back.map(|back| back + later);
                gap.why = format!("{}: {}", member.name, gap.why);
                all.gaps.push(gap);
            }
            all.symbols.append(&mut totals.symbols);
            all.stacks.frames.append(&mut totals.stacks.frames);
            all.cache = all.cache.or(totals.cache);
            all.append(totals.named(&member.name), member.first_placement as usize);
        }
        all
    }
}

impl RecordedPart {
    fn sample(&self, sample: &Sample) -> Sample {
        Sample {
            id: InstrumentId::renumbered(sample.id, self.first_major),
            ..*sample
        }
    }

    /// A mark of an instrument has its identifier; one of a user has 0.
    fn mark(&self, mark: Mark) -> Mark {
        match mark.kind {
            MarkKind::Launch | MarkKind::Splash => Mark {
                id: InstrumentId::renumbered(mark.id, self.first_major),
                ..mark
            },
            _ => mark,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use tempfile::TempDir;

    use super::*;
    use crate::index::Index;
    use crate::metadata::{Clock, Delivers, InstrumentInfo, Placed};
    use crate::recording::{Loss, LossCause};
    use crate::texts::{Argument, Form, PrintedLine, PrintedPart, Texts};
    use crate::totals::{Total, TotalValue};
    use crate::{HookType, Meaning};

    const HZ: u64 = 1_000_000_000;

    fn id(major: u32) -> u64 {
        let id = InstrumentId::new(major, HookType::Pre, 0, 0);
        id.unwrap().pack()
    }

    /// A recording with samples of one instrument: CPUs, times and values.
    fn record(dir: &TempDir, name: &str, start: u64, samples: &[(u16, u64, u64)]) -> Recording {
        let metadata = Metadata {
            cpus: 2,
            clock: Clock {
                hz: HZ,
                start,
                start_unix_ns: 5 * HZ + start,
            },
            instruments: vec![InstrumentInfo {
                id: id(3),
                label: "sizes".into(),
                instrument: "sizes".into(),
                meaning: Meaning::Event,
                unit: String::new(),
                launch: 0.0,
                splash: 1.0,
                placed: Some(Placed {
                    placement: 4,
                    function: "f".into(),
                    major: 3,
                }),
                delivers: Delivers::Samples,
            }],
            ..Metadata::default()
        };
        let path = dir.path().join(name);
        let mut writer = Writer::create(&path, &metadata).unwrap();
        for &(cpu, tsc, value) in samples {
            let id = id(3);
            let samples = vec![Sample { id, value, tsc }];
            writer.write(&Batch { cpu, samples }).unwrap();
        }
        let loss = Loss {
            cpu: 1,
            tsc: start,
            cause: LossCause::RingFull,
            count: 7,
        };
        writer.losses(&[loss]).unwrap();
        writer.totals(Totals {
            added_up: vec![Total {
                placement: 4,
                instrument: "sizes".into(),
                name: "all".into(),
                unit: String::new(),
                may_be_zero: false,
                value: TotalValue::Number(9),
            }],
            ..Totals::default()
        });
        writer.finish().unwrap();
        Recording::open(path).unwrap()
    }

    #[test]
    fn a_kernel_and_a_process_are_one_recording_in_order_of_time() {
        let dir = TempDir::new().unwrap();
        let kernel = record(
            &dir,
            "kernel",
            1000,
            &[(0, 1020, 2), (0, 1030, 3), (1, 1025, 9)],
        );
        let process = record(
            &dir,
            "process",
            500,
            &[(0, 1010, 1), (0, 1040, 4), (1, 1025, 8), (1, 2000, 5)],
        );
        let all = [("kernel", kernel), ("process 7", process)];
        let all = all.map(|(name, recording)| (name.to_owned(), recording));
        let beside = Beside::new(all).unwrap();
        let path = dir.path().join("all");
        let summary = beside.write(&path).unwrap();
        assert_eq!(summary.samples, 7);
        let read = Recording::open(&path).unwrap();
        let own = read.metadata();
        assert_eq!((own.clock.start, own.cpus), (500, 2));
        let labels: Vec<&str> = own
            .instruments
            .iter()
            .map(|one| one.label.as_str())
            .collect();
        assert_eq!(labels, ["kernel: sizes", "process 7: sizes"]);
        let ids = [id(3), id(7)];
        assert_eq!(own.instruments[1].id, ids[1]);
        let launches: Vec<f64> = own.instruments.iter().map(|one| one.launch).collect();
        assert_eq!(launches, [500.0 / HZ as f64, 0.0]);
        let placements = own.instruments.iter();
        let placements = placements.map(|one| one.placed.as_ref().unwrap().placement);
        assert_eq!(placements.collect::<Vec<_>>(), [4, 9]);
        let samples: Vec<_> = read.merged().map(Result::unwrap).collect();
        let found: Vec<_> = samples
            .iter()
            .map(|(cpu, one)| (*cpu, one.tsc, one.value, one.id))
            .collect();
        let [of_kernel, of_process] = ids;
        let expected = [
            (0, 1010, 1, of_process),
            (0, 1020, 2, of_kernel),
            (1, 1025, 9, of_kernel),
            (1, 1025, 8, of_process),
            (0, 1030, 3, of_kernel),
            (0, 1040, 4, of_process),
            (1, 2000, 5, of_process),
        ];
        assert_eq!(found, expected);
        let (index, errors) = Index::of(&read, |_| ControlFlow::Continue(()));
        assert!(errors.is_empty());
        let mut values = Vec::new();
        index.visit(of_process, 0, u64::MAX, |point| values.push(point.value));
        values.sort_unstable();
        assert_eq!(values, [1, 4, 5, 8]);
        assert_eq!(
            read.losses()
                .unwrap()
                .iter()
                .map(|loss| loss.count)
                .sum::<u64>(),
            14
        );
        let totals = read.totals();
        let names: Vec<_> = totals
            .added_up
            .iter()
            .map(|one| (one.instrument.as_str(), one.placement))
            .collect();
        assert_eq!(names, [("kernel: sizes", 4), ("process 7: sizes", 9)]);
    }

    /// Two processes that print on a CPU in turn.
    #[test]
    fn each_line_has_its_own_words() {
        let dir = TempDir::new().unwrap();
        let number = PrintedPart::Argument(Argument::plain(Form::Unsigned));
        let lines = Texts::Lines(vec![PrintedLine(vec![number])]);
        let printed = |name: &str, times: [u64; 3]| {
            let mut metadata = record(&dir, name, 5, &[]).metadata().clone();
            metadata.texts.insert(id(3), lines.clone());
            let path = dir.path().join(format!("{name} with lines"));
            let mut writer = Writer::create(&path, &metadata).unwrap();
            for tsc in times {
                let head = Sample {
                    id: id(3),
                    value: 0,
                    tsc,
                };
                let word = Sample {
                    value: tsc + 1,
                    ..head
                }
                .as_word();
                let samples = vec![head, word];
                writer.write(&Batch { cpu: 0, samples }).unwrap();
            }
            // The last one has lost its word.
            let samples = vec![Sample {
                id: id(3),
                value: 0,
                tsc: 90,
            }];
            writer.write(&Batch { cpu: 1, samples }).unwrap();
            writer.finish().unwrap();
            (name.to_owned(), Recording::open(path).unwrap())
        };
        let parts = [printed("one", [10, 30, 60]), printed("other", [20, 50, 70])];
        let path = dir.path().join("all");
        Beside::new(parts).unwrap().write(&path).unwrap();
        let read = Recording::open(&path).unwrap();
        let mut words = read.words();
        let found = read.merged().map(|found| {
            let (cpu, sample) = found.unwrap();
            let words = words.take(cpu, &sample, 1).unwrap();
            (sample.tsc, words.map(|words| words[0]))
        });
        let printed = [10, 20, 30, 50, 60, 70].map(|tsc| (tsc, Some(tsc + 1)));
        let expected = [&printed[..], &[(90, None), (90, None)]].concat();
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_recording_of_another_clock_is_refused_by_its_path() {
        let dir = TempDir::new().unwrap();
        let one = record(&dir, "one", 1, &[]);
        let metadata = Metadata {
            clock: Clock {
                hz: HZ + HZ / 500,
                ..Clock::default()
            },
            ..Metadata::default()
        };
        let path = dir.path().join("other");
        Writer::create(&path, &metadata).unwrap().finish().unwrap();
        let other = Recording::open(&path).unwrap();
        let all = [one, other].map(|recording| (String::new(), recording));
        let error = Beside::new(all).unwrap_err().to_string();
        assert!(
            error.contains("other") && error.contains("clock"),
            "{error}"
        );
    }
}
