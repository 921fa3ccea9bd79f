//! Functions that are known by name, found once: they are asked for at every branch and call.

use super::kallsyms::Symbols;
use super::names;
use crate::Addr;

/// Addresses of such functions, each list sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    return_thunks: Vec<Addr>,
    indirect_thunks: Vec<Addr>,
    never_return: Vec<Addr>,
}

impl Known {
    pub(crate) fn new(symbols: &Symbols) -> Self {
        let mut known = Self::default();
        for symbol in symbols.entries() {
            let name = symbols.name(symbol);
            for (list, is_one) in [
                (&mut known.return_thunks, names::is_return_thunk(name)),
                (&mut known.indirect_thunks, names::is_indirect_thunk(name)),
                (&mut known.never_return, names::never_returns(name)),
            ] {
                if is_one {
                    list.push(symbol.at);
                }
            }
        }
        known
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
