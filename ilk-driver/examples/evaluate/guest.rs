//! A lab that instruments and runs programs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gilk_engine::plan::Plan;
use gilk_engine::session::{Placement, Session, Workload};
use gilk_engine::{Addr, HookType, Image};
use gilk_instruments::Library;
use ilk_driver::client::{Connection, Event, StopFlag, Summary};
use ilk_driver::lab::{Accelerator, Lab, Options, prepare};

/// Time limit in the guest's seconds, longer than any program here takes.
const LONGEST: f64 = 20_000.0;
/// Number of addresses in one argument of a program: the kernel permits 128 KiB.
const AT_ONCE: usize = 5000;

/// A running lab with its kernel's image, and the folder of recordings.
pub(crate) struct Guest {
    connection: Connection,
    pub(crate) image: Image,
    pub(crate) library: Library,
    directory: tempfile::TempDir,
    /// Duration of sessions in the guest's seconds, unless their programs end earlier.
    pub(crate) longest: f64,
    /// The kernel's release.
    pub(crate) release: String,
    /// The requested series; `None` is Debian's own.
    pub(crate) series: Option<String>,
    /// Declared last, so that it ends last.
    _lab: Lab,
}

/// The output of a program and the results of the instruments during it.
pub(crate) struct Answer {
    /// The program's lines after "rivals: ".
    pub(crate) lines: Vec<String>,
    pub(crate) summary: Summary,
    pub(crate) plan: Plan,
}

/// The memory for patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arena {
    /// Enough for every hook.
    Large,
    /// The module's own, whose code has unwind rows and may fault.
    OfModule,
}

impl Guest {
    /// Boots a lab, with an arena for every hook of the kernel or one that lies in the module, where stacks are read.
    pub(crate) fn boot(
        series: Option<&str>,
        (accelerator, arena): (Accelerator, Arena),
    ) -> anyhow::Result<Self> {
        let append = match arena {
            Arena::Large => vec!["ilk.arena_mib=64".into()],
            Arena::OfModule => Vec::new(),
        };
        let options = Options {
            accelerator: Some(accelerator),
            series: series.map(str::to_owned),
            rivals: true,
            memory_mib: 2048,
            boot_limit: Duration::from_secs(600),
            append,
            ..Options::default()
        };
        let prepared = prepare(&options, &mut |_| ())?;
        let lab = Lab::boot(&prepared, &mut |_| ())?;
        let mut connection = Connection::connect(lab.socket())?;
        let image = Image::from_live(&connection.live_parts(&mut |_, _| ())?)?
            .on(&connection.info().layout);
        Ok(Self {
            connection,
            image,
            library: Library::builtin()?,
            directory: tempfile::tempdir()?,
            longest: LONGEST,
            release: prepared.release().to_owned(),
            series: options.series,
            _lab: lab,
        })
    }

    /// Plans a session for this kernel.
    ///
    /// # Errors
    ///
    /// As [`gilk_engine::plan::plan`].
    pub(crate) fn plan(&self, session: &Session) -> gilk_engine::Result<Plan> {
        let layout = &self.connection.info().layout;
        gilk_engine::plan::plan(&self.image, session, &self.library, layout)
    }

    /// Runs `/bin/rivals` with these words while the session's instruments are installed, without
    /// losses.
    pub(crate) fn run(&mut self, words: &[String], session: Session) -> anyhow::Result<Answer> {
        let session = Session {
            name: format!("rivals {}", words.first().map_or("", String::as_str)),
            ..session
        };
        let recording = self.directory.path().join("cost.arrow");
        let answer = self.run_program("/bin/rivals", words, session, &recording)?;
        let summary = &answer.summary;
        if summary.missing > 0 || summary.lost() != 0 {
            bail!(
                "samples were lost, so hits did not have their full cost: {:?}",
                summary.losses
            );
        }
        Ok(answer)
    }

    /// Runs a program with these words while the session's instruments are installed, until it
    /// ends. Its lines begin with its name.
    pub(crate) fn run_program(
        &mut self,
        program: &str,
        words: &[String],
        session: Session,
        recording: &Path,
    ) -> anyhow::Result<Answer> {
        let name = program.rsplit('/').next().unwrap_or(program);
        let longest = self.longest;
        let placements = session.placements.into_iter().map(|one| Placement {
            splash: one.splash.min(longest),
            ..one
        });
        let session = Session {
            duration: longest,
            placements: placements.collect(),
            workload: Some(Workload {
                program: program.into(),
                arguments: words.to_vec(),
                start: 0.2,
            }),
            ..session
        };
        let plan = self.plan(&session)?;
        let verified = match gilk_engine::verify::verify(&self.image, plan) {
            Ok(verified) => verified,
            Err(violations) => bail!("the plan failed its verification: {violations:?}"),
        };
        let (stop, (events, heard)) = (StopFlag::new(), crossbeam_channel::unbounded());
        let (summary, said) = std::thread::scope(|scope| {
            let listener = scope.spawn(|| {
                let mut said = Vec::new();
                for event in heard {
                    if let Event::Workload(line) = event {
                        if !line.starts_with(name) && !line.starts_with("started") {
                            stop.stop();
                        }
                        said.push(line);
                    }
                }
                said
            });
            let summary = self
                .connection
                .run(&verified, &session, recording, &events, &stop);
            drop(events);
            (summary, listener.join().unwrap_or_default())
        });
        let summary = summary.with_context(|| said.join("; "))?;
        if let Some(failed) = said.iter().find(|line| line.contains("failed")) {
            eprintln!("{failed}, on Linux {}", self.release);
        }
        let lines = said
            .iter()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .map(str::to_owned)
            .collect();
        Ok(Answer {
            lines,
            summary,
            plan: verified.plan().clone(),
        })
    }
}

/// Returns a session with these instruments for its whole duration.
pub(crate) fn session(hooks: impl IntoIterator<Item = (String, u32, &'static str)>) -> Session {
    let hooks = hooks.into_iter();
    let placements = hooks
        .map(|(function, block, instrument)| placement(function, block, HookType::Pre, instrument));
    Session {
        placements: placements.collect(),
        duration: LONGEST,
        ..Session::empty()
    }
}

/// Returns a placement for the whole duration.
pub(crate) fn placement(
    function: String,
    block: u32,
    hook: HookType,
    instrument: &'static str,
) -> Placement {
    Placement {
        function: function.into(),
        block,
        hook,
        instrument: instrument.into(),
        launch: 0.0,
        splash: LONGEST,
    }
}

/// Converts words to arguments of a program.
pub(crate) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Converts addresses to arguments of the program.
pub(crate) fn listed(addresses: &[Addr]) -> Vec<String> {
    let hex = |part: &[Addr]| {
        let words: Vec<String> = part.iter().map(|at| format!("{:x}", at.0)).collect();
        words.join(",")
    };
    addresses.chunks(AT_ONCE).map(hex).collect()
}

/// Parses the cost of one call from a line `NAME: … CALLS calls took TICKS ticks`.
pub(crate) fn per_call(line: &str) -> Option<f64> {
    let (before, after) = line.split_once(" calls took ")?;
    let calls: f64 = before.rsplit(' ').next()?.parse().ok()?;
    let ticks: f64 = after.split(' ').next()?.parse().ok()?;
    Some(ticks / calls)
}

/// Parses the number before a word of a line.
pub(crate) fn before(line: &str, word: &str) -> Option<f64> {
    line.split(", ")
        .find_map(|part| part.trim().strip_suffix(word))
        .and_then(|part| part.trim().rsplit(' ').next()?.parse().ok())
}
