//! A lab that tests share, and sessions in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use gilk_engine::kernel::LiveParts;
use gilk_engine::session::{Placement, Session, Workload};
use gilk_engine::{Image, Plan, Span};
use gilk_instruments::Library;
use gilk_samples::recording::Recording;
use gilk_samples::{HookType, InstrumentId, Sample};
use ilk_driver::client::{Connection, Event, StopFlag, Summary};
use ilk_driver::lab::{Lab, Options, Prepared, prepare};
use tempfile::TempDir;

/// Kernel messages that appear when the host did not run the emulated processor for a while: in the middle of a
/// timer's interrupt, or for seconds.
const SLOW: [&str; 2] = [
    "hrtimer: interrupt took",
    "clocksource: Long readout interval",
];

/// Beginnings of a kernel's reports on itself, after the time. A kernel for debugging has many, on locks and memory among
/// them. (What it says of its processor's bugs begins with their names.)
const REPORTS: [&str; 2] = ["] BUG: ", "] WARNING: "];

/// A module of the kernel that is loaded: it needs no device.
pub(crate) const DRIVER: &str = "tun";
/// One that is a block device without a disk.
const BLOCK_DEVICE: &str = "null_blk";

/// The longest silence of an emulated machine: beside others it executes a tenth of its instructions.
const ANSWERS: Duration = Duration::from_secs(120);

/// A booted lab with its kernel's image, used by one test at a time.
pub(crate) struct Shared {
    pub(crate) lab: Lab,
    pub(crate) image: Image,
    pub(crate) parts: LiveParts,
    turn: Mutex<()>,
}

/// The lab that tests share. It is up until this process ends, unless a test ended its kernel: then another one starts.
pub(crate) fn shared() -> Arc<Shared> {
    static UP: Mutex<Option<Arc<Shared>>> = Mutex::new(None);
    /// Ends the lab and removes its files, which nothing else does for a static.
    extern "C" fn end() {
        UP.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
    static ENDS: Once = Once::new();
    ENDS.call_once(|| {
        // SAFETY: the handler has no arguments and unwinds nowhere: what it drops does not panic.
        #[allow(unsafe_code, reason = "atexit(3)")]
        let outcome = unsafe { libc::atexit(end) };
        assert_eq!(outcome, 0);
    });
    let mut up = UP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = up.as_ref().filter(|shared| shared.lab.end().is_none()) {
        return Arc::clone(shared);
    }
    let shared = shared_of(&prepared());
    *up = Some(Arc::clone(&shared));
    shared
}

/// Starts a lab for one test.
pub(crate) fn shared_of(prepared: &Prepared) -> Arc<Shared> {
    let lab = Lab::boot(prepared, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let console = lab.console().unwrap();
    assert!(
        !REPORTS.iter().any(|report| console.contains(report)),
        "the kernel reports a bug as it boots and loads the module:\n{console}"
    );
    let mut connection = Connection::connect_within(lab.socket(), ANSWERS)
        .unwrap_or_else(|error| panic!("{error}\n{}", lab.console().unwrap()));
    let parts = connection
        .live_parts(&mut |_, _| ())
        .unwrap_or_else(|error| panic!("{error}"));
    let image = Image::from_live(&parts).unwrap_or_else(|error| panic!("{error}"));
    let image = image.on(&connection.info().layout);
    drop(connection);
    Arc::new(Shared {
        lab,
        image,
        parts,
        turn: Mutex::new(()),
    })
}

/// The lab's options: with drivers that tests load.
pub(crate) fn options() -> Options {
    Options {
        drivers: [DRIVER, BLOCK_DEVICE].map(str::to_owned).into(),
        ..Options::default()
    }
}

/// Prepares the lab's files.
pub(crate) fn prepared() -> Prepared {
    prepare(&options(), &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

/// Reads a number from an environment variable.
pub(crate) fn number_in(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("it should be a number"))
}

/// Results of a session.
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    pub(crate) summary: Summary,
    /// Lines that the workload printed.
    pub(crate) said: Vec<String>,
    /// Samples in order of time.
    pub(crate) samples: Vec<(u16, Sample)>,
    pub(crate) recording: PathBuf,
    _directory: TempDir,
}

impl Outcome {
    /// Seconds from the start.
    pub(crate) fn seconds(&self, tsc: u64) -> f64 {
        (tsc as f64 - self.summary.clock.start as f64) / self.summary.clock.hz as f64
    }

    /// Fails if the median of some intervals is longer than a second divided by `in_a_second`. Only the median is
    /// checked, because the host may stop the emulated processor at any time.
    pub(crate) fn assert_moments(&self, mut ticks: Vec<u64>, in_a_second: u64) {
        ticks.sort_unstable();
        let middle = ticks.get(ticks.len() / 2).expect("there are times");
        assert!(middle * in_a_second < self.summary.clock.hz, "{ticks:?}");
    }

    /// Returns the times of a placement's samples, in seconds from the start.
    pub(crate) fn times(&self, placement: usize) -> Vec<f64> {
        let id = self.id(placement).pack();
        self.samples
            .iter()
            .filter(|(_, sample)| sample.id == id)
            .map(|(_, sample)| self.seconds(sample.tsc))
            .collect()
    }

    pub(crate) fn id(&self, placement: usize) -> InstrumentId {
        self.plan
            .instruments
            .iter()
            .find(|instrument| instrument.placement == placement)
            .expect("every placement is planned")
            .id
    }

    /// Returns the hits that a counter has counted.
    pub(crate) fn total(&self, placement: usize) -> u64 {
        let id = self.id(placement).pack();
        let summary = self
            .summary
            .instruments
            .iter()
            .find(|instrument| instrument.id == id)
            .expect("every instrument is summed up");
        summary.total.expect("a counter has a total")
    }
}

impl Shared {
    /// Waits until no other test uses the lab.
    pub(crate) fn turn(&self) -> Turn<'_> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Turn {
            shared: self,
            console: self.console(),
            _turn: turn,
        }
    }

    fn console(&self) -> String {
        self.lab.console().unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The lab, for one test.
pub(crate) struct Turn<'a> {
    pub(crate) shared: &'a Shared,
    console: String,
    _turn: MutexGuard<'a, ()>,
}

impl Turn<'_> {
    pub(crate) fn connect(&self) -> Connection {
        Connection::connect_within(self.shared.lab.socket(), ANSWERS).unwrap_or_else(|error| {
            panic!("{error}\nThe console ends with:\n{}", self.shared.console())
        })
    }

    /// Runs a session until its workload ends, and reads its recording.
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        self.run_over(self.connect(), session)
    }

    /// Runs a session with the instruments of another library until its workload ends.
    pub(crate) fn run_with(&self, library: &Library, session: &Session) -> Outcome {
        self.run_all(self.connect(), (library, true), &lasting(session))
    }

    /// Runs a session over a given connection until its workload ends.
    pub(crate) fn run_over(&self, connection: Connection, session: &Session) -> Outcome {
        let library = Library::builtin().unwrap();
        self.run_all(connection, (&library, true), &lasting(session))
    }

    /// Runs a session over a given connection for its whole duration, also after its workload.
    pub(crate) fn run_whole(&self, connection: Connection, session: &Session) -> Outcome {
        self.run_all(connection, (&Library::builtin().unwrap(), false), session)
    }

    fn run_all(
        &self,
        mut connection: Connection,
        (library, to_its_end): (&Library, bool),
        session: &Session,
    ) -> Outcome {
        let directory = tempfile::tempdir().unwrap();
        let recording = directory.path().join("recording.arrow");
        let (plan, outcome) = run_with(
            &mut connection,
            (&self.shared.image, library),
            (session, to_its_end),
            &recording,
        );
        let (summary, said) = outcome.unwrap_or_else(|error| {
            panic!("{error}\nThe console ends with:\n{}", self.shared.console())
        });
        let opened = Recording::open(&recording).unwrap();
        // The recording has the totals that the run reported; means may differ in their last digit.
        let totals = opened.totals();
        let reported = (&summary.aggregates, &summary.failed_reads, &summary.no_room);
        let kept = (&totals.added_up, &totals.failed_reads, &totals.no_room);
        assert_eq!(format!("{kept:.1?}"), format!("{reported:.1?}"));
        let samples = opened.merged().collect::<Result<Vec<_>, _>>().unwrap();
        Outcome {
            plan,
            summary,
            said,
            samples,
            recording,
            _directory: directory,
        }
    }

    /// Fails unless the kernel's text is the same as at the start.
    pub(crate) fn assert_same_text(&self) {
        let now = self
            .connect()
            .live_parts(&mut |_, _| ())
            .unwrap_or_else(|error| panic!("{error}"));
        let text = self.shared.image.text();
        let (before, after) = (bytes(&self.shared.parts, text), bytes(&now, text));
        if before == after {
            return;
        }
        let changed: Vec<String> = before
            .iter()
            .zip(&after)
            .enumerate()
            .filter(|(_, (before, after))| before != after)
            .map(|(offset, (before, after))| {
                let at = text.start.add(offset as u64);
                let (name, into) = self.shared.image.symbol_at(at).unwrap_or(("?", 0));
                format!("{name}+{into:#x}: {before:02x} became {after:02x}")
            })
            .collect();
        assert!(
            before.len() == after.len() && changed.is_empty(),
            "{} bytes of text changed: {changed:#?}",
            changed.len()
        );
    }

    /// Fails unless the kernel's text is the same as at the start, and the kernel has printed nothing.
    pub(crate) fn assert_untouched(&self) {
        self.assert_same_text();
        let console = self.shared.console();
        let words: Vec<&str> = console
            .strip_prefix(&self.console)
            .expect("a console only grows")
            .lines()
            .filter(|line| line.starts_with('[') && !SLOW.iter().any(|slow| line.contains(slow)))
            .collect();
        assert!(words.is_empty(), "the kernel printed messages: {words:#?}");
    }
}

/// Returns a session whose duration only a workload that hangs exceeds: how long one takes is the machine's, so no test
/// depends on it. What lasts for the whole session still does. A session without a workload keeps its duration.
pub(crate) fn lasting(session: &Session) -> Session {
    const HANGS: f64 = 600.0;
    let mut longer = session.clone();
    if session.workload.is_some() && session.duration < HANGS {
        longer.duration = HANGS;
        let placements = longer.placements.iter_mut();
        for placement in placements.filter(|placement| placement.splash == session.duration) {
            placement.splash = HANGS;
        }
    }
    longer
}

/// Plans, verifies and runs a session over a connection until its workload ends.
pub(crate) fn run_to_its_end(
    connection: &mut Connection,
    image: &Image,
    session: &Session,
    recording: &Path,
) -> (Plan, ilk_driver::Result<(Summary, Vec<String>)>) {
    let library = Library::builtin().unwrap();
    run_with(
        connection,
        (image, &library),
        (&lasting(session), true),
        recording,
    )
}

/// Plans, verifies and runs a session over a connection for its whole duration.
pub(crate) fn run(
    connection: &mut Connection,
    image: &Image,
    session: &Session,
    recording: &Path,
) -> (Plan, ilk_driver::Result<(Summary, Vec<String>)>) {
    let library = Library::builtin().unwrap();
    run_with(connection, (image, &library), (session, false), recording)
}

/// Plans, verifies and runs a session with a library; stops it when the workload ends, if `to_its_end`.
fn run_with(
    connection: &mut Connection,
    (image, library): (&Image, &Library),
    (session, to_its_end): (&Session, bool),
    recording: &Path,
) -> (Plan, ilk_driver::Result<(Summary, Vec<String>)>) {
    let layout = &connection.info().layout;
    let plan = gilk_engine::plan::plan(image, session, library, layout)
        .unwrap_or_else(|error| panic!("{error}"));
    let verified = gilk_engine::verify::verify(image, plan.clone())
        .unwrap_or_else(|violations| panic!("{violations:#?}"));
    let (stop, (events, heard)) = (StopFlag::new(), crossbeam_channel::unbounded());
    let outcome = std::thread::scope(|scope| {
        let listener = scope.spawn(|| {
            let lines = heard.iter().filter_map(|event| match event {
                Event::Workload(line) => Some(line),
                _ => None,
            });
            let noted = |line: &String| {
                if to_its_end && line.starts_with("ended at ") {
                    stop.stop();
                }
            };
            lines.inspect(noted).collect::<Vec<String>>()
        });
        let outcome = connection.run(&verified, session, recording, &events, &stop);
        drop(events);
        let said = listener.join().unwrap();
        outcome.map(|summary| (summary, said))
    });
    (plan, outcome)
}

fn bytes(parts: &LiveParts, span: Span) -> Vec<u8> {
    let (start, bytes) = parts
        .memory
        .iter()
        .find(|(start, bytes)| Span::new(*start, bytes.len() as u64).contains(span.start))
        .expect("the text was read");
    let offset = (span.start.0 - start.0) as usize;
    bytes[offset..offset + span.len() as usize].to_vec()
}

/// A session that runs Pulsar after half a second.
pub(crate) fn pulsar(duration: f64, milliseconds: u32, placements: Vec<Placement>) -> Session {
    let arguments = vec![milliseconds.to_string(), "5".into()];
    let workload = Workload {
        program: "/bin/pulsar".into(),
        arguments,
        start: 0.5,
    };
    Session {
        name: "Pulsar".into(),
        duration,
        workload: Some(workload),
        placements,
        ..Session::empty()
    }
}

/// An instrument before a block, from launch to splash.
pub(crate) fn placement(
    function: &str,
    block: u32,
    instrument: &str,
    (launch, splash): (f64, f64),
) -> Placement {
    Placement {
        function: function.into(),
        block,
        hook: HookType::Pre,
        instrument: instrument.into(),
        launch,
        splash,
    }
}

/// Counts of blocks of one function, from counters at its blocks.
pub(crate) fn counts(outcome: &Outcome, session: &Session, function: &str) -> BTreeMap<u32, u64> {
    let placements = session.placements.iter().enumerate();
    placements
        .filter(|(_, placement)| *placement.function == *function)
        .map(|(index, placement)| (placement.block, outcome.total(index)))
        .collect()
}

/// Counts of blocks of one function that also have other instruments.
pub(crate) fn counts_of(
    outcome: &Outcome,
    session: &Session,
    function: &str,
    instrument: &str,
) -> BTreeMap<u32, u64> {
    let placements = session.placements.iter().enumerate();
    placements
        .filter(|(_, one)| (&*one.function, &*one.instrument) == (function, instrument))
        .map(|(index, placement)| (placement.block, outcome.total(index)))
        .collect()
}

/// The terminal program.
pub(crate) fn ilk() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
}

/// Runs `ilk` with arguments against the shared lab.
pub(crate) fn answer(turn: &Turn<'_>, arguments: &[&str]) -> Output {
    let mut command = ilk();
    command.args(arguments);
    command.arg("--socket").arg(turn.shared.lab.socket());
    command.output().unwrap()
}

/// Returns what a program printed, and its errors.
pub(crate) fn printed(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Exports a recording to a file with these arguments, and returns its text.
pub(crate) fn exported(recording: &Path, arguments: &[&str], goal: &Path) -> String {
    let mut command = ilk();
    command.arg("export").arg(recording).args(arguments);
    let output = command.arg("-o").arg(goal).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output).1);
    std::fs::read_to_string(goal).unwrap()
}

/// A session as a file.
pub(crate) fn saved(session: &Session, directory: &Path) -> PathBuf {
    let path = directory.join("session.ron");
    std::fs::write(&path, session.to_ron().unwrap()).unwrap();
    path
}
