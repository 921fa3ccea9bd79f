//! Worker that filters the list of functions.

use std::collections::BTreeSet;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use gilk_engine::code::FunctionId;

use super::mail::{Mail, Message};
use crate::catalogue::Catalogue;

/// A search request.
pub struct Search {
    /// Number of the request.
    pub number: u64,
    /// The kernel's image.
    pub catalogue: Arc<Catalogue>,
    /// Letters of names, and folders.
    pub filter: String,
    /// Limits the list to functions of modules.
    pub modules: bool,
    /// The source file of every function, by number, if known.
    pub files: Option<Arc<Vec<Arc<str>>>>,
    /// The functions to search, or `None` for all.
    pub among: Option<Arc<BTreeSet<FunctionId>>>,
}

/// A search request for the list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchKey {
    pub(crate) filter: String,
    pub(crate) target: u64,
    pub(crate) modules: bool,
    pub(crate) among: Option<Arc<BTreeSet<FunctionId>>>,
    /// True once source files are available.
    pub(crate) files: bool,
}

pub(super) fn search(search: &Search, newer: &Receiver<Search>, mail: &Mail) {
    if let Some(matches) = search
        .catalogue
        .search(&named(&search.filter), &|| !newer.is_empty())
    {
        let image = search.catalogue.image();
        let in_module = |&id: &FunctionId| {
            let function = image.function(id);
            function.is_some_and(|one| image.module_at(one.span.start).is_some())
        };
        let folders: Vec<&str> = folders(&search.filter).collect();
        let from = |id: &FunctionId| {
            let file = search
                .files
                .as_ref()
                .and_then(|files| files.get(id.0 as usize));
            folders
                .iter()
                .all(|folder| file.is_some_and(|file| lies_in(file, folder)))
        };
        let wanted = |id: &FunctionId| {
            (!search.modules || in_module(id))
                && from(id)
                && search.among.as_ref().is_none_or(|among| among.contains(id))
        };
        let matches = if search.modules || !folders.is_empty() || search.among.is_some() {
            Arc::new(matches.iter().copied().filter(wanted).collect())
        } else {
            matches
        };
        mail.send(Message::Found(
            search.number,
            search.filter.clone(),
            matches,
        ));
    }
}

/// Returns the words of a filter that match names.
pub(crate) fn named(filter: &str) -> String {
    let words: Vec<&str> = filter
        .split_whitespace()
        .filter(|word| !word.contains('/'))
        .collect();
    words.join(" ")
}

/// Returns the words of a filter that match folders or source files.
pub(crate) fn folders(filter: &str) -> impl Iterator<Item = &str> {
    filter.split_whitespace().filter(|word| word.contains('/'))
}

/// Returns whether a file's path contains a folder or part of a path.
fn lies_in(file: &str, folder: &str) -> bool {
    let folder = folder.trim_start_matches('/');
    file.match_indices(folder)
        .any(|(at, _)| at == 0 || file.get(..at).is_some_and(|before| before.ends_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_a_slash_filter_by_folder() {
        assert_eq!(named("fork fs/ext4/ do"), "fork do");
        assert_eq!(
            folders("fork fs/ext4/ do").collect::<Vec<_>>(),
            ["fs/ext4/"]
        );
        assert!(lies_in("fs/ext4/inode.c", "fs/"));
        assert!(lies_in("fs/ext4/inode.c", "ext4/"));
        assert!(lies_in("fs/ext4/inode.c", "/ext4/in"));
        assert!(!lies_in("fs/ext4/inode.c", "t4/"));
        assert!(!lies_in("kernel/fork.c", "fs/"));
    }
}
