//! The paths of the open function.

use std::sync::Arc;

use gilk_engine::paths::Paths;

use crate::graph::Scene;
use crate::graph::marks::sentence;

/// The paths of the last function shown.
#[derive(Debug, Default)]
pub struct FunctionPaths {
    cached: Option<(Arc<Scene>, Result<Paths, String>)>,
}

impl FunctionPaths {
    /// Returns the paths of a function, or the reason why they cannot be counted.
    pub(crate) fn of(&mut self, scene: &Arc<Scene>) -> Result<&Paths, &str> {
        if self
            .cached
            .as_ref()
            .is_none_or(|(of, _)| !Arc::ptr_eq(of, scene))
        {
            let paths = Paths::of(&scene.cfg).map_err(|refusal| sentence(&refusal));
            self.cached = Some((Arc::clone(scene), paths));
        }
        match &self.cached {
            Some((_, paths)) => paths.as_ref().map_err(String::as_str),
            None => Err(""),
        }
    }
}
