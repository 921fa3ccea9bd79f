//! Filters the list of functions as a person types.

use std::collections::BTreeSet;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use gilk_engine::image::FunctionId;

use super::{Mail, Message};
use crate::catalogue::Catalogue;

/// A filter to apply.
pub struct Search {
    /// The kernel.
    pub catalogue: Arc<Catalogue>,
    /// What was typed.
    pub filter: String,
    /// Whether only functions of modules are wanted.
    pub modules: bool,
    /// The only functions that are wanted, where not all are.
    pub among: Option<BTreeSet<FunctionId>>,
}

pub(super) fn search(search: &Search, newer: &Receiver<Search>, mail: &Mail) {
    if let Some(found) = search
        .catalogue
        .search(&search.filter, &|| !newer.is_empty())
    {
        let image = search.catalogue.image();
        let in_module = |&id: &FunctionId| {
            let function = image.function(id);
            function.is_some_and(|one| image.module_at(one.span.start).is_some())
        };
        let wanted = |id: &FunctionId| {
            (!search.modules || in_module(id))
                && search.among.as_ref().is_none_or(|among| among.contains(id))
        };
        let found = if search.modules || search.among.is_some() {
            Arc::new(found.iter().copied().filter(wanted).collect())
        } else {
            found
        };
        mail.send(Message::Found(search.filter.clone(), found));
    }
}
