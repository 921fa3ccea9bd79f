//! Draws the calls.

use std::sync::atomic::Ordering;

use egui::accesskit::Role;
use egui::{
    Color32, Rect, RichText, ScrollArea, Sense, Stroke, StrokeKind, TextEdit, Ui, pos2, vec2,
};
use gilk_samples::calls::{ROOT, is_traced};

use super::shape::{CallPlace, places};
use super::{CallRun, CallsKey};
use crate::command::Command;
use crate::desk::{Pane, filter_field};
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::timeline::scale::length;
use crate::{object_names, widgets};

/// Height of a row in points.
const ROW: f32 = 20.0;
/// Width below which a call is not drawn, in points.
const NARROW: f32 = 0.5;
/// Width from which a call can be clicked, in points.
const CLICKABLE: f32 = 3.0;
/// Width from which a call has its name, in points.
const NAMED: f32 = 24.0;
/// Change of the share of the time that has the full colour.
const FULL: f64 = 0.2;

/// Draws the pane's header, next to its tab.
pub(crate) fn header(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let weak = Tokens::of(ui).weak;
    let note = |ui: &mut Ui, words: String| {
        ui.add(egui::Label::new(RichText::new(words).small().color(weak)).truncate());
    };
    let view = &mut state.call_tree;
    if let Some(request) = &view.requested {
        if ui.button("Stop").clicked() {
            request.stop.stop();
        }
        let samples = request.samples.load(Ordering::Relaxed);
        note(ui, format!("{} samples read", widgets::grouped(samples)));
        return;
    }
    let Some(run) = view.run() else {
        return;
    };
    let words = match (view.filter.trim(), run.vanished()) {
        ("", None) => "click a call to zoom".to_owned(),
        ("", Some(0)) => "share of the time against the earlier recording".to_owned(),
        ("", Some(vanished)) => format!(
            "share of the time against the earlier recording, which has {} more",
            widgets::counted(vanished, "call")
        ),
        (wanted, _) => {
            let (share, count) = run.found(wanted);
            let calls = widgets::counted(count, "call");
            format!("{calls} marked, {:.2} % of the time", 100.0 * share)
        }
    };
    let zoomed = view.zoomed.is_some();
    widgets::button(ui, "Export…", Command::ExportRecording, true, commands);
    if zoomed && ui.button("All calls").clicked() {
        view.zoomed = None;
    }
    note(ui, words);
}

/// Returns the contents that the pane should have now; `None` without a finished recording of calls.
pub(crate) fn wanted(state: &State) -> Option<CallsKey> {
    let record = state.timeline.record.as_ref()?;
    if record.now.is_some() || !is_traced(&record.metadata) {
        return None;
    }
    let comparison = state.statistics.comparison.as_ref();
    Some(CallsKey {
        recording: state.timeline.opened(),
        path: record.path.clone()?,
        earlier: comparison.map(|runs| runs.before.clone()),
    })
}

/// Draws the pane.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    if state.call_tree.requested.is_some() {
        widgets::empty(
            ui,
            "Reading the calls",
            "The recording's call traces are being read.",
        );
        ui.ctx()
            .request_repaint_after(std::time::Duration::from_millis(100));
        return;
    }
    let Some(key) = wanted(state) else {
        nothing(ui, state, commands);
        return;
    };
    if !state.call_tree.answers(&key) {
        return;
    }
    if let Some(error) = state.call_tree.error() {
        let (title, words) = ("The calls could not be read", error.to_string());
        widgets::empty(ui, title, &words);
        ui.vertical_centered(|ui| {
            if ui.button("Read again").clicked() {
                state.call_tree.forget();
            }
        });
        return;
    }
    let tokens = Tokens::of(ui);
    let damaged = state.call_tree.run().map_or(0, |run| run.damaged);
    if damaged > 0 {
        let words = format!(
            "{} of the recording could not be read; their calls are missing.",
            widgets::counted(damaged, "batch")
        );
        ui.label(RichText::new(words).small().color(tokens.warning));
    }
    widgets::inset(ui, |ui| {
        let field = TextEdit::singleline(&mut state.call_tree.filter)
            .id(filter_field(Pane::Calls))
            .hint_text("Mark: function")
            .desired_width(f32::INFINITY);
        widgets::named(ui.add(field), Role::TextInput, "Mark calls");
    });
    ScrollArea::vertical()
        .id_salt("calls")
        .auto_shrink(false)
        .show(ui, |ui| icicle(ui, state, commands));
}

/// Says why there are no calls, and what to do.
fn nothing(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let record = state.timeline.record.as_ref();
    let (title, words) = match record {
        None => (
            "No calls yet",
            "Open a recording of call-trace, or place call-trace on functions and run the session.",
        ),
        Some(record) if record.now.is_some() => (
            "The session is running",
            "The calls are read from the recording when the run has ended.",
        ),
        Some(_) => (
            "No call traces in this recording",
            "Place call-trace on the functions of interest, and run the session.",
        ),
    };
    let open = (Command::OpenRecording, true);
    widgets::empty_with(ui, (title, words), open, commands);
}

fn icicle(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let marked = state.call_tree.filter.trim().to_lowercase();
    let top = state.call_tree.top();
    let Some(run) = state.call_tree.run() else {
        return;
    };
    let width = ui.available_width();
    let all = places(&run.tree, top, f64::from(NARROW / width.max(1.0)));
    let rows = all.iter().map(|place| place.row + 1).max().unwrap_or(0);
    let (area, _) = ui.allocate_exact_size(vec2(width, rows as f32 * ROW), Sense::hover());
    let mut zoom = None;
    for place in &all {
        let left = area.left() + place.from as f32 * width;
        let right = area.left() + place.to as f32 * width;
        let y = area.top() + place.row as f32 * ROW;
        let rect = Rect::from_min_max(pos2(left, y), pos2(right, y + ROW - 1.0));
        if !ui.is_rect_visible(rect) {
            continue;
        }
        if call(ui, rect, run, place, &marked, commands) {
            zoom = Some(place.call);
        }
    }
    if let Some(call) = zoom {
        state.call_tree.zoomed = (call != ROOT).then_some(call);
    }
}

/// Draws a call. Returns whether it was clicked.
fn call(
    ui: &mut Ui,
    rect: Rect,
    run: &CallRun,
    place: &CallPlace,
    marked: &str,
    commands: &mut Vec<Command>,
) -> bool {
    let tokens = Tokens::of(ui);
    let node = &run.tree[place.call];
    let share = run.tree.share(place.call);
    let is_marked =
        !marked.is_empty() && place.call != ROOT && node.name.to_lowercase().contains(marked);
    let fill = match run.earlier_share(place.call) {
        Some(earlier) => changed(tokens, share - earlier),
        None => tokens.card,
    };
    let inner = Rect::from_min_max(
        rect.min,
        pos2((rect.right() - 1.0).max(rect.left() + 0.5), rect.bottom()),
    );
    ui.painter().rect_filled(inner, 2.0, fill);
    if is_marked {
        let outline = Stroke::new(2.0, tokens.accent);
        ui.painter()
            .rect_stroke(inner, 2.0, outline, StrokeKind::Inside);
    }
    if rect.width() >= NAMED {
        let color = if is_marked || marked.is_empty() {
            tokens.text
        } else {
            tokens.weak
        };
        let room = rect.width() - space::SMALL;
        let font = code(text::SMALL);
        let name = object_names::laid_out(ui.painter(), &node.name, font, color, room);
        let at = pos2(
            rect.left() + space::TIGHT,
            rect.center().y - name.size().y / 2.0,
        );
        ui.painter().galley(at, name, color);
    }
    if rect.width() < CLICKABLE {
        return false;
    }
    let id = ui.scope_id().with(("call", place.call));
    let response = ui.interact(rect, id, Sense::click());
    if response.hovered() || response.has_focus() {
        let outline = Stroke::new(1.0, tokens.strong);
        ui.painter()
            .rect_stroke(inner, 2.0, outline, StrokeKind::Inside);
    }
    let words = described(run, place);
    let label = format!("call {}", words.replace('\n', ", "));
    let response = widgets::named(response, Role::TreeItem, &label).on_hover_text(&words);
    response.context_menu(|ui| {
        let open = Command::OpenNamed(node.name.to_string(), None);
        if ui.button("Open function").clicked() {
            commands.push(open);
            ui.close();
        }
        if ui.button("Copy").clicked() {
            let what = format!("the call of {}", node.name);
            commands.push(Command::Copy(words.as_str().into(), what));
            ui.close();
        }
    });
    response.clicked()
}

/// Describes a call: its name, times and number, and its change.
fn described(run: &CallRun, place: &CallPlace) -> String {
    let node = &run.tree[place.call];
    let seconds = |nanoseconds: u64| length(nanoseconds as f64 / 1e9);
    let share = run.tree.share(place.call);
    let mut words = format!(
        "{}\n{} ({:.2} %)",
        node.name,
        seconds(node.total_ns),
        100.0 * share
    );
    if place.call != ROOT {
        let own = seconds(node.own_ns);
        words += &format!(
            ", {own} in itself\n{}",
            widgets::counted(node.count as usize, "call")
        );
    }
    if let Some(earlier) = run.earlier_share(place.call) {
        words += &format!(
            "\n{:.2} % of the time in the earlier recording",
            100.0 * earlier
        );
    }
    words
}

/// Returns the colour of a change of the share of the time: more is a warning, less is good.
fn changed(tokens: &Tokens, by: f64) -> Color32 {
    let far = (by.abs() / FULL).min(1.0).sqrt() as f32;
    let to = if by > 0.0 {
        tokens.warning
    } else {
        tokens.good
    };
    tokens.card.lerp_to_gamma(to, 0.6 * far)
}
