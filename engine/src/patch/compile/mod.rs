//! Probes of instruments in the language: from checked trees to instructions.
//!
//! A probe is straight on from top to bottom: the tests of its predicate, which skip all else, then
//! its actions in order. Everything is computed in the registers that the hook's instruments share,
//! from left to right, each value in a register of its own. What is not a register, a constant or the
//! pointer to the task is read once in a predicate or action, however often it is mentioned: the
//! proof of the code relies on it, and it is cheaper. The only loop, of an aggregate that keeps the
//! largest value, repeats when an interrupt has stored a larger one meanwhile.

mod action;
mod alike;
mod demand;
mod expression;
mod ops;
mod predicate;
mod values;

use std::sync::Arc;

use gilk_instruments::program::{
    Action, ActionKind, Aggregate, AggregateId, AggregateKind, BinaryOp, Checked, Event, Expr,
    ExprKind, Input, Mapped, Probe, Scope, UserRead, VariableId, Width,
};
use iced_x86::Register;

use super::Hooked;
use super::emit::Emitter;
use super::group::Groups;
use super::instrument::Lost;
use super::registers::Registers;
use crate::ids::Ids;
use crate::isa::abi::{argument, input_register};
use crate::layout::{CounterSlot, Guard, RuntimeLayout, Sequences};
use crate::liveness::RegisterSet;
use crate::{Addr, Rule};

use alike::Address;
pub(super) use demand::{Demand, is_sampled_as_it_is};

/// One probe of a checked instrument, with the words that its placement works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The instrument, checked for its function.
    pub checked: Arc<Checked>,
    /// Index of the probe in it.
    pub index: u32,
    /// Storage of its placement.
    pub homes: Arc<Homes>,
}

/// Storage of a placement's variables and aggregates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    /// Storage of each variable.
    pub variables: Ids<VariableId, Home>,
    /// The first word of each aggregate; its other words follow in the bank. Empty for an instrument that only
    /// counts its hits: each of its hooks has a counter.
    pub aggregates: Ids<AggregateId, CounterSlot>,
    /// Counter of failed reads of memory, if there are any reads.
    pub failed: Option<CounterSlot>,
    /// Counter of values that were not stored because their entry of the table was taken, if any variable is
    /// stored there.
    pub no_room: Option<CounterSlot>,
}

/// Storage of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Home {
    /// A per-CPU word.
    Cpu(CounterSlot),
    /// A word that all CPUs share: the counter of CPU 0.
    Shared(CounterSlot),
    /// The table of timers, under this number (0 to 63) of the running task.
    Thread(u8),
    /// The same table, under this number of the stack pointer that its function began with.
    Call(u16),
}

impl Probed {
    /// Returns the probe of the checked instrument.
    #[must_use]
    pub fn probe(&self) -> Option<&Probe> {
        self.checked.probes.get(self.index as usize)
    }

    /// Storage of a variable; `None` for one that the placement does not have, in a plan that is not the planner's.
    #[must_use]
    pub fn home(&self, id: VariableId) -> Option<Home> {
        self.homes.variables.find(id).copied()
    }

    /// Returns an aggregate and its first word, which is `counter` where the placement has no words for
    /// aggregates: the instrument only counts its hits. `None` for one that the placement does not have.
    #[must_use]
    pub fn aggregate(
        &self,
        id: AggregateId,
        counter: Option<CounterSlot>,
    ) -> Option<(&Aggregate, CounterSlot)> {
        let slots = &self.homes.aggregates;
        let slot = slots.find(id).copied();
        let slot = slot.or(counter.filter(|_| slots.is_empty()))?;
        Some((self.checked.aggregates.find(id)?, slot))
    }

    /// The registers of the code at the hook that the probe reads.
    #[must_use]
    pub fn reads(&self) -> RegisterSet {
        let mut read = RegisterSet::EMPTY;
        for expr in self.probe().into_iter().flat_map(Probe::expressions) {
            for input in expr.inputs() {
                if let Some(register) = input_register(input) {
                    read.insert(register);
                }
            }
        }
        read
    }

    /// Returns the reason why it cannot be compiled, if there is one.
    #[must_use]
    pub fn refusal(&self, layout: &RuntimeLayout) -> Option<(Rule, String)> {
        let probe = self.probe()?;
        if let Some(why) = layout.rings.per.unserved() {
            return Some((Rule::RingOwner, why.to_owned()));
        }
        let has_area = |sequences: Sequences| sequences.area.is_some();
        if !layout.sequences().is_none_or(has_area)
            && let Some(what) = self.of_a_cpu(probe, layout)
        {
            let why = format!(
                "no thread of the process registers for restartable sequences (glibc from 2.35 does), by which a thread \
                 finds what is its CPU's, and it {what}; sample(), printf(), count(), sum(), avg(), min(), max(), \
                 histograms, values(), maps and global variables work, by locked instructions"
            );
            return Some((Rule::RingOwner, why));
        }
        if layout.sequences().is_some()
            && let Some(why) = self.without_words(probe, layout)
        {
            return Some((Rule::RingOwner, why.to_owned()));
        }
        if layout.guard == Guard::Missing && probe.expressions().any(|expr| expr.any(&mut loads)) {
            let why = "it reads memory, and the target does not state which addresses may be read";
            return Some((Rule::Unguarded, why.to_owned()));
        }
        // The code of a process that reads memory does not fault.
        let may_fault = layout.faults == 0 && layout.sequences().is_none() && may_fault(probe);
        let no_room = || {
            let why = "it reads memory, a stack or a counter, and this target takes no code that may fault there: load ilk.ko without arena_mib";
            may_fault.then(|| why.to_owned())
        };
        let no_counter = || {
            let inputs = probe.expressions().flat_map(Expr::inputs);
            let mut refused = inputs.filter_map(|input| match input {
                Input::Event(event) => layout.events.counter(event).err(),
                _ => None,
            });
            refused.next()
        };
        let no_clock = || {
            let mut inputs = probe.expressions().flat_map(Expr::inputs);
            let reads = inputs.any(|input| input == Input::Nsecs);
            let why = "it reads the time in nanoseconds, and the target does not state the rate of its clock";
            (reads && layout.clock.is_none()).then(|| why.to_owned())
        };
        let no_stacks = || {
            let mut inputs = probe.expressions().flat_map(Expr::inputs);
            let reads = inputs.any(|input| matches!(input, Input::KernelStack(_)));
            let why = "it reads the kernel's stack, and this target has no code for that: a kernel has it if ilk.ko is loaded without arena_mib";
            let has = layout.unwinds && layout.stacks.is_some();
            (reads && !has).then(|| why.to_owned())
        };
        let no_users = || {
            let mut expressions = probe.expressions();
            let beyond = |node: &Expr| {
                let is_numbered = layout.stack_tables.is_some() && node.is_stack();
                node.is_of_process() && !is_served(node) && !is_numbered
            };
            if layout.sequences().is_some()
                && expressions.any(|expr| expr.any(&mut |node| beyond(node)))
            {
                let why = "it reads the stack of the running process, or keeps an address for its name, and instruments in a process read numbers in its memory, its number and the names of its threads only";
                return Some(why.to_owned());
            }
            let reads = probe.reads_process();
            let why = "it reads the running process, and this target has no code for that: a kernel has it if ilk.ko is loaded without arena_mib";
            (reads && layout.users.is_none()).then(|| why.to_owned())
        };
        let nowhere = || {
            let mut inputs = probe.expressions().flat_map(Expr::inputs);
            let missing =
                inputs.find(|&input| is_of_target(input) && layout.inputs.get(input).is_none());
            missing.map(|input| match input {
                Input::Tid if layout.sequences().is_some() => {
                    "it reads `tid`, and the control blocks of the threads have their numbers in no place that is known: \
                     a program that is linked statically makes its control block as it begins; attach to it later, with -p"
                        .to_owned()
                }
                _ => format!("it reads {input:?}, and the target does not state where that is"),
            })
        };
        let no_slots = || {
            let most = 1_usize << layout.rings.slots_log2.saturating_sub(2).min(16);
            let mut lines = probe
                .actions
                .iter()
                .map(|action| action.kind.sampled().len());
            let why = "a line of it takes more than a quarter of a ring";
            lines
                .any(|slots| slots > most.max(1))
                .then(|| why.to_owned())
        };
        let why = no_counter()
            .or_else(no_slots)
            .or_else(no_stacks)
            .or_else(no_users)
            .or_else(no_room)
            .or_else(no_clock)
            .or_else(nowhere)
            .or_else(|| {
                let deep = Demand::of_probe(self, None, layout).registers > Registers::MOST_WORK;
                deep.then(|| "its expressions need more registers than there are".to_owned())
            });
        why.map(|why| (Rule::ProgramUnsupported, why))
    }
}

impl Probed {
    /// Returns the reason why a process has no words for an effect of the probe, if there is one.
    fn without_words(&self, probe: &Probe, layout: &RuntimeLayout) -> Option<&'static str> {
        let keyed = |id| {
            let home = self.home(id);
            !layout.has_storage() && matches!(home, Some(Home::Thread(_) | Home::Call(_)))
        };
        let keeps = "it keeps a variable of a thread or call, and there is no storage for them";
        let action = probe.actions.iter().find_map(|action| match action.kind {
            ActionKind::Sample(_) => {
                (!layout.rings.exist()).then_some("it samples, and there are no rings")
            }
            ActionKind::Store(id, _) | ActionKind::Add(id, _) => keyed(id).then_some(keeps),
            ActionKind::Update(..) => None,
        });
        let mut expressions = probe.expressions();
        let reads = |node: &Expr| matches!(node.kind, ExprKind::Variable(id) if keyed(id));
        action.or_else(|| {
            let any = expressions.any(|expr| expr.any(&mut |node| reads(node)));
            any.then_some(keeps)
        })
    }
}

impl Probed {
    /// Returns what the probe does that needs a CPU's own words, its number, or its ring.
    fn of_a_cpu(&self, probe: &Probe, layout: &RuntimeLayout) -> Option<&'static str> {
        let own = |id| matches!(self.home(id), Some(Home::Cpu(_)));
        let keeps = "keeps a variable of each CPU";
        let action = probe.actions.iter().find_map(|action| match action.kind {
            ActionKind::Store(id, _) | ActionKind::Add(id, _) => own(id).then_some(keeps),
            ActionKind::Sample(_)
                if action.kind.sampled().len() > layout.rings.words_of_slot() as usize =>
            {
                Some("delivers a line of more words than the slots of the shared ring have")
            }
            ActionKind::Sample(_) | ActionKind::Update(..) => None,
        });
        let reads = |node: &Expr| match node.kind {
            ExprKind::Variable(id) if own(id) => Some(keeps),
            ExprKind::Input(Input::Cpu) => Some("reads the number of the CPU"),
            _ => None,
        };
        let mut found = None;
        for expr in probe.expressions() {
            expr.any(&mut |node| {
                found = found.or_else(|| reads(node));
                found.is_some()
            });
        }
        action.or(found)
    }
}

/// Returns whether the code of a process reads what a node reads of it.
fn is_served(node: &Expr) -> bool {
    matches!(
        node.kind,
        ExprKind::User {
            read: UserRead::Bytes(_) | UserRead::Process | UserRead::Comm(_),
            ..
        }
    )
}

/// Returns whether a node reads memory at an address.
fn loads(node: &Expr) -> bool {
    match node.kind {
        ExprKind::Load { .. } => true,
        ExprKind::Input(input) => is_stacked(input),
        _ => false,
    }
}

/// Returns whether an input is a word of the target, with a location in the layout.
const fn is_of_target(input: Input) -> bool {
    matches!(
        input,
        Input::Task | Input::Tid | Input::Pid | Input::Comm(_) | Input::Cpu
    )
}

/// Returns whether a probe has loads that may fault: memory of the kernel or of a process, a stack, or an event counter.
pub(crate) fn may_fault(probe: &Probe) -> bool {
    let reads = |node: &Expr| {
        let may = |input| matches!(input, Input::Event(_) | Input::KernelStack(_));
        let process = node.is_of_process();
        process || loads(node) || matches!(node.kind, ExprKind::Input(input) if may(input))
    };
    let mut expressions = probe.expressions();
    expressions.any(|expr| expr.any(&mut |node| reads(node)))
}

/// Returns whether an input is an argument on the stack.
pub(crate) fn is_stacked(input: Input) -> bool {
    matches!(input, Input::Argument(number) if argument(number).is_none())
}

/// An operand that is read once in a predicate or action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf<'e> {
    /// A word of the target other than the pointer to the task.
    Of(Input),
    Clock,
    /// The word that makes scaled ticks nanoseconds.
    ClockOffset,
    Variable(VariableId),
    /// Memory of the kernel's, without its sign.
    Memory(Address<'e>, Width),
    /// An argument on the stack.
    Stacked(u8),
    /// A counter of the processor's.
    Event(Event),
    /// The kernel's stack, up to so many frames.
    Stack(u8),
    /// The running process at an address.
    User(UserRead, Address<'e>),
    /// The stack of the running process, up to so many frames.
    UserStack(u8),
}

fn leaf(expr: &Expr) -> Option<Leaf<'_>> {
    Some(match &expr.kind {
        ExprKind::Variable(id) => Leaf::Variable(*id),
        ExprKind::Load { address, width, .. } => Leaf::Memory(Address(address), *width),
        ExprKind::User { read, address } => Leaf::User(*read, Address(address)),
        ExprKind::Input(input) => match *input {
            Input::Tid | Input::Pid | Input::Comm(_) | Input::Cpu => Leaf::Of(*input),
            Input::Tsc | Input::Nsecs => Leaf::Clock,
            Input::Argument(number) if is_stacked(*input) => Leaf::Stacked(number),
            Input::Event(event) => Leaf::Event(event),
            Input::KernelStack(depth) => Leaf::Stack(depth),
            Input::UserStack(depth) => Leaf::UserStack(depth),
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns the leaves that occur more than once.
fn repeated(expr: &Expr) -> Vec<Leaf<'_>> {
    let mut seen = Vec::new();
    let mut twice = Vec::new();
    let mut nodes = vec![expr];
    while let Some(node) = nodes.pop() {
        nodes.extend(node.operands().into_iter().rev());
        let nanoseconds = matches!(node.kind, ExprKind::Input(Input::Nsecs));
        let offset = nanoseconds.then_some(Leaf::ClockOffset);
        for leaf in leaf(node).into_iter().chain(offset) {
            if !seen.contains(&leaf) {
                seen.push(leaf);
            } else if !twice.contains(&leaf) {
                twice.push(leaf);
            }
        }
    }
    // What an address is made of comes before what is read there.
    twice.sort_by_key(|leaf| match leaf {
        Leaf::Memory(address, _) | Leaf::User(_, address) => address.nodes(),
        _ => 0,
    });
    twice
}

/// The code of one probe in the making.
struct Compiler<'c> {
    e: &'c mut Emitter,
    hooked: &'c Hooked<'c>,
    probed: &'c Probed,
    registers: &'c Registers,
    layout: &'c RuntimeLayout,
    groups: &'c mut Groups,
    /// Leaves that have been read, with their registers.
    pinned: Vec<(Leaf<'c>, Register)>,
    /// Entries of the table of storage that the probe finds once.
    entries: Vec<Entry>,
    lost: Vec<(Lost, Addr)>,
}

/// The entry of a variable in the table of storage, found where it is used first: control that passes that place
/// reaches every later use, since only a predicate that does not hold skips code, and that skips all of it.
struct Entry {
    home: Home,
    /// Its key and its address, for the rest of the probe.
    registers: [Register; 2],
    /// True once they are computed.
    located: bool,
}

/// Emits a probe. Returns its rare paths, with the address where each continues.
pub(super) fn emit(
    e: &mut Emitter,
    (hooked, probed): (&Hooked<'_>, &Probed),
    registers: &Registers,
    layout: &RuntimeLayout,
    groups: &mut Groups,
) -> Vec<(Lost, Addr)> {
    let Some(probe) = probed.probe() else {
        e.lacks("probe of that number");
        return Vec::new();
    };
    // The last registers.
    let last = registers.work.len();
    let entries = demand::found_once(probed, hooked.counter, layout);
    let entries = (0..).zip(entries).map(|(number, home): (usize, _)| Entry {
        home,
        registers: [1, 2].map(|place| registers.work(last.saturating_sub(2 * number + place))),
        located: false,
    });
    let mut compiler = Compiler {
        entries: entries.collect(),
        e,
        hooked,
        probed,
        registers,
        layout,
        groups,
        pinned: Vec::new(),
        lost: Vec::new(),
    };
    let skips = probe
        .predicate
        .iter()
        .flat_map(|predicate| compiler.predicate(predicate))
        .collect::<Vec<_>>();
    for action in &probe.actions {
        compiler.action(action);
    }
    for skip in skips {
        compiler.e.land(skip);
    }
    compiler.lost
}

impl<'c> Compiler<'c> {
    /// Takes a part that every plan has; without it the patch is not made.
    fn planned<T: Default>(&mut self, part: Option<T>, name: &str) -> T {
        part.unwrap_or_else(|| {
            self.e.lacks(name);
            T::default()
        })
    }

    /// A register to work in.
    fn work(&self, number: usize) -> Register {
        self.registers.work(number)
    }

    /// Reads what `expr` mentions more than once, into the last registers there are.
    fn pin(&mut self, expr: &'c Expr) {
        self.pinned.clear();
        let mut last = self
            .registers
            .work
            .len()
            .saturating_sub(2 * self.entries.len());
        for leaf in repeated(expr) {
            last = last.saturating_sub(1);
            self.read(leaf, 0);
            let (from, to) = (self.work(0), self.work(last));
            self.copy(to, from);
            self.pinned.push((leaf, to));
        }
    }
}
