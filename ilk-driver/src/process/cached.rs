//! A session in which a process executes in the code cache, with every block counted or with the session's instruments.
//!
//! It is what `ilk clone --count -p` or `ilk clone --session FILE -p` does, and is done by that program: the agent of a
//! cache must be a process of its own that outlives this one, and only a process with one thread can fork into it. Its
//! report is its recording.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use gilk_engine::cache::CacheInstruments;
use gilk_engine::{Image, Plan, Session};
use gilk_samples::Meaning;
use gilk_samples::process_end::{EndWay, ProcessEnd};
use gilk_samples::recording::{self, Recording};

use super::announced::Announced;
use super::followed_recording::{FollowedRecording, FollowedRecordings, add_by_cpu};
use super::launched::StoppedProgram as _;
use super::listener::{Listener, Listeners};
use super::{
    CHILD_LEFT, CachedChildren, CloneThreads, Exec, OUTSIDE, ProcessChoices, ProcessLayouts,
    ProcessTarget, clock, ready, recorded_so_far, refused,
};
use crate::client::{Event, InstrumentSummary, StopFlag, Summary};
use crate::{Error, Result, programs};

/// Interval at which a request to stop is polled.
const POLLED: Duration = Duration::from_millis(20);
/// Longest time that `ilk clone --for` takes.
const LONGEST: Duration = Duration::from_hours(24);

/// A run of a process in the code cache.
#[derive(Clone, Copy, Debug)]
pub struct CachedRun<'r> {
    /// The session whose instruments run; `None` if every block is counted.
    pub session: Option<&'r Session>,
    /// The threads that are in the cache.
    pub threads: &'r CloneThreads,
    /// The fate of what it starts.
    pub choices: ProcessChoices,
    /// The longest time of the run.
    pub length: Duration,
    /// The file of the recording.
    pub recording: &'r Path,
    /// The receiver of events.
    pub events: &'r Sender<Event>,
    /// Ends the run.
    pub stop: &'r StopFlag,
}

impl CachedRun<'_> {
    /// Returns whether instruments run in several processes, or in several programs of one.
    fn is_several(&self) -> bool {
        self.session.is_some() && !self.choices.is_one_in_cache()
    }
}

/// Reads an announcement of `ilk clone`.
fn announced(line: &str) -> Result<Announced> {
    let announced = serde_json::from_str(line);
    announced.map_err(|error| {
        let why = format!("ilk has announced {line:?} ({error}), which is of another version.");
        Error::Target(why)
    })
}

impl ProcessLayouts {
    /// Returns why the instruments of a plan for the process, and for its image, do not run in the code cache, if so: of the process, or the
    /// rule and the place of one.
    #[must_use]
    pub fn cache_refusal(&self, image: &Image, plan: &Plan) -> Option<String> {
        if let Some(why) = &self.uninstrumented {
            return Some(why.clone());
        }
        let gate = self.reserved.gate();
        let found = CacheInstruments::of(image, plan, gate, false);
        found.err().map(|refusal| refusal.to_string())
    }
}

impl ProcessTarget {
    /// Has threads of the process execute in the code cache with every block counted or with the instruments of a session,
    /// until its end, for a time, or until a stop, when it continues in its original code; what it starts by choice, too. The results and the numbers of
    /// the cache are in the recording, which has all samples at its end; [`Event::Missed`] reports the number of those that
    /// no event had. Meanwhile [`Event::Recorded`] has the executions of blocks up to now, of all processes if what it starts is
    /// measured, too; [`Event::Samples`] has the samples of instruments, as the recording grows, and [`Event::Aggregates`] their
    /// totals, of several processes each in an [`Event::OfProcess`].
    ///
    /// # Errors
    /// [`Error::Target`] if what it starts is [refused](ProcessChoices::refused_in_cache);
    /// [`Error::Io`] if `ilk` cannot be started; [`Error::Process`] with its reason if it fails; [`Error::Recording`] if
    /// its recording cannot be read.
    pub fn run_in_cache(&mut self, run: CachedRun<'_>) -> Result<Summary> {
        let CachedRun {
            recording,
            events,
            stop,
            choices,
            ..
        } = run;
        if let Some(why) = choices.refused_in_cache(run.threads) {
            return Err(Error::Target(format!("{why}.")));
        }
        let pid = self.pid();
        let mut agent = start(pid, &run)?;
        let live = recording.with_added_extension("live");
        let recorded = recorded_so_far(&live);
        let said = lines(agent.stderr.take());
        let announcements = lines(agent.stdout.take());
        let (mut last, mut released, mut requested) = (None, Ok(()), false);
        let (mut followed, mut following) = (Ok(()), None);
        let mut all = run.is_several().then(|| {
            let listeners = Listeners::new(events, true);
            FollowedRecordings::new(listeners)
        });
        let (mut has_begun, mut notes) = (false, Vec::new());
        loop {
            match said.recv_timeout(POLLED) {
                // It is in the cache in its next program.
                Ok(line) if line.contains(&ready(pid)) && has_begun => {}
                Ok(line) if line.contains(&ready(pid)) => {
                    has_begun = true;
                    let begun = match run.session {
                        Some(_) if choices.is_one_in_cache() => {
                            let listener = Listener::from(events.clone());
                            FollowedRecording::begin(recording, listener).map(Some)
                        }
                        _ => {
                            // A listener that has ended needs no events.
                            let _no_listener = events.send(Event::Started(clock().into()));
                            Ok(None)
                        }
                    };
                    match begun {
                        Ok(begun) => following = begun,
                        Err(error) => followed = Err(error),
                    }
                    released = self.begin();
                }
                Ok(line) if line.contains(&recorded) && followed.is_ok() => {
                    match (&mut following, &mut all) {
                        (Some(following), _) => followed = following.totals_up_to_now(),
                        (None, Some(all)) => all.totals_up_to_now(),
                        (None, None) => {
                            // A listener that has ended needs no events.
                            let _no_listener = events.send(Event::Recorded(live.clone()));
                        }
                    }
                }
                Ok(line) if line.contains(&recorded) => {}
                Ok(line) => {
                    if line.contains(CHILD_LEFT) || line.contains(OUTSIDE) {
                        let note = line.strip_prefix("ilk: ").unwrap_or(&line);
                        notes.push(format!("{}.", note.trim_end_matches('.')));
                        // A listener that has ended needs no events.
                        let _no_listener = events.send(Event::Workload(note.to_owned()));
                    }
                    last = Some(line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let (Some(following), Ok(())) = (&mut following, &followed) {
                followed = following.poll();
            }
            if let Some(all) = all.as_mut().filter(|_| has_begun) {
                for line in announcements.try_iter() {
                    match announced(&line) {
                        Ok(announced) => all.take(announced),
                        Err(error) => followed = Err(error),
                    }
                }
                all.poll();
            }
            if (stop.is_stopped() || released.is_err() || followed.is_err()) && !requested {
                requested = true;
                request_end(&agent);
            }
        }
        let status = agent.wait();
        let status =
            status.map_err(|error| refused(pid, format!("ilk has no status ({error})")))?;
        released?;
        if !status.success() {
            let why = last.unwrap_or_else(|| status.to_string());
            let why = why.strip_prefix("ilk: ").unwrap_or(&why);
            return Err(Error::Target(why.to_owned()));
        }
        followed?;
        let sent = match &mut following {
            Some(following) => following.end()?,
            None => all.as_ref().map_or(0, FollowedRecordings::sent),
        };
        let (mut summary, ends) = summary(recording)?;
        summary.stopped = stop.is_stopped();
        notes.extend(of_note(&ends, choices));
        summary.ended = notes.join(" ");
        if self.has_ended() {
            summary.workload = Some(self.end()?);
        }
        let missed = summary.recording.samples.saturating_sub(sent);
        // A listener that has ended needs no events.
        let _no_listener = events.send(Event::Missed(missed));
        let _no_listener = events.send(Event::Finished(Box::new(summary.clone())));
        Ok(summary)
    }

    /// Lets a program execute that was started for its session, and whose thread is in the cache.
    fn begin(&mut self) -> Result<()> {
        if let Some(program) = self.program.as_mut().filter(|program| !program.executes) {
            program.started.release()?;
            program.executes = true;
            self.supervisor.released()?;
        }
        Ok(())
    }

    /// Returns whether the process has no memory any more.
    fn has_ended(&self) -> bool {
        let status = super::text(self.pid(), "status");
        status.map_or(true, |status| !status.contains("VmSize:"))
    }
}

/// Returns the sentences about the ends of executions: of one process in one program, or of several but for the usual ones,
/// which are those of a process, and of a program that another one follows.
fn of_note(ends: &[ProcessEnd], choices: ProcessChoices) -> Vec<String> {
    if choices.is_one_in_cache() {
        return ProcessEnd::lines(ends);
    }
    let is_usual = |end: &ProcessEnd| {
        let is_usual = match end.way {
            EndWay::Ended(_) | EndWay::Requested => true,
            EndWay::Executed => choices.exec == Exec::Follows,
            EndWay::LetGo { .. } => false,
        };
        is_usual && !end.reads_ended
    };
    let ends = ends.iter().filter(|end| !is_usual(end));
    ends.map(ToString::to_string).collect()
}

/// Starts `ilk clone` for a process.
fn start(pid: u32, run: &CachedRun<'_>) -> Result<Child> {
    let ilk = programs::ilk()?;
    let session = run.session.map(Session::to_ron).transpose()?;
    let mut command = Command::new(&ilk);
    command
        .arg("clone")
        .args(match session {
            Some(_) => ["--session", "/dev/stdin"].as_slice(),
            None => &["--count"],
        })
        .arg("--live")
        .args(run.is_several().then_some("--announce"))
        .args(match run.choices.cached_children {
            CachedChildren::Clean => [].as_slice(),
            CachedChildren::Own => &["--children", "own"],
        })
        .args(match run.choices.exec {
            Exec::Ends => [].as_slice(),
            Exec::Follows => &["--exec", "follows"],
        })
        .arg("--for")
        .arg(format!("{}ms", run.length.min(LONGEST).as_millis().max(1)))
        .arg("-p")
        .arg(pid.to_string())
        .arg("-o")
        .arg(run.recording)
        .args(match run.threads {
            CloneThreads::All => Vec::new(),
            CloneThreads::One(tid) => vec!["--thread".to_owned(), tid.to_string()],
            CloneThreads::While {
                function,
                condition,
            } => {
                let condition = condition.iter();
                let condition = condition.map(|condition| format!("--if={condition}"));
                let chosen = [format!("--while={function}")];
                chosen.into_iter().chain(condition).collect()
            }
        })
        .stdin(match session {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        })
        .stdout(match run.is_several() {
            true => Stdio::piped(),
            false => Stdio::null(),
        })
        .stderr(Stdio::piped());
    let parent = std::process::id();
    // SAFETY: between fork and exec, the closure executes system calls only.
    #[allow(unsafe_code, reason = "the end of this thread ends the child")]
    unsafe {
        command.pre_exec(move || {
            // SAFETY: prctl takes numbers here; getppid has no arguments.
            let (done, now) = (
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM),
                libc::getppid(),
            );
            match done == 0 && now.cast_unsigned() == parent {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            }
        })
    };
    let mut agent = command.spawn().map_err(Error::io(
        ilk,
        "The code cache is in the program ilk; install it in the folder of this program.",
    ))?;
    if let (Some(session), Some(mut input)) = (session, agent.stdin.take()) {
        // One that has ended has said why.
        let _has_ended = input.write_all(session.as_bytes());
    }
    Ok(agent)
}

/// Reads the lines of what it writes on a thread.
fn lines(messages: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = unbounded();
    std::thread::spawn(move || {
        // What it prints is UTF-8, but for names of files.
        let read = messages
            .into_iter()
            .flat_map(|pipe| BufReader::new(pipe).split(b'\n'));
        for line in read.map_while(std::result::Result::ok) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
        }
    });
    lines
}

/// Has the process let go.
fn request_end(agent: &Child) {
    let pid = libc::pid_t::try_from(agent.id()).unwrap_or(libc::pid_t::MAX);
    // SAFETY: kill takes numbers; the child is not waited for yet.
    #[allow(unsafe_code, reason = "kill(2)")]
    // It may have ended.
    let _ended = unsafe { libc::kill(pid, libc::SIGTERM) };
}

/// Reads the summary of a recording, without sentences about ends, and the ends of its processes.
fn summary(path: &Path) -> Result<(Summary, Vec<ProcessEnd>)> {
    let failed = |source| Error::Recording { source };
    let recording = Recording::open(path).map_err(failed)?;
    // Samples, and the last one's value, by instrument.
    let mut counts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for batch in recording.batches() {
        for sample in batch.map_err(failed)?.samples {
            let (samples, total) = counts.entry(sample.id).or_default();
            *samples += 1;
            *total = sample.value;
        }
    }
    let instruments = recording.metadata().instruments.iter();
    let instruments = instruments.map(|info| InstrumentSummary {
        id: info.id,
        label: info.label.clone(),
        samples: counts.get(&info.id).map_or(0, |(samples, _)| *samples),
        total: counts
            .get(&info.id)
            .filter(|_| info.meaning == Meaning::Count)
            .map(|(_, total)| *total),
    });
    let totals = recording.totals();
    let mut by_cpu = BTreeMap::new();
    add_by_cpu(&mut by_cpu, &recording.losses().map_err(failed)?);
    let bytes =
        std::fs::metadata(path).map_err(Error::io(path, "The recording must be readable."))?;
    let summary = Summary {
        instruments: instruments.collect(),
        recording: recording::Summary {
            path: path.to_path_buf(),
            bytes: bytes.len(),
            samples: recording.samples(),
            span: recording.span(),
            ..recording::Summary::default()
        },
        clock: recording.metadata().clock,
        losses: by_cpu.into_values().collect(),
        aggregates: totals.added_up.clone(),
        symbols: totals.symbols.clone(),
        stacks: totals.stacks.clone(),
        failed_reads: totals.failed_reads.clone(),
        no_room: totals.no_room.clone(),
        cache: totals.cache,
        ..Summary::default()
    };
    Ok((summary, totals.ends.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_several_executions_are_noted_but_for_the_usual_ones() {
        let end = |pid, program: &str, way| ProcessEnd {
            pid,
            program: program.to_owned(),
            way,
            ..ProcessEnd::default()
        };
        let rule = EndWay::LetGo {
            rule: "may-change".to_owned(),
            at: 0,
            why: "The process has ended.".to_owned(),
        };
        let unread = ProcessEnd {
            reads_ended: true,
            ..end(10, "d", EndWay::Ended(0))
        };
        let ends = [
            end(5, "a", EndWay::Ended(0)),
            end(7, "process 5 a: b", rule),
            end(6, "b", EndWay::Ended(256)),
            end(9, "sh", EndWay::Executed),
            end(9, "c", EndWay::Requested),
            unread,
        ];
        let noted = |cached_children, exec| {
            let choices = ProcessChoices {
                cached_children,
                exec,
                ..ProcessChoices::default()
            };
            of_note(&ends, choices)
        };
        let named = |all: &[usize]| -> Vec<String> {
            all.iter().map(|number| ends[*number].to_string()).collect()
        };
        let own = CachedChildren::Own;
        assert_eq!(noted(own, Exec::Follows), named(&[1, 5]));
        assert_eq!(noted(own, Exec::Ends), named(&[1, 3, 5]));
        let choices = ProcessChoices::default();
        assert_eq!(of_note(&ends[..1], choices), ["The process has ended."]);
        assert!(of_note(&[], choices).is_empty());
    }
}
