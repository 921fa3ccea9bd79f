//! The strip of the search among samples: its field, its answer, and the found sample.

use egui::accesskit::Role;
use egui::{Id, Key, Modifiers, Rect, RichText, Stroke, TextEdit, Ui, UiBuilder, pos2, vec2};
use gilk_samples::index::Owner;

use super::Record;
use super::hover;
use super::list::LaneList;
use super::query::Query;
use super::scale::Scale;
use super::search::{Found, SearchResult, search};
use super::state::Timeline;
use crate::command::Command;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Maximum number of lanes that are searched at a time.
const LANES: usize = 1000;
/// Width of the field in points.
const FIELD: f32 = 260.0;

/// Draws the strip above the lanes while the search is open, and returns the rest of `rect`.
pub(super) fn show(
    ui: &mut Ui,
    timeline: &mut Timeline,
    rect: Rect,
    commands: &mut Vec<Command>,
) -> Rect {
    let Some(mut find) = timeline.find.take() else {
        return rect;
    };
    let tokens = Tokens::of(ui);
    let below = rect.with_min_y(rect.top() + space::STRIP);
    let strip = Rect::from_min_max(rect.min, pos2(rect.right(), below.top()));
    let inside = UiBuilder::new()
        .max_rect(strip.shrink2(vec2(space::PANEL, space::TIGHT)))
        .layout(egui::Layout::left_to_right(egui::Align::Center))
        .id_salt("find samples");
    let id = Id::unique("find samples");
    let focused = ui.memory(|memory| memory.has_focus(id));
    let pressed =
        |modifiers| focused && ui.input_mut(|input| input.consume_key(modifiers, Key::Enter));
    if pressed(Modifiers::SHIFT) {
        commands.push(Command::PreviousSample);
    } else if pressed(Modifiers::NONE) {
        commands.push(Command::NextSample);
    }
    let mut open = true;
    ui.scope_builder(inside, |ui| {
        let width = FIELD.min(ui.available_width() / 2.0);
        let field = TextEdit::singleline(&mut find.text)
            .id(id)
            .font(code(text::CODE))
            .hint_text("> 100 us  cpu 1  thread make  after 2 s")
            .desired_width(width);
        let field = widgets::named(ui.add(field), Role::TextInput, "Find samples");
        if !std::mem::replace(&mut find.was_focused, true) {
            field.request_focus();
        }
        if field.changed() {
            find.answer = None;
        }
        widgets::button(ui, "Previous", Command::PreviousSample, true, commands);
        widgets::button(ui, "Next", Command::NextSample, true, commands);
        open = !widgets::cross(ui, "Close search").clicked();
        if let Some((words, is_error)) = &find.answer {
            let color = if *is_error { tokens.bad } else { tokens.text };
            let label = RichText::new(words).small().color(color);
            let shown = ui.add(egui::Label::new(label).truncate());
            widgets::named(shown, Role::Label, words);
        }
    });
    if open {
        timeline.find = Some(find);
    } else {
        timeline.found = None;
    }
    below
}

/// Goes to the next or previous matching sample, if a command has requested it: of the selected lane,
/// or of all lanes shown.
pub(super) fn step(timeline: &mut Timeline, record: &Record, list: &LaneList) {
    let Some(back) = timeline.step.take() else {
        return;
    };
    let find = timeline.find.get_or_insert_default();
    find.was_focused = true;
    let query = match Query::of(&find.text) {
        Ok(query) => query,
        Err(why) => {
            find.answer = Some((why, true));
            return;
        }
    };
    let all: Vec<(usize, Owner)> = list.lanes().collect();
    let chosen = timeline.chosen;
    let of_chosen = |lane: usize| {
        let info = record.lanes().get(lane);
        info.is_some_and(|info| Some(info.id) == chosen)
    };
    let own: Vec<_> = all
        .iter()
        .copied()
        .filter(|(lane, _)| of_chosen(*lane))
        .collect();
    let lanes = if own.is_empty() { all } else { own };
    if lanes.len() > LANES {
        let words = format!(
            "{} are too many to search. Select one, or filter them.",
            widgets::counted(lanes.len(), "lane")
        );
        find.answer = Some((words, true));
        return;
    }
    let from = timeline.found.map(|found| found.point.tsc);
    let (words, is_error) = match search(record, &lanes, &query, from, back) {
        SearchResult::Found(found) => (timeline.go_to(record, found), false),
        SearchResult::Nothing if from.is_some() => {
            let way = if back { "earlier" } else { "later" };
            (format!("No {way} sample matches."), true)
        }
        SearchResult::Nothing => ("No sample matches.".to_owned(), true),
        SearchResult::GivenUp => (
            "The search took too long. Narrow the time with \u{201c}after\u{201d} and \u{201c}before\u{201d}.".to_owned(),
            true,
        ),
    };
    if let Some(find) = &mut timeline.find {
        find.answer = Some((words, is_error));
    }
}

impl Timeline {
    /// Shows a sample, and describes it.
    fn go_to(&mut self, record: &Record, found: Found) -> String {
        let at = record.metadata.clock.seconds(found.point.tsc);
        if !(self.range.start..=self.range.end).contains(&at) {
            let middle = (self.range.start + self.range.end) / 2.0;
            self.range.pan(at - middle, record.duration);
        }
        self.follow = false;
        self.found = Some(found);
        let Some(info) = record.lanes().get(found.lane) else {
            return String::new();
        };
        self.chosen = Some(info.id);
        self.reveal_chosen = true;
        // A nanosecond per point, so that the time is exact.
        let scale = Scale {
            range: super::Range {
                start: at,
                end: at + 1e-6,
            },
            x: egui::Rangef::new(0.0, 1000.0),
        };
        let index = record.index.look();
        let lines = hover::one(info, (record, &index), found.point, found.owner, &scale);
        format!("{}: {}", info.label, lines.join(", "))
    }
}

/// Marks the found sample in its lane.
pub(super) fn mark(ui: &Ui, painter: &egui::Painter, row: Rect, x: f32) {
    if row.x_range().contains(x) {
        let color = Tokens::of(ui).accent;
        painter.vline(x, row.y_range(), Stroke::new(2.0, color));
        let at = pos2(x, row.top() + space::TIGHT);
        painter.circle_filled(at, space::TIGHT, color);
    }
}
