//! The list of processes, of which one is chosen as the target.

use std::time::Duration;

use egui::accesskit::Role;
use egui::{
    Align, Context, Id, Key, Label, Layout, RichText, ScrollArea, Sense, TextEdit, Ui, UiBuilder,
    vec2,
};
use ilk_driver::process::ListedProcess;

use crate::command::Command;
use crate::process_dialog::ProcessDialog;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets::{self, buttons, modal, title};
use crate::worker::{Mail, Message};

/// Width of the dialog, and of its columns but the last, in points.
const WIDTH: f32 = 760.0;
const COLUMNS: [(&str, f32); 4] = [
    ("number", 64.0),
    ("owner", 110.0),
    ("threads", 60.0),
    ("started", 80.0),
];
/// Height of a row and of the list, in points.
const ROW: f32 = 18.0;
const HEIGHT: f32 = 380.0;

/// Reads the processes of this machine.
pub(crate) fn list(mail: &Mail) {
    mail.spawn("processes", move |mail| {
        let listed = ListedProcess::all();
        mail.send(Message::Processes(listed.map_err(Into::into)));
    });
}

/// Draws the list.
pub(crate) fn show(ctx: &Context, state: &mut State, mail: &Mail, commands: &mut Vec<Command>) {
    let Some(dialog) = &mut state.processes else {
        return;
    };
    let shown = modal(ctx, "processes").show(ctx, |ui| {
        ui.set_width(WIDTH);
        title(
            ui,
            match dialog.in_cache {
                true => "Choose a process for the code cache",
                false => "Choose a process",
            },
        );
        let is_entered = filter(ui, dialog);
        ui.add_space(space::SMALL);
        let first = || dialog.matching().first().map(|process| process.pid);
        let entered = is_entered.then(first).flatten();
        let chosen = rows(ui, dialog).or(entered);
        widgets::caption(
            ui,
            "Enter opens the first one. You need the right to trace it, as for a debugger.",
        );
        ui.add_space(space::MEDIUM);
        let closed = buttons(ui, |ui| {
            let closed = ui.button("Cancel").clicked();
            if ui.button("Read again").clicked() {
                dialog.listed = None;
                list(mail);
            }
            closed
        });
        (chosen, closed)
    });
    let (chosen, closed) = shown.inner;
    commands.extend(chosen.map(match dialog.in_cache {
        true => Command::OpenProcessInCache,
        false => Command::OpenProcess,
    }));
    if chosen.is_some() || closed || shown.should_close() {
        state.processes = None;
    }
}

/// Draws the filter; returns whether Enter was pressed there, which chooses the first process.
fn filter(ui: &mut Ui, dialog: &mut ProcessDialog) -> bool {
    let field = TextEdit::singleline(&mut dialog.filter)
        .id(Id::unique("process filter"))
        .hint_text("number, owner, or words of the command")
        .desired_width(f32::INFINITY);
    let field = widgets::named(ui.add(field), Role::TextInput, "Filter of processes");
    if !std::mem::replace(&mut dialog.focused, true) {
        field.request_focus();
    }
    field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter))
}

/// Draws the processes; returns the number of the one that was clicked.
fn rows(ui: &mut Ui, dialog: &ProcessDialog) -> Option<u32> {
    let tokens = Tokens::of(ui);
    match &dialog.listed {
        None => {
            ui.label("Reading the processes of this machine …");
            return None;
        }
        Some(Err(why)) => {
            ui.label(RichText::new(why).color(tokens.bad));
            return None;
        }
        Some(Ok(_)) => {}
    }
    let matching = dialog.matching();
    if matching.is_empty() {
        ui.label("No process matches the filter.");
        return None;
    }
    ui.horizontal(|ui| {
        for (name, width) in COLUMNS {
            cell(ui, width, RichText::new(name).small().color(tokens.weak));
        }
        ui.label(RichText::new("command").small().color(tokens.weak));
    });
    let mut chosen = None;
    let area = ScrollArea::vertical().max_height(HEIGHT).auto_shrink(false);
    area.show_rows(ui, ROW, matching.len(), |ui, range| {
        let first = range.start;
        for process in matching.iter().skip(first).take(range.len()) {
            if row(ui, process) {
                chosen = Some(process.pid);
            }
        }
    });
    chosen
}

/// Draws a process; returns whether it was clicked.
fn row(ui: &mut Ui, process: &ListedProcess) -> bool {
    let ListedProcess {
        pid,
        owner,
        command,
        threads,
        age,
    } = process;
    let cells = [
        pid.to_string(),
        owner.clone(),
        threads.to_string(),
        ago(*age),
    ];
    // All of the row is a button, as in other lists, not its command alone.
    let (rect, button) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    if button.hovered() || button.has_focus() {
        let shade = ui.visuals().widgets.hovered.weak_bg_fill;
        ui.painter().rect_filled(rect, space::CORNER, shade);
    }
    let inside = UiBuilder::new()
        .max_rect(rect)
        .layout(Layout::left_to_right(Align::Center));
    ui.scope_builder(inside, |ui| {
        for (words, (_, width)) in cells.into_iter().zip(COLUMNS) {
            cell(ui, width, RichText::new(words).small());
        }
        let words = RichText::new(command).font(code(text::SMALL));
        ui.add(Label::new(words).selectable(false).truncate());
    });
    let name = format!("process {pid}: {command}");
    widgets::named(button, Role::Button, &name).clicked()
}

fn cell(ui: &mut Ui, width: f32, words: RichText) {
    ui.allocate_ui_with_layout(
        vec2(width, ROW),
        Layout::left_to_right(Align::Center),
        |ui| {
            ui.set_min_width(width);
            ui.add(Label::new(words).selectable(false).truncate());
        },
    );
}

/// Returns the time since the start of a process in its largest unit.
fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_their_largest_unit() {
        let ago = |seconds| ago(Duration::from_secs(seconds));
        assert_eq!(
            [ago(59), ago(3599), ago(86_399), ago(86_400)],
            ["59 s ago", "59 min ago", "23 h ago", "1 d ago"]
        );
    }
}
