//! Instruments in the language: their sources, and their storage.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use gilk_instruments::program::{Checked, ExprKind, Hook, Input, Probe, Scope};
use gilk_instruments::{Context, Definition, Library};

use crate::cfg::Cfg;
use crate::code::Origin;
use crate::layout::{CounterSlot, RuntimeLayout};
use crate::patch::{Home, Homes, Probed, may_fault};
use crate::session::{Placement, Session};
use crate::{Error, Image, Refusal, Result, Rule};

/// Allocator of per-CPU words and of numbers, each given once.
pub(super) struct Words<'l> {
    layout: &'l RuntimeLayout,
    next: CounterSlot,
    /// Variables of a thread that have a number.
    threads: u8,
    /// Variables of a call that have a number.
    calls: u16,
    shared: HashMap<(String, Scope), Home>,
}

impl<'l> Words<'l> {
    /// All words and numbers of a layout.
    pub(super) fn new(layout: &'l RuntimeLayout) -> Self {
        Self {
            layout,
            next: CounterSlot { bank: 0, slot: 0 },
            threads: 0,
            calls: 0,
            shared: HashMap::new(),
        }
    }

    /// Checks that so many single words are free.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(super) fn check(&self, needed: u64) -> Result<()> {
        let rest = self.layout.counters.iter().skip(self.next.bank as usize);
        let slots: u64 = rest.map(|bank| u64::from(bank.slots)).sum();
        let free = slots.saturating_sub(self.next.slot.into());
        let used = self.layout.counter_count() - free.min(self.layout.counter_count());
        if needed <= free {
            return Ok(());
        }
        Err(Error::Full {
            what: "counters",
            needed: needed + used,
            available: self.layout.counter_count(),
        })
    }

    /// Allocates consecutive words of each CPU.
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

    /// Allocates the storage of a placement.
    pub(super) fn homes(&mut self, checked: &Checked) -> Result<Homes> {
        let mut homes = Homes::default();
        for variable in checked.variables.values() {
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
        for aggregate in checked.aggregates.values() {
            homes.aggregates.push(self.take(aggregate.words())?);
        }
        if checked.probes.iter().any(may_fault) {
            homes.failed = Some(self.take(1)?);
        }
        let keyed = |home: &Home| matches!(home, Home::Thread(_) | Home::Call(_));
        if homes.variables.values().iter().any(keyed) {
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
            Scope::Thread => {
                let (number, available) = (self.threads, self.layout.owner.thread_variables());
                if number >= available {
                    return Err(Error::Full {
                        what: "variables of a thread",
                        needed: u64::from(available) + 1,
                        available: available.into(),
                    });
                }
                self.threads += 1;
                Home::Thread(number)
            }
            Scope::Call => {
                let (number, bound) = (self.calls + 1, self.layout.owner.call_numbers());
                if number >= bound {
                    return Err(Error::Full {
                        what: "variables of a call",
                        needed: number.into(),
                        available: (bound - 1).into(),
                    });
                }
                self.calls = number;
                Home::Call(number)
            }
        })
    }
}

/// The instruments of a session by name, and their sources checked for each function.
pub(super) struct Instruments<'s> {
    image: &'s Image,
    session: &'s Session,
    library: &'s Library,
    named: HashMap<&'s str, Instrument>,
    /// Sources that depend on the function, by instrument and function.
    prepared: HashMap<(&'s str, &'s str), Arc<Prepared>>,
    followed: HashMap<(&'s str, &'s str), Arc<Checked>>,
}

#[derive(Clone)]
struct Instrument {
    definition: Arc<Definition>,
    /// The checked source, if it is the same for all functions.
    everywhere: Option<Arc<Prepared>>,
}

/// A checked source.
pub(super) struct Prepared {
    pub(super) checked: Arc<Checked>,
    /// The probe that all placements share: it runs at the hook of its placement, and keeps nothing between
    /// hits except the counter of the instrument.
    pub(super) shared: Option<Arc<Probed>>,
}

impl Prepared {
    fn new(checked: Checked, counts: bool) -> Self {
        let checked = Arc::new(checked);
        let shared = match checked.probes.as_slice() {
            [probe] => {
                let keeps = !checked.variables.is_empty()
                    || !checked.aggregates.is_empty() && !counts
                    || may_fault(probe);
                (probe.hook == Hook::Hit && !keeps && !is_idle(probe)).then(|| {
                    Arc::new(Probed {
                        checked: Arc::clone(&checked),
                        index: 0,
                        homes: Arc::default(),
                    })
                })
            }
            _ => None,
        };
        Self { checked, shared }
    }
}

impl<'s> Instruments<'s> {
    pub(super) fn new(image: &'s Image, session: &'s Session, library: &'s Library) -> Self {
        Self {
            image,
            session,
            library,
            named: HashMap::new(),
            prepared: HashMap::new(),
            followed: HashMap::new(),
        }
    }

    /// The instrument that a placement names.
    ///
    /// # Errors
    /// [`Error::Instrument`] if there is none, or its source is wrong.
    fn instrument(&mut self, placement: &'s Placement) -> Result<&mut Instrument> {
        let name = &*placement.instrument;
        match self.named.entry(name) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => {
                let definition = match self.session.sources.get(name) {
                    Some(text) => Definition::from_source(name, text)?,
                    None => self.library.get(name)?.clone(),
                };
                Ok(vacant.insert(Instrument {
                    definition: Arc::new(definition),
                    everywhere: None,
                }))
            }
        }
    }

    /// Returns the instrument that a placement names, and its source checked for the placement's function
    /// unless it is a native function.
    ///
    /// # Errors
    /// [`Error::Instrument`] if there is no such instrument or its source is wrong, [`Error::Program`] if it is
    /// wrong for the function.
    pub(super) fn of(
        &mut self,
        placement: &'s Placement,
    ) -> Result<(Arc<Definition>, Option<Arc<Prepared>>)> {
        let instrument = self.instrument(placement)?;
        let definition = Arc::clone(&instrument.definition);
        let Some(source) = definition.source() else {
            return Ok((definition, None));
        };
        if let Some(everywhere) = &instrument.everywhere {
            return Ok((Arc::clone(&definition), Some(Arc::clone(everywhere))));
        }
        let (name, function) = (&*placement.instrument, &*placement.function);
        if let Some(shared) = self.prepared.get(&(name, function)) {
            let prepared = Arc::clone(shared);
            return Ok((Arc::clone(&definition), Some(prepared)));
        }
        let context = Context {
            types: self.image.types(),
            function: Some(function),
            of_process: self.image.origin() == Origin::Object,
        };
        let checked = source.check(&context).map_err(|faults| Error::Program {
            name: name.to_owned(),
            function: function.to_owned(),
            faults: faults.to_string(),
        })?;
        let prepared = Arc::new(Prepared::new(checked, definition.counts()));
        if source.depends_on_function() {
            let key = (name, function);
            self.prepared.insert(key, Arc::clone(&prepared));
        } else {
            self.instrument(placement)?.everywhere = Some(Arc::clone(&prepared));
        }
        Ok((Arc::clone(&definition), Some(prepared)))
    }

    /// The program for a function whose calls are followed by jumps.
    pub(super) fn followed(&mut self, placement: &'s Placement, checked: &Checked) -> Arc<Checked> {
        let of = (&*placement.instrument, &*placement.function);
        let followed = self.followed.entry(of);
        Arc::clone(followed.or_insert_with(|| Arc::new(checked.followed())))
    }
}

/// Returns whether a probe never has an effect.
pub(super) fn is_idle(probe: &Probe) -> bool {
    let never = probe.predicate.as_ref().map(|expr| &expr.kind) == Some(&ExprKind::Constant(0));
    never || probe.actions.is_empty()
}

/// Refuses loads in the kernel's fault handlers: they would fault recursively. Where the handlers are not
/// known, refuses all loads.
pub(super) fn faults_in_faults(image: &Image, cfg: &Cfg, probe: &Probe) -> Option<Refusal> {
    if !may_fault(probe) {
        return None;
    }
    if !image.is_known() {
        let why = format!(
            "it reads memory, a stack or a counter, and the functions that handle a failed read were not compared with {}: in one that is not known it would fault recursively; `--unknown-kernel` permits it",
            image.release()
        );
        return Some(Refusal::new(Rule::UnknownKernel, cfg.span.start, why));
    }
    image.handles_faults(cfg.function).then(|| Refusal::new(Rule::ProgramUnsupported, cfg.span.start, "it reads memory, a stack or a counter, and the kernel executes this function when such a read faults: it would fault recursively"))
}

/// Inputs that a probe reads from the machine.
pub(super) fn inputs(probe: &Probe) -> impl Iterator<Item = Input> {
    probe.expressions().flat_map(|expr| expr.inputs())
}
