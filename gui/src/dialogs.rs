//! Dialogs: paths, unsaved changes, and the list of shortcuts.

use std::path::PathBuf;

use egui::accesskit::Role;
use egui::text::{CCursor, CCursorRange};
use egui::{Button, Context, Grid, Id, Key, RichText, ScrollArea, TextEdit, Ui};

use crate::command::{Command, key_words};
use crate::menus::{self, MENUS};
use crate::natives;
use crate::path_dialog::{PathDialog, PathQuestion};
use crate::processes;
use crate::recent_paths::RecentPaths;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets::{self, buttons, modal, primary, title};
use crate::worker::{Mail, files, path_completion};

/// Draws the open dialog.
pub(crate) fn show(ctx: &Context, state: &mut State, mail: &Mail, commands: &mut Vec<Command>) {
    if state.guard.is_some() {
        guard(ctx, state, commands);
    } else if state.natives.is_some() {
        natives::confirm(ctx, state, commands);
    } else if state.dialog.is_some() {
        path(ctx, state, mail, commands);
    } else if state.processes.is_some() {
        processes::show(ctx, state, mail, commands);
    } else if state.shortcuts {
        shortcuts(ctx, state);
    }
}

fn guard(ctx: &Context, state: &mut State, commands: &mut Vec<Command>) {
    let shown = modal(ctx, "guard").show(ctx, |ui| {
        ui.set_width(400.0);
        title(ui, "Save the changes?");
        ui.label(format!(
            "The session \u{201c}{}\u{201d} has unsaved changes.",
            state.document.session().name
        ));
        ui.add_space(space::MEDIUM);
        buttons(ui, |ui| {
            let mut chosen = None;
            if primary(ui, "Save", true) {
                chosen = state
                    .guard
                    .take()
                    .map(|then| Command::SaveAnd(Box::new(then)));
            }
            if ui.button("Discard").clicked() {
                chosen = state
                    .guard
                    .take()
                    .map(|then| Command::DiscardAnd(Box::new(then)));
            }
            if ui.button("Cancel").clicked() {
                state.guard = None;
            }
            commands.extend(chosen);
        });
    });
    if shown.should_close() {
        state.guard = None;
    }
}

fn path(ctx: &Context, state: &mut State, mail: &Mail, commands: &mut Vec<Command>) {
    let Some(dialog) = &mut state.dialog else {
        return;
    };
    let mut done = false;
    let shown = modal(ctx, "path").show(ctx, |ui| {
        ui.set_width(520.0);
        title(ui, dialog.purpose.title());
        ui.horizontal(|ui| {
            let id = Id::unique("path field").with(dialog.number);
            let field = TextEdit::singleline(&mut dialog.text)
                .id(id)
                .font(code(text::CODE))
                .hint_text(dialog.purpose.hint())
                .desired_width(410.0);
            let field = widgets::named(ui.add(field), Role::TextInput, "Path");
            if field.changed() {
                dialog.question = None;
            }
            let entered = field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
            done |= entered;
            let is_free = ui.memory(|memory| memory.focused().is_none());
            if dialog.focused && is_free && !entered && !dialog.browsing {
                // Keys are for the path, also if something below the dialog has taken the focus away.
                field.request_focus();
            }
            if !dialog.focused && !dialog.browsing {
                field.request_focus();
                dialog.focused = true;
                // The first letter that is typed replaces the suggestion.
                widgets::select(ui, id, CCursorRange::select_all_str(&dialog.text));
            }
            let browse = !dialog.browsing && dialog.purpose.is_file();
            let browse = ui.add_enabled(browse, Button::new("Browse…"));
            if browse
                .on_hover_text("Opens the desktop's file dialog, if it has one.")
                .clicked()
            {
                dialog.browsing = true;
                files::pick(mail, dialog.purpose, PathBuf::from(&dialog.text));
            }
        });
        if dialog.purpose.is_file() && dialog.completed.as_ref() != Some(&dialog.text) {
            dialog.completed = Some(dialog.text.clone());
            dialog.completions.clear();
            let (number, typed) = (dialog.number, dialog.text.clone());
            path_completion::complete(mail, number, dialog.purpose, typed);
        }
        done |= completions(ui, dialog);
        done |= recent(ui, &state.recent_paths, dialog);
        if let Some(note) = dialog.purpose.note() {
            widgets::caption(ui, &note);
        }
        if let Some(question) = &dialog.question {
            let warning = Tokens::of(ui).warning;
            ui.label(RichText::new(&question.words).color(warning));
        }
        ui.add_space(space::MEDIUM);
        buttons(ui, |ui| {
            let question = dialog.question.as_ref();
            let verb = question.map_or(dialog.purpose.verb(), |question| question.verb);
            done |= primary(ui, verb, !dialog.text.trim().is_empty());
            ui.button("Cancel").clicked()
        })
    });
    if done && !dialog.text.trim().is_empty() {
        let path = PathBuf::from(dialog.text.trim());
        let answered = dialog.question.take();
        if dialog.purpose.saves()
            && let Some(question) = PathQuestion::of(&path, state.document.path())
            && (answered.as_ref() != Some(&question) || path.is_dir())
        {
            dialog.question = Some(question);
            return;
        }
        commands.push(Command::UsePath(
            dialog.purpose,
            path,
            dialog.then.take().map(Box::new),
        ));
        state.dialog = None;
    } else if shown.inner || shown.should_close() {
        state.dialog = None;
    }
}

/// Draws the paths that begin as the typed one. Returns whether the clicked one can be used at once.
fn completions(ui: &mut Ui, dialog: &mut PathDialog) -> bool {
    let mut chosen = None;
    ui.scope(|ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        for path in &dialog.completions {
            let words = RichText::new(path).font(code(text::SMALL));
            let button = Button::new(words).frame(false).truncate();
            let name = format!("complete: {path}");
            if widgets::named(ui.add(button), Role::Button, &name).clicked() {
                chosen = Some(path.clone());
            }
        }
    });
    let Some(path) = chosen else {
        return false;
    };
    let is_folder = path.ends_with('/');
    let id = Id::unique("path field").with(dialog.number);
    let end = CCursor::new(path.chars().count());
    widgets::select(ui, id, CCursorRange::one(end));
    ui.memory_mut(|memory| memory.request_focus(id));
    dialog.text = path;
    dialog.question = None;
    !is_folder && !dialog.purpose.saves()
}

/// Draws the paths used last. Returns whether the clicked one can be used at once: one to write to
/// is only filled in.
fn recent(ui: &mut Ui, paths: &RecentPaths, dialog: &mut PathDialog) -> bool {
    let mut used = false;
    let mut paths = paths.of(dialog.purpose).peekable();
    if paths.peek().is_some() {
        ui.add_space(space::TIGHT);
        widgets::caption(ui, "recent");
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    for path in paths {
        let text = path.display().to_string();
        let words = RichText::new(&text).font(code(text::SMALL));
        let button = Button::new(words).frame(false).truncate();
        let response = widgets::named(ui.add(button), Role::Button, &format!("recent: {text}"));
        if response.clicked() {
            dialog.text = text;
            dialog.question = None;
            used = !dialog.purpose.saves();
        }
    }
    used
}

fn shortcuts(ctx: &Context, state: &mut State) {
    let shown = modal(ctx, "shortcuts").show(ctx, |ui| {
        ui.set_width(760.0);
        title(ui, "Shortcuts");
        let height = ctx.content_rect().height() - 150.0;
        ScrollArea::vertical()
            .min_scrolled_height(height)
            .max_height(height)
            .show(ui, columns);
        ui.add_space(space::MEDIUM);
        buttons(ui, |ui| ui.button("Close").clicked())
    });
    if shown.inner || shown.should_close() {
        state.shortcuts = false;
    }
}

/// Draws the shortcuts in two columns.
fn columns(ui: &mut Ui) {
    ui.columns(2, |columns| {
        for (place, (menu, entries)) in MENUS.iter().enumerate() {
            let with_keys = || {
                let all = menus::commands(entries);
                all.filter(|command| !command.shortcuts().is_empty())
            };
            let side = usize::from(matches!(*menu, "Graph" | "Samples"));
            let Some(ui) = columns
                .get_mut(side)
                .filter(|_| with_keys().next().is_some())
            else {
                continue;
            };
            heading(ui, menu);
            keys_grid(place, ui, |ui| {
                for command in with_keys() {
                    let keys: Vec<String> = command
                        .shortcuts()
                        .iter()
                        .map(|keys| key_words(ui.ctx(), keys))
                        .collect();
                    line(ui, command.name(), &keys.join("   "));
                }
            });
        }
        if let Some(ui) = columns.first_mut() {
            heading(ui, "With the pointer");
            keys_grid("pointer", ui, |ui| {
                line(ui, "Pan graph or timeline", "drag");
                line(ui, "Zoom at the pointer", "wheel");
                line(ui, "Pan and zoom the timeline", "A D   W S");
                line(ui, "Scroll lanes", "wheel on their names");
                line(ui, "Range on the timeline", "Shift and drag");
                line(ui, "Go to a sample's block", "click its lane");
                line(ui, "Edit or remove a note", "click   Delete");
            });
        }
    });
}

fn keys_grid(id: impl egui::AsIdSalt, ui: &mut Ui, lines: impl FnOnce(&mut Ui)) {
    Grid::new(id)
        .num_columns(2)
        .min_col_width(170.0)
        .spacing([space::LARGE, space::TIGHT])
        .min_row_height(18.0)
        .show(ui, lines);
}

fn heading(ui: &mut Ui, words: &str) {
    let tokens = Tokens::of(ui);
    ui.add_space(space::TIGHT);
    ui.label(RichText::new(words).strong().color(tokens.accent));
}

fn line(ui: &mut Ui, what: &str, keys: &str) {
    let tokens = Tokens::of(ui);
    ui.label(what);
    ui.label(
        RichText::new(keys)
            .font(code(text::CODE))
            .color(tokens.weak),
    );
    ui.end_row();
}
