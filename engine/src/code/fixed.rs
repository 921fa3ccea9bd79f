//! Fixed sites: bytes of the text that the target itself patches, or whose address means something to it.

use serde::{Deserialize, Serialize};

use crate::{Addr, Span};

/// The reason why a site is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Why {
    /// A jump label: a nop or a jump that the target swaps. Its target is the jump's.
    StaticKey,
    /// A static call, or the trampoline of one: the target of the branch changes.
    StaticCall,
    /// An instruction that may be rewritten while the kernel runs (lock prefixes, when the number of
    /// CPUs changes); in the image of a file, any that boot may replace.
    Alternative,
    /// The five bytes of the function tracer's call at a function's entry.
    Tracer,
    /// An instruction with an exception-table entry; its target is the fixup. One byte long: the
    /// table names addresses.
    Exception {
        /// The handler (`EX_TYPE_` of arch/x86/include/asm/extable_fixup_types.h).
        handler: u8,
    },
    /// A `ud2` of the bug table. Execution continues after a `WARN` and ends at a `BUG`.
    Bug {
        /// True for a `WARN`.
        warn: bool,
    },
    /// Text in which probes are forbidden, or in which a splice could not work.
    Forbidden,
}

/// A fixed site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fixed {
    /// Its bytes.
    pub span: Span,
    /// The reason.
    pub why: Why,
    /// The target of a static key's jump, or an exception's fixup.
    pub target: Option<Addr>,
    /// The state in the target's memory that decides between the bytes of a static key or static
    /// call; `None` for other sites and where it is not known.
    pub decided: Option<Decision>,
}

impl Fixed {
    /// A site without a target and a decision.
    #[must_use]
    pub const fn new(span: Span, why: Why) -> Self {
        Self {
            span,
            why,
            target: None,
            decided: None,
        }
    }
}

/// The state that decides between the forms of a fixed site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Decision {
    /// A jump label: a jump to `target`, or a nop.
    StaticKey {
        /// The `struct static_key`; its first 32 bits count its users, and are not zero while it is on.
        key: Addr,
        /// True if the jump is there while the key is off, not while it is on.
        inverted: bool,
        /// The target of the jump.
        target: Addr,
    },
    /// A call through a trampoline whose target changes.
    StaticCall {
        /// A trampoline that always jumps to the same function, or returns if there is none.
        trampoline: Addr,
        /// The form of the branch.
        transfer: Transfer,
    },
}

/// The form of a static call's branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Transfer {
    /// `call rel32`.
    Call,
    /// A `jmp`, at the end of a function.
    Jump,
    /// A conditional jump: the low four bits of its opcode.
    Conditional(u8),
}

/// A fixed site whose decision is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decided {
    /// The bytes that the target rewrites.
    pub span: Span,
    /// The state that decides between them.
    pub by: Decision,
}

/// All fixed sites of an image.
#[derive(Clone, Debug, Default)]
pub struct FixedSites {
    /// Sites of one instruction, sorted.
    small: Vec<Fixed>,
    /// Forbidden text, sorted; no two touch.
    forbidden: Vec<Fixed>,
    /// Text that is forbidden as long as the target's lists by name are in doubt, sorted; no two touch.
    doubted: Vec<Fixed>,
}

/// Text without the parts that touch.
fn all_forbidden(text: Vec<Span>) -> Vec<Fixed> {
    let merged = Span::merged(text).into_iter();
    merged
        .map(|span| Fixed::new(span, Why::Forbidden))
        .collect()
}

/// The longest site of one instruction, in bytes: no x86 instruction is longer.
pub(crate) const LONGEST: u64 = 15;

impl FixedSites {
    pub(crate) fn new(mut small: Vec<Fixed>, forbidden: Vec<Span>) -> Self {
        small.sort_unstable();
        small.dedup();
        Self {
            small,
            forbidden: all_forbidden(forbidden),
            doubted: Vec::new(),
        }
    }

    /// Forbids text of functions that lists by name may lack.
    pub(crate) fn doubt(&mut self, functions: Vec<Span>) {
        self.doubted = all_forbidden(functions);
    }

    /// Permits the text of functions that lists by name may lack.
    pub(super) fn believe(&mut self) {
        self.doubted.clear();
    }

    /// Returns whether text is forbidden because lists by name may lack its function.
    pub(crate) fn is_doubted(&self, at: Addr) -> bool {
        let next = self.doubted.partition_point(|site| site.span.end <= at);
        let site = self.doubted.get(next);
        site.is_some_and(|site| site.span.contains(at))
    }

    /// Adds those of another object.
    pub(crate) fn join(&mut self, other: Self) {
        self.small.extend(other.small);
        self.small.sort_unstable();
        self.forbidden.extend(other.forbidden);
        self.forbidden.sort_unstable();
        self.doubted.extend(other.doubted);
        self.doubted.sort_unstable();
    }

    /// Adds the decisions of static keys and static calls, sorted by address.
    pub(crate) fn decide(&mut self, decided: &[Decided]) {
        for site in &mut self.small {
            let found = decided.binary_search_by_key(&site.span.start, |known| known.span.start);
            let known = found.ok().and_then(|index| decided.get(index));
            site.decided = match (site.why, known) {
                (Why::StaticKey | Why::StaticCall, Some(known)) => Some(known.by),
                _ => None,
            };
        }
    }

    /// The decision of the static key or static call that begins at `at`, if it is known.
    #[must_use]
    pub fn decided(&self, at: Addr) -> Option<Decided> {
        let first = self.small.partition_point(|site| site.span.start < at);
        let mut sites = self.small.iter().skip(first);
        sites
            .by_ref()
            .take_while(|site| site.span.start == at)
            .find_map(|site| {
                let by = site.decided?;
                Some(Decided {
                    span: site.span,
                    by,
                })
            })
    }

    /// The sites that have a byte in `span`: those of one instruction in order of address, then
    /// forbidden text.
    pub fn overlapping(&self, span: Span) -> impl Iterator<Item = &Fixed> {
        let first = self
            .small
            .partition_point(|site| site.span.start.add(LONGEST) <= span.start);
        let small = self
            .small
            .iter()
            .skip(first)
            .take_while(move |site| site.span.start < span.end);
        let forbidden = [&self.forbidden, &self.doubted]
            .into_iter()
            .flat_map(move |sites| {
                let first = sites.partition_point(|site| site.span.end <= span.start);
                let rest = sites.iter().skip(first);
                rest.take_while(move |site| site.span.start < span.end)
            });
        small
            .chain(forbidden)
            .filter(move |site| site.span.overlaps(span))
    }

    /// The sites of one instruction, by address; without forbidden text.
    pub fn iter(&self) -> impl Iterator<Item = &Fixed> {
        self.small.iter()
    }

    /// Forgets the handlers of instructions that may fault: no such instruction is moved then.
    pub(super) fn keep_faults(&mut self) {
        for site in &mut self.small {
            if let Why::Exception { handler } = &mut site.why {
                *handler = 0;
            }
        }
    }

    /// Forbidden text, by address, without what is in doubt; no two spans touch.
    pub fn forbidden(&self) -> impl Iterator<Item = Span> {
        self.forbidden.iter().map(|site| site.span)
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
            doubted in proptest::collection::vec((0_u64..300, 1_u64..50), 0..4),
            query in (0_u64..300, 0_u64..40),
        ) {
            let spans = |pairs: &[(u64, u64)]| pairs.iter().map(|&(start, len)| Span::new(Addr(start), len)).collect::<Vec<_>>();
            let small = spans(&small).into_iter().map(|span| Fixed::new(span, Why::StaticKey));
            let mut sites = FixedSites::new(small.collect(), spans(&black));
            sites.doubt(spans(&doubted));
            let query = Span::new(Addr(query.0), query.1);
            let found: Vec<Fixed> = sites.overlapping(query).copied().collect();
            let all = sites.iter().chain(&sites.forbidden).chain(&sites.doubted).filter(|site| site.span.overlaps(query)).copied();
            prop_assert_eq!(found, all.collect::<Vec<Fixed>>());
            let is_doubted = spans(&doubted).iter().any(|span| span.contains(query.start));
            prop_assert_eq!(sites.is_doubted(query.start), is_doubted);
        }
    }
}
