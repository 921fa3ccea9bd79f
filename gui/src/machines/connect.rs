//! Connecting to additional machines, and planning the session for each of them.

use std::sync::Arc;

use gilk_samples::joined::unused;
use ilk_driver::client::{Route, TargetAddress};

use super::Machine;
use crate::app::App;
use crate::args::Source;
use crate::state::{NoticeKind, TargetState};
use crate::worker::Planning;
use crate::worker::target::Target;

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
            let wanted = source(&place.route);
            let known = |one: &Machine| one.source == wanted;
            if self.state.machines.others.iter().any(known) {
                let words = format!("{} is already connected.", place.display_name());
                self.state.notify(NoticeKind::Warning, words);
                continue;
            }
            let number = self.add_thread(wanted.clone());
            self.state.machines.others.push(Machine {
                number,
                source: wanted,
                label: place.display_name(),
                given: place.name,
                target: TargetState::Busy(crate::worker::Progress::default()),
                catalogue: None,
                outcome: None,
                requested: None,
                request: 0,
                planner: None,
                open: None,
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

    fn add_thread(&mut self, source: Source) -> u64 {
        self.machines += 1;
        // Counts down from the top, because numbers of targets count up.
        let number = u64::MAX - self.machines;
        let thread = Target::start(source, number, self.workers.mail());
        self.machine_threads.insert(number, thread);
        number
    }

    /// Reconnects to a machine.
    pub(crate) fn connect_machine(&mut self, number: u64) {
        self.machine_threads.remove(&number);
        let machines = &self.state.machines.others;
        let Some(machine) = machines.iter().find(|one| one.number == number) else {
            return;
        };
        let new_number = self.add_thread(machine.source.clone());
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
        self.pair_failed(number, "It was removed.");
        // Dropping the target removes every splice.
        self.machine_threads.remove(&number);
        self.state
            .machines
            .others
            .retain(|one| one.number != number);
    }

    /// Requests a plan for each machine whose plan is stale.
    pub(crate) fn request_machine_plans(&mut self) {
        let within = self.state.machines.pid().filter(|_| self.state.is_pair());
        let is_pair = self.state.is_pair();
        let state = (self.documents, self.state.document.revision());
        for machine in &mut self.state.machines.others {
            let (TargetState::Ready(info), Some(catalogue), Some(planner)) =
                (&machine.target, &machine.catalogue, &machine.planner)
            else {
                continue;
            };
            if machine.requested == Some((state, within)) {
                continue;
            }
            machine.requested = Some((state, within));
            let mut session = self.state.document.session().clone();
            let is_kernel = is_pair && !machine.source.is_process();
            session.show_kernel(is_kernel);
            machine.outcome = None;
            self.machine_plans += 1;
            machine.request = self.machine_plans;
            planner.plan(Planning {
                revision: self.machine_plans,
                session,
                added: None,
                catalogue: Arc::clone(catalogue),
                library: Arc::clone(&self.state.library),
                layout: Some(info.layout.clone()),
                process: self.state.machines.process.clone(),
                in_cache: false,
                within: within.filter(|_| is_kernel),
            });
        }
    }

    /// Returns a unique name for a machine.
    pub(crate) fn name_for(&self, number: u64, wanted: &str) -> String {
        if self.state.is_pair() {
            // The kernel and the process are of one machine.
            return wanted.to_owned();
        }
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
