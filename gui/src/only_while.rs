//! The threads of a process that a run executes in the code cache: all, those in a function, or one.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use ilk_driver::process::{CloneThreads, check_condition};

use crate::catalogue::Catalogue;

/// A choice of threads. What was typed for one is kept while another is chosen.
#[derive(Clone, Debug, Default)]
pub struct OnlyWhile {
    /// The chosen threads.
    pub kind: ThreadsKind,
    /// The function that they execute, as the list of functions has it.
    pub function: String,
    /// The condition at its entry, in the language of instruments; empty for all calls.
    pub condition: String,
    /// The number of one thread.
    pub thread: String,
    named: RefCell<Option<Named>>,
}

/// The last name that was looked up: a wrong one is compared with all names, which takes longer than a frame may.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    catalogue: Weak<Catalogue>,
    found: Result<(), String>,
}

/// The kinds of choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadsKind {
    /// All of them.
    #[default]
    All,
    /// Each while it executes a function.
    InFunction,
    /// A single one, by its number.
    One,
}

impl ThreadsKind {
    pub(crate) const ALL: [Self; 3] = [Self::All, Self::InFunction, Self::One];

    /// The words in the list.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all threads",
            Self::InFunction => "only while in",
            Self::One => "only thread",
        }
    }
}

impl OnlyWhile {
    /// Returns the threads for the cache.
    ///
    /// # Errors
    /// The reason why none are chosen, as a whole sentence.
    pub(crate) fn threads(
        &self,
        catalogue: Option<&Arc<Catalogue>>,
    ) -> Result<CloneThreads, String> {
        match self.kind {
            ThreadsKind::All => Ok(CloneThreads::All),
            ThreadsKind::InFunction => {
                let name = self.function.trim();
                let Some(catalogue) = catalogue else {
                    return Err("The process is not read yet.".to_owned());
                };
                if name.is_empty() {
                    return Err(
                        "Name the function while which threads are in the cache.".to_owned()
                    );
                }
                self.found(name, catalogue)?;
                let condition = Some(self.condition.trim()).filter(|typed| !typed.is_empty());
                let checked = condition.map_or(Ok(()), check_condition);
                checked.map_err(|faults| format!("The condition is wrong: {faults}"))?;
                Ok(CloneThreads::While {
                    function: name.to_owned(),
                    condition: condition.map(str::to_owned),
                })
            }
            ThreadsKind::One => match self.thread.trim().parse() {
                Ok(thread) => Ok(CloneThreads::One(thread)),
                Err(_) => Err(format!(
                    "{:?} is not the number of a thread.",
                    self.thread.trim()
                )),
            },
        }
    }

    /// Finds a function's name, which is looked up once while both stay.
    fn found(&self, name: &str, catalogue: &Arc<Catalogue>) -> Result<(), String> {
        let mut last = self.named.borrow_mut();
        let is_same = |last: &Named| {
            last.name == name && std::ptr::eq(last.catalogue.as_ptr(), Arc::as_ptr(catalogue))
        };
        if let Some(last) = last.as_ref().filter(|last| is_same(last)) {
            return last.found.clone();
        }
        let found = catalogue.image().function_named(name);
        let found = found.map(drop).map_err(|error| error.to_string());
        *last = Some(Named {
            name: name.to_owned(),
            catalogue: Arc::downgrade(catalogue),
            found: found.clone(),
        });
        found
    }
}
