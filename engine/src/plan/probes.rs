//! Placements of instruments in the language: their sources, and where they keep what they keep.

use std::collections::HashMap;
use std::sync::Arc;

use gilk_instruments::program::{Checked, ExprKind, Input, Probe, Scope};
use gilk_instruments::{Context, Definition, Library, Program};

use super::places::Place;
use crate::cfg::{BlockEnd, Cfg};
use crate::layout::{CounterSlot, RuntimeLayout};
use crate::patch::{Home, Homes, may_fault};
use crate::session::{Placement, Session};
use crate::{Error, HookType, Image, Refusal, Result, Rule};

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
    followed: HashMap<(&'s str, &'s str), Arc<Checked>>,
}

impl<'s> Instruments<'s> {
    pub(super) fn new(image: &'s Image, session: &'s Session, library: &'s Library) -> Self {
        Self {
            image,
            session,
            library,
            definitions: HashMap::new(),
            checked: HashMap::new(),
            followed: HashMap::new(),
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

    /// The same for a function whose calls are followed by jumps.
    pub(super) fn followed(&mut self, placement: &'s Placement, checked: &Checked) -> Arc<Checked> {
        let of = (&*placement.instrument, &*placement.function);
        let followed = self.followed.entry(of);
        Arc::clone(followed.or_insert_with(|| Arc::new(checked.followed())))
    }
}

/// Whether a probe never does anything.
pub(super) fn is_idle(probe: &Probe) -> bool {
    let never = probe.predicate.as_ref().map(|expr| &expr.kind) == Some(&ExprKind::Constant(0));
    never || probe.actions.is_empty()
}

/// What a function returns is known only where a return leaves it.
pub(super) fn returned_is_known(cfg: &Cfg, probe: &Probe, place: Place) -> Option<Refusal> {
    let block = cfg.block(place.block)?;
    let known = place.hook == HookType::Post && block.end == BlockEnd::Return;
    (probe.reads_returned() && !known).then(|| {
        Refusal::new(
            Rule::ReturnUnknown,
            block.span.start,
            String::from("what the function returns is known only before a return"),
        )
    })
}

/// A read that fails would fail again where the kernel sees to that.
pub(super) fn faults_in_faults(image: &Image, cfg: &Cfg, probe: &Probe) -> Option<Refusal> {
    (may_fault(probe) && image.handles_faults(cfg.function)).then(|| Refusal::new(Rule::ProgramUnsupported, cfg.span.start, "it reads kernel memory or a counter, and the kernel runs this function when such a read fails: it would fail again and again"))
}

/// What a probe reads of the machine.
pub(super) fn inputs(probe: &Probe) -> impl Iterator<Item = Input> {
    probe.expressions().flat_map(|expr| expr.inputs())
}
