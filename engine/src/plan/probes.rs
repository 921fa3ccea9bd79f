//! Placements of instruments in the language: where their probes run, and where they keep what they keep.

use std::collections::HashMap;
use std::sync::Arc;

use gilk_instruments::program::{Checked, ExprKind, Hook, Input, Probe, Scope};
use gilk_instruments::{Context, Definition, Library, Program};

use super::numbered::Numbered;
use crate::cfg::{Block, BlockEnd, BlockIndex, Cfg, EdgeKind};
use crate::image::{Decision, handles_faults};
use crate::layout::{CounterSlot, RuntimeLayout};
use crate::patch::{Home, Homes, may_fault};
use crate::placement::parts;
use crate::session::{Placement, Session};
use crate::{Addr, Error, HookType, Image, Refusal, Result, Rule};

/// Where a probe runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) major: u32,
    pub(super) block: BlockIndex,
    pub(super) hook: HookType,
}

/// Words and numbers, each given once.
pub(super) struct Words<'l> {
    layout: &'l RuntimeLayout,
    next: CounterSlot,
    /// Timers of a thread that nobody has: the last is given first.
    timers: Vec<u8>,
    calls: u16,
    shared: HashMap<(String, Scope), Home>,
}

impl<'l> Words<'l> {
    /// All there are, but for the timers that the session's placements name.
    pub(super) fn new(layout: &'l RuntimeLayout, session: &Session) -> Self {
        let mut timers: Vec<u8> = (0..Session::TIMERS).collect();
        timers.retain(|timer| session.placements.iter().all(|one| one.timer != *timer));
        Self {
            layout,
            next: CounterSlot { bank: 0, slot: 0 },
            timers,
            calls: 0,
            shared: HashMap::new(),
        }
    }

    /// Checks that there are so many single words.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(super) fn check(&self, needed: u64) -> Result<()> {
        let behind = self.layout.counters.iter().skip(self.next.bank as usize);
        let slots: u64 = behind.map(|bank| u64::from(bank.slots)).sum();
        let left = slots.saturating_sub(self.next.slot.into());
        let used = self.layout.counter_count() - left.min(self.layout.counter_count());
        if needed <= left {
            return Ok(());
        }
        Err(Error::Full {
            what: "counters",
            needed: needed + used,
            available: self.layout.counter_count(),
        })
    }

    /// So many words of each CPU, side by side.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(super) fn take(&mut self, words: u32) -> Result<CounterSlot> {
        let full = || Error::Full {
            what: "counters",
            needed: self.layout.counter_count() + u64::from(words),
            available: self.layout.counter_count(),
        };
        loop {
            let bank = self.layout.counters.get(self.next.bank as usize);
            let slots = bank.ok_or_else(full)?.slots;
            let end = self.next.slot.saturating_add(words);
            if end <= slots {
                let taken = self.next;
                self.next.slot = end;
                return Ok(taken);
            }
            self.next = CounterSlot {
                bank: self.next.bank + 1,
                slot: 0,
            };
        }
    }

    /// Homes for a placement of its own.
    pub(super) fn homes(&mut self, checked: &Checked) -> Result<Homes> {
        let mut homes = Homes::default();
        for variable in &checked.variables {
            let name = (variable.name.clone(), variable.scope);
            let known = self.shared.get(&name).filter(|_| variable.shared).copied();
            let home = match known {
                Some(known) => known,
                None => self.home(variable.scope)?,
            };
            if variable.shared {
                self.shared.insert(name, home);
            }
            homes.variables.push(home);
        }
        for aggregate in &checked.aggregates {
            homes.aggregates.push(self.take(aggregate.words())?);
        }
        if checked.probes.iter().any(may_fault) {
            homes.failed = Some(self.take(1)?);
        }
        let keyed = |home: &Home| matches!(home, Home::Thread(_) | Home::Call(_));
        if homes.variables.iter().any(keyed) {
            homes.no_room = Some(self.take(1)?);
        }
        Ok(homes)
    }

    fn home(&mut self, scope: Scope) -> Result<Home> {
        Ok(match scope {
            Scope::Cpu => Home::Cpu(self.take(1)?),
            Scope::Global => {
                let slot = self.take(1)?;
                self.layout.shared(slot).ok_or(Error::Full {
                    what: "words that all CPUs share",
                    needed: 1,
                    available: 0,
                })?;
                Home::Shared(slot)
            }
            Scope::Thread => Home::Thread(self.timers.pop().ok_or(Error::Full {
                what: "variables of a thread",
                needed: u64::from(Session::TIMERS) + 1,
                available: u64::from(Session::TIMERS),
            })?),
            Scope::Call => {
                self.calls = self.calls.checked_add(1).ok_or(Error::Full {
                    what: "variables of a call",
                    needed: 1 << 16,
                    available: (1 << 16) - 1,
                })?;
                Home::Call(self.calls)
            }
        })
    }
}

/// Instruments by name, the session's own and the library's, and what sources are for each function.
pub(super) struct Instruments<'s> {
    image: &'s Image,
    session: &'s Session,
    library: &'s Library,
    definitions: HashMap<&'s str, Arc<Definition>>,
    checked: HashMap<(&'s str, &'s str), Arc<Checked>>,
}

impl<'s> Instruments<'s> {
    pub(super) fn new(image: &'s Image, session: &'s Session, library: &'s Library) -> Self {
        Self {
            image,
            session,
            library,
            definitions: HashMap::new(),
            checked: HashMap::new(),
        }
    }

    /// The instrument that a placement names.
    ///
    /// # Errors
    /// [`Error::Instrument`] if there is none, or its source is wrong.
    pub(super) fn definition(&mut self, placement: &'s Placement) -> Result<Arc<Definition>> {
        let name = &*placement.instrument;
        if let Some(known) = self.definitions.get(name) {
            return Ok(Arc::clone(known));
        }
        let new = match self.session.sources.get(name) {
            Some(text) => Definition::from_source(name, text)?,
            None => self.library.get(name)?.clone(),
        };
        let new = Arc::new(new);
        self.definitions.insert(name, Arc::clone(&new));
        Ok(new)
    }

    /// What its source is for the function of the placement; `None` if it needs no compiler.
    ///
    /// # Errors
    /// [`Error::Program`] if it is wrong there.
    pub(super) fn checked(
        &mut self,
        placement: &'s Placement,
        definition: &Definition,
    ) -> Result<Option<Arc<Checked>>> {
        let (Program::Probe, Some(source)) = (definition.program, &definition.source) else {
            return Ok(None);
        };
        let (name, function) = (&*placement.instrument, &*placement.function);
        if let Some(known) = self.checked.get(&(name, function)) {
            return Ok(Some(Arc::clone(known)));
        }
        let context = Context {
            types: self.image.types(),
            function: Some(function),
        };
        let checked = source.check(&context).map_err(|faults| Error::Program {
            name: name.to_owned(),
            function: function.to_owned(),
            faults: faults.to_string(),
        })?;
        let checked = Arc::new(checked);
        self.checked.insert((name, function), Arc::clone(&checked));
        Ok(Some(checked))
    }
}

/// Whether a probe never does anything.
pub(super) fn is_idle(probe: &Probe) -> bool {
    let never = probe.predicate.as_ref().map(|expr| &expr.kind) == Some(&ExprKind::Constant(0));
    never || probe.actions.is_empty()
}

/// Where a probe of a placement runs; a hook that no code is generated for is refused.
pub(super) fn places(
    functions: &mut Numbered<'_>,
    image: &Image,
    probe: &Probe,
    at: (u32, &Placement),
) -> Result<std::result::Result<Vec<Place>, Refusal>> {
    let (own, placement) = at;
    let major = match &probe.function {
        Some(name) => functions.major(name)?,
        None => own,
    };
    let one = |block, hook| {
        Ok(Ok(vec![Place {
            major,
            block: BlockIndex(block),
            hook,
        }]))
    };
    match probe.hook {
        Hook::Hit => one(placement.block, placement.hook),
        Hook::Pre => one(placement.block, HookType::Pre),
        Hook::Post => one(placement.block, HookType::Post),
        Hook::Entry => one(0, HookType::Pre),
        Hook::Return => Ok(exits(functions, image, major, probe.reads_returned())),
        Hook::Taken => one(placement.block, HookType::Taken),
        Hook::Untaken => one(placement.block, HookType::Untaken),
    }
}

/// Every end of a block by which control leaves a function for good, its parts elsewhere included. A tail
/// call is one, unless `returns` asks for returns only.
fn exits(
    functions: &mut Numbered<'_>,
    image: &Image,
    major: u32,
    returns: bool,
) -> std::result::Result<Vec<Place>, Refusal> {
    let Some(cfg) = functions.graph(major) else {
        return Ok(Vec::new());
    };
    let start = cfg.span.start;
    let mut members = vec![(major, cfg.span)];
    let parts = parts(image, cfg);
    for part in parts {
        let major = functions.major_of(part);
        if let Some(cfg) = functions.graph(major) {
            members.push((major, cfg.span));
        }
    }
    let inside = |at: Addr| members.iter().any(|(_, span)| span.contains(at));
    let mut places = Vec::new();
    for &(major, _) in &members {
        let Some(cfg) = functions.graph(major) else {
            continue;
        };
        if let Some(refusal) = &cfg.refusal {
            return Err(refusal.clone());
        }
        for block in &cfg.blocks {
            let leaves = match block.end {
                BlockEnd::Return => true,
                BlockEnd::TailCall => !inside(target(image, block)) && !returns,
                BlockEnd::Indirect => may_be_table(cfg)
                    .then(|| unknown(block, "a jump by a table may stay in the function"))
                    .map_or(Ok(!returns), Err)?,
                BlockEnd::NoReturn => false,
                BlockEnd::Conditional if !cfg.exits(block.index) => false,
                BlockEnd::Conditional if inside(target(image, block)) => false,
                BlockEnd::FallThrough | BlockEnd::Jump if !cfg.exits(block.index) => false,
                BlockEnd::Conditional | BlockEnd::FallThrough | BlockEnd::Jump => {
                    return Err(unknown(block, "only one of its ways leaves the function"));
                }
            };
            if leaves {
                places.push(Place {
                    major,
                    block: block.index,
                    hook: HookType::Post,
                });
            }
        }
    }
    if returns && places.is_empty() {
        return Err(Refusal {
            rule: Rule::ReturnUnknown,
            at: start,
            why: String::from(
                "no return of its own says what it returns; take the function that it ends by jumping to",
            ),
        });
    }
    Ok(places)
}

fn unknown(block: &Block, why: &str) -> Refusal {
    let last = block.instructions.last();
    Refusal {
        rule: Rule::ExitUnknown,
        at: last.map_or(block.span.start, |last| Addr(last.ip())),
        why: why.to_owned(),
    }
}

/// Where the branch at the end of a block leads.
pub(super) fn target(image: &Image, block: &Block) -> Addr {
    let Some(last) = block.instructions.last() else {
        return Addr(0);
    };
    match image.decided(Addr(last.ip())).map(|site| site.by) {
        Some(Decision::StaticKey { target, .. }) => target,
        _ => Addr(last.near_branch_target()),
    }
}

/// Whether blocks of the function are entered by addresses, not only as its start or as fixups.
fn may_be_table(cfg: &Cfg) -> bool {
    let fixup = |block: &Block| {
        let mut edges = cfg.edges.iter();
        edges.any(|edge| edge.kind == EdgeKind::Fixup && edge.to == block.index)
    };
    let mut blocks = cfg.blocks.iter().skip(1);
    blocks.any(|block| block.open && !fixup(block))
}

/// What a function returns is known only where a return leaves it.
pub(super) fn returned_is_known(cfg: &Cfg, probe: &Probe, place: Place) -> Option<Refusal> {
    let block = cfg.block(place.block)?;
    let known = place.hook == HookType::Post && block.end == BlockEnd::Return;
    (probe.reads_returned() && !known).then(|| Refusal {
        rule: Rule::ReturnUnknown,
        at: block.span.start,
        why: String::from("what the function returns is known only before a return"),
    })
}

/// A read that fails would fail again where the kernel sees to that.
pub(super) fn faults_in_faults(cfg: &Cfg, probe: &Probe) -> Option<Refusal> {
    (may_fault(probe) && handles_faults(&cfg.name)).then(|| Refusal {
        rule: Rule::ProgramUnsupported,
        at: cfg.span.start,
        why: "it reads kernel memory or a counter, and the kernel runs this function when such a read fails: it would fail again and again".into(),
    })
}

/// What a probe reads of the machine.
pub(super) fn inputs(probe: &Probe) -> impl Iterator<Item = Input> {
    probe.expressions().flat_map(|expr| expr.inputs())
}
