//! Sources: text, and what was written in it. What it means at a place is for
//! [`check`](Source::check).

mod advice;
pub(crate) mod ast;
mod expression;
mod format;
mod highlight;
mod input;
mod parse;
mod structure;
#[cfg(test)]
mod tests;
pub(crate) mod token;
pub mod words;

use std::sync::Arc;

use gilk_samples::Meaning;

pub use highlight::{Class, highlight};
pub(crate) use parse::Parts;

use crate::Faults;
use ast::Header;

/// A source that could be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    text: Arc<str>,
    pub(crate) parts: Parts,
}

impl Source {
    /// Parses a source.
    ///
    /// # Errors
    /// All faults that the parser could find in one go.
    pub fn parse(text: &str) -> Result<Self, Faults> {
        if let Some(fault) = structure::too_long(text) {
            return Err(Faults::new("", vec![fault]));
        }
        let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let tokens = token::tokens(text);
        let faults = structure::check(&tokens);
        if !faults.is_empty() {
            return Err(Faults::new(text, faults));
        }
        let (parts, faults) = parse::parse(&tokens, end);
        if !faults.is_empty() {
            return Err(Faults::new(text, faults));
        }
        Ok(Self {
            text: Arc::from(text),
            parts,
        })
    }

    /// The text as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text as everybody writes it: spaces and lines as in the library. It has the same words and
    /// signs in the same order, but for semicolons at the end of a probe.
    #[must_use]
    pub fn formatted(&self) -> String {
        format::format(&self.text)
    }

    fn header(&self) -> Option<&Header> {
        self.parts.header.as_ref()
    }

    /// How sessions name it; empty for a source without a first statement.
    #[must_use]
    pub fn name(&self) -> &str {
        self.header().map_or("", |header| &header.name)
    }

    /// One sentence for a person who chooses.
    #[must_use]
    pub fn summary(&self) -> &str {
        self.header().map_or("", |header| &header.summary)
    }

    /// Unit of its values; empty for none.
    #[must_use]
    pub fn unit(&self) -> &str {
        self.header().map_or("", |header| &header.unit)
    }

    /// How its samples are read and drawn.
    #[must_use]
    pub fn meaning(&self) -> Meaning {
        self.header()
            .and_then(|header| header.meaning)
            .unwrap_or(Meaning::Value)
    }

    /// Whether a placement is taken out once it has been hit.
    #[must_use]
    pub fn once(&self) -> bool {
        self.header().is_some_and(|header| header.once)
    }
}
