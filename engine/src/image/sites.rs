//! Bytes of the text that belong to the kernel's own patching, or whose address means something.

use serde::{Deserialize, Serialize};

use crate::{Addr, Span};

/// What a site is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SiteKind {
    /// A jump label: a nop or a jump that the kernel swaps. Its target is where the jump leads.
    StaticKey,
    /// A static call, or the trampoline of one: the kernel changes where it leads.
    StaticCall,
    /// An instruction that the kernel may rewrite when the number of CPUs changes; of a kernel that
    /// does not run, any that boot may replace.
    Alternative,
    /// The function tracer's five bytes at a function's entry.
    Ftrace,
    /// An instruction with an exception-table entry. Its target is the fixup. One byte long: it is
    /// known by its address.
    Exception {
        /// What the kernel does when it faults (`EX_TYPE_` of arch/x86/include/asm/extable_fixup_types.h).
        handler: u8,
    },
    /// A `ud2` of the bug table; a `WARN` goes on behind it, a `BUG` ends there.
    Bug {
        /// Whether it goes on.
        warn: bool,
    },
    /// Text that the kernel forbids probes in, or where a splice could not work.
    Blacklist,
}

/// A site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site {
    /// Its bytes.
    pub span: Span,
    /// What it is.
    pub kind: SiteKind,
    /// Where a static key's jump leads, or an exception's fixup.
    pub target: Option<Addr>,
}

/// Every site of an image.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    /// Sites of one instruction, sorted.
    small: Vec<Site>,
    /// Blacklisted text, sorted; no two touch.
    blacklist: Vec<Site>,
}

/// The longest site of one instruction, in bytes: no x86 instruction is longer.
pub(super) const LONGEST: u64 = 15;

impl Sites {
    pub(crate) fn new(mut small: Vec<Site>, blacklist: Vec<Span>) -> Self {
        small.sort_unstable();
        small.dedup();
        let blacklist = super::bounds::merge(blacklist)
            .into_iter()
            .map(|span| Site {
                span,
                kind: SiteKind::Blacklist,
                target: None,
            })
            .collect();
        Self { small, blacklist }
    }

    /// Every site that has a byte in `span`: those of one instruction in order of address, then
    /// blacklisted text.
    pub fn overlapping(&self, span: Span) -> impl Iterator<Item = &Site> {
        let first = self
            .small
            .partition_point(|site| site.span.start.add(LONGEST) <= span.start);
        let small = self
            .small
            .iter()
            .skip(first)
            .take_while(move |site| site.span.start < span.end);
        let first = self
            .blacklist
            .partition_point(|site| site.span.end <= span.start);
        let blacklist = self
            .blacklist
            .iter()
            .skip(first)
            .take_while(move |site| site.span.start < span.end);
        small
            .chain(blacklist)
            .filter(move |site| site.span.overlaps(span))
    }

    /// Every site of one instruction, by address; without blacklisted text.
    pub fn iter(&self) -> impl Iterator<Item = &Site> {
        self.small.iter()
    }

    /// No instruction may fault elsewhere: what their handlers do is forgotten.
    pub(super) fn keep_faults(&mut self) {
        for site in &mut self.small {
            if let SiteKind::Exception { handler } = &mut site.kind {
                *handler = 0;
            }
        }
    }

    /// Blacklisted text, by address; no two spans touch.
    pub fn blacklisted(&self) -> impl Iterator<Item = Span> {
        self.blacklist.iter().map(|site| site.span)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn overlapping_finds_what_a_full_search_finds(
            small in proptest::collection::vec((0_u64..300, 1_u64..7), 0..40),
            black in proptest::collection::vec((0_u64..300, 1_u64..50), 0..4),
            query in (0_u64..300, 0_u64..40),
        ) {
            let spans = |pairs: &[(u64, u64)]| pairs.iter().map(|&(start, len)| Span::new(Addr(start), len)).collect::<Vec<_>>();
            let small = spans(&small).into_iter().map(|span| Site { span, kind: SiteKind::StaticKey, target: None });
            let sites = Sites::new(small.collect(), spans(&black));
            let query = Span::new(Addr(query.0), query.1);
            let found: Vec<Site> = sites.overlapping(query).copied().collect();
            let all = sites.iter().chain(&sites.blacklist).filter(|site| site.span.overlaps(query)).copied();
            prop_assert_eq!(found, all.collect::<Vec<Site>>());
        }
    }
}
