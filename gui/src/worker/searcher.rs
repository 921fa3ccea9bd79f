//! Filters the list of functions as a person types.

use std::sync::Arc;

use crossbeam_channel::Receiver;

use super::{Mail, Message};
use crate::catalogue::Catalogue;

/// A filter to apply.
pub struct Search {
    /// The kernel.
    pub catalogue: Arc<Catalogue>,
    /// What was typed.
    pub filter: String,
}

pub(super) fn search(search: &Search, newer: &Receiver<Search>, mail: &Mail) {
    if let Some(found) = search
        .catalogue
        .search(&search.filter, &|| !newer.is_empty())
    {
        mail.send(Message::Found(search.filter.clone(), found));
    }
}
