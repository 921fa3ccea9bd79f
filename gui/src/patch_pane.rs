//! The Patch pane: the original code on the left, patches on the right. For a hook without
//! instruments it previews the patch that adding the inspector's instrument would create.

use std::sync::Arc;

use egui::accesskit::Role;
use egui::{Frame, Label, RichText, ScrollArea, Stroke, TextFormat, Ui, text::LayoutJob};
use gilk_engine::VerifiedPlan;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::listing::Line;

use crate::command::Command;
use crate::graph::code::parts;
use crate::patch_view::{PatchView, PlanNumber, Section};
use crate::plan_state::first_error;
use crate::session_panel::next_step;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Returns whether the selected hook has instruments of the session.
fn hooked(state: &State, block: BlockIndex) -> bool {
    let Some(scene) = &state.graph.scene else {
        return false;
    };
    let count = |hook| state.hooked.count(scene.function(), block, hook);
    count(state.draft.hook) > 0
}

/// Returns the plan to show: the session's, or the one with the inspector's instrument added.
fn shown(state: &State) -> Option<&Result<Arc<VerifiedPlan>, Vec<String>>> {
    let block = state.graph.selected?;
    if hooked(state, block) {
        state.plan.outcome.as_ref()
    } else {
        state.preview.outcome.as_ref()
    }
}

/// Draws the pane's header, next to its tab.
pub(crate) fn header(ui: &mut Ui, state: &State) {
    let tokens = Tokens::of(ui);
    let (Some(scene), Some(block)) = (&state.graph.scene, state.graph.selected) else {
        return;
    };
    let (kind, color) = if hooked(state, block) {
        ("as planned", tokens.hooked)
    } else {
        ("preview", tokens.accent)
    };
    widgets::pill(ui, kind, color, tokens.panel);
    let words = format!(
        "{} {} at {} block {}",
        state.draft.instrument, state.draft.hook, scene.name, block.0
    );
    ui.add(Label::new(RichText::new(words).small().color(tokens.weak)).truncate());
}

/// Draws the pane.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let (Some(scene), Some(block)) = (state.graph.scene.clone(), state.graph.selected) else {
        let words = "Select a block in the graph to see what is written for its hook.";
        let next = next_step(state);
        widgets::empty_with(ui, ("No block selected", words), next, commands);
        return;
    };
    let (Some(catalogue), Some(outcome)) = (state.catalogue.clone(), shown(state)) else {
        let refused = scene
            .hook(block, state.draft.hook)
            .and_then(|hook| hook.as_ref().err());
        match refused {
            Some(refusal) => widgets::empty(
                ui,
                &format!("Refused by rule {}", refusal.rule.name()),
                &crate::graph::marks::sentence(refusal),
            ),
            None => widgets::empty(ui, "Planning…", "The patch appears when it is verified."),
        }
        return;
    };
    let plan = match outcome {
        Ok(verified) => Arc::clone(verified),
        Err(wrong) => {
            widgets::empty(ui, "This session cannot run", &first_error(wrong));
            return;
        }
    };
    let number = if hooked(state, block) {
        PlanNumber::OfSession(state.plan.answered)
    } else {
        PlanNumber::OfPreview(state.preview.number)
    };
    let key = (number, scene.function(), block);
    let view = state.patch_view.of(key, || {
        PatchView::of(catalogue.image(), plan.plan(), scene.function(), block)
    });
    ScrollArea::vertical()
        .id_salt("patch")
        .auto_shrink(false)
        .show(ui, |ui| {
            widgets::inset(ui, |ui| {
                ui.columns(2, |columns| {
                    let sides = [
                        ("In the kernel's text", &view.text),
                        ("In the arena", &view.patches),
                    ];
                    for (ui, (title, sections)) in columns.iter_mut().zip(sides) {
                        // A column's own layout stretches the words of a line to its width.
                        ui.vertical(|ui| {
                            widgets::caption(ui, title);
                            for part in sections {
                                section(ui, part);
                            }
                        });
                    }
                });
            });
        });
}

pub(crate) fn section(ui: &mut Ui, section: &Section) {
    let tokens = Tokens::of(ui);
    let frame = Frame::NONE
        .fill(tokens.card)
        .stroke(Stroke::new(1.0, tokens.line))
        .corner_radius(space::CORNER)
        .inner_margin(space::margins(space::SMALL, space::SNUG));
    frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = space::HAIR;
        let title = ui.label(RichText::new(&section.title).color(tokens.strong));
        widgets::named(title, Role::Heading, &section.title);
        for note in &section.notes {
            ui.label(RichText::new(note).small().color(tokens.weak));
        }
        for stretch in &section.pieces {
            ui.add_space(space::TIGHT);
            let color = if stretch.ours {
                tokens.hooked
            } else {
                tokens.weak
            };
            if !stretch.what.is_empty() {
                ui.label(RichText::new(&stretch.what).small().color(color));
            }
            for line in &stretch.lines {
                let mark = if stretch.ours {
                    tokens.hooked
                } else {
                    tokens.line
                };
                let wide = ui.available_width() > WIDE;
                let shown = ui.add(Label::new(job(line, wide, tokens)).truncate());
                let edge = shown.rect.left() - 5.0;
                ui.painter()
                    .vline(edge, shown.rect.y_range(), Stroke::new(2.0, mark));
                widgets::named(shown, Role::Label, &line.text);
            }
        }
    });
    ui.add_space(space::TIGHT);
}

/// Minimum width in points at which instruction bytes are shown.
const WIDE: f32 = 430.0;

/// Lays out address, bytes if wide enough, and the highlighted instruction.
fn job(line: &Line, wide: bool, tokens: &Tokens) -> LayoutJob {
    let mut job = LayoutJob::default();
    let format = |color| TextFormat::simple(code(text::SMALL), color);
    let bytes: Vec<String> = line
        .bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let low = line.at.0 & 0xffff_ffff;
    job.append(&format!("{low:08x}  "), 0.0, format(tokens.weak));
    if wide {
        job.append(
            &format!("{:<24} ", bytes.join(" ")),
            0.0,
            format(tokens.weak),
        );
    }
    for (part, piece) in parts(&line.text) {
        let color = part.color(tokens);
        job.append(piece, 0.0, format(color));
    }
    job
}
