//! The status line: the plan, and the totals of the recording.

use egui::{Align, Layout, RichText, Ui};

use crate::command::Command;
use crate::run::Active;
use crate::state::{State, TargetState};
use crate::theme::{Tokens, space};
use crate::{notices, widgets};

/// Draws the status line.
pub(crate) fn show(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = space::MEDIUM;
        let note = |ui: &mut Ui, words: String, color| {
            ui.label(RichText::new(words).small().color(color));
        };
        let placements = state.document.session().placements.len();
        match &state.plan.outcome {
            _ if state.catalogue.is_none() => {
                note(ui, "no process or kernel".to_owned(), tokens.weak);
            }
            // The session's instruments do not apply, and neither does their plan.
            _ if state.counts_in_cache() => note(
                ui,
                "every block is counted in the code cache".to_owned(),
                tokens.weak,
            ),
            _ if placements == 0 => note(ui, "no instruments".to_owned(), tokens.weak),
            _ if state.plan.pending() => note(ui, "planning".to_owned(), tokens.weak),
            Some(Ok(verified)) => {
                let plan = verified.plan();
                let words = format!(
                    "plan verified: {}, {} ({} bytes), {}",
                    widgets::counted(placements, "instrument"),
                    widgets::counted(plan.patches.len(), "patch"),
                    widgets::grouped(state.plan.bytes as u64),
                    widgets::counted(plan.batches.len(), "batch")
                );
                // A plan for a lost target cannot run.
                let color = match state.target {
                    TargetState::None | TargetState::Lost(_) => tokens.weak,
                    _ => tokens.good,
                };
                note(ui, words, color);
            }
            Some(Err(_)) => note(ui, "this session cannot run".to_owned(), tokens.bad),
            None => note(ui, "planning".to_owned(), tokens.weak),
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = space::MEDIUM;
            notices::log(ui, state);
            if let Some(export) = &state.exporting {
                widgets::button(ui, "Stop", Command::StopExport, true, commands);
                let words = format!(
                    "exporting: {} of {} samples",
                    widgets::grouped(export.progress.samples),
                    widgets::grouped(export.progress.of)
                );
                note(ui, words, tokens.weak);
            }
            let reading = state.lines.reading.as_ref();
            if let Some(share) = reading.and_then(|reading| reading.share) {
                widgets::button(ui, "Stop", Command::StopSources, true, commands);
                let words = format!("reading debug information: {:.0} %", 100.0 * share);
                note(ui, words, tokens.weak);
            }
            if let Some(reading) = &state.reading {
                widgets::button(ui, "Stop", Command::StopReading, true, commands);
                let words = format!(
                    "reading a recording: {} of {} samples",
                    widgets::grouped(reading.done),
                    widgets::grouped(reading.all)
                );
                note(ui, words, tokens.weak);
            }
            if let Some(record) = &state.timeline.record {
                let color = if record.lost > 0 {
                    tokens.warning
                } else {
                    tokens.weak
                };
                let words = match record.lost {
                    0 => "nothing lost".to_owned(),
                    lost => format!("lost: {} ring full", widgets::grouped(lost)),
                };
                note(ui, words, color);
                note(ui, widgets::size(record.bytes), tokens.weak);
                let hits = state.timeline.hits.last().map_or(0, |(_, hits)| *hits);
                let counted = state.timeline.counted.last();
                let values = counted.map_or(0, |counted| counted.values);
                if hits > 0 || values == 0 {
                    note(ui, format!("{} hits", widgets::grouped(hits)), tokens.text);
                }
                if values > 0 {
                    let words = format!("{} values in totals", widgets::grouped(values));
                    note(ui, words, tokens.text);
                }
            }
            if let Some(active) = &state.run.active {
                note(ui, launched(active), tokens.text);
                if let Some(line) = &active.live.last_line {
                    note(ui, line.clone(), tokens.weak);
                }
            }
        });
    });
}

/// Returns the number of batches in effect.
fn launched(active: &Active) -> String {
    let of = active.plan.plan().batches.len();
    format!(
        "{} of {} done",
        active.live.switched,
        widgets::counted(of, "batch")
    )
}
