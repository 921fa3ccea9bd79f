//! Additional machines: a session runs on the target and all of them, and starts at the same time.
//!
//! The target is the machine whose kernel is shown; each additional machine has its own thread,
//! connection, image and plan. `run` runs the session on all machines, `bar` shows their status.

pub(crate) mod bar;
pub(crate) mod messages;
pub(crate) mod run;

use std::sync::Arc;

use gilk_engine::VerifiedPlan;
use gilk_samples::joined::unused;
use ilk_driver::client::{Route, TargetAddress};

use crate::app::App;
use crate::args::Source;
use crate::catalogue::Catalogue;
use crate::state::{NoticeKind, TargetState};
use crate::worker::target::Target;
use crate::worker::{Planning, machine_planner};

pub use run::Together;

/// The additional machines, and the session that runs on all machines.
#[derive(Debug, Default)]
pub struct Machines {
    /// The machines, in the order in which they were added.
    pub others: Vec<Machine>,
    /// The running session on all machines, or the last one.
    pub together: Option<Together>,
    /// The name given to the target, if any.
    pub(crate) first: Option<String>,
}

/// An additional machine.
#[derive(Debug)]
pub struct Machine {
    /// Number of its thread, unique among all targets.
    pub number: u64,
    /// Address of its agent.
    pub place: TargetAddress,
    /// Status of its target.
    pub target: TargetState,
    /// Its image, once it is loaded.
    pub catalogue: Option<Arc<Catalogue>>,
    /// The plan of the session for it, or the errors.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
    /// The document and revision of the last plan request.
    requested: Option<(u64, u64)>,
    /// Number of the last plan request.
    request: u64,
    planner: Option<machine_planner::Planner>,
}

impl Machine {
    /// Returns the machine's name.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.target {
            TargetState::Ready(info) => info.host.clone(),
            _ => self.place.display_name(),
        }
    }

    /// Returns the reason why a session cannot run on it, if any.
    fn hindrance(&self) -> Option<String> {
        let name = self.name();
        match (&self.target, &self.outcome) {
            (TargetState::Ready(_), Some(Ok(_))) => None,
            (TargetState::Ready(_), Some(Err(wrong))) => {
                let wrong = wrong.first().cloned().unwrap_or_default();
                Some(format!("On {name}: {wrong}"))
            }
            (TargetState::Ready(_), None) => {
                Some(format!("The session is being planned for {name}."))
            }
            (TargetState::Lost(_) | TargetState::None | TargetState::Offline, _) => Some(format!(
                "{name} is lost; reconnect or remove it in the bar below the menus."
            )),
            (TargetState::Busy(_), _) => Some(format!("{name} is not ready yet.")),
        }
    }
}

impl Machines {
    /// Returns the reason why a session cannot start on all machines, if any.
    pub(crate) fn hindrance(&self) -> Option<String> {
        self.others.iter().find_map(Machine::hindrance)
    }

    /// Returns the machine with that number.
    fn of(&mut self, number: u64) -> Option<&mut Machine> {
        self.others.iter_mut().find(|one| one.number == number)
    }
}

fn source(route: &Route) -> Source {
    match route {
        Route::Socket(path) => Source::Socket(path.clone()),
        Route::Ssh(host) => Source::Ssh(host.clone()),
    }
}

impl App {
    /// Connects to machines: the first becomes the target if there is none.
    pub(crate) fn add_machines(&mut self, places: Vec<TargetAddress>) {
        let mut places = places.into_iter();
        if matches!(self.state.target, TargetState::None | TargetState::Lost(_))
            && let Some(first) = places.next()
        {
            self.connect(source(&first.route));
            self.state.machines.first = first.name;
        }
        for place in places {
            let known = |one: &Machine| one.place.route == place.route;
            if self.state.machines.others.iter().any(known) {
                let words = format!("{} is already connected.", place.display_name());
                self.state.notify(NoticeKind::Warning, words);
                continue;
            }
            let number = self.add_thread(&place);
            self.state.machines.others.push(Machine {
                number,
                place,
                target: TargetState::Busy(crate::worker::Progress::default()),
                catalogue: None,
                outcome: None,
                requested: None,
                request: 0,
                planner: None,
            });
        }
    }

    /// Adds the machines in a typed list.
    pub(crate) fn add_typed(&mut self, typed: &str) {
        match TargetAddress::parse_list(typed) {
            Ok(places) => self.add_machines(places),
            Err(wrong) => self.state.notify(NoticeKind::Bad, format!("{wrong}.")),
        }
    }

    fn add_thread(&mut self, place: &TargetAddress) -> u64 {
        self.machines += 1;
        // Counts down from the top, because numbers of targets count up.
        let number = u64::MAX - self.machines;
        let thread = Target::start(source(&place.route), number, self.workers.mail());
        self.machine_threads.insert(number, thread);
        number
    }

    /// Reconnects to a machine.
    pub(crate) fn connect_machine(&mut self, number: u64) {
        self.machine_threads.remove(&number);
        let machines = &self.state.machines.others;
        let Some(place) = machines.iter().find(|one| one.number == number) else {
            return;
        };
        let new_number = self.add_thread(&place.place.clone());
        if let Some(machine) = self.state.machines.of(number) {
            machine.number = new_number;
            machine.target = TargetState::Busy(crate::worker::Progress::default());
            (machine.catalogue, machine.outcome) = (None, None);
            (machine.requested, machine.planner) = (None, None);
        }
    }

    /// Removes a machine.
    pub(crate) fn leave_machine(&mut self, number: u64) {
        self.member_left(number);
        // Dropping the target removes every splice.
        self.machine_threads.remove(&number);
        self.state
            .machines
            .others
            .retain(|one| one.number != number);
    }

    /// Requests a plan for each machine whose plan is stale.
    pub(crate) fn request_machine_plans(&mut self) {
        let state = (self.documents, self.state.document.revision());
        for machine in &mut self.state.machines.others {
            let (TargetState::Ready(info), Some(catalogue), Some(planner)) =
                (&machine.target, &machine.catalogue, &machine.planner)
            else {
                continue;
            };
            if machine.requested == Some(state) {
                continue;
            }
            machine.requested = Some(state);
            machine.outcome = None;
            self.machine_plans += 1;
            machine.request = self.machine_plans;
            planner.plan(Planning {
                revision: self.machine_plans,
                session: self.state.document.session().clone(),
                catalogue: Arc::clone(catalogue),
                library: Arc::clone(&self.state.library),
                layout: Some(info.layout.clone()),
            });
        }
    }

    /// Returns a unique name for a machine.
    pub(crate) fn name_for(&self, number: u64, wanted: &str) -> String {
        let target = match &self.state.target {
            TargetState::Ready(info) => Some(info.host.clone()),
            _ => None,
        };
        let ready =
            |one: &&Machine| one.number != number && matches!(one.target, TargetState::Ready(_));
        let ready_machines = self.state.machines.others.iter().filter(ready);
        let taken: Vec<String> = target
            .into_iter()
            .chain(ready_machines.map(Machine::name))
            .collect();
        unused(wanted, |name| taken.iter().any(|one| one == name))
    }
}
