//! Puts instruments into the session and takes them out: each command is one step to undo.

use gilk_engine::HookType;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::session::Placement;

use crate::app::App;
use crate::state::NoticeKind;
use crate::widgets;

/// Functions that get an instrument by one command, at most: as many as `ilk.ko` has counters for.
const MOST: usize = 2000;

impl App {
    pub(crate) fn add_here(&mut self) {
        let Some(block) = self.state.graph.selected else {
            return;
        };
        let hook = self.state.draft.hook;
        let hookable = self
            .state
            .graph
            .scene
            .as_ref()
            .and_then(|scene| scene.hook(block, hook))
            .is_some_and(Result::is_ok);
        let Some(placement) = self.state.drafted(block, hook).filter(|_| hookable) else {
            return;
        };
        self.state
            .document
            .edit("add", |session| session.placements.push(placement));
        self.state.document.close_step();
    }

    /// At every block of the open function that has the hook.
    pub(crate) fn add_everywhere(&mut self) {
        let Some(scene) = self.state.graph.scene.clone() else {
            return;
        };
        let hook = self.state.draft.hook;
        let placements: Vec<_> = scene
            .hookable(hook)
            .filter_map(|block| self.state.drafted(block, hook))
            .collect();
        self.place("add everywhere", placements);
    }

    /// At the entry of every function that the filter of the list matches.
    pub(crate) fn add_to_matching(&mut self) {
        let Some(catalogue) = self.state.catalogue.clone() else {
            return;
        };
        let found = std::sync::Arc::clone(&self.state.functions.found);
        if found.len() > MOST {
            let words = format!(
                "{} functions match; type more letters into the filter until at most {} do.",
                widgets::grouped(found.len() as u64),
                widgets::grouped(MOST as u64)
            );
            self.state.tell(NoticeKind::Warning, words);
            return;
        }
        let draft = &self.state.draft;
        let names = found.iter().filter_map(|&id| catalogue.name(id));
        let placements = names
            .map(|name| Placement {
                function: name.into(),
                block: BlockIndex(0).0,
                hook: HookType::Pre,
                instrument: draft.instrument.as_str().into(),
                launch: draft.launch,
                splash: draft.splash,
                timer: if draft.timed(&self.state.library) {
                    draft.timer
                } else {
                    0
                },
            })
            .collect();
        self.place("add to matching", placements);
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
