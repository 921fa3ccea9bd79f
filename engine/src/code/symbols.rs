//! The symbols of an image.

use crate::{Addr, Span};

/// A symbol. Its name is kept by [`Symbols`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) at: Addr,
    /// The letter of nm(1): `t` and `T` text, `w` and `W` weak …
    pub(crate) kind: u8,
    /// True if a module owns it, or what registers as one (`bpf`, `__builtin__ftrace`).
    pub(crate) module: bool,
    /// True if the kernel generated what is there: a trampoline of the tracer, a BPF program.
    pub(crate) generated: bool,
    /// Its preference among the symbols of its address, least first.
    rank: u8,
    start: u32,
    len: u32,
}

impl Symbol {
    /// Returns whether it is text of the core (of init text too, which only the address distinguishes).
    pub(crate) fn is_text(&self) -> bool {
        !self.module && matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }

    /// Returns whether it is text of a module.
    pub(crate) fn is_module_text(&self) -> bool {
        self.module && matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }

    /// Returns whether it is weak.
    pub(crate) fn is_weak(&self) -> bool {
        matches!(self.kind, b'w' | b'W')
    }
}

/// All symbols, sorted by address; those at one address in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    names: String,
    entries: Vec<Symbol>,
}

impl Symbols {
    /// Symbols without names yet, whose names take up `bytes` bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            names: String::with_capacity(bytes),
            entries: Vec::new(),
        }
    }

    /// Adds a symbol with its owner in brackets, if it is not the core; `None` if names take up more than 4 GiB.
    pub(crate) fn push(
        &mut self,
        at: Addr,
        kind: u8,
        owner: Option<&str>,
        name: &str,
    ) -> Option<()> {
        // kernel/trace/ftrace.c, kernel/kprobes.c and kernel/bpf/core.c of Linux list theirs so.
        let is_generated = |owner: &str| owner == "[bpf]" || owner.starts_with("[__builtin__");
        let start = u32::try_from(self.names.len()).ok()?;
        let len = u32::try_from(name.len()).ok()?;
        self.names.push_str(name);
        self.entries.push(Symbol {
            at,
            kind,
            module: owner.is_some(),
            generated: owner.is_some_and(is_generated),
            rank: 0,
            start,
            len,
        });
        Some(())
    }

    /// Adds the symbols of another table, with their ranks; `None` if names take up more than 4 GiB. No address has
    /// symbols of both.
    pub(crate) fn join(&mut self, other: &Self) -> Option<()> {
        let before = u32::try_from(self.names.len()).ok()?;
        u32::try_from(self.names.len().checked_add(other.names.len())?).ok()?;
        self.names.push_str(&other.names);
        self.entries
            .extend(other.entries.iter().map(|symbol| Symbol {
                start: before + symbol.start,
                ..*symbol
            }));
        self.entries.sort_by_key(|symbol| symbol.at);
        Some(())
    }

    /// Sorts the symbols, and ranks those that share an address by `preference`, least first.
    pub(crate) fn sort<K: Ord>(&mut self, preference: impl Fn(&str, &Symbol) -> K) {
        // Stable: aliases keep their order.
        self.entries.sort_by_key(|symbol| symbol.at);
        let Self { names, entries } = self;
        for shared in entries.chunk_by_mut(|one, next| one.at == next.at) {
            if shared.len() < 2 {
                continue;
            }
            let key = |symbol: &Symbol| preference(name_of(names, symbol), symbol);
            let mut ranked: Vec<usize> = (0..shared.len()).collect();
            ranked.sort_by_cached_key(|&index| shared.get(index).map(key));
            for (rank, index) in ranked.into_iter().enumerate() {
                if let Some(symbol) = shared.get_mut(index) {
                    // The 256th and further ones are alike: only the first is preferred.
                    symbol.rank = u8::try_from(rank).unwrap_or(u8::MAX);
                }
            }
        }
    }

    /// The preferred symbol at the nearest address at or before `at`.
    pub(crate) fn preferred(&self, at: Addr) -> Option<&Symbol> {
        self.at_or_before(at).min_by_key(|symbol| symbol.rank)
    }

    /// A symbol's name.
    pub(crate) fn name(&self, symbol: &Symbol) -> &str {
        name_of(&self.names, symbol)
    }

    /// All of them, by address.
    pub(crate) fn entries(&self) -> &[Symbol] {
        &self.entries
    }

    /// Those in `span`.
    pub(crate) fn within(&self, span: Span) -> impl Iterator<Item = &Symbol> {
        let first = self
            .entries
            .partition_point(|symbol| symbol.at < span.start);
        let rest = self.entries.iter().skip(first);
        rest.take_while(move |symbol| symbol.at < span.end)
    }

    /// Those at exactly `at`.
    pub(crate) fn at(&self, at: Addr) -> impl Iterator<Item = &Symbol> {
        let first = self.entries.partition_point(|symbol| symbol.at < at);
        self.entries
            .iter()
            .skip(first)
            .take_while(move |symbol| symbol.at == at)
    }

    /// All symbols at the nearest address at or before `at`.
    pub(crate) fn at_or_before(&self, at: Addr) -> impl Iterator<Item = &Symbol> {
        let after = self.entries.partition_point(|symbol| symbol.at <= at);
        let nearest = after
            .checked_sub(1)
            .and_then(|last| self.entries.get(last))
            .map(|symbol| symbol.at);
        nearest.into_iter().flat_map(|nearest| self.at(nearest))
    }
}

fn name_of<'n>(names: &'n str, symbol: &Symbol) -> &'n str {
    let start = symbol.start as usize;
    let name = names.get(start..start + symbol.len as usize);
    debug_assert!(name.is_some(), "a symbol of other names");
    name.unwrap_or_default()
}
