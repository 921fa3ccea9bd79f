//! Functions among the symbols, and their ends.

use super::names;
use crate::code::{Symbol, Symbols};
use crate::{Addr, Span};

/// The extent of a function by the symbols alone: the padding after it is included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// The symbol that names it.
    pub(crate) symbol: Symbol,
    /// Up to the next symbol of the text.
    pub(crate) span: Span,
}

/// The functions of `text`, by address.
///
/// Every text symbol begins a function here. kallsyms has labels of assembly too; they are entered by
/// branches from other functions, so that each is a function of its own. So are the parts `f.cold`
/// that the compiler splits off.
pub(crate) fn extents(symbols: &Symbols, text: Span) -> Vec<Extent> {
    extents_of(symbols, text, Symbol::is_text)
}

/// The functions of a section of a module's text, by address.
pub(crate) fn module_extents(symbols: &Symbols, text: Span) -> Vec<Extent> {
    extents_of(symbols, text, Symbol::is_module_text)
}

fn extents_of(symbols: &Symbols, text: Span, is_text: fn(&Symbol) -> bool) -> Vec<Extent> {
    let mut starts: Vec<Symbol> = symbols
        .within(text)
        .filter(|symbol| is_text(symbol))
        .copied()
        .collect();
    // One for each address: the best name first.
    starts.sort_by_cached_key(|symbol| {
        (
            symbol.at,
            names::strangeness(symbols.name(symbol), symbol.is_weak()),
        )
    });
    starts.dedup_by_key(|symbol| symbol.at);
    let ends = starts
        .iter()
        .skip(1)
        .map(|symbol| symbol.at)
        .chain([text.end])
        .collect::<Vec<Addr>>();
    starts
        .into_iter()
        .zip(ends)
        .filter(|(symbol, _)| !names::is_marker(symbols.name(symbol)))
        .map(|(symbol, end)| Extent {
            symbol,
            span: Span {
                start: symbol.at,
                end,
            },
        })
        .collect()
}
