//! The threads of a process that a run executes in the code cache: all, those in a function, or one.

use egui::accesskit::Role;
use egui::{ComboBox, RichText, TextEdit, Ui};
use ilk_driver::process::CloneThreads;

use crate::catalogue::Catalogue;
use crate::state::State;
use crate::theme::{Tokens, code, text};
use crate::widgets;

/// Width of a field in points.
const FIELD: f32 = 150.0;

/// A choice of threads. What was typed for one is kept while another is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnlyWhile {
    /// The chosen threads.
    pub kind: ThreadsKind,
    /// The function that they execute, as the list of functions has it.
    pub function: String,
    /// The number of one thread.
    pub thread: String,
}

/// Which threads are in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadsKind {
    /// All of them.
    #[default]
    All,
    /// Each while it executes a function.
    InFunction,
    /// One.
    One,
}

impl ThreadsKind {
    const ALL: [Self; 3] = [Self::All, Self::InFunction, Self::One];

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
    pub(crate) fn threads(&self, catalogue: Option<&Catalogue>) -> Result<CloneThreads, String> {
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
                match catalogue.image().function_named(name) {
                    Ok(_) => Ok(CloneThreads::While(name.to_owned())),
                    Err(error) => Err(error.to_string()),
                }
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
}

/// Draws the choice.
pub(crate) fn show(ui: &mut Ui, state: &mut State) {
    let open = state.graph.scene.as_ref().map(|scene| scene.name.clone());
    let is_idle = state.run.active.is_none();
    let choice = &mut state.only_while;
    ui.add_enabled_ui(is_idle, |ui| {
        ui.horizontal_wrapped(|ui| {
            widgets::caption(ui, "in the cache");
            let combo = ComboBox::from_id_salt("threads in the cache").selected_text(choice.kind.name());
            let shown = combo.show_ui(ui, |ui| {
                for kind in ThreadsKind::ALL {
                    let is_chosen = kind == choice.kind;
                    let row = ui.selectable_label(is_chosen, kind.name());
                    let row = widgets::chosen(row, Role::ListBoxOption, is_chosen, kind.name());
                    if row.clicked() {
                        choice.kind = kind;
                        if let (ThreadsKind::InFunction, true, Some(open)) =
                            (kind, choice.function.is_empty(), &open)
                        {
                            choice.function.clone_from(open);
                        }
                    }
                }
            });
            widgets::named(shown.response, Role::ComboBox, "Threads in the cache");
            let (typed, name, hint) = match choice.kind {
                ThreadsKind::All => return,
                ThreadsKind::InFunction => (
                    &mut choice.function,
                    "Function of the cache",
                    "A thread enters the cache where it calls this function, and leaves it as the call returns.",
                ),
                ThreadsKind::One => (
                    &mut choice.thread,
                    "Thread of the cache",
                    "The number of a thread (`ps -L`); the others execute the original code.",
                ),
            };
            let field = ui.add(TextEdit::singleline(typed).font(code(text::CODE)).desired_width(FIELD));
            widgets::named(field, Role::TextInput, name).on_hover_text(hint);
        });
    });
    if let Err(why) = state.threads_in_cache() {
        let weak = Tokens::of(ui).weak;
        ui.label(RichText::new(why).small().color(weak));
    }
}
