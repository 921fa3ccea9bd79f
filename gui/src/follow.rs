//! What follows from a change: workers are asked for the list's answer, the plan, the preview.

use std::collections::BTreeSet;
use std::sync::Arc;

use gilk_engine::image::FunctionId;
use gilk_engine::{InstrumentId, Session};
use gilk_instruments::Definition;

use crate::app::App;
use crate::catalogue::Catalogue;
use crate::desk::Pane;
use crate::functions::Scope;
use crate::graph::marks::Hooked;
use crate::panels;
use crate::state::{Previewed, TargetState};
use crate::worker::{Planning, Search, hookable};

/// What the list was last asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Searched {
    filter: String,
    target: u64,
    modules: bool,
    among: Option<BTreeSet<FunctionId>>,
    /// Whether files of sources are known.
    files: bool,
}

impl App {
    /// Asks workers for whatever follows from a change: the list's answer, the plan, the marks.
    pub(crate) fn keep_up(&mut self) {
        self.keep_up_source();
        self.keep_up_beside();
        let Some(catalogue) = self.state.catalogue.clone() else {
            self.state.hooked = Hooked::default();
            return;
        };
        self.look_for_hookable(&catalogue);
        self.state.functions.filed = self.state.lines.files.is_some();
        let wanted = Searched {
            filter: self.state.functions.filter.clone(),
            target: self.targets,
            modules: self.state.functions.scope == Scope::Modules,
            among: self.among(&catalogue),
            files: self.state.lines.files.is_some(),
        };
        if self.searched.as_ref() != Some(&wanted)
            || self.state.functions.answered.is_none() && self.searched.is_none()
        {
            self.workers.search(Search {
                catalogue: Arc::clone(&catalogue),
                filter: wanted.filter.clone(),
                modules: wanted.modules,
                among: wanted.among.clone(),
                files: self.state.lines.files.clone(),
            });
            self.searched = Some(wanted);
        }
        let connected = matches!(self.state.target, TargetState::Ready(_));
        let state = (
            self.documents,
            self.state.document.revision(),
            self.targets * 2 + u64::from(connected),
        );
        if self.planned != Some(state) {
            self.planned = Some(state);
            self.state.hooked = Hooked::of(catalogue.image(), self.state.document.session());
            let sources = self.state.document.session().sources.iter();
            self.state.own = sources
                .filter_map(|(name, text)| Definition::from_source(name, text).ok())
                .collect();
            self.state.plan.asked += 1;
            let session = self.state.document.session().clone();
            self.workers
                .plan(self.planning(self.state.plan.asked, session, &catalogue));
        }
        self.preview(&catalogue);
        self.offer(&catalogue);
    }

    /// Finds out which functions can be hooked, when that is first asked for.
    fn look_for_hookable(&mut self, catalogue: &Arc<Catalogue>) {
        let functions = &mut self.state.functions;
        let asked = functions.scope == Scope::Hookable && self.state.hookable.is_none();
        if asked && !functions.looking {
            functions.looking = true;
            hookable::look(self.workers.mail(), self.targets, Arc::clone(catalogue));
        }
    }

    /// The functions that the list is narrowed to, if it is.
    fn among(&self, catalogue: &Catalogue) -> Option<BTreeSet<FunctionId>> {
        let image = catalogue.image();
        match self.state.functions.scope {
            Scope::All | Scope::Modules => None,
            Scope::Hookable => {
                let found = self.state.hookable.as_deref();
                Some(found.cloned().unwrap_or_default())
            }
            Scope::Touched => Some(self.state.hooked.functions()),
            Scope::Hot => {
                let Some(record) = &self.state.timeline.record else {
                    return Some(BTreeSet::new());
                };
                let lanes = record.lanes().iter().filter(|info| record.hits(info) > 0);
                let majors: BTreeSet<u32> = lanes
                    .filter_map(|info| InstrumentId::unpack(info.id))
                    .map(|id| id.major)
                    .collect();
                let functions = record.metadata.functions.iter();
                let hit = functions.filter(|one| majors.contains(&one.major));
                Some(
                    hit.filter_map(|one| Some(image.function_named(&one.name).ok()?.id))
                        .collect(),
                )
            }
        }
    }

    pub(crate) fn planning(
        &self,
        revision: u64,
        session: Session,
        catalogue: &Arc<Catalogue>,
    ) -> Planning {
        let layout = match &self.state.target {
            TargetState::Ready(info) => Some(info.layout.clone()),
            _ => None,
        };
        Planning {
            revision,
            session,
            catalogue: Arc::clone(catalogue),
            library: Arc::clone(&self.state.library),
            layout,
        }
    }

    /// While the patch is looked at: asks what adding the inspector's instrument would write.
    fn preview(&mut self, catalogue: &Arc<Catalogue>) {
        let hook = self.state.draft.hook;
        let wanted = self.state.graph.selected.filter(|&block| {
            let scene = self.state.graph.scene.as_ref();
            let counted = self.state.graph.heat.as_ref();
            let counted = counted.is_some_and(|heat| heat.block(block).is_some());
            (self.state.desk.sees(Pane::Patch) || counted)
                && scene
                    .and_then(|scene| scene.hook(block, hook))
                    .is_some_and(Result::is_ok)
        });
        let asked = wanted.and_then(|block| {
            Some(Previewed {
                plan: self.state.plan.asked,
                placement: self.state.drafted(block, hook)?,
            })
        });
        if let Some((number, placement)) = self.state.preview.ask(asked) {
            let mut session = self.state.document.session().clone();
            session.placements.push(placement);
            self.workers
                .preview(self.planning(number, session, catalogue));
        }
    }

    /// Asks whether the inspector's instrument can be had where it is pointed at.
    fn offer(&mut self, catalogue: &Arc<Catalogue>) {
        let hook = self.state.draft.hook;
        let selected = self.state.graph.selected;
        let here = selected.filter(|&block| panels::stands(&self.state, block));
        let asked = here.and_then(|block| {
            Some(Previewed {
                plan: self.state.plan.asked,
                placement: self.state.drafted(block, hook)?,
            })
        });
        if let Some((number, placement)) = self.state.offer.ask(asked) {
            let own = self.state.document.session();
            let session = Session {
                duration: own.duration,
                collection: own.collection,
                sources: own.sources.clone(),
                styles: own.styles.clone(),
                save_all: own.save_all,
                placements: vec![placement],
                ..Session::empty()
            };
            self.workers
                .offer(self.planning(number, session, catalogue));
        }
    }
}
