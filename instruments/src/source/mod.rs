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

use std::collections::BTreeSet;
use std::sync::Arc;

use gilk_samples::Meaning;

pub use highlight::{Class, highlight};
pub(crate) use parse::Parts;

use crate::Faults;
use crate::program::{Event, Hook};
use ast::{Base, Header, Node, ProbeNode, Statement, StatementKind};
use words::{WORDS, WordKind};

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

    /// Returns the text in the common layout. It has the same words and signs in the same order, except for
    /// semicolons at the end of a probe.
    #[must_use]
    pub fn formatted(&self) -> String {
        format::format(&self.text)
    }

    /// Returns the text of the same instrument for hits of one process: each predicate begins with a comparison of
    /// `pid`.
    #[must_use]
    pub fn within_process(&self, pid: u32) -> String {
        let tokens = token::tokens(&self.text);
        let mut inserted: Vec<(u32, String)> = Vec::new();
        for probe in &self.parts.probes {
            if let Some(predicate) = &probe.predicate {
                inserted.push((predicate.span.start, format!("pid == {pid} && (")));
                inserted.push((predicate.span.end, ")".to_owned()));
                continue;
            }
            let mut tokens = tokens.iter();
            let body = tokens.find(|token| token.span.start >= probe.span.start && token.is("{"));
            debug_assert!(body.is_some(), "a probe without a body was parsed");
            inserted.extend(body.map(|body| (body.span.start, format!("/ pid == {pid} / "))));
        }
        let mut text = String::new();
        let mut copied = 0;
        for (at, words) in inserted {
            let at = at as usize;
            text.push_str(self.text.get(copied..at).unwrap_or_default());
            text.push_str(&words);
            copied = at;
        }
        text.push_str(self.text.get(copied..).unwrap_or_default());
        text
    }

    fn header(&self) -> Option<&Header> {
        self.parts.header.as_ref()
    }

    /// Returns the name in sessions; empty for a source without a first statement.
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

    /// Meaning of its samples, for readers and charts: lines of text are events.
    #[must_use]
    pub fn meaning(&self) -> Meaning {
        let mut statements = self.parts.probes.iter().flat_map(|probe| &probe.statements);
        let otherwise = match statements.any(Statement::is_line) {
            true => Meaning::Event,
            false => Meaning::Value,
        };
        let stated = self.header().and_then(|header| header.meaning);
        stated.unwrap_or(otherwise)
    }

    /// Returns whether a placement is removed at its first hit.
    #[must_use]
    pub fn once(&self) -> bool {
        self.header().is_some_and(|header| header.once)
    }

    /// Returns whether the source does nothing but count the hits of the hook where it is placed. The
    /// counter of such an instrument is read while its session runs.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        let [
            ProbeNode {
                hook: Hook::Hit,
                predicate: None,
                statements,
                ..
            },
        ] = self.parts.probes.as_slice()
        else {
            return false;
        };
        let [
            Statement {
                kind: StatementKind::Assign(_, value),
                ..
            },
        ] = statements.as_slice()
        else {
            return false;
        };
        let counts = matches!(&value.node, Node::Call(word, arguments) if word.text == "count" && arguments.is_empty());
        counts && self.parts.declarations.is_empty() && !self.once()
    }

    /// Returns whether [`check`](Source::check) may give different programs for two functions: the source
    /// names arguments, what a function returns, or a constant of the kernel.
    #[must_use]
    pub fn depends_on_function(&self) -> bool {
        self.any_node(&mut |node| match node {
            Node::Name(name) => {
                let word = WORDS.iter().find(|known| known.word == name);
                let input = word.is_some_and(|known| known.kind == WordKind::Input);
                name == "retval" || !input && Event::named(name).is_none()
            }
            _ => false,
        })
    }

    /// Returns whether it numbers stacks of the process, or names addresses of its code: what
    /// [`Probe::numbers_stacks`](crate::program::Probe::numbers_stacks) finds in its program.
    #[must_use]
    pub fn numbers_stacks(&self) -> bool {
        self.any_node(&mut |node| {
            let word = match node {
                Node::Name(name) => name.as_str(),
                Node::Call(name, _) => name.text.as_str(),
                _ => return false,
            };
            ["kstack", "ustack", "usym"].contains(&word)
        })
    }

    /// Returns whether a sample may have several words, as lines and texts have.
    #[must_use]
    pub fn may_have_lines(&self) -> bool {
        let probes = self.parts.probes.iter();
        let mut statements = probes.flat_map(|probe| &probe.statements);
        statements.any(|statement| match &statement.kind {
            StatementKind::Printf(_, arguments) => !arguments.is_empty(),
            StatementKind::Sample(value) => value.any(&mut |node| match node {
                Node::Name(name) => name == "comm",
                Node::Call(name, _) => name.text == "str",
                _ => false,
            }),
            _ => false,
        })
    }

    /// Returns the names of the structures, unions and enumerations that it casts to.
    #[must_use]
    pub fn type_names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.any_node(&mut |node| {
            if let Node::Cast(to, _) = node
                && let Base::Struct(name) | Base::Union(name) | Base::Enum(name) = &to.base
            {
                names.insert(name.as_str());
            }
            false
        });
        names
    }

    fn any_node<'s>(&'s self, is: &mut impl FnMut(&'s Node) -> bool) -> bool {
        let mut probes = self.parts.probes.iter();
        probes.any(|probe| {
            let values = probe.statements.iter().flat_map(Statement::values);
            let mut expressions = probe.predicate.iter().chain(values);
            expressions.any(|expr| expr.any(is))
        })
    }
}
