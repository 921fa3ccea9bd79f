//! All text of an image: the core kernel's and modules'.

use super::modules::Module;
use crate::{Addr, Span};

/// Spans of text.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    core: Span,
    /// By address, with the module's name.
    pub(crate) modules: Vec<(Span, String)>,
}

impl Texts {
    pub(crate) fn new(core: Span) -> Self {
        Self {
            core,
            modules: Vec::new(),
        }
    }

    /// Adds a module's text.
    pub(crate) fn add(&mut self, module: &Module) {
        let texts = module.texts.iter();
        self.modules
            .extend(texts.map(|&text| (text, module.name.clone())));
        self.modules.sort_unstable();
    }

    /// Whether `at` is in any.
    pub(crate) fn contains(&self, at: Addr) -> bool {
        self.core.contains(at) || self.module(at).is_some()
    }

    /// The module in whose text `at` lies.
    fn module(&self, at: Addr) -> Option<&str> {
        let behind = self.modules.partition_point(|(text, _)| text.start <= at);
        let (text, name) = self.modules.get(behind.checked_sub(1)?)?;
        text.contains(at).then_some(name.as_str())
    }

    /// A symbol's name as a session writes it: `module:name` for those of modules.
    pub(crate) fn qualified(&self, at: Addr, name: &str) -> String {
        match self.module(at) {
            Some(module) => format!("{module}:{name}"),
            None => name.to_owned(),
        }
    }
}
