//! Puts instruments into the session and takes them out: each command is one step to undo.

use std::sync::Arc;

use gilk_engine::HookType;
use gilk_engine::cfg::{BlockEnd, BlockIndex};
use gilk_engine::image::FunctionId;
use gilk_engine::session::Placement;
use gilk_instruments::{Definition, Stand};

use crate::app::App;
use crate::command::At;
use crate::graph::marks::sentence;
use crate::state::NoticeKind;
use crate::widgets;

/// Functions that get an instrument by one command, at most: as many as `ilk.ko` has counters for.
const MOST: usize = 2000;

/// Where the scheduler has changed threads, and what tells which one runs.
const SWITCH: &str = "finish_task_switch";
const TELLER: &str = "running-thread";

/// A function, a block of it, and which of its hooks.
type Place = (Arc<str>, BlockIndex, HookType);

impl App {
    /// Puts the inspector's instrument somewhere.
    pub(crate) fn put_draft(&mut self, at: At) {
        let name = self.state.draft.instrument.clone();
        self.put(at, &name);
    }

    /// Puts an instrument somewhere; where it cannot be is said.
    pub(crate) fn put(&mut self, at: At, name: &str) {
        let Some(stand) = self.state.definition(name).map(Definition::stand) else {
            let words = format!("There is no instrument {name}; the Instruments tab lists them.");
            self.state.tell(NoticeKind::Warning, words);
            return;
        };
        self.state.draft.instrument = name.to_owned();
        let put = match at {
            At::Matching => self.matching(),
            At::Function(function) => self.entries(&[function]),
            _ => self.inside(at, stand, name),
        };
        match put {
            Ok(places) => {
                let placements = places
                    .into_iter()
                    .map(|(function, block, hook)| self.placed(function, block, hook, name))
                    .collect();
                self.place(&format!("put {name}"), placements);
            }
            Err(why) => self.state.tell(NoticeKind::Warning, why),
        }
    }

    /// Places in the open function.
    fn inside(&mut self, at: At, stand: Stand, name: &str) -> Result<Vec<Place>, String> {
        let Some(scene) = self.state.graph.scene.clone() else {
            return Ok(Vec::new());
        };
        let here = |block, hook| (Arc::from(scene.name.as_str()), block, hook);
        // All hooks of a function, or of a block, are one to those that say themselves where they run.
        let normal = |(function, block, hook): Place| match stand {
            Stand::Hook => (function, block, hook),
            Stand::Block | Stand::Branch => (function, block, HookType::Pre),
            Stand::Function => (function, BlockIndex(0), HookType::Pre),
        };
        let ends = |block: BlockIndex| scene.cfg.block(block).map(|block| block.end);
        let branches = |block: BlockIndex| ends(block) == Some(BlockEnd::Conditional);
        let places: Vec<Place> = match at {
            At::Hook(block, hook) => {
                if let (Stand::Hook, Some(Err(refusal))) = (stand, scene.hook(block, hook)) {
                    return Err(format!(
                        "The {hook}-hook of block {} is refused by rule {}. {}",
                        block.0,
                        refusal.rule.name(),
                        sentence(refusal)
                    ));
                }
                if stand == Stand::Branch && !branches(block) {
                    return Err(format!(
                        "{name} tells the ways of a branch apart, and block {} does not end with one; choose a block with a green and a red edge.",
                        block.0
                    ));
                }
                self.state.draft.hook = hook;
                self.choose(block);
                vec![here(block, hook)]
            }
            At::Edge(from, to) if stand != Stand::Branch => {
                return Err(format!(
                    "{name} stands {stand}, and not on an edge: drop it on block {}, where this edge begins, or on block {}, where it ends. Instruments of branches, as `branch`, tell edges apart.",
                    from.0, to.0
                ));
            }
            At::Edge(from, _) if !branches(from) => {
                return Err(format!(
                    "Block {} has one way on, so there is no branch to tell apart; drop a counter on it instead.",
                    from.0
                ));
            }
            At::Edge(from, _) => vec![here(from, HookType::Post)],
            At::Entry => vec![here(BlockIndex(0), HookType::Pre)],
            At::Returns => scene
                .hookable(HookType::Post)
                .filter(|&block| matches!(ends(block), Some(BlockEnd::Return | BlockEnd::TailCall)))
                .map(|block| here(block, HookType::Post))
                .collect(),
            At::EveryBlock(hook) => scene
                .hookable(hook)
                .filter(|&block| stand != Stand::Branch || branches(block))
                .map(|block| here(block, hook))
                .collect(),
            At::Matching | At::Function(_) => Vec::new(),
        };
        if places.is_empty() {
            return Err(format!(
                "{} has no such place that can be hooked.",
                scene.name
            ));
        }
        let mut places: Vec<Place> = places.into_iter().map(normal).collect();
        places.dedup();
        Ok(places)
    }

    /// The entry of every function that the filter of the list matches.
    fn matching(&self) -> Result<Vec<Place>, String> {
        let found = &self.state.functions.found;
        if found.len() > MOST {
            return Err(format!(
                "{} functions match; type more letters into the filter until at most {} do.",
                widgets::grouped(found.len() as u64),
                widgets::grouped(MOST as u64)
            ));
        }
        self.entries(found)
    }

    fn entries(&self, functions: &[FunctionId]) -> Result<Vec<Place>, String> {
        let Some(catalogue) = &self.state.catalogue else {
            return Err("There is no kernel yet.".to_owned());
        };
        let names = functions.iter().filter_map(|&id| catalogue.name(id));
        Ok(names
            .map(|name| (Arc::from(name), BlockIndex(0), HookType::Pre))
            .collect())
    }

    fn placed(
        &self,
        function: Arc<str>,
        block: BlockIndex,
        hook: HookType,
        name: &str,
    ) -> Placement {
        let draft = &self.state.draft;
        Placement {
            function,
            block: block.0,
            hook,
            instrument: name.into(),
            launch: draft.launch,
            splash: draft.splash,
            timer: if draft.timed(&self.state.library) {
                draft.timer
            } else {
                0
            },
        }
    }

    /// Puts what tells threads apart where the scheduler changes them, for all of the session.
    pub(crate) fn tell_threads(&mut self) {
        let Some(catalogue) = &self.state.catalogue else {
            let words = "There is no kernel yet: connect to a target, and tell threads apart then.";
            self.state.tell(NoticeKind::Warning, words.to_owned());
            return;
        };
        // The compiler may have given it another name: finish_task_switch.isra.0.
        let is_it = |name: &str| {
            let rest = name.strip_prefix(SWITCH);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                && !name.contains(".cold")
        };
        let found = catalogue.beginning_with(SWITCH, 8);
        let mut names = found.iter().filter_map(|&id| catalogue.name(id));
        let Some(name) = names.find(|name| is_it(name)).map(str::to_owned) else {
            let words =
                format!("This kernel has no function {SWITCH}, where {TELLER} would stand.");
            self.state.tell(NoticeKind::Warning, words);
            return;
        };
        let mut placement = self.placed(name.as_str().into(), BlockIndex(0), HookType::Pre, TELLER);
        placement.launch = 0.0;
        placement.splash = self.state.document.session().duration;
        self.place("tell threads apart", vec![placement]);
        let words = format!(
            "{TELLER} is at the entry of {name}: run the session, and lanes by thread are those of this run."
        );
        self.state.tell(NoticeKind::Good, words);
    }

    /// Adds what is not there yet.
    fn place(&mut self, what: &str, placements: Vec<Placement>) {
        self.state.document.edit(what, |session| {
            for placement in placements {
                let same = |other: &Placement| {
                    other.function == placement.function
                        && other.block == placement.block
                        && other.hook == placement.hook
                        && other.instrument == placement.instrument
                };
                if !session.placements.iter().any(same) {
                    session.placements.push(placement);
                }
            }
        });
        self.state.document.close_step();
    }

    /// Takes everything at the chosen block out.
    pub(crate) fn remove_here(&mut self) {
        let (Some(scene), Some(block)) =
            (self.state.graph.scene.clone(), self.state.graph.selected)
        else {
            return;
        };
        self.state.document.edit("remove here", |session| {
            session
                .placements
                .retain(|one| *one.function != *scene.name || one.block != block.0);
        });
        self.state.document.close_step();
    }
}
