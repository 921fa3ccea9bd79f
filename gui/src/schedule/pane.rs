//! Draws the schedule and handles its input.

use std::sync::Arc;

use egui::accesskit::Role;
use egui::{Color32, Id, Rangef, Rect, RichText, ScrollArea, Sense, Stroke, Ui, pos2, vec2};
use gilk_engine::cfg::BlockIndex;

use super::bar::bar;
use super::ruler;
use crate::command::Command;
use crate::placement_rows::{Row, label, paths_label};
use crate::seconds::{SHORTEST, refused_launch, refused_splash, seconds};
use crate::session_panel::next_step;
use crate::state::State;
use crate::theme::{Tokens, code, prose, space, text};
use crate::timeline::Range;
use crate::timeline::scale::Scale;
use crate::{object_names, widgets};

/// Width of the column with names and times.
const NAMES: f32 = 370.0;
/// Height of a row.
const ROW: f32 = 27.0;

/// Draws the pane's header, next to its tab.
pub(crate) fn header(ui: &mut Ui, state: &State, _commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let session = state.document.session();
    let batches = match &state.plan.outcome {
        Some(Ok(verified)) => verified.plan().batches.len(),
        _ => 0,
    };
    let words = format!(
        "{} in {} s, {}; drag bars or their ends; hold Alt to disable snapping",
        widgets::counted(session.placements.len(), "instrument"),
        session.duration,
        if batches == 1 {
            "1 batch".to_owned()
        } else {
            format!("{batches} batches")
        }
    );
    ui.add(egui::Label::new(RichText::new(words).small().color(tokens.weak)).truncate());
}

/// Draws the pane.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    if state.document.session().placements.is_empty() {
        let words = "Add an instrument to a block to schedule it.";
        let next = next_step(state);
        widgets::empty_with(ui, ("Nothing to schedule", words), next, commands);
        return;
    }
    let rect = ui.available_rect_before_wrap();
    let names = NAMES.min(rect.width() * 0.5);
    let bar = Rect::from_min_max(
        pos2(rect.left() + names, rect.top()),
        pos2(rect.right() - 8.0, rect.top() + ruler::HEIGHT),
    );
    let plot = Rect::from_min_max(
        pos2(bar.left(), bar.bottom()),
        pos2(bar.right(), rect.bottom()),
    );
    ui.painter().rect_filled(plot, 0.0, tokens.canvas);
    let duration = state.document.session().duration;
    let scale = Scale {
        range: Range {
            start: -0.02 * duration,
            end: 1.02 * duration,
        },
        x: Rangef::new(plot.left(), plot.right()),
    };
    ruler::show(ui, state, bar, plot, &scale);
    let (rows, is_current) = state.schedule.rows.list(&state.document, ui.ctx());
    let below = Rect::from_min_max(pos2(rect.left(), plot.top()), rect.max);
    ui.scope_builder(egui::UiBuilder::new().max_rect(below), |ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        if !is_current {
            ui.disable();
        }
        ScrollArea::vertical()
            .id_salt("schedule")
            .auto_shrink(false)
            .show_rows(ui, ROW, rows.len(), |ui, range| {
                for row in rows.get(range).unwrap_or_default() {
                    let size = vec2(ui.available_width(), ROW);
                    let (line, _) = ui.allocate_exact_size(size, Sense::hover());
                    let name = Rect::from_min_max(line.min, pos2(plot.left(), line.bottom()));
                    let lane = Rect::from_min_max(
                        pos2(plot.left(), line.top()),
                        pos2(plot.right(), line.bottom()),
                    );
                    match row {
                        Row::Group(function, places) => {
                            group(ui, state, function, places, name, lane, &scale);
                        }
                        Row::Placement(place) | Row::Alone(place) => {
                            let is_alone = matches!(row, Row::Alone(_));
                            let of = (*place, is_alone);
                            one(ui, state, of, name, lane, &scale, commands);
                        }
                        Row::Paths(function, places) => {
                            paths(ui, state, function, places, name, lane, &scale);
                        }
                    }
                    ui.painter().hline(
                        line.x_range(),
                        line.bottom() - 0.5,
                        Stroke::new(1.0, tokens.grid),
                    );
                }
            });
    });
    running(ui, state, plot, &scale);
}

/// Draws a line at the current time of the run.
fn running(ui: &Ui, state: &State, plot: Rect, scale: &Scale) {
    let tokens = Tokens::of(ui);
    if let Some(active) = state
        .run
        .active
        .as_ref()
        .filter(|active| active.started.is_some())
    {
        let x = scale.x(active.elapsed());
        ui.painter()
            .vline(x, plot.y_range(), Stroke::new(2.0, tokens.good));
        let mark = Rect::from_center_size(pos2(x, plot.top()), vec2(8.0, 8.0));
        let response = ui.interact(mark, Id::unique("schedule now"), Sense::hover());
        widgets::named(response, Role::Label, "current time");
    }
}

fn group(
    ui: &mut Ui,
    state: &mut State,
    function: &Arc<str>,
    places: &[usize],
    name: Rect,
    lane: Rect,
    scale: &Scale,
) {
    let tokens = Tokens::of(ui);
    let folded = state.schedule.rows.is_folded(function);
    ui.painter().rect_filled(name, 0.0, tokens.bar);
    let id = Id::unique("schedule group").with(function);
    let response = ui.interact(name, id, Sense::click());
    let verb = if folded { "unfold" } else { "fold" };
    let response = widgets::named(response, Role::Button, &format!("{verb} {function}"));
    if response.clicked() {
        state.schedule.rows.fold(function);
    }
    let at = pos2(name.left() + 16.0, name.center().y);
    widgets::triangle(ui.painter(), at, !folded, tokens.text);
    let font = code(text::CODE);
    let room = name.width() - 40.0;
    let count = format!("   {}", places.len());
    let of_count = ui
        .painter()
        .layout_no_wrap(count.clone(), font.clone(), tokens.strong);
    let left = room - of_count.size().x;
    let words = object_names::fitting(ui.painter(), function, &font, left) + &*count;
    let galley = widgets::truncated(ui.painter(), words.into_owned(), font, tokens.strong, room);
    let at = pos2(name.left() + 28.0, name.center().y - galley.size().y / 2.0);
    ui.painter().galley(at, galley, tokens.strong);
    let label = format!("bar of all of {function}");
    let key = 1 << 40 | places.first().copied().unwrap_or(0) as u64;
    let lane = lane.shrink2(vec2(0.0, 9.0));
    let extent = state.document.session().placements.extent_of(function);
    let of = (key, places, extent);
    bar(ui, state, of, lane, scale, tokens.weak, &label);
}

/// Draws the name of a row below its group's: a dot and words, with so much space left at the right.
fn name_in_group(ui: &Ui, name: Rect, dot: Color32, words: String, right: f32) {
    let color = Tokens::of(ui).text;
    let middle = name.center().y;
    ui.painter()
        .circle_filled(pos2(name.left() + 32.0, middle), 4.0, dot);
    let room = name.width() - 44.0 - right;
    let galley = widgets::truncated(ui.painter(), words, prose(text::SMALL), color, room);
    let at = pos2(name.left() + 42.0, middle - galley.size().y / 2.0);
    ui.painter().galley(at, galley, color);
}

/// Draws the instruments that count a function's paths, which move together.
fn paths(
    ui: &mut Ui,
    state: &mut State,
    function: &Arc<str>,
    places: &[usize],
    name: Rect,
    lane: Rect,
    scale: &Scale,
) {
    let tokens = Tokens::of(ui);
    name_in_group(ui, name, tokens.accent, paths_label(places.len()), 0.0);
    let label = format!("bar of paths of {function}");
    let key = 1 << 41 | places.first().copied().unwrap_or(0) as u64;
    let lane = lane.shrink2(vec2(0.0, 4.0));
    let extent = state.document.session().placements.extent(places);
    let of = (key, places, extent);
    bar(ui, state, of, lane, scale, tokens.accent, &label);
}

fn one(
    ui: &mut Ui,
    state: &mut State,
    (place, is_alone): (usize, bool),
    name: Rect,
    lane: Rect,
    scale: &Scale,
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    let Some(placement) = state.document.session().placements.get(place).cloned() else {
        return;
    };
    let label = label(&placement);
    let response = ui.interact(name, Id::unique("schedule row").with(place), Sense::click());
    let response = widgets::named(response, Role::Button, &format!("go to {label}"));
    if response.hovered() {
        ui.painter().rect_filled(name, 0.0, tokens.hover);
    }
    if response.clicked() {
        commands.push(Command::OpenNamed(
            placement.function.to_string(),
            Some(BlockIndex(placement.block)),
        ));
    }
    let color = tokens.instrument(&placement.instrument);
    let function = if is_alone {
        format!("{}  ", placement.function)
    } else {
        String::new()
    };
    let words = format!(
        "{function}{}  {} block {}",
        placement.instrument, placement.hook, placement.block
    );
    let times = 152.0;
    name_in_group(ui, name, color, words, times + space::SMALL);
    let area = Rect::from_min_max(
        pos2(name.right() - times, name.top() + 2.0),
        name.max - vec2(6.0, 2.0),
    );
    typed(ui, state, place, area, &label);
    let label = format!("bar of {label}");
    let extent = Some((placement.launch, placement.splash));
    bar(
        ui,
        state,
        (place as u64, &[place], extent),
        lane.shrink2(vec2(0.0, 4.0)),
        scale,
        color,
        &label,
    );
}

/// Draws the fields for launch and splash.
fn typed(ui: &mut Ui, state: &mut State, place: usize, area: Rect, label: &str) {
    let duration = state.document.session().duration;
    let Some(one) = state.document.session().placements.get(place) else {
        return;
    };
    let (mut launch, mut splash) = (one.launch, one.splash);
    let layout = egui::Layout::right_to_left(egui::Align::Center);
    let builder = egui::UiBuilder::new()
        .max_rect(area)
        .layout(layout)
        .id_salt(("times", place));
    ui.scope_builder(builder, |ui| {
        ui.spacing_mut().item_spacing.x = space::TIGHT;
        ui.spacing_mut().button_padding = vec2(space::TIGHT, space::HAIR);
        let after = (launch + SHORTEST).min(duration);
        if seconds(
            ui,
            &mut splash,
            after..=duration,
            &format!("splash of bar: {label}"),
            |splash| refused_splash(splash, launch, duration),
        ) {
            let times = [(place, launch, splash)];
            state
                .document
                .edit_times(&format!("splash {place}"), &times);
        }
        let before = (splash - SHORTEST).max(0.0);
        if seconds(
            ui,
            &mut launch,
            0.0..=before,
            &format!("launch of bar: {label}"),
            |launch| refused_launch(launch, splash),
        ) {
            let times = [(place, launch, splash)];
            state
                .document
                .edit_times(&format!("launch {place}"), &times);
        }
    });
}
