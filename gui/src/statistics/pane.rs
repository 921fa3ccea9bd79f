//! Draws the table of statistics.

use egui::accesskit::Role;
use egui::{Rect, RichText, ScrollArea, Sense, TextEdit, Ui, pos2, vec2};
use gilk_engine::InstrumentId;
use gilk_engine::cfg::BlockIndex;
use gilk_samples::Meaning;
use gilk_samples::chart::scale;
use gilk_samples::metadata::Clock;

use super::cells::{cells, draw_cell, draw_function};
use super::rows::StatisticsRow;
use super::texts::TextCounts;
use super::{Column, Statistics, StatisticsKey, comparison_view, detail};
use crate::availability;
use crate::command::Command;
use crate::desk::{Pane, filter_field};
use crate::state::State;
use crate::theme::{Tokens, space};
use crate::timeline::scale::{length, tick};
use crate::widgets;

/// Least and greatest width of a column of numbers in points.
const NUMBER: (f32, f32) = (70.0, 82.0);
/// Least and greatest width of the instrument's column in points.
const INSTRUMENT: (f32, f32) = (100.0, 130.0);
/// Least width of the function's column in points.
const FUNCTION: f32 = 150.0;

/// Draws the pane's header, next to its tab.
pub(crate) fn header(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    if let Some(runs) = &state.statistics.comparison {
        comparison_view::header(ui, runs, commands);
        return;
    }
    let Some(clock) = state.timeline.record.as_ref().map(|one| one.metadata.clock) else {
        return;
    };
    let table = &state.statistics;
    let compare = Command::CompareRecording;
    let possible = availability::possible(state, &compare);
    widgets::button(ui, "Compare…", compare, possible, commands);
    for (label, separator) in [("Copy CSV", ','), ("Copy text", '\t')] {
        if ui.button(label).clicked() {
            let rows = table.shown();
            let what = widgets::counted(rows.len(), "row");
            commands.push(Command::Copy(copied(&rows, clock, separator).into(), what));
        }
    }
    let words = match state.timeline.span() {
        Some((a, b)) => format!("A to B: {}", length(b - a)),
        None => "whole recording; Shift and drag on the timeline selects a range".to_owned(),
    };
    let weak = Tokens::of(ui).weak;
    ui.add(egui::Label::new(RichText::new(words).small().color(weak)).truncate());
}

/// Returns the contents that the table should have now, if there is a recording.
pub(crate) fn wanted(state: &State) -> Option<StatisticsKey> {
    let record = state.timeline.record.as_ref()?;
    let clock = record.metadata.clock;
    let between = state.timeline.span().map(|(a, b)| {
        let from = tick(clock, a);
        (from, tick(clock, b).max(from + 1))
    });
    Some(StatisticsKey {
        recording: state.timeline.opened(),
        between,
        samples: record.index.look().samples(),
        names: record.named.stacks.frames.len() + record.named.symbols.len(),
    })
}

/// Draws the table.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let table = &mut state.statistics;
    if let Some(runs) = &mut table.comparison {
        comparison_view::show(ui, runs, &mut table.filter);
        return;
    }
    let Some(record) = &state.timeline.record else {
        let words = "Run the session or open a recording to see a row per instrument and function.";
        let open = (Command::OpenRecording, true);
        widgets::empty_with(ui, ("No samples yet", words), open, commands);
        return;
    };
    let (clock, lost) = (record.metadata.clock, record.lost);
    if lost > 0 {
        let words = format!(
            "{} hits were lost in the whole run. The rows count what arrived.",
            widgets::grouped(lost)
        );
        widgets::inset(ui, |ui| {
            ui.label(RichText::new(words).small().color(tokens.warning))
        });
    }
    let table = &mut state.statistics;
    widgets::inset(ui, |ui| {
        let field = TextEdit::singleline(&mut table.filter)
            .id(filter_field(Pane::Statistics))
            .hint_text("Filter: function or instrument")
            .desired_width(f32::INFINITY);
        widgets::named(ui.add(field), Role::TextInput, "Filter statistics");
    });
    let rect = ui.available_rect_before_wrap();
    let mut list = rect;
    if table.chosen().is_some() && rect.width() > 2.0 * detail::WIDTH {
        list.max.x -= detail::WIDTH;
        let panel = Rect::from_min_max(pos2(list.max.x, rect.top()), rect.max);
        let source = source(state);
        let inside = egui::UiBuilder::new().max_rect(panel).id_salt("detail");
        if let Some(row) = state.statistics.chosen() {
            ui.scope_builder(inside, |ui| detail::show(ui, row, clock, source, commands));
        }
    }
    let inside = egui::UiBuilder::new().max_rect(list).id_salt("list");
    ui.scope_builder(inside, |ui| rows(ui, state, clock, commands));
}

/// Returns the command that opens the source of the selected row's function, if it is open and has
/// source lines.
fn source(state: &State) -> Option<Command> {
    let row = state.statistics.chosen()?;
    let scene = state.graph.scene.as_ref()?;
    let line = state.lines.sources.as_ref()?.line(scene.cfg.span.start)?;
    (scene.name == row.function).then_some(Command::OpenSource(line))
}

fn rows(ui: &mut Ui, state: &mut State, clock: Clock, commands: &mut Vec<Command>) {
    let table = &mut state.statistics;
    let widths = widths(ui.available_width());
    ui.spacing_mut().item_spacing.y = 0.0;
    ScrollArea::horizontal()
        .id_salt("statistics")
        .auto_shrink(false)
        .show(ui, |ui| {
            titles(ui, table, &widths);
            let shown = table.listed();
            let mut chosen = None;
            ScrollArea::vertical()
                .id_salt("statistics rows")
                .auto_shrink(false)
                .show_rows(ui, space::ROW, shown.len(), |ui, range| {
                    let places = shown.get(range).unwrap_or_default().iter();
                    for &place in places {
                        let Some(row) = table.rows.get(place) else {
                            continue;
                        };
                        let selected = table.selected_place == Some(place);
                        if line(ui, row, &widths, clock, selected) {
                            chosen = Some(place);
                        }
                    }
                });
            if let Some(place) = chosen {
                table.select(place);
                let row = table.chosen();
                if let Some(&id) = row.and_then(|row| row.lanes.first()) {
                    go_to(&mut state.timeline, id, commands);
                }
            }
        });
}

/// Selects a lane on the timeline, and opens its block.
fn go_to(timeline: &mut crate::timeline::Timeline, id: u64, commands: &mut Vec<Command>) {
    timeline.chosen = Some(id);
    let record = timeline.record.as_ref();
    let place = InstrumentId::unpack(id).and_then(|id| {
        let mut functions = record?.metadata.functions.iter();
        let function = functions.find(|function| function.major == id.major)?;
        Some((function.name.clone(), BlockIndex(id.block)))
    });
    commands.extend(place.map(|(name, block)| Command::OpenNamed(name, Some(block))));
}

/// Returns the widths of the columns: the function has what the others leave. Next to the details of a
/// row all columns are narrower, so that none is out of view.
fn widths(room: f32) -> [f32; Column::ALL.len()] {
    let numbers = (Column::ALL.len() - 2) as f32;
    let room = room - 2.0 * space::PANEL;
    let number = ((room - FUNCTION - INSTRUMENT.0) / numbers).clamp(NUMBER.0, NUMBER.1);
    let rest = room - numbers * number;
    let instrument = (rest - FUNCTION).clamp(INSTRUMENT.0, INSTRUMENT.1);
    Column::ALL.map(|(column, _)| match column {
        Column::Function => (rest - instrument).max(FUNCTION),
        Column::Instrument => instrument,
        _ => number,
    })
}

fn titles(ui: &mut Ui, table: &mut Statistics, widths: &[f32]) {
    let tokens = Tokens::of(ui);
    let width = widths.iter().sum::<f32>() + 2.0 * space::PANEL;
    let (rect, _) = ui.allocate_exact_size(vec2(width, space::ROW), Sense::hover());
    ui.painter().rect_filled(rect, 0.0, tokens.bar);
    for ((column, title), cell) in Column::ALL.into_iter().zip(cells(rect, widths)) {
        let id = egui::Id::unique("statistics column").with(title);
        let response = ui.interact(cell, id, Sense::click());
        let chosen = table.column == column;
        let name = format!("sort by {title}");
        let response = widgets::chosen(response, Role::ColumnHeader, chosen, &name);
        let color = if chosen || response.hovered() {
            tokens.strong
        } else {
            tokens.weak
        };
        draw(ui, cell, column, title.to_owned(), color, false);
        if chosen {
            // A line above the smallest values or below the largest, whichever are first.
            let y = if table.ascending {
                cell.top() + 1.0
            } else {
                cell.bottom() - 1.0
            };
            let line = egui::Stroke::new(2.0, tokens.accent);
            ui.painter()
                .hline(cell.shrink(space::TIGHT).x_range(), y, line);
        }
        if response.clicked() {
            table.ascending = chosen && !table.ascending;
            table.column = column;
        }
    }
}

/// Draws a row. Returns whether it was clicked.
fn line(ui: &mut Ui, row: &StatisticsRow, widths: &[f32], clock: Clock, selected: bool) -> bool {
    let tokens = Tokens::of(ui);
    let width = widths.iter().sum::<f32>() + 2.0 * space::PANEL;
    let (rect, response) = ui.allocate_exact_size(vec2(width, space::ROW), Sense::click());
    let mut words = format!(
        "{} {}: {}",
        row.function,
        row.instrument,
        widgets::grouped(row.count)
    );
    if let Some(texts) = &row.texts {
        words += &format!(", {}", texts.line());
    }
    let response = widgets::chosen(response, Role::Row, selected, &words);
    if selected || response.hovered() {
        let fill = if selected {
            tokens.accent_fill
        } else {
            tokens.hover
        };
        ui.painter().rect_filled(rect, 0.0, fill);
    }
    for ((column, _), cell) in Column::ALL.into_iter().zip(cells(rect, widths)) {
        let color = if column == Column::Instrument {
            tokens.weak
        } else {
            tokens.text
        };
        draw(ui, cell, column, cell_text(row, column, clock), color, true);
    }
    if let Some(texts) = &row.texts {
        // In place of the numbers that they do not have.
        let cells = Column::ALL.into_iter().zip(cells(rect, widths));
        let wide = cells.filter(|((column, _), _)| column.is_of_values());
        if let Some(cell) = wide.map(|(_, cell)| cell).reduce(Rect::union) {
            let cell = cell.with_min_x(cell.left() + space::PANEL);
            draw_cell(ui, cell, true, texts.line(), tokens.weak, true);
        }
    }
    let lanes = widgets::counted(row.lanes.len(), "lane");
    let hint = format!(
        "{} · {} · {lanes}; click to go to the block",
        row.function, row.instrument
    );
    response.on_hover_text(hint).clicked()
}

fn draw(ui: &Ui, cell: Rect, column: Column, words: String, color: egui::Color32, numbers: bool) {
    if column == Column::Function && numbers {
        draw_function(ui, cell, &words, color);
        return;
    }
    let name = matches!(column, Column::Function | Column::Instrument);
    draw_cell(ui, cell, name, words, color, numbers);
}

/// Formats a cell for people.
fn cell_text(row: &StatisticsRow, column: Column, clock: Clock) -> String {
    match (column, column.number(row)) {
        (Column::Function, _) => row.function.clone(),
        (Column::Instrument, _) => row.instrument.clone(),
        (_, None) => String::new(),
        (Column::Count, _) => widgets::grouped(row.count),
        (Column::Rate, Some(rate)) if rate < 10.0 => format!("{rate:.2}"),
        (Column::Rate, Some(rate)) => widgets::grouped(rate.round() as u64),
        (Column::Share, Some(share)) => format!("{:.2} %", 100.0 * share),
        (_, Some(value)) if row.meaning == Meaning::Duration => {
            length(value / clock.hz.max(1) as f64)
        }
        // As in the other columns, without the unit.
        (Column::Mean, Some(mean)) => scale::mean(mean, "", &clock),
        (_, Some(value)) => widgets::grouped(value.round() as u64),
    }
}

/// Returns the table as text: names and plain numbers, durations in nanoseconds.
fn copied(rows: &[&StatisticsRow], clock: Clock, separator: char) -> String {
    let quoted = |text: &str| match text.contains([separator, '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let join = |cells: Vec<String>| {
        cells
            .iter()
            .map(|cell| quoted(cell))
            .collect::<Vec<_>>()
            .join(&separator.to_string())
    };
    let titles = Column::ALL.map(|(_, title)| title.to_owned()).to_vec();
    let more = ["unit", "texts"].map(str::to_owned).to_vec();
    let mut lines = vec![join([titles, more].concat())];
    for row in rows {
        let duration = row.meaning == Meaning::Duration;
        let mut cells: Vec<String> = Column::ALL
            .into_iter()
            .map(|(column, _)| match (column, column.number(row)) {
                (Column::Function, _) => row.function.clone(),
                (Column::Instrument, _) => row.instrument.clone(),
                (_, None) => String::new(),
                (Column::Count, Some(_)) => row.count.to_string(),
                (Column::Rate | Column::Share, Some(value)) => format!("{value:.6}"),
                (_, Some(value)) if duration => {
                    format!("{:.0}", value * 1e9 / clock.hz.max(1) as f64)
                }
                (_, Some(value)) => format!("{value}"),
            })
            .collect();
        cells.push(if duration {
            "ns".to_owned()
        } else {
            row.unit.clone()
        });
        let texts = row.texts.as_ref();
        cells.push(texts.map_or_else(String::new, TextCounts::line));
        lines.push(join(cells));
    }
    lines.join("\n") + "\n"
}
