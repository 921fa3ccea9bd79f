//! The paths of the open function, and their counts.

use std::sync::Arc;

use gilk_engine::paths::{Paths, Profile};

use crate::graph::Scene;
use crate::graph::marks::sentence;
use crate::timeline::{Record, Timeline};

/// The paths of the last function shown.
#[derive(Debug, Default)]
pub struct FunctionPaths {
    cached: Option<CachedPaths>,
}

#[derive(Debug)]
struct CachedPaths {
    scene: Arc<Scene>,
    paths: Result<Paths, String>,
    /// The profile, with the recording and the number of totals that it was read from.
    profile: Option<((u64, u64), Profile)>,
}

impl FunctionPaths {
    /// Returns the paths of a function, or the reason why they cannot be counted.
    pub(crate) fn of(&mut self, scene: &Arc<Scene>) -> Result<&Paths, &str> {
        let cached = self.of_scene(scene);
        cached.paths.as_ref().map_err(String::as_str)
    }

    /// Returns the number of paths of a function and their counts on the timeline, or the reason why they
    /// cannot be counted. The totals are read after a change only.
    pub(crate) fn counted(
        &mut self,
        scene: &Arc<Scene>,
        timeline: &Timeline,
    ) -> Result<(u64, &Profile), &str> {
        let cached = self.of_scene(scene);
        let paths = cached.paths.as_ref().map_err(String::as_str)?;
        let record = timeline.record.as_ref();
        let key = (timeline.opened(), record.map_or(0, Record::totals_changes));
        let last = cached.profile.take().filter(|(known, _)| *known == key);
        let (_, profile) = cached.profile.insert(last.unwrap_or_else(|| {
            let totals = record.into_iter().flat_map(|record| &record.totals);
            let totals = totals.map(|one| (one.instrument.as_str(), &one.value));
            (key, paths.read(totals))
        }));
        Ok((paths.count(), profile))
    }

    fn of_scene(&mut self, scene: &Arc<Scene>) -> &mut CachedPaths {
        let last = self.cached.take();
        let last = last.filter(|cached| Arc::ptr_eq(&cached.scene, scene));
        self.cached.insert(last.unwrap_or_else(|| CachedPaths {
            scene: Arc::clone(scene),
            paths: Paths::of(&scene.cfg).map_err(|refusal| sentence(&refusal)),
            profile: None,
        }))
    }
}
