//! Functions that mean something to control flow, looked up at every branch and call.

use super::Symbols;
use crate::Addr;

/// Addresses of such functions, each list sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownFunctions {
    /// Return thunks: a jump to one is a return.
    return_thunks: Vec<Addr>,
    /// Indirect thunks: a jump to one is a jump through a register.
    indirect_thunks: Vec<Addr>,
    /// Functions that never return.
    never_return: Vec<Addr>,
}

/// Predicates of the names that a kind of target gives to such functions.
pub(crate) struct KnownNames {
    pub(crate) is_return_thunk: fn(&str) -> bool,
    pub(crate) is_indirect_thunk: fn(&str) -> bool,
    pub(crate) never_returns: fn(&str) -> bool,
}

impl KnownFunctions {
    /// Finds the functions by their names.
    pub(crate) fn new(symbols: &Symbols, names: &KnownNames) -> Self {
        let mut functions = Self::default();
        for symbol in symbols.entries() {
            let name = symbols.name(symbol);
            for (list, is_listed) in [
                (&mut functions.return_thunks, names.is_return_thunk),
                (&mut functions.indirect_thunks, names.is_indirect_thunk),
                (&mut functions.never_return, names.never_returns),
            ] {
                if is_listed(name) {
                    list.push(symbol.at);
                }
            }
        }
        functions
    }

    /// Takes functions as returning that were said never to return, and do.
    pub(crate) fn doubt(&mut self, returns: impl Fn(Addr, &Self) -> bool) {
        let listed = std::mem::take(&mut self.never_return);
        self.never_return = listed
            .into_iter()
            .filter(|&at| !returns(at, self))
            .collect();
    }

    /// Adds those of another object.
    pub(crate) fn join(&mut self, other: Self) {
        for (list, further) in [
            (&mut self.return_thunks, other.return_thunks),
            (&mut self.indirect_thunks, other.indirect_thunks),
            (&mut self.never_return, other.never_return),
        ] {
            list.extend(further);
            list.sort_unstable();
        }
    }

    pub(crate) fn is_return_thunk(&self, at: Addr) -> bool {
        self.return_thunks.binary_search(&at).is_ok()
    }

    pub(crate) fn is_indirect_thunk(&self, at: Addr) -> bool {
        self.indirect_thunks.binary_search(&at).is_ok()
    }

    pub(crate) fn never_returns(&self, at: Addr) -> bool {
        self.never_return.binary_search(&at).is_ok()
    }
}
