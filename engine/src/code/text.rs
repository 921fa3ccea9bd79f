//! The text of an image: spans of executable bytes.

use crate::{Addr, Span};

/// A span of text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text {
    /// Its bytes.
    pub span: Span,
    /// The module that it belongs to; `None` for the core of the target.
    pub module: Option<String>,
    /// True if it belongs to the driver that writes the splices.
    pub own: bool,
}

/// All text of an image, by address.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    core: Span,
    all: Vec<Text>,
}

impl Texts {
    /// The text of the core, or of the module that takes its place where the core was not read.
    pub(crate) fn new(core: Span, module: Option<String>) -> Self {
        let all = vec![Text {
            span: core,
            module,
            own: false,
        }];
        Self { core, all }
    }

    /// All of them, by address.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Text> {
        self.all.iter()
    }

    /// Adds a module's text.
    pub(crate) fn add(&mut self, texts: impl Iterator<Item = Text>) {
        self.all.extend(texts);
        self.all.sort_unstable();
    }

    /// The text of the target's core.
    pub(crate) fn core(&self) -> Span {
        self.core
    }

    /// The text that `at` lies in.
    pub(crate) fn at(&self, at: Addr) -> Option<&Text> {
        let after = self.all.partition_point(|text| text.span.start <= at);
        let text = self.all.get(after.checked_sub(1)?)?;
        text.span.contains(at).then_some(text)
    }

    /// Returns whether `at` lies in any text.
    pub(crate) fn contains(&self, at: Addr) -> bool {
        self.core.contains(at) || self.at(at).is_some()
    }

    /// A symbol's name as sessions write it: `module:name` for those of modules.
    pub(crate) fn qualified(&self, at: Addr, name: &str) -> String {
        match self.at(at).and_then(|text| text.module.as_ref()) {
            Some(module) => format!("{module}:{name}"),
            None => name.to_owned(),
        }
    }
}
