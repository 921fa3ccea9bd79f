//! Functions that mean something to control flow, looked up at every branch and call.

use crate::Addr;

/// Addresses of such functions, each list sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownFunctions {
    /// Return thunks: a jump to one is a return.
    pub(crate) return_thunks: Vec<Addr>,
    /// Indirect thunks: a jump to one is a jump through a register.
    pub(crate) indirect_thunks: Vec<Addr>,
    /// Functions that never return.
    pub(crate) never_return: Vec<Addr>,
}

impl KnownFunctions {
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
