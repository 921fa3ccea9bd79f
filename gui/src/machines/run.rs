//! One session on all machines at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gilk_engine::{Session, VerifiedPlan};
use gilk_samples::clocks::{Alignment, Reading};
use gilk_samples::joined::{Joint, Turn};
use gilk_samples::metadata::{Clock, Metadata};
use ilk_driver::client::{Seat, StopFlag, Summary, TargetInfo, metadata};

use super::Machine;
use crate::app::App;
use crate::run::{Active, Going, free};
use crate::state::{NoticeKind, TargetState};
use crate::timeline::Record;
use crate::worker::lane::{Common, Lane};
use crate::worker::target::{Order, To};
use crate::{Error, Result, widgets};

/// A session that runs on several machines, or has.
#[derive(Debug)]
pub struct Together {
    /// In the order of their lanes; the target is the first.
    pub members: Vec<Member>,
    /// The folder with a recording of each.
    pub folder: PathBuf,
    /// Whether its lanes are on the timeline.
    shown: bool,
    over: bool,
}

/// A machine's part in it.
#[derive(Debug)]
pub struct Member {
    /// The number of its thread.
    pub number: u64,
    /// What its recording and its lanes are called by.
    pub name: String,
    /// How it is going.
    pub going: Going,
    /// How it ended, once it has.
    pub ended: Option<std::result::Result<Box<Summary>, String>>,
    metadata: Metadata,
    /// Its clock and the first reading of it, once it has begun.
    begun: Option<(Clock, Reading)>,
}

impl Member {
    /// How its clock is read while it runs: by the one reading from the start, so that time never goes back.
    fn alignment(&self) -> Alignment {
        let reading = self.begun.map(|(_, reading)| reading);
        Alignment::new(reading, self.metadata.clock)
    }

    /// How far its times may be off now, in nanoseconds.
    fn error_ns(&self, seconds: f64) -> Option<u64> {
        let (clock, _) = self.begun?;
        self.alignment().error_ns(clock.tsc(seconds))
    }
}

impl Together {
    /// Whether it still runs somewhere.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        !self.over
    }

    /// The part of the machine whose thread has that number.
    #[must_use]
    pub fn member(&self, number: u64) -> Option<&Member> {
        self.members.iter().find(|member| member.number == number)
    }

    fn member_mut(&mut self, number: u64) -> Option<&mut Member> {
        self.members
            .iter_mut()
            .find(|member| member.number == number)
    }

    /// What all of it says of itself, with clocks as they are known.
    fn metadata(&self) -> Result<Metadata> {
        let mut joint = Joint::default();
        for member in &self.members {
            let turn = turn(&mut joint, &member.metadata, member.alignment())?;
            let error = member.error_ns(0.0);
            joint.describe(&member.name, &member.metadata, &turn, error);
        }
        Ok(joint.finish())
    }
}

fn turn(joint: &mut Joint, own: &Metadata, alignment: Alignment) -> Result<Turn> {
    Ok(joint.turn(own, own.cpus, alignment)?)
}

/// The folder for recordings of a run that would be recorded to `wanted` on one machine.
fn folder(wanted: &Path) -> PathBuf {
    free(&wanted.with_extension(""))
}

/// Somebody who takes part: the number of its thread, what it is, its plan.
type Part = (u64, TargetInfo, Arc<VerifiedPlan>);

impl App {
    /// Begins the session on the target and on all machines beside it.
    pub(crate) fn run_together(&mut self, plan: &Arc<VerifiedPlan>) {
        let session = self.state.document.session().clone();
        if let Err(error) = self.begin_together(plan, session) {
            self.state.tell(NoticeKind::Bad, error.to_string());
        }
    }

    fn parts(&self, plan: &Arc<VerifiedPlan>) -> Vec<Part> {
        let mut parts = Vec::new();
        if let (TargetState::Ready(info), Some(target)) = (&self.state.target, &self.target) {
            parts.push((target.number, info.clone(), Arc::clone(plan)));
        }
        for machine in &self.state.machines.beside {
            if let (TargetState::Ready(info), Some(Ok(plan))) = (&machine.target, &machine.outcome)
            {
                parts.push((machine.number, info.clone(), Arc::clone(plan)));
            }
        }
        parts
    }

    fn begin_together(&mut self, plan: &Arc<VerifiedPlan>, session: Session) -> Result<()> {
        let parts = self.parts(plan);
        let folder = folder(&self.state.run.wanted_path(&session));
        let common = Common::default();
        let mut joint = Joint::default();
        let (mut members, mut orders) = (Vec::new(), Vec::new());
        let seats = Seat::for_all(parts.len());
        for ((number, info, plan), seat) in parts.into_iter().zip(seats) {
            let clock = Clock {
                hz: info.tsc_hz,
                ..Clock::default()
            };
            let own = metadata(plan.plan(), &session, &info, clock)?;
            let turn = turn(&mut joint, &own, Alignment::new([], clock))?;
            let (name, going) = (info.host, Going::default());
            joint.describe(&name, &own, &turn, None);
            orders.push((
                number,
                Order {
                    plan,
                    session: session.clone(),
                    recording: folder.join(format!("{name}.arrow")),
                    // Its own: one that is left out does not stop the others.
                    stop: StopFlag::new(),
                    to: To::Beside(Lane {
                        turn,
                        common: common.clone(),
                    }),
                    going: going.clone(),
                    together: Some((seat, name.clone())),
                },
            ));
            members.push(Member {
                number,
                name,
                going,
                ended: None,
                metadata: own,
                begun: None,
            });
        }
        // Before any of them can begin.
        let _first = common.described.set(joint.finish());
        let going = members.first().map(|member| member.going.clone());
        self.state.run.last = None;
        self.state.run.active = Some(Active {
            stop: StopFlag::new(),
            started: None,
            duration: session.duration,
            plan: Arc::clone(plan),
            session,
            recording: folder.clone(),
            index: common.index,
            going: going.unwrap_or_default(),
            live: crate::run::Live::default(),
        });
        self.state.machines.together = Some(Together {
            members,
            folder,
            shown: false,
            over: false,
        });
        for (number, order) in orders {
            let main = self
                .target
                .as_mut()
                .filter(|target| target.number == number);
            // Dropping an order leaves its seat, and tells the others.
            if let Some(thread) = main.or_else(|| self.beside.get_mut(&number)) {
                thread.run(order);
            }
        }
        Ok(())
    }

    /// The session that runs on several machines, if one does.
    fn together(&mut self) -> Option<&mut Together> {
        let together = self.state.machines.together.as_mut();
        together.filter(|together| together.is_running())
    }

    /// Whether a session runs on several machines, that one among them.
    pub(crate) fn is_member(&self, number: u64) -> bool {
        let together = self.state.machines.together.as_ref();
        together.is_some_and(|one| one.is_running() && one.member(number).is_some())
    }

    /// A machine has begun, and its clock was read.
    pub(crate) fn member_started(&mut self, number: u64, clock: Clock, reading: Reading) {
        if let Some(member) = self.together().and_then(|one| one.member_mut(number)) {
            member.metadata.clock = clock;
            member.begun = Some((clock, reading));
            self.show_together();
        }
    }

    /// A machine's part is over.
    pub(crate) fn member_ended(
        &mut self,
        number: u64,
        summary: std::result::Result<Box<Summary>, Error>,
    ) {
        let Some(together) = self.together() else {
            return;
        };
        let of = together.members.len();
        let Some(member) = together
            .member_mut(number)
            .filter(|one| one.ended.is_none())
        else {
            return;
        };
        let name = member.name.clone();
        let ended = summary.map_err(|error| error.to_string());
        member.ended = Some(ended.clone());
        if let Err(why) = ended {
            let others = together.members.iter().filter(|one| one.ended.is_none());
            let others = match others.count() {
                0 => String::new(),
                count => format!(" It goes on with {count} of {of} machines."),
            };
            let words = format!("{name}: {why}{others}");
            self.state.tell(NoticeKind::Bad, words);
        }
        self.show_together();
        self.end_together();
    }

    /// A machine is not there any more.
    pub(crate) fn member_left(&mut self, number: u64) {
        let gone = || Error::Driver(ilk_driver::Error::Target("It was left out.".to_owned()));
        if self.is_member(number) {
            self.member_ended(number, Err(gone()));
        }
    }

    /// Lays all machines on the timeline, once each has begun or cannot.
    fn show_together(&mut self) {
        let Some(together) = self.together() else {
            return;
        };
        let settled = |member: &Member| member.begun.is_some() || member.ended.is_some();
        let begun = together.members.iter().any(|member| member.begun.is_some());
        if together.shown || !begun || !together.members.iter().all(settled) {
            return;
        }
        together.shown = true;
        // Lanes of one that could not begin stand empty, at the second 0 of the others.
        let first = together.members.iter().find_map(|member| {
            let (clock, _) = member.begun?;
            Some(member.alignment().unix_ns(clock.start))
        });
        let start = first.unwrap_or_default();
        for member in together
            .members
            .iter_mut()
            .filter(|one| one.begun.is_none())
        {
            member.metadata.clock = Clock {
                hz: 1_000_000_000,
                start,
                start_unix_ns: start,
            };
        }
        let made = together.metadata();
        let folder = together.folder.clone();
        let Some(active) = &mut self.state.run.active else {
            return;
        };
        active.started = Some(moment(start));
        match made {
            Ok(made) => {
                let mut record = Record::live(folder, made, active.duration);
                record.index = active.index.clone();
                self.state.timeline.open(record);
            }
            Err(error) => self.state.tell(NoticeKind::Bad, error.to_string()),
        }
    }

    /// Sums up what machines have told since the last frame.
    pub(crate) fn listen_together(&mut self) {
        let Some(together) = self.state.machines.together.as_ref() else {
            return;
        };
        let (Some(active), true) = (&mut self.state.run.active, together.is_running()) else {
            return;
        };
        let all = together.members.iter().map(|member| member.going.look());
        active.live = all.reduce(crate::run::Live::and).unwrap_or_default();
        let elapsed = active.elapsed();
        if let Some(record) = self
            .state
            .timeline
            .record
            .as_mut()
            .filter(|_| together.shown)
        {
            let machines = record.metadata.machines.iter_mut();
            for (machine, member) in machines.zip(&together.members) {
                machine.error_ns = member.error_ns(elapsed);
            }
        }
    }

    /// Ends the run when no machine is left in it.
    fn end_together(&mut self) {
        let Some(together) = self.together() else {
            return;
        };
        if together.members.iter().any(|member| member.ended.is_none()) {
            return;
        }
        together.over = true;
        let well = together.members.iter().filter_map(|member| {
            let summary = member.ended.as_ref()?.as_ref().ok()?;
            Some(summary.as_ref())
        });
        let (mut machines, mut samples, mut lost, mut missing) = (0, 0, 0, 0);
        for summary in well {
            machines += 1;
            samples += summary.recording.samples;
            missing += summary.missing;
            let by_cause = summary.lost_by_cause();
            lost += by_cause.lost() - by_cause.unmatched;
        }
        let folder = together.folder.clone();
        let of = together.members.len();
        self.not_running();
        if machines > 0 {
            let (kind, mut words) = match lost + missing {
                0 => (NoticeKind::Good, String::new()),
                _ => (
                    NoticeKind::Warning,
                    format!(
                        " {lost} hits found their CPU's ring full; {missing} samples that were taken did not arrive."
                    ),
                ),
            };
            words = format!(
                "The session is over on {machines} of {of} machines: {} samples are in {}.{words}",
                widgets::grouped(samples),
                folder.display()
            );
            self.state.tell(kind, words);
        }
        // Read again from the disk: with every reading of the clocks times are known best.
        let recorded = self.state.machines.together.as_ref();
        let recorded =
            recorded.is_some_and(|one| one.members.iter().any(|one| one.begun.is_some()));
        if recorded {
            self.read_recording(folder);
        }
    }
}

/// When our clock shows that time, which may be to come.
fn moment(unix_ns: u64) -> Instant {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let instant = Instant::now();
    let ahead = Duration::from_nanos(unix_ns.saturating_sub(now));
    let behind = Duration::from_nanos(now.saturating_sub(unix_ns));
    let earlier = instant.checked_sub(behind).unwrap_or(instant);
    earlier.checked_add(ahead).unwrap_or(instant)
}

/// How exactly a machine's times are known, for a person.
pub(crate) fn exact(error_ns: Option<u64>) -> String {
    match error_ns {
        Some(error) if error < 1_000_000 => format!("±{} µs", error.div_ceil(1000)),
        Some(error) => format!("±{:.1} ms", error as f64 / 1e6),
        None => "by its own clock".to_owned(),
    }
}

impl Machine {
    /// What became of it in the last run.
    pub(crate) fn part<'a>(&self, together: Option<&'a Together>) -> Option<&'a Member> {
        together?.member(self.number)
    }
}
