//! Runs a session on all machines.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gilk_engine::VerifiedPlan;
use gilk_samples::clocks::{Alignment, Reading};
use gilk_samples::joined::Joint;
use gilk_samples::metadata::Clock;
use ilk_driver::client::{Seat, StopFlag, Summary, TargetInfo, metadata};
use ilk_driver::process::{CloneThreads, ProcessChoices};

use super::together::{Member, Together, turn};
use crate::app::App;
use crate::document::EditedSession;
use crate::run::{Active, SharedStatus, free};
use crate::state::{NoticeKind, TargetState};
use crate::timeline::Record;
use crate::worker::machine_lane::{Common, MachineLane};
use crate::worker::run_output::SampleSink;
use crate::worker::target::Order;
use crate::{Error, Result, widgets};

/// Returns the folder for the recordings of a run that would be recorded to `wanted` on one
/// machine.
fn folder(wanted: &Path) -> PathBuf {
    free(&wanted.with_extension(""))
}

/// A participant: the number of its thread, its description, and its plan.
type Participant = (u64, TargetInfo, Arc<VerifiedPlan>);

impl App {
    /// Starts the session on the target and all additional machines.
    pub(crate) fn run_together(&mut self, plan: &Arc<VerifiedPlan>) {
        let session = self.state.document.session().clone();
        if let Err(error) = self.begin_together(plan, session) {
            self.state.notify(NoticeKind::Bad, error.to_string());
        }
    }

    fn parts(&self, plan: &Arc<VerifiedPlan>) -> Vec<Participant> {
        let mut parts = Vec::new();
        if let (TargetState::Ready(info), Some(target)) = (&self.state.target, &self.target) {
            parts.push((target.number, TargetInfo::clone(info), Arc::clone(plan)));
        }
        for machine in &self.state.machines.others {
            if let (TargetState::Ready(info), Some(Ok(plan))) = (&machine.target, &machine.outcome)
            {
                parts.push((machine.number, TargetInfo::clone(info), Arc::clone(plan)));
            }
        }
        parts
    }

    fn begin_together(&mut self, plan: &Arc<VerifiedPlan>, edited: EditedSession) -> Result<()> {
        let parts = self.parts(plan);
        let session = edited.shown();
        let folder = folder(&self.state.run.wanted_path(&session.name));
        let common = Common::default();
        let mut joint = Joint::default();
        let (mut members, mut orders) = (Vec::new(), Vec::new());
        let seats = Seat::for_all(parts.len());
        for ((number, info, plan), seat) in parts.into_iter().zip(seats) {
            let clock = Clock {
                hz: info.tsc_hz,
                ..Clock::default()
            };
            let machine_metadata = metadata(plan.plan(), &session, &info, clock)?;
            let turn = turn(&mut joint, &machine_metadata, Alignment::new([], clock))?;
            let (name, status) = (info.host, SharedStatus::default());
            joint.describe(&name, &machine_metadata, &turn, None);
            orders.push((
                number,
                Order {
                    plan,
                    session: edited.clone(),
                    recording: folder.join(format!("{name}.arrow")),
                    // A stop flag of its own: removing one machine does not stop the others.
                    stop: StopFlag::new(),
                    sink: SampleSink::Shared(MachineLane {
                        turn,
                        common: common.clone(),
                    }),
                    status: status.clone(),
                    together: Some((seat, name.clone())),
                    pair: None,
                    threads: CloneThreads::All,
                    choices: ProcessChoices::default(),
                    library: Arc::clone(&self.state.library),
                },
            ));
            members.push(Member {
                number,
                name,
                status,
                ended: None,
                metadata: machine_metadata,
                begun: None,
            });
        }
        let Some(status) = members.first().map(|member| member.status.clone()) else {
            let words = "No machine is ready; connect to one first.".to_owned();
            return Err(Error::Driver(ilk_driver::Error::Target(words)));
        };
        // Set before any machine can start.
        let set = common.described.set(joint.finish());
        debug_assert!(set.is_ok(), "the metadata of a run is set once");
        self.state.run.last = None;
        self.state.run.active = Some(Active {
            index: common.index,
            status,
            ..Active::new(plan, edited, folder.clone())
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
            // Dropping an order leaves its seat, which notifies the others.
            if let Some(thread) = main.or_else(|| self.machine_threads.get_mut(&number)) {
                thread.run(order);
            }
        }
        Ok(())
    }

    /// Returns the session that runs on several machines, if any.
    fn together(&mut self) -> Option<&mut Together> {
        let together = self.state.machines.together.as_mut();
        together.filter(|together| together.is_running())
    }

    /// Returns whether the machine takes part in a running session on several machines.
    pub(crate) fn is_member(&self, number: u64) -> bool {
        let together = self.state.machines.together.as_ref();
        together.is_some_and(|one| one.is_running() && one.member(number).is_some())
    }

    /// Records that a machine has started, and the reading of its clock.
    pub(crate) fn member_started(&mut self, number: u64, clock: Clock, reading: Reading) {
        if let Some(member) = self.together().and_then(|one| one.member_mut(number)) {
            member.metadata.clock = clock;
            member.begun = Some((clock, reading));
            self.show_together();
        }
    }

    /// Records that a machine's part has ended.
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
                count => format!(" The session continues on {count} of {of} machines."),
            };
            let words = format!("{name}: {why}{others}");
            self.state.notify(NoticeKind::Bad, words);
        }
        self.show_together();
        self.end_together();
    }

    /// Records that a machine was removed or lost.
    pub(crate) fn member_left(&mut self, number: u64) {
        let gone = || Error::Driver(ilk_driver::Error::Target("It was removed.".to_owned()));
        if self.is_member(number) {
            self.member_ended(number, Err(gone()));
        }
    }

    /// Opens the timeline of all machines, once each has started or failed.
    fn show_together(&mut self) {
        let Some(together) = self.together() else {
            return;
        };
        let settled = |member: &Member| member.begun.is_some() || member.ended.is_some();
        let first = together.members.iter().find_map(|member| {
            let (clock, _) = member.begun?;
            Some(member.alignment().unix_ns(clock.start))
        });
        let Some(start) = first.filter(|_| together.members.iter().all(settled)) else {
            return;
        };
        if together.shown {
            return;
        }
        together.shown = true;
        // A machine that failed to start has empty lanes, aligned with second 0 of the others.
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
            Err(error) => self.state.notify(NoticeKind::Bad, error.to_string()),
        }
    }

    /// Combines the status of all machines, every frame.
    pub(crate) fn listen_together(&mut self) {
        let Some(together) = self.state.machines.together.as_ref() else {
            return;
        };
        let (Some(active), true) = (&mut self.state.run.active, together.is_running()) else {
            return;
        };
        let all = together.members.iter().map(|member| member.status.look());
        active.live = all.reduce(crate::run::RunStatus::and).unwrap_or_default();
        let elapsed = active.elapsed();
        if let Some(record) = self
            .state
            .timeline
            .record
            .as_mut()
            .filter(|_| together.shown)
        {
            let machines = Arc::make_mut(&mut record.metadata).machines.iter_mut();
            for (machine, member) in machines.zip(&together.members) {
                machine.error_ns = member.error_ns(elapsed);
            }
        }
    }

    /// Ends the run once it has ended on all machines.
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
            lost += summary.lost_by_cause().lost();
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
                        " {lost} hits were lost because the CPU's ring was full; {missing} samples did not arrive."
                    ),
                ),
            };
            words = format!(
                "The session finished on {machines} of {of} machines: {} samples are in {}.{words}",
                widgets::grouped(samples),
                folder.display()
            );
            self.state.notify(kind, words);
        }
        // Read again from disk: with all readings of the clocks the times are most accurate.
        let recorded = self.state.machines.together.as_ref();
        let recorded =
            recorded.is_some_and(|one| one.members.iter().any(|one| one.begun.is_some()));
        if recorded {
            self.read_recording(folder);
        }
    }
}

/// Converts a Unix time, possibly in the future, to an `Instant`.
fn moment(unix_ns: u64) -> Instant {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let instant = Instant::now();
    let ahead = Duration::from_nanos(unix_ns.saturating_sub(now));
    let late = Duration::from_nanos(now.saturating_sub(unix_ns));
    let earlier = instant.checked_sub(late).unwrap_or(instant);
    earlier.checked_add(ahead).unwrap_or(instant)
}
