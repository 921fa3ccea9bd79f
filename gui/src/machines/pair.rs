//! A process and the kernel beside it: one of the two is shown, and a session has a part for each.

use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::unbounded;
use gilk_engine::VerifiedPlan;
use gilk_samples::index::Shared;
use gilk_samples::recording;
use ilk_driver::client::{StopFlag, Summary, TargetInfo};
use ilk_driver::process::{CloneThreads, tsc};

use super::Machine;
use super::pair_run::{PairMember, PairRun, merge, remove_empty};
use crate::app::App;
use crate::purpose::Purpose;
use crate::run::{Active, RunStatus, SharedStatus};
use crate::state::{NoticeKind, State, TargetState};
use crate::worker::pair_sink::{KernelSink, LiveSides, PairSeat, PairSide, ProcessSink};
use crate::worker::run_output::SampleSink;
use crate::worker::target::Order;
use crate::worker::{Message, machine_planner};
use crate::{Error, widgets};

/// A side that is ready: the number of its thread, its description, and its plan.
type ReadySide = (u64, TargetInfo, Arc<VerifiedPlan>);

impl State {
    /// Returns the machine beside the target, if one of both is a process, and the other one a kernel.
    pub(crate) fn beside(&self) -> Option<&Machine> {
        let [other] = self.machines.others.as_slice() else {
            return None;
        };
        let target = self.source.as_ref()?;
        (target.is_process() != other.source.is_process()).then_some(other)
    }

    /// Returns whether the targets are a process and its kernel.
    #[must_use]
    pub fn is_pair(&self) -> bool {
        self.beside().is_some()
    }

    /// Returns whether the kernel beside a process is shown.
    #[must_use]
    pub fn shows_kernel_beside(&self) -> bool {
        self.beside().is_some_and(|other| other.source.is_process())
    }

    /// Returns the process that the session is hit by alone, while the kernel beside it is shown.
    pub(crate) fn within(&self) -> Option<u32> {
        self.machines.pid().filter(|_| self.shows_kernel_beside())
    }

    /// Returns the names of the target and of the machine beside it.
    pub(crate) fn pair_names(&self) -> Option<[String; 2]> {
        let process = match self.machines.pid() {
            Some(pid) => format!("process {pid}"),
            None => "process".to_owned(),
        };
        let kernel = "kernel".to_owned();
        self.is_pair().then(|| match self.shows_kernel_beside() {
            true => [kernel, process],
            false => [process, kernel],
        })
    }

    /// Returns the reason why the session cannot run in a process and its kernel, if it has a part for both, or these are
    /// the targets.
    pub(crate) fn pair_hindrance(&self) -> Option<String> {
        let session = self.document.session();
        let beside = session.beside.as_ref().map_or(0, |part| part.len());
        let Some([shown, other]) = self.pair_names() else {
            return (beside > 0).then(|| {
                format!(
                    "The session has {} in the kernel beside a process, too: open the process, and add this machine's \
                     kernel (Target menu, Connect).",
                    widgets::counted(beside, "instrument")
                )
            });
        };
        let empty = match (session.placements.is_empty(), beside) {
            (true, _) => shown,
            (false, 0) if self.is_beside_lost() => {
                return Some(format!(
                    "The {other} is lost; reconnect, or remove the {other} in the bar below the menus to measure the \
                     {shown} alone."
                ));
            }
            (false, 0) => other,
            (false, _) => return None,
        };
        Some(format!(
            "The session has no instruments in the {empty}; show it and add one, or remove the {empty} from the bar below \
             the menus."
        ))
    }
}

impl App {
    /// Shows the machine beside the target in place of it, with its part of the session.
    pub(crate) fn show_beside(&mut self) {
        if let Some(why) = self.state.beside_hindrance() {
            self.state.notify(NoticeKind::Warning, why);
            return;
        }
        let Some(number) = self.state.beside().map(|machine| machine.number) else {
            return;
        };
        let (Some(thread), Some(target)) =
            (self.machine_threads.remove(&number), self.target.take())
        else {
            return;
        };
        let left = target.number;
        self.machine_threads.insert(left, target);
        self.target = Some(thread);
        self.state.finish_note();
        let graph = &self.state.graph;
        let open = graph.scene.as_ref();
        let open = open.map(|scene| (scene.name.clone(), graph.selected));
        let planner = machine_planner::Planner::start(left, self.workers.mail());
        let shown = self.state.catalogue.take();
        let Some(machine) = self.state.machines.of(number) else {
            return;
        };
        machine.number = left;
        machine.planner = Some(planner);
        (machine.outcome, machine.requested) = (None, None);
        std::mem::swap(&mut self.state.target, &mut machine.target);
        if let Some(source) = &mut self.state.source {
            std::mem::swap(source, &mut machine.source);
        }
        let first = self.state.machines.first.take();
        let machine = self.state.machines.of(left);
        let Some(machine) = machine else {
            return;
        };
        let given = std::mem::replace(&mut machine.given, first);
        let open = std::mem::replace(&mut machine.open, open);
        let catalogue = std::mem::replace(&mut machine.catalogue, shown);
        if let TargetState::Ready(info) = &machine.target {
            machine.label.clone_from(&info.host);
        }
        self.state.machines.first = given;
        // Replies to requests on the other target are ignored.
        self.targets += 1;
        self.state.opening = None;
        self.state.graph.clear();
        self.first = open;
        if let Some(catalogue) = catalogue {
            self.loaded(catalogue);
        }
    }

    /// Starts the session in the process and its kernel.
    pub(crate) fn run_pair(&mut self, plan: &Arc<VerifiedPlan>) {
        let (Some([kernel, process]), Some(pid)) =
            (self.ready_sides(plan), self.state.machines.pid())
        else {
            return;
        };
        let session = self.state.document.session().clone();
        let recording = self.state.run.recording_path(&session.name);
        let parts = recording.with_extension("parts");
        let name = format!("process {pid}");
        let index = Shared::default();
        let [of_kernel, of_process] = LiveSides::new();
        let (begun, kernel_begun) = unbounded();
        let stops = [StopFlag::new(), StopFlag::new()];
        let side = |number: u64, name: &str, file: &str| PairMember {
            number,
            name: name.to_owned(),
            recording: parts.join(file),
            status: SharedStatus::default(),
            ended: None,
        };
        let sides = [
            side(kernel.0, "kernel", "kernel.arrow"),
            side(process.0, &name, "process.arrow"),
        ];
        let [stop_kernel, stop_process] = &stops;
        let seats = [
            PairSeat {
                side: PairSide::Kernel {
                    pid,
                    library: Arc::clone(&self.state.library),
                },
                other: stop_process.clone(),
            },
            PairSeat {
                side: PairSide::Process {
                    begun: kernel_begun,
                    before: tsc(),
                },
                other: stop_kernel.clone(),
            },
        ];
        let sinks = [
            SampleSink::Kernel(Box::new(KernelSink {
                index: index.clone(),
                info: kernel.1,
                process: (
                    name.clone(),
                    Arc::clone(&process.2),
                    session.clone(),
                    process.1,
                ),
                sides: of_kernel,
                begun,
            })),
            SampleSink::Process(ProcessSink {
                index: index.clone(),
                name,
                sides: of_process,
            }),
        ];
        self.state.machines.together = None;
        self.state.run.last = None;
        self.state.run.active = Some(Active {
            index,
            ..Active::new(plan, session.clone(), recording.clone())
        });
        let plans = [kernel.2, process.2];
        let orders = plans
            .into_iter()
            .zip(stops)
            .zip(sinks)
            .zip(seats)
            .zip(&sides);
        for ((((plan, stop), sink), seat), side) in orders {
            let main = self.target.as_mut();
            let main = main.filter(|target| target.number == side.number);
            // Dropping the kernel's order lets the process know that it has not begun.
            if let Some(thread) = main.or_else(|| self.machine_threads.get_mut(&side.number)) {
                thread.run(Order {
                    plan,
                    session: session.clone(),
                    recording: side.recording.clone(),
                    stop,
                    sink,
                    status: side.status.clone(),
                    together: None,
                    pair: Some(seat),
                    threads: CloneThreads::All,
                    choices: self.state.document.choices(),
                    library: Arc::clone(&self.state.library),
                });
            }
        }
        self.state.machines.pair = Some(PairRun {
            sides,
            parts,
            recording,
            session,
        });
    }

    /// Returns the kernel and the process, if both are ready.
    fn ready_sides(&self, plan: &Arc<VerifiedPlan>) -> Option<[ReadySide; 2]> {
        let other = self.state.beside()?;
        let target = self.target.as_ref()?;
        let (TargetState::Ready(info), TargetState::Ready(of_other)) =
            (&self.state.target, &other.target)
        else {
            return None;
        };
        let Some(Ok(plan_of_other)) = &other.outcome else {
            return None;
        };
        let shown = (target.number, info.as_ref().clone(), Arc::clone(plan));
        let beside = (
            other.number,
            of_other.as_ref().clone(),
            Arc::clone(plan_of_other),
        );
        Some(match self.state.shows_kernel_beside() {
            true => [shown, beside],
            false => [beside, shown],
        })
    }

    /// Returns whether the target or machine with that number takes part in a running session of a process and its kernel.
    pub(crate) fn is_in_pair(&self, number: u64) -> bool {
        let pair = self.state.machines.pair.as_ref();
        pair.is_some_and(|pair| pair.sides.iter().any(|side| side.number == number))
    }

    /// Adds the status of both sides, every frame.
    pub(crate) fn listen_pair(&mut self) {
        if let (Some(active), Some(pair)) = (&mut self.state.run.active, &self.state.machines.pair)
        {
            let sides = pair.sides.iter().map(|side| side.status.look());
            active.live = sides.reduce(RunStatus::and).unwrap_or_default();
        }
    }

    /// Records that a side is lost or was removed, if it takes part in the running session.
    pub(crate) fn pair_failed(&mut self, number: u64, why: &str) {
        if self.is_in_pair(number) {
            let error = ilk_driver::Error::Target(why.to_owned());
            self.pair_ended(number, Err(Error::Driver(error)));
        }
    }

    /// Records the end of a side. After that of both, their recordings become one.
    pub(crate) fn pair_ended(&mut self, number: u64, summary: Result<Box<Summary>, Error>) {
        let Some(pair) = &mut self.state.machines.pair else {
            return;
        };
        let side = pair.sides.iter_mut().find(|side| side.number == number);
        let Some(side) = side.filter(|side| side.ended.is_none()) else {
            return;
        };
        let ended = summary.map_err(|error| error.to_string());
        let failed = ended
            .as_ref()
            .err()
            .map(|why| format!("{}: {why}", side.name));
        side.ended = Some(ended);
        if let Some(words) = failed {
            self.state.notify(NoticeKind::Bad, words);
        }
        let Some(pair) = &self.state.machines.pair else {
            return;
        };
        if pair.sides.iter().any(|side| side.ended.is_none()) {
            return;
        }
        let Some(pair) = self.state.machines.pair.take() else {
            return;
        };
        self.not_running();
        let failed = pair
            .sides
            .iter()
            .any(|side| matches!(side.ended, Some(Err(_))));
        let recorded = pair.sides.iter().any(|side| side.recording.exists());
        if failed {
            let parts = pair.parts.display();
            let words = match recorded {
                true => Some(format!("What was recorded of each side is in {parts}.")),
                false => remove_empty(&pair.parts).map(|error| format!("{parts} stays: {error}.")),
            };
            if let Some(words) = words {
                self.state.notify(NoticeKind::Warning, words);
            }
            return;
        }
        let lost: u64 = (pair.sides.iter())
            .filter_map(|side| side.ended.as_ref()?.as_ref().ok())
            .map(|summary| summary.lost_by_cause().lost())
            .sum();
        if lost > 0 {
            let words = format!(
                "{} hits were lost because the CPU's ring was full.",
                widgets::grouped(lost)
            );
            self.state.notify(NoticeKind::Warning, words);
        }
        self.workers.mail().spawn("merge", move |mail| {
            let merged = merge(&pair);
            mail.send(Message::PairMerged(pair.recording, merged));
        });
    }

    /// Opens the recording of both sides.
    pub(crate) fn pair_merged(&mut self, path: PathBuf, merged: Result<recording::Summary, Error>) {
        match merged {
            Ok(summary) => {
                let words = format!(
                    "The session finished: {} samples of both sides are in {}.",
                    widgets::grouped(summary.samples),
                    path.display()
                );
                self.state.notify(NoticeKind::Good, words);
                self.state.recent_paths.add(Purpose::OpenRecording, &path);
                self.read_recording(path);
            }
            Err(error) => self.state.notify(NoticeKind::Bad, error.to_string()),
        }
    }
}

impl State {
    /// Returns the reason why the machine beside the target cannot be shown now, as a whole sentence, if any.
    pub(crate) fn beside_hindrance(&self) -> Option<String> {
        if self.run.active.is_some() {
            return Some("A session is running; stop it first.".to_owned());
        }
        let Some(([shown, other], machine)) = self.pair_names().zip(self.beside()) else {
            return Some(
                "Add this machine's kernel to a process first (Target menu, Connect).".to_owned(),
            );
        };
        let is_ready = matches!(self.target, TargetState::Ready(_)) && self.catalogue.is_some();
        match &machine.target {
            _ if !is_ready => Some(format!("The {shown} is not ready yet.")),
            TargetState::Lost(why) => Some(format!("The {other} is lost: {why}")),
            _ if machine.catalogue.is_none() => Some(format!("The {other} is not ready yet.")),
            _ => None,
        }
    }

    /// Returns whether the machine beside the target is lost.
    fn is_beside_lost(&self) -> bool {
        self.beside()
            .is_some_and(|machine| matches!(machine.target, TargetState::Lost(_)))
    }
}
