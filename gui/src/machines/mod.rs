//! Machines beside the target: a session runs on all of them, beginning at the same moment.
//!
//! The target is the machine whose kernel is looked at; the others have a thread, a connection, a kernel and
//! a plan of their own. `run` is the session on all of them, `bar` what is seen of them.

pub(crate) mod bar;
pub(crate) mod news;
pub(crate) mod run;

use std::sync::Arc;

use gilk_engine::VerifiedPlan;
use gilk_samples::joined::unused;
use ilk_driver::client::{Place, Way};

use crate::app::App;
use crate::args::Source;
use crate::catalogue::Catalogue;
use crate::state::{NoticeKind, TargetState};
use crate::worker::target::Target;
use crate::worker::{Planning, beside};

pub use run::Together;

/// The machines beside the target, and the session that runs on all.
#[derive(Debug, Default)]
pub struct Machines {
    /// In the order in which they were added.
    pub beside: Vec<Machine>,
    /// The session that runs on all of them, or the last that did.
    pub together: Option<Together>,
    /// What the target is to be called, where that is not its own name.
    pub(crate) first: Option<String>,
}

/// A machine beside the target.
#[derive(Debug)]
pub struct Machine {
    /// Told apart from all targets there have been.
    pub number: u64,
    /// Where its agent is.
    pub place: Place,
    /// How far it is.
    pub target: TargetState,
    /// Its kernel, once that is read.
    pub catalogue: Option<Arc<Catalogue>>,
    /// The session as it would be carried out there, or what is wrong with it.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
    /// What the plan was last asked for.
    asked: Option<(u64, u64)>,
    /// The number of that question.
    asked_as: u64,
    planner: Option<beside::Planner>,
}

impl Machine {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.target {
            TargetState::Ready(info) => info.host.clone(),
            _ => self.place.called(),
        }
    }

    /// Why nothing can be run there, if so.
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
                "{name} is lost; connect to it again, or leave it out, in the line below the menus."
            )),
            (TargetState::Busy(_), _) => Some(format!("{name} is not ready yet.")),
        }
    }
}

impl Machines {
    /// Why a session cannot begin on all of them now, if so.
    pub(crate) fn hindrance(&self) -> Option<String> {
        self.beside.iter().find_map(Machine::hindrance)
    }

    /// The machine of that number.
    fn of(&mut self, number: u64) -> Option<&mut Machine> {
        self.beside.iter_mut().find(|one| one.number == number)
    }
}

fn source(way: &Way) -> Source {
    match way {
        Way::Socket(path) => Source::Socket(path.clone()),
        Way::Ssh(host) => Source::Ssh(host.clone()),
    }
}

impl App {
    /// Connects to these machines: the first becomes the target if there is none.
    pub(crate) fn add_machines(&mut self, places: Vec<Place>) {
        let mut places = places.into_iter();
        if matches!(self.state.target, TargetState::None | TargetState::Lost(_))
            && let Some(first) = places.next()
        {
            self.connect(source(&first.way));
            self.state.machines.first = first.name;
        }
        for place in places {
            let known = |one: &Machine| one.place.way == place.way;
            if self.state.machines.beside.iter().any(known) {
                let words = format!("{} is there already.", place.called());
                self.state.tell(NoticeKind::Warning, words);
                continue;
            }
            let number = self.add_thread(&place);
            self.state.machines.beside.push(Machine {
                number,
                place,
                target: TargetState::Busy(crate::worker::Progress::default()),
                catalogue: None,
                outcome: None,
                asked: None,
                asked_as: 0,
                planner: None,
            });
        }
    }

    /// Adds machines as they were typed.
    pub(crate) fn add_typed(&mut self, typed: &str) {
        match Place::several(typed) {
            Ok(places) => self.add_machines(places),
            Err(wrong) => self.state.tell(NoticeKind::Bad, format!("{wrong}.")),
        }
    }

    fn add_thread(&mut self, place: &Place) -> u64 {
        self.machines += 1;
        // Counted down from the top: targets are counted up.
        let number = u64::MAX - self.machines;
        let thread = Target::start(source(&place.way), number, self.workers.mail());
        self.beside.insert(number, thread);
        number
    }

    /// Connects to a machine again.
    pub(crate) fn connect_machine(&mut self, number: u64) {
        self.beside.remove(&number);
        let machines = &self.state.machines.beside;
        let Some(place) = machines.iter().find(|one| one.number == number) else {
            return;
        };
        let anew = self.add_thread(&place.place.clone());
        if let Some(machine) = self.state.machines.of(number) {
            machine.number = anew;
            machine.target = TargetState::Busy(crate::worker::Progress::default());
            (machine.catalogue, machine.outcome) = (None, None);
            (machine.asked, machine.planner) = (None, None);
        }
    }

    /// Leaves a machine out from now on.
    pub(crate) fn leave_machine(&mut self, number: u64) {
        self.member_left(number);
        // Dropping it has every splice taken out.
        self.beside.remove(&number);
        self.state
            .machines
            .beside
            .retain(|one| one.number != number);
    }

    /// Has the session planned for each machine, where it has changed since.
    pub(crate) fn keep_up_beside(&mut self) {
        let state = (self.documents, self.state.document.revision());
        for machine in &mut self.state.machines.beside {
            let (TargetState::Ready(info), Some(catalogue), Some(planner)) =
                (&machine.target, &machine.catalogue, &machine.planner)
            else {
                continue;
            };
            if machine.asked == Some(state) {
                continue;
            }
            machine.asked = Some(state);
            machine.outcome = None;
            self.plans_beside += 1;
            machine.asked_as = self.plans_beside;
            planner.plan(Planning {
                revision: self.plans_beside,
                session: self.state.document.session().clone(),
                catalogue: Arc::clone(catalogue),
                library: Arc::clone(&self.state.library),
                layout: Some(info.layout.clone()),
            });
        }
    }

    /// A name for what calls itself so: another where a machine has it.
    pub(crate) fn name_for(&self, number: u64, wanted: &str) -> String {
        let target = match &self.state.target {
            TargetState::Ready(info) => Some(info.host.clone()),
            _ => None,
        };
        let ready =
            |one: &&Machine| one.number != number && matches!(one.target, TargetState::Ready(_));
        let beside = self.state.machines.beside.iter().filter(ready);
        let taken: Vec<String> = target
            .into_iter()
            .chain(beside.map(Machine::name))
            .collect();
        unused(wanted, |name| taken.iter().any(|one| one == name))
    }
}
