//! From a name to its function, and to what to write instead.

use rustc_hash::FxHashMap;

use super::symbols::{Symbol, Symbols};
use super::text::Texts;
use super::{Function, FunctionId};
use crate::ids;
use crate::{Addr, Error, Result};

/// The most names that a message lists.
const LISTED: usize = 4;

/// Splits the designation of a function into its name, and the address after the `@` that distinguishes it
/// from others of that name.
#[must_use]
pub fn name_and_address(requested: &str) -> (&str, Option<&str>) {
    requested
        .split_once('@')
        .map_or((requested, None), |(name, address)| (name, Some(address)))
}

/// Every name of every function.
#[derive(Clone, Debug, Default)]
pub(crate) struct FunctionNames {
    /// By address.
    by_name: FxHashMap<String, Vec<FunctionId>>,
}

impl FunctionNames {
    /// Takes the names of functions, which are in order of address: those of the symbols at their start that
    /// `names` says name functions.
    pub(crate) fn new(
        symbols: &Symbols,
        functions: &[Function],
        texts: &Texts,
        names: impl Fn(&Symbol, &str) -> bool,
    ) -> Self {
        let mut by_name: FxHashMap<String, Vec<FunctionId>> = FxHashMap::default();
        for function in functions {
            let at = function.span.start;
            for symbol in symbols.at(at) {
                let name = symbols.name(symbol);
                if names(symbol, name) {
                    let name = texts.qualified(at, name);
                    by_name.entry(name).or_default().push(function.id);
                }
            }
        }
        Self { by_name }
    }

    /// Adds the names of another object; `numbered` returns the new identifiers of both.
    pub(super) fn join(&mut self, other: Self, numbered: impl Fn(bool, FunctionId) -> FunctionId) {
        for id in self.by_name.values_mut().flatten() {
            *id = numbered(false, *id);
        }
        for (name, ids) in other.by_name {
            let known = self.by_name.entry(name).or_default();
            known.extend(ids.into_iter().map(|id| numbered(true, id)));
            known.sort_unstable();
        }
    }

    /// The function named `asked`: `name` or `name@0xaddress`.
    pub(crate) fn find<'f>(
        &self,
        requested: &str,
        symbols: &Symbols,
        functions: &'f [Function],
    ) -> Result<&'f Function> {
        let (name, address) = match name_and_address(requested) {
            (name, Some(address)) => {
                let digits = address.trim_start_matches("0x");
                let Ok(at) = u64::from_str_radix(digits, 16) else {
                    let hint = format!(
                        "; after the @ must follow an address such as 0xffffffff81000000, not {address:?}"
                    );
                    return Err(Error::NoFunction {
                        name: requested.to_owned(),
                        hint,
                    });
                };
                (name, Some(Addr(at)))
            }
            (name, None) => (name, None),
        };
        let all = self
            .by_name
            .get(name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let matches: Vec<&Function> = all
            .iter()
            .map(|&function| ids::entry(functions, function))
            .filter(|function| address.is_none_or(|at| function.span.start == at))
            .collect();
        match *matches.as_slice() {
            [only] => Ok(only),
            [] => {
                let hint = if all.is_empty() {
                    self.hint(name, symbols)
                } else {
                    " at that address".to_owned()
                };
                Err(Error::NoFunction {
                    name: requested.to_owned(),
                    hint,
                })
            }
            [..] => {
                let choices: Vec<String> = matches
                    .iter()
                    .map(|function| format!("{name}@{}", function.span.start))
                    .collect();
                Err(Error::Ambiguous {
                    name: name.to_owned(),
                    count: matches.len(),
                    choices: choices.join(", "),
                })
            }
        }
    }

    /// Suggests names that may have been meant.
    fn hint(&self, name: &str, symbols: &Symbols) -> String {
        let same = symbols
            .entries()
            .iter()
            .find(|symbol| symbols.name(symbol) == name);
        match same {
            Some(symbol) if symbol.module => {
                let suffix = format!(":{name}");
                let own = self.by_name.keys().find(|known| known.ends_with(&suffix));
                return own.map_or_else(
                    || "; a module has one, and its text was not read".to_owned(),
                    |own| format!("; a module has one, {own}"),
                );
            }
            Some(symbol) if symbol.is_text() => {
                return "; it had one, in text that it frees when it has booted, or this is no function but a mark".to_owned();
            }
            Some(_) => return "; that is the name of data".to_owned(),
            None => {}
        }
        let mut near: Vec<(usize, &str)> = self
            .by_name
            .keys()
            .filter_map(|known| {
                let far = if known.contains(name) && name.len() > 2 {
                    1
                } else {
                    distance(known, name, (name.len() / 3).min(2))?
                };
                Some((far, known.as_str()))
            })
            .collect();
        near.sort_unstable_by_key(|&(far, known)| (far, known.len(), known));
        let listed: Vec<&str> = near.iter().take(LISTED).map(|&(_, known)| known).collect();
        if listed.is_empty() {
            String::new()
        } else {
            format!("; near names are {}", listed.join(", "))
        }
    }
}

/// The edit distance between two names, if it is at most `most`.
fn distance(one: &str, other: &str, most: usize) -> Option<usize> {
    // Most of the names need no more than this comparison.
    if one.len().abs_diff(other.len()) > most {
        return None;
    }
    let far = strsim::osa_distance(one, other);
    (far <= most).then_some(far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_between_names() {
        assert_eq!(distance("schedule", "schedule", 2), Some(0));
        assert_eq!(distance("shedule", "schedule", 2), Some(1));
        assert_eq!(distance("copy_proces", "copy_process", 2), Some(1));
        assert_eq!(distance("vfs_raed", "vfs_read", 2), Some(1));
        assert_eq!(distance("vfs_write", "vfs_read", 2), None);
    }
}
