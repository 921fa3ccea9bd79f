//! The hooks of some functions that can be placed together.

use std::collections::BTreeMap;

use gilk_engine::cfg::Cfg;
use gilk_engine::code::Function;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::placement::{Wanted, place};
use gilk_engine::session::{Placement, Session};
use gilk_engine::{Error, HookType, Image, Plan, Rule};
use gilk_instruments::Library;

/// Placed hooks, and the number of refused ones.
pub(crate) struct Chosen {
    pub(crate) graphs: Vec<Cfg>,
    /// The hooks, in the order of the session's placements.
    pub(crate) wanted: Vec<Wanted>,
    /// Number of all hooks.
    pub(crate) requested: usize,
    /// Refused functions.
    pub(crate) functions: BTreeMap<Rule, usize>,
    /// Refused hooks by rule.
    pub(crate) hooks: BTreeMap<Rule, usize>,
}

impl Chosen {
    /// Chooses both hooks of every reachable block, as far as they can be placed together.
    pub(crate) fn of(image: &Image, functions: &[&Function]) -> Self {
        let mut chosen = Self {
            graphs: Vec::new(),
            wanted: Vec::new(),
            requested: 0,
            functions: BTreeMap::new(),
            hooks: BTreeMap::new(),
        };
        for function in functions {
            let cfg = Cfg::of(image, function.id);
            match &cfg.refusal {
                Some(refusal) => *chosen.functions.entry(refusal.rule).or_default() += 1,
                None => chosen.graphs.push(cfg),
            }
        }
        let references: Vec<&Cfg> = chosen.graphs.iter().collect();
        for (graph, cfg) in chosen.graphs.iter().enumerate() {
            chosen.wanted.extend(cfg.blocks.iter().flat_map(|block| {
                [HookType::Pre, HookType::Post].map(|hook| Wanted {
                    graph,
                    block: block.index,
                    hook,
                })
            }));
        }
        chosen.requested = chosen.wanted.len();
        // Another placement without the refused hooks may use other tactics and refuse more.
        loop {
            let placed = place(image, &references, &chosen.wanted);
            let before = chosen.wanted.len();
            let mut reached = placed.hooks.iter();
            chosen.wanted.retain(|_| match reached.next() {
                Some(Err(refusal)) => {
                    *chosen.hooks.entry(refusal.rule).or_default() += 1;
                    false
                }
                _ => true,
            });
            if chosen.wanted.len() == before {
                return chosen;
            }
        }
    }

    /// Returns the session with a counter at every hook, and its plan.
    pub(crate) fn plan(
        &mut self,
        image: &Image,
        session: Session,
        layout: &RuntimeLayout,
    ) -> (Session, Plan) {
        let library = Library::builtin().unwrap();
        let mut session = session;
        loop {
            session.placements = self.placements(session.duration);
            match gilk_engine::plan::plan(image, &session, &library, layout) {
                Ok(plan) => return (session, plan),
                Err(Error::Refused {
                    function,
                    block,
                    hook,
                    refusal,
                    ..
                }) => {
                    let refused = session.placements.iter().position(|placement| {
                        (placement.block, placement.hook, &*placement.function)
                            == (block, hook, function.as_str())
                    });
                    self.wanted
                        .remove(refused.expect("only requested hooks are refused"));
                    *self.hooks.entry(refusal.rule).or_default() += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn placements(&self, duration: f64) -> Vec<Placement> {
        let one = |wanted: &Wanted| {
            let cfg = &self.graphs[wanted.graph];
            Placement {
                // Functions with equal names are distinguished by their address.
                function: format!("{}@{}", cfg.name, cfg.span.start).into(),
                block: wanted.block.0,
                hook: wanted.hook,
                instrument: "counter".into(),
                launch: 0.0,
                splash: duration,
            }
        };
        self.wanted.iter().map(one).collect()
    }
}
