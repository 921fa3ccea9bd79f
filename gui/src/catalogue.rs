//! The functions of a kernel under the names that lists and sessions use.

use std::collections::HashMap;
use std::sync::Arc;

use gilk_engine::Image;
use gilk_engine::code::{Function, FunctionId};
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

use crate::object_names;

/// A kernel image and the names of its functions.
#[derive(Debug)]
pub struct Catalogue {
    image: Image,
    /// By function: the name in a session, `name`, or `name@0xaddress` if several functions share
    /// the name.
    names: Vec<String>,
    /// Every function, ordered by name.
    by_name: Arc<Vec<FunctionId>>,
}

impl Catalogue {
    /// Names every function of `image`.
    #[must_use]
    pub fn new(image: Image) -> Self {
        let mut count: HashMap<&str, u32> = HashMap::new();
        for function in image.functions() {
            *count.entry(&function.name).or_default() += 1;
        }
        let unique = |function: &Function| {
            if count
                .get(function.name.as_str())
                .is_some_and(|&count| count > 1)
            {
                format!("{}@{:#x}", function.name, function.span.start.0)
            } else {
                function.name.clone()
            }
        };
        let names: Vec<String> = image.functions().iter().map(unique).collect();
        let mut sorted: Vec<(&String, FunctionId)> = names
            .iter()
            .zip(image.functions())
            .map(|(name, function)| (name, function.id))
            .collect();
        // Those of the program, or of the kernel itself, before those of libraries or modules. Dictionary order:
        // underscores and case do not matter, and compiler-generated names come last.
        let key = |name: &str| {
            let plain = name.trim_start_matches('_');
            (
                object_names::object(name).is_some(),
                !plain.starts_with(|first: char| first.is_alphabetic()),
                plain.to_lowercase(),
                name.len(),
            )
        };
        sorted.sort_by_cached_key(|(name, _)| key(name));
        let by_name = Arc::new(sorted.into_iter().map(|(_, id)| id).collect());
        Self {
            image,
            names,
            by_name,
        }
    }

    /// Returns the image.
    #[must_use]
    pub const fn image(&self) -> &Image {
        &self.image
    }

    /// Returns the name of a function in a session.
    #[must_use]
    pub fn name(&self, id: FunctionId) -> Option<&str> {
        self.names.get(id.0 as usize).map(String::as_str)
    }

    /// Returns the number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there are no functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the first `limit` functions, by name, whose names begin with `stem`; an exact match
    /// comes first.
    #[must_use]
    pub fn beginning_with(&self, stem: &str, limit: usize) -> Vec<FunctionId> {
        let named = |id: &&FunctionId| self.name(**id).is_some_and(|name| name.starts_with(stem));
        let mut functions: Vec<FunctionId> = self
            .by_name
            .iter()
            .filter(named)
            .take(limit)
            .copied()
            .collect();
        functions.sort_by_key(|&id| self.name(id) != Some(stem));
        functions
    }

    /// Returns the functions whose names match `filter` fuzzily, best first; all of them, by name,
    /// if the filter is empty. `stop` is polled and ends the search with `None`.
    #[must_use]
    pub fn search(&self, filter: &str, stop: &dyn Fn() -> bool) -> Option<Arc<Vec<FunctionId>>> {
        let filter = filter.trim();
        if filter.is_empty() {
            return Some(Arc::clone(&self.by_name));
        }
        let mut finder = Finder::new(filter);
        let mut matches: Vec<(u32, usize, FunctionId)> = Vec::new();
        for (count, &id) in self.by_name.iter().enumerate() {
            if count % 2048 == 0 && stop() {
                return None;
            }
            let Some(name) = self.name(id) else { continue };
            if let Some(score) = finder.score(name) {
                matches.push((score, name.len(), id));
            }
        }
        // Stable: equal matches stay in order of names.
        matches.sort_by_key(|&(score, len, _)| (std::cmp::Reverse(score), len));
        Some(Arc::new(matches.into_iter().map(|(_, _, id)| id).collect()))
    }
}

/// Matches names against one filter.
pub(crate) struct Finder {
    matcher: Matcher,
    pattern: Pattern,
    buffer: Vec<char>,
}

impl Finder {
    /// Creates a matcher for `filter`: words in any order; lower case matches both cases.
    pub(crate) fn new(filter: &str) -> Self {
        Self {
            matcher: Matcher::new(Config::DEFAULT),
            pattern: Pattern::parse(filter, CaseMatching::Smart, Normalization::Never),
            buffer: Vec::new(),
        }
    }

    pub(crate) fn score(&mut self, name: &str) -> Option<u32> {
        self.pattern
            .score(Utf32Str::new(name, &mut self.buffer), &mut self.matcher)
    }

    /// Returns the indices of the characters of `name` that the filter matched, in order; empty
    /// without a match.
    pub(crate) fn places(&mut self, name: &str) -> Vec<u32> {
        let mut places = Vec::new();
        if self
            .pattern
            .indices(
                Utf32Str::new(name, &mut self.buffer),
                &mut self.matcher,
                &mut places,
            )
            .is_none()
        {
            places.clear();
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_matched_characters() {
        assert_eq!(
            Finder::new("kclone").places("kernel_clone"),
            [0, 7, 8, 9, 10, 11]
        );
        assert!(Finder::new("xyz").places("kernel_clone").is_empty());
    }
}
