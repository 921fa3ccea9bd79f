//! Samples by running thread: where instruments report the thread that a CPU runs, every sample of
//! that CPU belongs to that thread until the next report.
//!
//! An instrument reports threads if `thread` is the [unit](UNIT) of its values. The reporting
//! sample belongs to the reported thread; samples of a CPU before its first report belong to an
//! unknown thread. Samples of a CPU are in the order of its ring, so times are not compared, and
//! samples at one tick are attributed correctly. Where reporting samples were lost, the previous
//! thread is assumed to continue.
//!
//! An instrument names threads if [`thread name`](NAMES_UNIT) is its unit, and its lines are the process
//! of the thread, its number and its name. A thread has the last name that it had.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::metadata::{InstrumentInfo, MachineInfo, Metadata};
use crate::record::ALL_CPUS;
use crate::texts::{Form, PrintedLine, Texts, text_of};
use crate::{Batch, Meaning};

/// Unit of the values of instruments that report the running thread.
pub const UNIT: &str = "thread";

/// Unit of the lines of instruments that name threads.
pub const NAMES_UNIT: &str = "thread name";

/// Returns whether the lines of an instrument are processes, numbers and names of threads.
fn names_threads(metadata: &Metadata, info: &InstrumentInfo) -> bool {
    let is_name = |line: &PrintedLine| {
        let forms: Vec<&Form> = line.arguments().map(|argument| &argument.form).collect();
        let is_number = |form: &&Form| matches!(form, Form::Signed | Form::Unsigned);
        matches!(&*forms, [process, thread, Form::Text] if is_number(process) && is_number(thread))
    };
    info.unit == NAMES_UNIT
        && matches!(metadata.texts.get(info.id), Some(Texts::Lines(lines)) if lines.iter().all(is_name))
}

/// Returns whether an instrument reports the running thread.
#[must_use]
pub fn reports_threads(info: &InstrumentInfo) -> bool {
    info.unit == UNIT && info.meaning == Meaning::Value
}

/// Place of samples without a known thread.
const UNKNOWN: u16 = 0;
/// Place of all threads beyond the maximum.
const OTHERS: u16 = ALL_CPUS - 1;

/// A thread that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thread {
    /// The thread with this number, on the machine at this index of a joined recording.
    Known(usize, u64),
    /// One of the last threads of more than sixty thousand.
    Other,
    /// No thread had been reported yet.
    Unknown,
}

/// The threads that ran, and the assignment of samples to them.
///
/// Threads have *places*, numbered from 0 by arrival: the index by threads has places instead of
/// CPUs.
#[derive(Debug, Default)]
pub struct Threads {
    reporters: BTreeSet<u64>,
    /// Machines of a joined recording.
    machines: Vec<MachineInfo>,
    /// Place of the running thread of each CPU.
    running: HashMap<u16, u16>,
    places: HashMap<(usize, u64), u16>,
    /// Instruments whose lines name threads.
    namers: BTreeSet<u64>,
    /// The words of a line of each CPU that has more, and its time.
    lines: HashMap<u16, (u64, Vec<u64>)>,
    names: HashMap<(usize, u64), NamedThread>,
}

/// The last line that names a thread.
#[derive(Debug, Default)]
struct NamedThread {
    tsc: u64,
    process: u64,
    name: String,
}

impl Threads {
    /// Returns no threads yet; `None` if no instrument of a recording reports threads.
    pub(super) fn of(metadata: &Metadata) -> Option<Self> {
        let reporters = metadata
            .instruments
            .iter()
            .filter(|info| reports_threads(info));
        let reporters: BTreeSet<u64> = reporters.map(|info| info.id).collect();
        let namers = metadata.instruments.iter();
        let namers = namers.filter(|info| names_threads(metadata, info));
        let namers = namers.map(|info| info.id).collect();
        (!reporters.is_empty()).then(|| Self {
            reporters,
            namers,
            machines: metadata.machines.clone(),
            ..Self::default()
        })
    }

    /// Splits samples of one CPU by running thread, into batches with places instead of CPUs.
    /// Batches of a CPU arrive in the order of its ring.
    pub(super) fn assign(&mut self, batch: &Batch) -> Vec<Batch> {
        if batch.cpu == ALL_CPUS {
            // Totals belong to no thread.
            return vec![batch.clone()];
        }
        // A single machine has index 0.
        let machine = MachineInfo::of(&self.machines, batch.cpu).unwrap_or(0);
        let mut place = self.running.get(&batch.cpu).copied().unwrap_or(UNKNOWN);
        let mut by_place: BTreeMap<u16, Batch> = BTreeMap::new();
        for sample in &batch.samples {
            if self.reporters.contains(&sample.id) {
                place = self.place(machine, sample.value);
            }
            let part = by_place.entry(place).or_insert_with(|| Batch {
                cpu: place,
                samples: Vec::new(),
            });
            part.samples.push(*sample);
        }
        self.running.insert(batch.cpu, place);
        by_place.into_values().collect()
    }

    /// Learns the names in [further words](crate::Sample::is_word) of one CPU, which arrive in the order of its ring.
    pub(super) fn learn(&mut self, words: &Batch) {
        let machine = MachineInfo::of(&self.machines, words.cpu).unwrap_or(0);
        for word in &words.samples {
            if !self.namers.contains(&word.without_mark().id) {
                continue;
            }
            let line = self.lines.entry(words.cpu).or_default();
            if line.0 != word.tsc {
                // The rest of the line before was lost.
                *line = (word.tsc, Vec::new());
            }
            line.1.push(word.value);
            let [process, number, first, second] = *line.1 else {
                continue;
            };
            line.1.clear();
            let last = self.names.entry((machine, number)).or_default();
            if word.tsc >= last.tsc {
                *last = NamedThread {
                    tsc: word.tsc,
                    process,
                    name: text_of([first, second]),
                };
            }
        }
    }

    fn place(&mut self, machine: usize, number: u64) -> u16 {
        let next = u16::try_from(self.places.len() + 1).unwrap_or(OTHERS);
        let place = self.places.entry((machine, number));
        if next >= OTHERS {
            // All places are taken.
            return match place {
                std::collections::hash_map::Entry::Occupied(known) => *known.get(),
                std::collections::hash_map::Entry::Vacant(_) => OTHERS,
            };
        }
        *place.or_insert(next)
    }

    /// Returns every thread and its place, ordered by machine and number; unknown threads are last.
    #[must_use]
    pub fn places(&self) -> BTreeMap<Thread, u16> {
        let known = self.places.iter();
        known
            .map(|(&(machine, number), &place)| (Thread::Known(machine, number), place))
            .chain([(Thread::Other, OTHERS), (Thread::Unknown, UNKNOWN)])
            .collect()
    }

    /// Returns the name of a thread: `make (thread 143)`, or `thread 143` if nothing names it.
    #[must_use]
    pub fn name(&self, thread: Thread) -> String {
        match thread {
            Thread::Known(machine, number) => {
                self.named((machine, number), &format!("thread {number}"))
            }
            Thread::Other => "other threads".to_owned(),
            Thread::Unknown => "unknown thread".to_owned(),
        }
    }

    /// Returns the name of a thread's process: `make (process 140)`. It is that of the process's first thread, or
    /// of this one if nothing names the first.
    #[must_use]
    pub fn process(&self, thread: Thread) -> String {
        let Thread::Known(machine, number) = thread else {
            return "unknown process".to_owned();
        };
        let Some(named) = self.names.get(&(machine, number)) else {
            return "unknown process".to_owned();
        };
        let first = (machine, named.process);
        let key = if self.names.contains_key(&first) {
            first
        } else {
            (machine, number)
        };
        self.named(key, &format!("process {}", named.process))
    }

    /// Returns the name of a thread, with its number or that of its process.
    fn named(&self, (machine, number): (usize, u64), numbered: &str) -> String {
        let numbered = match self.machines.get(machine) {
            Some(machine) => format!("{numbered} of {}", machine.name),
            None => numbered.to_owned(),
        };
        match self.names.get(&(machine, number)) {
            // The idle thread of each CPU has its CPU in its name, and all have one number.
            Some(_) if number == 0 => format!("idle ({numbered})"),
            Some(named) => format!("{} ({numbered})", named.name),
            None => numbered,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Sample;
    use crate::index::Index;
    use crate::metadata::Delivers;
    use crate::texts::{Argument, PrintedPart};

    const TELLER: u64 = 7;

    fn metadata() -> Metadata {
        let info = |id, unit: &str, meaning| InstrumentInfo {
            id,
            label: String::new(),
            instrument: String::new(),
            meaning,
            unit: unit.to_owned(),
            launch: 0.0,
            splash: 1.0,
            placed: None,
            delivers: Delivers::Samples,
        };
        Metadata {
            instruments: vec![
                info(TELLER, UNIT, Meaning::Value),
                info(8, "threads", Meaning::Value),
                info(9, "", Meaning::Event),
            ],
            ..Metadata::default()
        }
    }

    #[test]
    fn threads_have_the_last_name_of_their_lines() {
        const NAMER: u64 = 10;
        let mut metadata = metadata();
        metadata.instruments.push(InstrumentInfo {
            id: NAMER,
            unit: NAMES_UNIT.into(),
            meaning: Meaning::Event,
            ..metadata.instruments[2].clone()
        });
        let argument = |form| PrintedPart::Argument(Argument::plain(form));
        let forms = [Form::Signed, Form::Signed, Form::Text];
        let line = PrintedLine(forms.map(argument).to_vec());
        metadata.texts.insert(NAMER, Texts::Lines(vec![line]));
        let sample = |id, value, tsc| Sample { id, value, tsc };
        let name = |text: &[u8; 8]| u64::from_le_bytes(*text);
        let line = |number, text, tsc| {
            let word = |value| sample(NAMER, value, tsc).as_word();
            // Threads 31 to 40 are of one process.
            let process = if number > 31 { 31 } else { number };
            let words = [word(process), word(number), word(name(text)), word(0)];
            [
                &[sample(TELLER, number, tsc), sample(NAMER, 0, tsc)],
                &words[..],
            ]
            .concat()
        };
        let mut index = Index::default().by_thread_and_level(&metadata);
        let mut append = |cpu, samples: Vec<Sample>| index.append(&Batch { cpu, samples });
        append(0, line(31, b"sh\0\0\0\0\0\0", 10));
        append(1, line(31, b"make\0\0\0\0", 30));
        // An earlier line of a CPU that is read later, and a line whose words come apart.
        append(0, line(31, b"ls\0\0\0\0\0\0", 20));
        let mut parts = line(40, b"cc1\0\0\0\0\0", 40);
        let rest = parts.split_off(3);
        append(0, parts);
        append(0, rest);
        // A line without its end names nothing.
        let mut cut = line(41, b"as\0\0\0\0\0\0", 50);
        cut.pop();
        append(0, cut);
        append(0, line(0, b"swapper\0", 60));
        let threads = index.threads().unwrap();
        let named = [31, 40, 41, 0].map(|number| threads.name(Thread::Known(0, number)));
        let expected = [
            "make (thread 31)",
            "cc1 (thread 40)",
            "thread 41",
            "idle (thread 0)",
        ];
        assert_eq!(named, expected);
        let processes = [31, 40, 41, 0].map(|number| threads.process(Thread::Known(0, number)));
        let of_make = "make (process 31)";
        let expected = [of_make, of_make, "unknown process", "idle (process 0)"];
        assert_eq!(processes, expected);
    }

    /// Samples of each thread and instrument, in order of time.
    type Had = BTreeMap<(Thread, u64), Vec<(u64, u64)>>;

    fn had(index: &Index) -> Had {
        let threads = index.threads().unwrap();
        let mut had = Had::new();
        for (thread, place) in threads.places() {
            for id in [TELLER, 8, 9] {
                let part = index.by_thread().unwrap().part(Some(place));
                let found = part.samples_in(id, 0, u64::MAX, usize::MAX);
                if !found.is_empty() {
                    let found = found.iter().map(|point| (point.tsc, point.value));
                    had.insert((thread, id), found.collect());
                }
            }
        }
        had
    }

    proptest! {
        #[test]
        fn every_sample_belongs_to_the_last_reported_thread(
            samples in prop::collection::vec((0u16..3, 0u64..3, 0u64..4, 0u64..3), 1..200),
            cuts in prop::collection::vec(1usize..20, 1..40),
        ) {
            // Per CPU in order of time, possibly with several samples at one time.
            let mut cpus: BTreeMap<u16, Vec<Sample>> = BTreeMap::new();
            for (cpu, kind, value, later) in samples {
                let own = cpus.entry(cpu).or_default();
                let tsc = own.last().map_or(1, |last| last.tsc) + later;
                own.push(Sample { id: TELLER + kind, value, tsc });
            }
            // By a backward search from each sample.
            let mut brute = Had::new();
            for of_cpu in cpus.values() {
                for (at, sample) in of_cpu.iter().enumerate() {
                    let reported = of_cpu.iter().take(at + 1).rfind(|one| one.id == TELLER);
                    let thread = reported.map_or(Thread::Unknown, |one| Thread::Known(0, one.value));
                    brute.entry((thread, sample.id)).or_default().push((sample.tsc, sample.value));
                }
            }
            // Batch by batch, the CPUs in turn.
            let mut index = Index::new().by_thread_and_level(&metadata());
            let mut cuts = cuts.into_iter().cycle();
            while cpus.values().any(|own| !own.is_empty()) {
                for (&cpu, own) in &mut cpus {
                    let many = cuts.next().unwrap_or(1).min(own.len());
                    let samples: Vec<Sample> = own.drain(..many).collect();
                    index.append(&Batch { cpu, samples });
                }
            }
            let sorted = |had: Had| -> Had {
                let sorted = had.into_iter().map(|(key, mut points)| {
                    points.sort_unstable();
                    (key, points)
                });
                sorted.collect()
            };
            prop_assert_eq!(sorted(had(&index)), sorted(brute));
        }
    }

    #[test]
    fn totals_have_no_thread_and_machines_have_separate_threads() {
        let machine = |name: &str, first_cpu| MachineInfo {
            name: name.to_owned(),
            kernel: String::new(),
            first_cpu,
            start_unix_ns: 0,
            error_ns: None,
        };
        let metadata = Metadata {
            machines: vec![machine("alpha", 0), machine("beta", 2)],
            ..metadata()
        };
        let mut index = Index::new().by_thread_and_level(&metadata);
        let sample = |id, value, tsc| Sample { id, value, tsc };
        for (cpu, samples) in [
            (1, vec![sample(9, 0, 1), sample(TELLER, 40, 2)]),
            (2, vec![sample(TELLER, 40, 1), sample(9, 5, 3)]),
            (ALL_CPUS, vec![sample(8, 100, 9)]),
        ] {
            index.append(&Batch { cpu, samples });
        }
        let threads = index.threads().unwrap();
        let had = had(&index);
        let names: Vec<String> = had
            .iter()
            .map(|((thread, id), points)| format!("{} {id} {points:?}", threads.name(*thread)))
            .collect();
        assert_eq!(
            names,
            [
                "thread 40 of alpha 7 [(2, 40)]",
                "thread 40 of beta 7 [(1, 40)]",
                "thread 40 of beta 9 [(3, 5)]",
                "unknown thread 9 [(1, 0)]",
            ]
        );
        assert_eq!(index.by_thread().unwrap().cpus(8), [ALL_CPUS].into());
    }

    #[test]
    fn without_reports_there_are_no_threads() {
        let mut metadata = metadata();
        metadata.instruments.remove(0);
        assert!(
            Index::new()
                .by_thread_and_level(&metadata)
                .threads()
                .is_none()
        );
    }

    #[test]
    fn more_threads_than_there_are_places_share_the_last() {
        // An index of as many threads takes half a minute, and adds nothing to this.
        let mut threads = Threads::of(&metadata()).unwrap();
        let reported = |value: u64| Sample {
            id: TELLER,
            value,
            tsc: value,
        };
        let samples = (0..70_000).chain([3]).map(reported).collect();
        let parts = threads.assign(&Batch { cpu: 0, samples });
        let places = threads.places();
        let count = |thread: Thread| {
            let place = places.get(&thread).copied();
            let own = parts.iter().filter(|part| Some(part.cpu) == place);
            own.map(|part| part.samples.len() as u64).sum::<u64>()
        };
        assert_eq!(count(Thread::Known(0, 3)), 2);
        assert_eq!(count(Thread::Other), 70_000 - (u64::from(OTHERS) - 1));
    }
}
