//! Makes a function ready to be shown.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::image::FunctionId;

use super::{Mail, Message};
use crate::catalogue::Catalogue;
use crate::graph::{Metrics, Scene};

/// A function to show.
pub struct Analysis {
    /// The kernel.
    pub catalogue: Arc<Catalogue>,
    /// The function.
    pub function: FunctionId,
    /// A block of it to choose.
    pub block: Option<BlockIndex>,
    /// How large its text will be.
    pub metrics: Metrics,
}

pub(super) fn analyse(analysis: &Analysis, _: &Receiver<Analysis>, mail: &Mail) {
    let scene = Scene::new(&analysis.catalogue, analysis.function, analysis.metrics).map(Arc::new);
    mail.send(Message::Scene(analysis.function, scene, analysis.block));
}
