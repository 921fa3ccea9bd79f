//! Worker that builds the call graph, on the first request for a kernel.

use std::sync::Arc;

use super::mail::{Mail, Message};
use crate::call_graph::CallGraph;
use crate::catalogue::Catalogue;

/// Starts to build the call graph of `catalogue`; `number` identifies the target.
pub(crate) fn look(mail: &Mail, number: u64, catalogue: Arc<Catalogue>) {
    mail.spawn("calls", move |mail| {
        mail.send(Message::CallGraph(
            number,
            Arc::new(CallGraph::of(&catalogue)),
        ));
    });
}
