//! Adding and removing placements: each command is one undo step.

use std::collections::HashSet;
use std::sync::Arc;

use gilk_engine::HookType;
use gilk_engine::cfg::{BlockEnd, BlockIndex, EdgeKind};
use gilk_engine::code::FunctionId;
use gilk_engine::paths::counts_paths_of;
use gilk_engine::session::Placement;
use gilk_instruments::{Definition, Stand};

use crate::app::App;
use crate::command::Destination;
use crate::edited::EditedSession;
use crate::graph::marks::sentence;
use crate::placements::{HookKey, hook_key};
use crate::state::NoticeKind;
use crate::widgets;

/// Maximum number of functions instrumented by one command: the number of counters in `ilk.ko`.
const MAX_FUNCTIONS: usize = 2000;

/// The function that runs after a thread switch, and the instrument that records the new thread.
const SWITCH: &str = "finish_task_switch";
const THREAD_RECORDER: &str = "running-thread";
/// The library's instrument that names it.
const THREAD_NAMER: &str = "thread-name";

/// A function, a block in it, and a hook.
type HookPlace = (Arc<str>, BlockIndex, HookType);

impl App {
    /// Places the inspector's instrument.
    pub(crate) fn put_draft(&mut self, at: Destination) {
        let name = self.state.draft.instrument.clone();
        self.put(at, &name);
    }

    /// Places an instrument, or reports why it cannot be placed.
    pub(crate) fn put(&mut self, at: Destination, name: &str) {
        let Some(stand) = self.state.definition(name).map(Definition::stand) else {
            let words = format!("There is no instrument {name}; the Instruments tab lists them.");
            self.state.notify(NoticeKind::Warning, words);
            return;
        };
        self.state.draft.instrument = name.to_owned();
        let put = match at {
            Destination::Matching => self.matching(),
            Destination::Function(function) => self.entries(&[function]),
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
            Err(why) => self.state.notify(NoticeKind::Warning, why),
        }
    }

    /// Returns the places in the open function.
    fn inside(
        &mut self,
        at: Destination,
        stand: Stand,
        name: &str,
    ) -> Result<Vec<HookPlace>, String> {
        let Some(scene) = self.state.graph.scene.clone() else {
            return Ok(Vec::new());
        };
        let here = |block, hook| (Arc::from(scene.name.as_str()), block, hook);
        // Instruments that choose their own place treat all hooks of a block or function alike.
        let normal = |(function, block, hook): HookPlace| match stand {
            Stand::Hook => (function, block, hook),
            Stand::Block | Stand::Branch => (function, block, HookType::Pre),
            Stand::Function => (function, BlockIndex(0), HookType::Pre),
        };
        let ends = |block: BlockIndex| scene.cfg.block(block).map(|block| block.end);
        let branches = |block: BlockIndex| ends(block) == Some(BlockEnd::Conditional);
        let places: Vec<HookPlace> = match at {
            Destination::Hook(block, hook) => {
                if stand == Stand::Hook && scene.hook(block, hook).is_none() {
                    return Err(format!(
                        "Block {} has no {hook} hook, because it does not end with a conditional branch.",
                        block.0
                    ));
                }
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
                        "{name} needs a conditional branch, and block {} does not end with one. Select a block with a green and a red edge.",
                        block.0
                    ));
                }
                self.state.draft.hook = hook;
                self.choose(block);
                vec![here(block, hook)]
            }
            Destination::Edge(from, to) if stand == Stand::Hook && branches(from) => {
                let mut edges = scene.cfg.successors(from);
                let taken = edges.any(|edge| edge.to == to && edge.kind == EdgeKind::Taken);
                let hook = if taken {
                    HookType::Taken
                } else {
                    HookType::Untaken
                };
                return self.inside(Destination::Hook(from, hook), stand, name);
            }
            Destination::Edge(from, to) if stand != Stand::Branch => {
                return Err(format!(
                    "{name} is placed {stand}, not on an edge. Drop it on block {}, the edge's source, or on block {}, its destination. Instruments of branches, such as `branch`, can be placed on edges.",
                    from.0, to.0
                ));
            }
            Destination::Edge(from, _) if !branches(from) => {
                return Err(format!(
                    "Block {} has one outgoing edge and no branch. Drop a counter on the block instead.",
                    from.0
                ));
            }
            Destination::Edge(from, _) => vec![here(from, HookType::Post)],
            Destination::Entry => vec![here(BlockIndex(0), HookType::Pre)],
            Destination::Returns => scene
                .hookable(HookType::Post)
                .filter(|&block| matches!(ends(block), Some(BlockEnd::Return | BlockEnd::TailCall)))
                .map(|block| here(block, HookType::Post))
                .collect(),
            Destination::EveryBlock(hook) => scene
                .hookable(hook)
                .filter(|&block| stand != Stand::Branch || branches(block))
                .map(|block| here(block, hook))
                .collect(),
            Destination::Matching | Destination::Function(_) => Vec::new(),
        };
        if places.is_empty() {
            return Err(format!("{} has no such hook.", scene.name));
        }
        let mut places: Vec<HookPlace> = places.into_iter().map(normal).collect();
        places.dedup();
        Ok(places)
    }

    /// Replaces the open function by a function of an object file for the whole session, or by none.
    pub(crate) fn replace_function(&mut self, name: Option<&str>) {
        let Some(scene) = self.state.graph.scene.clone() else {
            return;
        };
        let duration = self.state.document.session().duration;
        let function: Arc<str> = scene.name.as_str().into();
        let placement = name.map(|name| Placement {
            launch: 0.0,
            splash: duration,
            ..self.placed(function, BlockIndex(0), HookType::Pre, name)
        });
        let library = Arc::clone(&self.state.library);
        self.state.document.edit("replace", |session| {
            let replaces = |one: &Placement| {
                let definition = library.get(&one.instrument);
                definition.is_ok_and(Definition::replaces)
            };
            let entry = (scene.name.as_str(), 0);
            session.placements.retain_at(entry, |one| !replaces(one));
            if let Some(placement) = placement {
                session.placements.push(placement);
            }
        });
        self.state.document.close_step();
    }

    /// Returns the entries of all functions that match the list's filter.
    fn matching(&self) -> Result<Vec<HookPlace>, String> {
        let found = &self.state.functions.found;
        if found.len() > MAX_FUNCTIONS {
            return Err(format!(
                "{} functions match. Narrow the filter to at most {}.",
                widgets::grouped(found.len() as u64),
                widgets::grouped(MAX_FUNCTIONS as u64)
            ));
        }
        self.entries(found)
    }

    fn entries(&self, functions: &[FunctionId]) -> Result<Vec<HookPlace>, String> {
        let Some(catalogue) = &self.state.catalogue else {
            return Err("No kernel is loaded.".to_owned());
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
        }
    }

    /// Places the instrument that records thread switches, for the whole session.
    pub(crate) fn record_threads(&mut self) {
        let Some(catalogue) = &self.state.catalogue else {
            let words = "No kernel is loaded. Connect to a target first.";
            self.state.notify(NoticeKind::Warning, words.to_owned());
            return;
        };
        // The compiler may have added a suffix: finish_task_switch.isra.0.
        let matches = |name: &str| {
            let rest = name.strip_prefix(SWITCH);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                && !name.contains(".cold")
        };
        let found = catalogue.beginning_with(SWITCH, 8);
        let mut names = found.iter().filter_map(|&id| catalogue.name(id));
        let Some(name) = names.find(|name| matches(name)).map(str::to_owned) else {
            let words =
                format!("This kernel has no function {SWITCH}, which {THREAD_RECORDER} needs.");
            self.state.notify(NoticeKind::Warning, words);
            return;
        };
        let function: Arc<str> = name.as_str().into();
        let duration = self.state.document.session().duration;
        let placements = [THREAD_RECORDER, THREAD_NAMER].map(|instrument| Placement {
            launch: 0.0,
            splash: duration,
            ..self.placed(function.clone(), BlockIndex(0), HookType::Pre, instrument)
        });
        self.place("record threads", placements.to_vec());
        let words = format!(
            "{THREAD_RECORDER} and {THREAD_NAMER} were added at the entry of {name}. Run the session to see its lanes by thread."
        );
        self.state.notify(NoticeKind::Good, words);
    }

    /// Adds the placements that the session does not have yet.
    fn place(&mut self, what: &str, placements: Vec<Placement>) {
        // What it has already is looked for in its pieces, and what is added only here.
        let mut added: HashSet<HookKey> = HashSet::new();
        let present = self.state.document.session().placements.clone();
        self.state.document.edit(what, |session| {
            for placement in placements {
                if !present.has_hook(&placement) && added.insert(hook_key(&placement)) {
                    session.placements.push(placement);
                }
            }
        });
        self.state.document.close_step();
    }

    /// Removes all placements at the selected block.
    pub(crate) fn remove_here(&mut self) {
        let (Some(scene), Some(block)) =
            (self.state.graph.scene.clone(), self.state.graph.selected)
        else {
            return;
        };
        let placements = &self.state.document.session().placements;
        let counts_paths = |one: &Placement| counts_paths_of(&one.instrument, &scene.name);
        // Counters of paths work only all together.
        let removes_paths = placements
            .at(&scene.name, block.0)
            .any(|(_, one)| counts_paths(one));
        if removes_paths {
            self.remove_placements("remove here", |session, removed| {
                let keeps = |one: &Placement| {
                    let is_removed = one.block == block.0 || counts_paths(one);
                    !(is_removed && removed(one))
                };
                session.placements.retain_of(&scene.name, keeps);
            });
        } else {
            self.remove_placements("remove here", |session, removed| {
                let here = (&*scene.name, block.0);
                session.placements.retain_at(here, |one| !removed(one));
            });
        }
    }

    /// Removes a placement, by its index; a counter of paths with all others of its function.
    pub(crate) fn remove_placement(&mut self, place: usize) {
        let placements = &self.state.document.session().placements;
        let Some(removed) = placements.get(place).cloned() else {
            return;
        };
        if counts_paths_of(&removed.instrument, &removed.function) {
            self.remove_paths(&removed.function);
            return;
        }
        self.state.document.edit("remove", |session| {
            session.placements.remove(place);
        });
        self.state.document.close_step();
    }

    /// Removes the instruments that count a function's paths.
    pub(crate) fn remove_paths(&mut self, function: &str) {
        self.remove_placements("remove paths", |session, removed| {
            let keeps =
                |one: &Placement| !(counts_paths_of(&one.instrument, function) && removed(one));
            session.placements.retain_of(function, keeps);
        });
    }

    /// Removes all placements, and the sources of those that count paths.
    pub(crate) fn remove_all(&mut self) {
        self.remove_placements("remove all", |session, removed| {
            session.placements.retain(|one| !removed(one));
        });
    }

    /// Removes placements as one undo step, and the sources of those that count paths: `remove` passes each that
    /// it removes to its second argument, which is true.
    fn remove_placements(
        &mut self,
        what: &str,
        remove: impl FnOnce(&mut EditedSession, &mut dyn FnMut(&Placement) -> bool),
    ) {
        self.state.document.edit(what, |session| {
            let mut unused: Vec<Arc<str>> = Vec::new();
            remove(session, &mut |one| {
                if counts_paths_of(&one.instrument, &one.function) {
                    unused.push(Arc::clone(&one.instrument));
                }
                true
            });
            for instrument in unused {
                session.sources.remove(&*instrument);
            }
        });
        self.state.document.close_step();
    }
}
