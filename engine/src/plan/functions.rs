//! The functions of a session once hooks have their sites: graphs, and liveness at points of patches.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::major::Major;
use super::model::PlannedFunction;
use crate::cfg::{BlockIndex, Cfg};
use crate::code::FunctionId;
use crate::ids::Ids;
use crate::liveness::{Analysis, Arguments, Live, Liveness, RegisterSet};
use crate::placement::{InsnEdge, Point, Site};
use crate::{Addr, HookType, Image, InstrumentId};

pub(super) struct SessionFunction {
    pub(super) planned: PlannedFunction,
    /// Registers that instruments of the function read: preserved at all points in it, since registers
    /// that are dead to the function are not dead to its instruments.
    pub(super) sampled: RegisterSet,
}

/// Every function with instruments, by major number.
pub(super) struct Functions<'a> {
    analysis: Analysis<'a>,
    functions: Ids<Major, SessionFunction>,
    majors: HashMap<FunctionId, Major>,
    /// The functions that were used last: those of a whole kernel would take much memory, and patches are
    /// assembled function by function.
    recent: RefCell<VecDeque<(Major, Rc<Analysed>)>>,
}

/// Capacity of the cache: a function, its parts, and the functions that they branch to.
const RECENT: usize = 16;

/// A function's graph, and its liveness, computed at the first use.
pub(super) struct Analysed {
    pub(super) cfg: Cfg,
    liveness: OnceCell<Liveness>,
}

impl Analysed {
    pub(super) fn arguments(&self, image: &Image) -> Arguments {
        Arguments::of(image, &self.cfg)
    }

    fn liveness(&self, analysis: &Analysis<'_>) -> &Liveness {
        let liveness = || Liveness::of(analysis, &self.cfg);
        self.liveness.get_or_init(liveness)
    }
}

impl<'a> Functions<'a> {
    pub(super) fn new(
        image: &'a Image,
        functions: Ids<Major, SessionFunction>,
        majors: HashMap<FunctionId, Major>,
    ) -> Self {
        Self {
            analysis: Analysis::new(image),
            functions,
            majors,
            recent: RefCell::default(),
        }
    }

    /// Converts the functions to those of the plan.
    pub(super) fn planned(self) -> Vec<PlannedFunction> {
        let functions = self.functions.into_values();
        functions
            .into_iter()
            .map(|function| function.planned)
            .collect()
    }

    /// Returns whether a function has instruments.
    pub(super) fn has(&self, function: FunctionId) -> bool {
        self.majors.contains_key(&function)
    }

    /// The function around an address, if it has instruments; most are in `guess`.
    fn around(&self, at: Addr, guess: Option<Major>) -> Option<Major> {
        // Spans of functions do not overlap.
        let has = |&major: &Major| self.functions[major].planned.outline.span.contains(at);
        guess.filter(has).or_else(|| {
            let id = self.analysis.image().function_at(at)?.id;
            self.majors.get(&id).copied()
        })
    }

    /// The function of a major number, decoded again if it is not in the cache.
    pub(super) fn analysed(&self, major: Major) -> Rc<Analysed> {
        let mut recent = self.recent.borrow_mut();
        if let Some((_, cached)) = recent.iter().find(|(cached, _)| *cached == major) {
            return Rc::clone(cached);
        }
        let function = self.functions[major].planned.outline.function;
        let new = Rc::new(Analysed {
            cfg: Cfg::of(self.analysis.image(), function),
            liveness: OnceCell::new(),
        });
        recent.truncate(RECENT - 1);
        recent.push_front((major, Rc::clone(&new)));
        new
    }

    /// Returns the registers and flags that instruments must preserve, by point of a site.
    pub(super) fn live<'s>(&'s self, site: &Site) -> impl Fn(Point) -> Live + use<'a, 's> {
        let start = site.displaced.start;
        let own = self.around(start, None);
        move |point| match point {
            Point::Entry => self.live_before(start, own),
            Point::Before(at) => self.live_before(at, own),
            Point::On(edge) => self.live_on(edge, own),
        }
    }

    fn live_before(&self, at: Addr, in_function: Option<Major>) -> Live {
        self.around(at, in_function).map_or(Live::ALL, |major| {
            let analysed = self.analysed(major);
            self.functions[major].kept(analysed.liveness(&self.analysis).before(at))
        })
    }

    fn live_on(&self, edge: InsnEdge, own: Option<Major>) -> Live {
        let Some(from) = self.around(edge.from, own) else {
            return Live::ALL;
        };
        let analysed = self.analysed(from);
        let from = &self.functions[from];
        if analysed.cfg.span.contains(edge.to) {
            return from.kept(analysed.liveness(&self.analysis).before(edge.to));
        }
        let Some(block) = analysed.cfg.block_at(edge.from) else {
            debug_assert!(false, "{} is in no block of its function", edge.from);
            return Live::ALL;
        };
        let live = from.kept(analysed.liveness(&self.analysis).after_block(block.index));
        // Instruments at the target of the edge may read registers too.
        let to = self.around(edge.to, None);
        to.map_or(live, |to| self.functions[to].kept(live))
    }

    /// The group of a point's instruments that one belongs to, in order of execution: post-hooks of the block
    /// that ends there, hooks of its ways out, pre-hooks of the block that begins, and last post-hooks of that
    /// one, if its first instruction is also its last.
    pub(super) fn turn(&self, id: InstrumentId, site: &Site, point: Point) -> u8 {
        let major = Major::of(id);
        let index = BlockIndex(id.block);
        let block = self.functions[major].planned.outline[index];
        let entered = site.splice.entered(site.displaced);
        if id.hook.is_way() {
            return 2;
        }
        if id.hook == HookType::Pre {
            let following = match point {
                Point::On(edge) => edge.to,
                Point::Before(at) => at,
                Point::Entry => entered,
            };
            // An entry block that is only the tracer's site begins, and ends, after it.
            return if following == block.end { 0 } else { 3 };
        }
        let last = self.analysed(major).cfg[index].last_at();
        let at_its_start = match point {
            Point::On(edge) => edge.from != last,
            Point::Before(at) => at == last,
            Point::Entry => entered == last,
        };
        if at_its_start { 4 } else { 1 }
    }
}

impl SessionFunction {
    fn kept(&self, live: Live) -> Live {
        Live {
            registers: live.registers.union(self.sampled),
            ..live
        }
    }
}
