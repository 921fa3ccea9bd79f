//! The functions of a session: numbers, graphs, and what is live and intact at points of patches.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use iced_x86::Register;

use super::PlannedFunction;
use crate::cfg::{BlockEnd, BlockIndex, Cfg};
use crate::image::FunctionId;
use crate::liveness::{Arguments, Live, Liveness, RegisterSet};
use crate::placement::{Comparison, Edge, Point, Site, Splice, Style};
use crate::{Addr, HookType, Image, InstrumentId, Result};

struct Analysed {
    planned: PlannedFunction,
    /// Registers that instruments of the function sample: kept at all points in it, for what is
    /// dead to the function is not dead to them.
    sampled: RegisterSet,
}

/// Every function with instruments, by major number.
pub(super) struct Functions<'a> {
    image: &'a Image,
    analysed: Vec<Analysed>,
    majors: HashMap<FunctionId, u32>,
    /// What is live in the functions that were asked for last: of all of a kernel it would take much room, and
    /// patches are made function by function.
    recent: RefCell<VecDeque<(u32, Rc<Liveness>)>>,
}

/// How many are kept: a function, its parts, and what they lead to.
const RECENT: usize = 16;

impl<'a> Functions<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self {
            image,
            analysed: Vec::new(),
            majors: HashMap::new(),
            recent: RefCell::default(),
        }
    }

    /// The major number of a function: by first appearance, whichever of its names is written.
    pub(super) fn major(&mut self, name: &str) -> Result<u32> {
        let function = self.image.function_named(name)?;
        if let Some(&major) = self.majors.get(&function.id) {
            return Ok(major);
        }
        let major = u32::try_from(self.analysed.len()).unwrap_or(u32::MAX);
        let cfg = Cfg::of(self.image, function.id);
        let planned = PlannedFunction {
            major,
            name: function.name.clone(),
            cfg,
            style: Style::InPlace,
            compared: None,
        };
        self.analysed.push(Analysed {
            planned,
            sampled: RegisterSet::EMPTY,
        });
        self.majors.insert(function.id, major);
        Ok(major)
    }

    pub(super) fn graph(&self, major: u32) -> Option<&Cfg> {
        Some(&self.analysed.get(major as usize)?.planned.cfg)
    }

    /// All graphs, by major number.
    pub(super) fn graphs(&self) -> impl Iterator<Item = &Cfg> {
        self.analysed.iter().map(|function| &function.planned.cfg)
    }

    /// Notes how hooks are reached, by major number.
    pub(super) fn place(&mut self, styles: Vec<Style>, compared: Vec<Option<Comparison>>) {
        let taken = styles.into_iter().zip(compared);
        for (function, (style, compared)) in self.analysed.iter_mut().zip(taken) {
            function.planned.style = style;
            function.planned.compared = compared.map(Box::new);
        }
    }

    pub(super) fn planned(self) -> Vec<PlannedFunction> {
        let functions = self.analysed.into_iter();
        functions.map(|function| function.planned).collect()
    }

    /// Notes that an instrument of the function reads the register.
    pub(super) fn sample(&mut self, major: u32, register: Register) {
        if let Some(function) = self.analysed.get_mut(major as usize) {
            function.sampled.insert(register);
        }
    }

    /// The function around an address; most are in the one around `guess`.
    fn around(&self, at: Addr, guess: Option<&Analysed>) -> Option<&Analysed> {
        if let Some(guess) = guess.filter(|function| function.planned.cfg.span.contains(at)) {
            // Spans of functions do not overlap.
            return self.analysed.get(guess.planned.major as usize);
        }
        let id = self.image.function_at(at)?.id;
        self.analysed.get(*self.majors.get(&id)? as usize)
    }

    fn liveness(&self, function: &Analysed) -> Rc<Liveness> {
        let PlannedFunction { major, cfg, .. } = &function.planned;
        let mut recent = self.recent.borrow_mut();
        if let Some((_, known)) = recent.iter().find(|(known, _)| known == major) {
            return Rc::clone(known);
        }
        let new = Rc::new(Liveness::of(self.image, cfg));
        recent.truncate(RECENT - 1);
        recent.push_front((*major, Rc::clone(&new)));
        new
    }

    /// What must survive the instruments at a point of a site, for every point of it.
    pub(super) fn live<'s>(&'s self, site: &Site) -> impl Fn(Point) -> Live + use<'a, 's> {
        let start = site.displaced.start;
        let own = self.around(start, None);
        move |point| match point {
            Point::Entry => self.live_before(start, own),
            Point::Before(at) => self.live_before(at, own),
            Point::On(edge) => self.live_on(edge, own),
        }
    }

    fn live_before(&self, at: Addr, own: Option<&Analysed>) -> Live {
        self.around(at, own).map_or(Live::ALL, |function| {
            function.kept(self.liveness(function).before(at))
        })
    }

    fn live_on(&self, edge: Edge, own: Option<&Analysed>) -> Live {
        let Some(from) = self.around(edge.from, own) else {
            return Live::ALL;
        };
        let cfg = &from.planned.cfg;
        if cfg.span.contains(edge.to) {
            return from.kept(self.liveness(from).before(edge.to));
        }
        let Some(block) = cfg.block_at(edge.from) else {
            return Live::ALL;
        };
        let live = from.kept(self.liveness(from).after_block(block.index));
        // What instruments behind the edge sample is theirs to find.
        let to = self.around(edge.to, None);
        to.map_or(live, |to| to.kept(live))
    }

    /// Arguments of a graph's function that are intact at a point, and the address that says so.
    pub(super) fn intact(
        &self,
        arguments: &Arguments,
        cfg: &Cfg,
        site: &Site,
        point: Point,
    ) -> (Addr, RegisterSet) {
        match point {
            Point::Entry => {
                let at = site.displaced.start;
                (at, arguments.intact(at))
            }
            Point::Before(at) => (at, arguments.intact(at)),
            Point::On(edge) => {
                let before = arguments.intact(edge.to);
                // What is intact before a branch is so behind it; `loop` writes rcx.
                let branch = cfg.block_at(edge.from).is_some_and(|block| {
                    let last = block.instructions.last();
                    matches!(block.end, BlockEnd::Conditional | BlockEnd::Jump)
                        && last.is_some_and(|last| {
                            last.ip() == edge.from.0 && !last.is_loop() && !last.is_loopcc()
                        })
                });
                if branch {
                    (edge.from, before.union(arguments.intact(edge.from)))
                } else {
                    (edge.to, before)
                }
            }
        }
    }

    /// Which list of a point an instrument belongs to: 0 for those behind the block that ends
    /// there, 1 for those before the block that begins, 2 for those behind that one, if its first
    /// instruction is also its last.
    pub(super) fn turn(&self, id: InstrumentId, site: &Site, point: Point) -> u8 {
        let graph = self.graph(id.major);
        let Some(block) = graph.and_then(|cfg| cfg.block(BlockIndex(id.block))) else {
            return 1;
        };
        let entered = match site.splice {
            Splice::Tracer => site.displaced.end,
            _ => site.displaced.start,
        };
        if id.hook == HookType::Pre {
            let behind = match point {
                Point::On(edge) => edge.to,
                Point::Before(at) => at,
                Point::Entry => entered,
            };
            // An entry that is nothing but the tracer's site begins, and ends, behind that.
            return if behind == block.span.end { 0 } else { 2 };
        }
        let Some(last) = block.instructions.last().map(|last| Addr(last.ip())) else {
            return 1;
        };
        let at_its_start = match point {
            Point::On(edge) => edge.from != last,
            Point::Before(at) => at == last,
            Point::Entry => entered == last,
        };
        if at_its_start { 3 } else { 1 }
    }
}

impl Analysed {
    fn kept(&self, live: Live) -> Live {
        Live {
            registers: live.registers.union(self.sampled),
            ..live
        }
    }
}
