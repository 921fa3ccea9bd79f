//! Worker that analyses a function and lays out its graph.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;

use super::mail::{Mail, Message};
use crate::catalogue::Catalogue;
use crate::graph::{Metrics, Scene};

/// A request for a function's graph.
pub struct Analysis {
    /// The kernel's image.
    pub catalogue: Arc<Catalogue>,
    /// The function to lay out.
    pub function: FunctionId,
    /// A block to select.
    pub block: Option<BlockIndex>,
    /// Metrics of the graph's text.
    pub metrics: Metrics,
}

pub(super) fn analyse(analysis: &Analysis, _: &Receiver<Analysis>, mail: &Mail) {
    let scene = Scene::new(&analysis.catalogue, analysis.function, analysis.metrics).map(Arc::new);
    mail.send(Message::Scene(analysis.function, scene, analysis.block));
}
