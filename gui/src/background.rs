//! Requests to workers after a change: the list of functions, the plan, the previews.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gilk_engine::code::FunctionId;
use gilk_engine::{HookType, InstrumentId, Session};
use gilk_instruments::Definition;
use gilk_samples::index::Owner;
use gilk_samples::totals::Totals;

use crate::app::App;
use crate::availability;
use crate::calls::{self, CallRun, CallsRequest};
use crate::catalogue::Catalogue;
use crate::derived::{Derived, LARGE};
use crate::desk::Pane;
use crate::document::EditedSession;
use crate::draft::first_instrument;
use crate::functions::Scope;
use crate::graph::function_source::Listing;
use crate::graph::marks::Hooked;
use crate::plan_state::PreviewRequest;
use crate::state::TargetState;
use crate::statistics;
use crate::timeline::hits_in;
use crate::worker::searcher::SearchKey;
use crate::worker::{Message, Planning, Search, hookable};

/// Time without a change that is a pause: the plan of a large session waits for it during a drag, because the planner
/// would begin again with each step.
const QUIET: Duration = Duration::from_millis(200);

impl App {
    /// Requests from workers everything that a change made stale: the list, the plan, the marks.
    pub(crate) fn request_updates(&mut self) {
        let kernel = self.state.shows_kernel_beside();
        if self.state.document.shows_kernel() != kernel {
            self.state.document.show_kernel(kernel);
        }
        let session = self.state.document.session();
        self.state.draft.follow(session.duration);
        // A block without a branch has no way out to hook.
        let selected = self
            .state
            .graph
            .selected
            .zip(self.state.graph.scene.as_ref());
        let hook = self.state.draft.hook;
        if selected.is_some_and(|(block, scene)| scene.hook(block, hook).is_none()) {
            self.state.draft.hook = HookType::Pre;
        }
        self.update_cold_regions();
        self.request_statistics();
        self.request_calls();
        self.request_listing();
        self.update_source_check();
        let edited = (self.documents, self.state.document.revision());
        if self.edited.0 != edited {
            self.edited = (edited, Instant::now());
        }
        let placements = self.state.document.session().placements.len();
        let is_dragged = self.state.document.has_open_step() && placements >= LARGE;
        let waits = is_dragged && self.edited.1.elapsed() < QUIET;
        if !waits {
            self.request_machine_plans();
        }
        let Some(catalogue) = self.state.catalogue.clone() else {
            self.state.hooked = Arc::default();
            self.marks = Derived::default();
            return;
        };
        self.request_hookable(&catalogue);
        let timeline = &mut self.state.timeline;
        timeline.name_addresses(self.targets, catalogue.image());
        self.state.functions.filed = self.state.lines.files.is_some();
        let among = self.among(&catalogue);
        let wanted = SearchKey {
            filter: self.state.functions.filter.clone(),
            target: self.targets,
            modules: self.state.functions.scope == Scope::Modules,
            among,
            files: self.state.lines.files.is_some(),
        };
        if self.searched.as_ref() != Some(&wanted) {
            self.searches += 1;
            self.workers.search(Search {
                number: self.searches,
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
        if self.within != self.state.within() {
            self.within = self.state.within();
            self.planned = None;
        }
        self.mark_hooks(&catalogue);
        if waits && self.planned != Some(state) {
            // The plan is requested when the drag pauses. Until then none is current.
            if !std::mem::replace(&mut self.plan_waits, true) {
                self.state.plan.requested += 1;
            }
            self.workers.mail().wake_after(QUIET);
            return;
        }
        if self.planned != Some(state) {
            self.planned = Some(state);
            self.plan_waits = false;
            let sources = &self.state.document.session().sources;
            if self.own_sources != **sources {
                self.own_sources.clone_from(sources);
                let sources = sources.iter();
                self.state.own_instruments = sources
                    .filter_map(|(name, text)| Definition::from_source(name, text).ok())
                    .collect();
            }
            if self
                .state
                .definition(&self.state.draft.instrument)
                .is_none()
            {
                // The session that had it is gone, or its addition was undone.
                self.state.draft.instrument = first_instrument(&self.state.library);
            }
            self.state.plan.requested += 1;
            let session = self.state.document.session().clone();
            self.workers
                .plan(self.planning(self.state.plan.requested, session, &catalogue));
        }
        self.preview(&catalogue);
        self.offer(&catalogue);
    }

    /// Marks the hooks that have instruments, after a change of them.
    fn mark_hooks(&mut self, catalogue: &Arc<Catalogue>) {
        let key = (self.state.document.hooks(), self.targets);
        if !self.marks.is_current(&key) {
            let placements = self.state.document.session().placements.clone();
            let catalogue = Arc::clone(catalogue);
            let is_large = placements.len() >= LARGE;
            let ctx = self.workers.mail().context();
            self.marks.request(key, is_large, ctx, move || {
                Arc::new(Hooked::of(catalogue.image(), &placements))
            });
        }
        self.state.hooked = match self.marks.last() {
            Some((_, hooked)) => Arc::clone(hooked),
            None => Arc::default(),
        };
    }

    /// While the table of statistics is visible, requests its rows; one request at a time.
    fn request_statistics(&mut self) {
        if !self.state.desk.sees(Pane::Statistics) || self.state.statistics.requested.is_some() {
            return;
        }
        let wanted = statistics::pane::wanted(&self.state);
        let (Some(key), Some(record)) = (wanted, &self.state.timeline.record) else {
            return;
        };
        if self.state.statistics.answered.as_ref() == Some(&key) {
            return;
        }
        let (metadata, index) = (record.metadata.clone(), record.index.clone());
        let named = if metadata.texts.is_empty() {
            Totals::default()
        } else {
            record.named.clone()
        };
        let end = metadata.clock.tsc(record.now.unwrap_or(record.duration));
        self.state.statistics.requested = Some(key.clone());
        self.workers.mail().spawn("statistics", move |mail| {
            let ticks = key.between.unwrap_or_else(|| {
                let start = metadata.clock.start;
                let recorded = index.look().span().unwrap_or((start, start));
                let (from, to) = gilk_samples::statistics::whole(&metadata, recorded);
                // A run that was stopped is shorter than planned, and so is one that lasts, up to now.
                (from, to.min(end.max(recorded.1.saturating_add(1))))
            });
            let rows = statistics::rows::rows(&metadata, &index, &named, ticks);
            mail.send(Message::Statistics(key, rows));
        });
    }

    /// While the pane of calls is visible, requests the calls of the recording; one request at a time.
    fn request_calls(&mut self) {
        let wanted = calls::pane::wanted(&self.state);
        if let Some(request) = &self.state.call_tree.requested {
            if wanted.as_ref() != Some(&request.key) {
                request.stop.stop();
            }
            return;
        }
        let Some(key) = wanted.filter(|_| self.state.desk.sees(Pane::Calls)) else {
            return;
        };
        if self.state.call_tree.answers(&key) {
            return;
        }
        let request = CallsRequest::of(key);
        let work = request.clone();
        self.state.call_tree.requested = Some(request);
        self.workers.mail().spawn("calls", move |mail| {
            let read = CallRun::of(&work).map(Box::new);
            mail.send(Message::Calls(work.key, read));
        });
    }

    /// While the open function is listed, requests its source lines; one request at a time.
    fn request_listing(&mut self) {
        let lines = &mut self.state.lines;
        let Some(scene) = self.state.graph.scene.clone() else {
            return;
        };
        let key = (scene.function(), lines.sources.is_some());
        let is_known = lines.listing.answers(key.0, key.1) || lines.listing_requested == Some(key);
        if !self.state.graph.listed || is_known {
            return;
        }
        lines.listing_requested = Some(key);
        let (sources, target) = (lines.sources.clone(), self.targets);
        self.workers.mail().spawn("listing", move |mail| {
            let listing = Box::new(Listing::of(&scene, sources.as_deref()));
            mail.send(Message::Listing(target, listing));
        });
    }

    /// Requests the set of functions that can be hooked when the list first needs it.
    fn request_hookable(&mut self, catalogue: &Arc<Catalogue>) {
        let functions = &mut self.state.functions;
        let request = functions.scope == Scope::Hookable && self.state.hookable.is_none();
        if request && !functions.looking {
            functions.looking = true;
            hookable::look(self.workers.mail(), self.targets, Arc::clone(catalogue));
        }
    }

    /// Returns the functions that the list's scope allows, or `None` for all.
    fn among(&mut self, catalogue: &Arc<Catalogue>) -> Option<Arc<BTreeSet<FunctionId>>> {
        match self.state.functions.scope {
            Scope::All | Scope::Modules => None,
            Scope::Hookable => Some(self.state.hookable.clone().unwrap_or_default()),
            Scope::Touched => Some(self.state.hooked.functions()),
            Scope::Hot => Some(self.hit_functions(catalogue)),
        }
    }

    /// Returns the functions with hits. While samples arrive, they are some time old.
    fn hit_functions(&mut self, catalogue: &Arc<Catalogue>) -> Arc<BTreeSet<FunctionId>> {
        let Some(record) = &self.state.timeline.record else {
            return Arc::default();
        };
        let key = (self.targets, self.state.timeline.opened());
        let hot = &mut self.state.functions.hot;
        // An unchanged set is the same set, so that the list is not filtered again.
        let before = hot.last().map(|(_, functions)| Arc::clone(functions));
        let (metadata, index) = (Arc::clone(&record.metadata), record.index.clone());
        let catalogue = Arc::clone(catalogue);
        let ctx = self.workers.mail().context();
        hot.request(key, record.live_recording(), ctx, move || {
            let index = index.look();
            let lanes = metadata.instruments.iter();
            let majors: BTreeSet<u32> = lanes
                .filter(|info| hits_in(&index, info, Owner::All) > 0)
                .filter_map(|info| InstrumentId::unpack(info.id))
                .map(|id| id.major)
                .collect();
            let functions = metadata.functions.iter();
            let hit = functions.filter(|one| majors.contains(&one.major));
            let image = catalogue.image();
            let found: BTreeSet<FunctionId> = hit
                .filter_map(|one| Some(image.function_named(&one.name).ok()?.id))
                .collect();
            let before = before.filter(|before| **before == found);
            before.unwrap_or_else(|| Arc::new(found))
        });
        let last = hot.last().filter(|(of, _)| **of == key);
        last.map_or_else(Arc::default, |(_, functions)| Arc::clone(functions))
    }

    pub(crate) fn planning(
        &self,
        revision: u64,
        session: impl Into<EditedSession>,
        catalogue: &Arc<Catalogue>,
    ) -> Planning {
        let layout = match &self.state.target {
            TargetState::Ready(info) => Some(info.layout.clone()),
            _ => None,
        };
        Planning {
            revision,
            session: session.into(),
            added: None,
            catalogue: Arc::clone(catalogue),
            library: Arc::clone(&self.state.library),
            layout,
            process: self.state.machines.process.clone(),
            in_cache: self.state.is_in_cache(),
            within: self.state.within(),
        }
    }

    /// While the Patch pane is visible, requests a plan with the inspector's instrument added.
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
        let request = wanted.and_then(|block| {
            Some(PreviewRequest {
                plan: self.state.plan.requested,
                placement: self.state.drafted(block, hook)?,
            })
        });
        if let Some((number, placement)) = self.state.preview.request(request) {
            let mut planning =
                self.planning(number, self.state.document.session().clone(), catalogue);
            planning.added = Some(placement);
            self.workers.preview(planning);
        }
    }

    /// Requests a verdict on whether the inspector's instrument can be placed at its hook.
    fn offer(&mut self, catalogue: &Arc<Catalogue>) {
        let hook = self.state.draft.hook;
        let selected = self.state.graph.selected;
        let here = selected.filter(|&block| availability::has_hook(&self.state, block));
        let request = here.and_then(|block| {
            Some(PreviewRequest {
                plan: self.state.plan.requested,
                placement: self.state.drafted(block, hook)?,
            })
        });
        if let Some((number, placement)) = self.state.offer.request(request) {
            let edited = self.state.document.session();
            let session = Session {
                duration: edited.duration,
                collection: edited.collection,
                sources: (*edited.sources).clone(),
                styles: (*edited.styles).clone(),
                save_all: edited.save_all,
                placements: vec![placement],
                ..Session::empty()
            };
            self.workers
                .offer(self.planning(number, session, catalogue));
        }
    }
}
