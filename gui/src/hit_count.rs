//! A short run that only counts how often a hook is hit, before an instrument that costs more is
//! placed there.

use std::path::PathBuf;
use std::sync::Arc;

use gilk_engine::session::{Placement, Session};
use gilk_engine::{HookType, VerifiedPlan};

use crate::app::App;
use crate::plan_state::first_error;
use crate::run::{default_path, free};
use crate::state::{NoticeKind, State};

/// Duration in seconds, without and with a workload, which has to start first.
const LASTS: (f64, f64) = (2.0, 5.0);
/// Start of the workload in seconds.
const BEGINS: f64 = 0.2;
/// Name of the counting instrument.
const COUNTER: &str = "counter";

/// Returns the session that counts the hits of the inspector's hook, or `None` without such a hook.
fn session(state: &State) -> Option<Session> {
    let block = state.graph.selected?;
    let scene = state.graph.scene.as_ref()?;
    let hook: HookType = state.draft.hook;
    scene.hook(block, hook)?.as_ref().ok()?;
    let mut session = state.document.session().without_placements();
    let lasts = match &mut session.workload {
        Some(workload) => {
            workload.start = workload.start.min(BEGINS);
            LASTS.1
        }
        None => LASTS.0,
    };
    session.name = format!("{}-count", session.name);
    session.duration = lasts;
    session.placements = vec![Placement {
        function: scene.name.as_str().into(),
        block: block.0,
        hook,
        instrument: COUNTER.into(),
        launch: 0.0,
        splash: lasts,
    }];
    session.styles.clear();
    session.sources.clear();
    Some(session)
}

/// Returns whether hits of the inspector's hook can be counted now.
pub(crate) fn possible(state: &State) -> bool {
    state.target_hindrance().is_none() && !state.is_in_cache() && session(state).is_some()
}

impl App {
    /// Requests a plan of the counting session.
    pub(crate) fn count_first(&self) {
        if let (Some(session), Some(catalogue)) = (session(&self.state), &self.state.catalogue)
            && possible(&self.state)
        {
            self.workers.count(self.planning(0, session, catalogue));
        }
    }

    /// Requests a plan of the session without its instruments, which then runs in the code cache.
    pub(crate) fn run_in_cache(&self) {
        let Some(catalogue) = &self.state.catalogue else {
            return;
        };
        let mut session = self.state.document.session().without_placements();
        session.workload = None;
        session.styles.clear();
        session.sources.clear();
        self.workers.count(self.planning(0, session, catalogue));
    }

    /// Runs the counting session, or one in the code cache, once it is planned.
    pub(crate) fn counting(
        &mut self,
        session: Session,
        planned: Result<Arc<VerifiedPlan>, Vec<String>>,
    ) {
        match planned {
            // Another run may have started since the request.
            Ok(plan) if self.state.target_hindrance().is_none() => {
                let recording = match self.state.is_in_cache() {
                    true => self.state.run.recording_path(&session.name),
                    false => self.recording_of(&session),
                };
                self.begin(&plan, session.into(), recording);
            }
            Ok(_) => {}
            Err(wrong) => {
                self.state.notify(NoticeKind::Bad, first_error(&wrong));
            }
        }
    }

    /// Returns a free path in the folder of the session's recording.
    fn recording_of(&self, session: &Session) -> PathBuf {
        let typed = PathBuf::from(self.state.run.path.trim());
        let own = default_path(&session.name);
        let folder = typed.parent().filter(|_| typed.file_name().is_some());
        free(&match (folder, own.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => own,
        })
    }
}
