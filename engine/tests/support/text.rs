//! Original code of a test.

use gilk_engine::code::Decided;
use gilk_engine::patch::Originals;
use gilk_engine::{Addr, Span};

pub(crate) struct Text<'t> {
    pub(crate) at: Addr,
    pub(crate) bytes: &'t [u8],
    pub(crate) decided: Vec<Decided>,
}

impl Originals for Text<'_> {
    fn bytes(&self, span: Span) -> Option<&[u8]> {
        let offset = |at: Addr| at.0.checked_sub(self.at.0).map(|offset| offset as usize);
        self.bytes.get(offset(span.start)?..offset(span.end)?)
    }

    fn decided(&self, at: Addr) -> Option<Decided> {
        self.decided
            .iter()
            .find(|site| site.span.start == at)
            .copied()
    }

    fn may_fault(&self, _: Addr) -> bool {
        false
    }
}
