//! The row of the session's pane that chooses the threads in the code cache.

use egui::accesskit::Role;
use egui::{ComboBox, RichText, TextEdit, Ui};

use crate::only_while::ThreadsKind;
use crate::state::State;
use crate::theme::{Tokens, code, text};
use crate::widgets;

/// Width of a field in points.
const FIELD: f32 = 150.0;

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
            if choice.kind == ThreadsKind::InFunction {
                widgets::caption(ui, "if");
                let typed = TextEdit::singleline(&mut choice.condition).hint_text("all calls");
                let field = ui.add(typed.font(code(text::CODE)).desired_width(FIELD));
                widgets::named(field, Role::TextInput, "Condition of the cache").on_hover_text(
                    "Only calls for which this holds at the entry, in the language of instruments: arg1 > 4096",
                );
            }
        });
    });
    if let Err(why) = state.threads_in_cache() {
        let weak = Tokens::of(ui).weak;
        ui.label(RichText::new(why).small().color(weak));
    }
}
