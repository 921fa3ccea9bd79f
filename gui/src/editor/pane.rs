//! Draws the editor: the source with its errors, its cost, and the generated code.

use egui::accesskit::Role;
use egui::text::{CCursor, CCursorRange};
use egui::{
    Align, Align2, Frame, Id, Label, Layout, Margin, RichText, ScrollArea, Stroke, TextEdit, Ui,
};
use gilk_instruments::editor::{Good, Marked};
use gilk_instruments::program::Span;

use super::highlight;
use crate::command::Command;
use crate::patch_pane;
use crate::patch_view::PatchView;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Draws the pane's header, next to its tab.
pub(crate) fn header(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let editor = &state.editor;
    if editor.text.is_none() {
        return;
    }
    let good = editor.name().is_some();
    widgets::button(ui, "Use", Command::UseInstrument, good, commands);
    widgets::button(ui, "Save", Command::SaveInstrument, true, commands);
    widgets::button(ui, "Format", Command::FormatInstrument, good, commands);
    let place = editor.path.as_ref().and_then(|path| path.file_name());
    if let Some(place) = place {
        let words = RichText::new(place.to_string_lossy()).small();
        ui.add(Label::new(words.color(Tokens::of(ui).weak)).truncate());
    }
}

/// Draws the pane.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    if state.editor.text.is_none() {
        widgets::empty(
            ui,
            "No instrument open",
            "Click \u{201c}source\u{201d} in the list of instruments, or start a new instrument.",
        );
        ui.vertical_centered(|ui| {
            widgets::button(ui, "New instrument", Command::NewInstrument, true, commands);
            widgets::button(ui, "Open file…", Command::OpenInstrument, true, commands);
        });
        return;
    }
    ui.columns(2, |columns| {
        if let [left, right] = columns {
            source(left, state);
            ScrollArea::vertical()
                .id_salt("becomes")
                .auto_shrink(false)
                .show(right, |ui| {
                    // A column's own layout stretches the words of a line to its width.
                    widgets::inset(ui, |ui| ui.vertical(|ui| becomes(ui, state)));
                });
        }
    });
}

/// Width of the line numbers to the left of the source.
const NUMBERS: f32 = 34.0;
/// Height of the list of errors.
const FAULTS: f32 = 96.0;

/// A click on an error.
enum FaultClick {
    /// Moves the cursor to it.
    Go(Span),
    /// Replaces its span.
    Replace(Span, String),
}

fn source(ui: &mut Ui, state: &mut State) {
    let tokens = Tokens::of(ui);
    let faults: Vec<Marked> = state
        .editor
        .edited
        .as_ref()
        .map(|edited| edited.faults.clone())
        .unwrap_or_default();
    let below = if faults.is_empty() { 0.0 } else { FAULTS };
    let height = (ui.available_height() - below).max(60.0);
    let (edited, checked) = (&state.editor.edited, &state.editor.checked);
    let Some(text) = &mut state.editor.text else {
        return;
    };
    let id = Id::unique("instrument source");
    ScrollArea::vertical()
        .id_salt("source")
        .auto_shrink(false)
        .max_height(height)
        .show(ui, |ui| {
            let mut layouter = |ui: &Ui, text: &dyn egui::TextBuffer, width: f32| {
                // Errors of another text do not fit this one.
                let text = text.as_str();
                let known = checked.as_ref().is_some_and(|(known, _)| known == text);
                let edited = edited.as_ref().filter(|_| known);
                let mut job = highlight::job(text, edited, tokens);
                job.wrap.max_width = width;
                ui.fonts_mut(|fonts| fonts.layout_job(job))
            };
            let margin = Margin {
                left: (NUMBERS + space::SMALL) as i8,
                ..space::margins(space::SMALL, space::SMALL)
            };
            let shown = TextEdit::multiline(text)
                .id(id)
                .code_editor()
                .frame(Frame::NONE.fill(tokens.field).inner_margin(margin))
                .desired_width(f32::INFINITY)
                .min_size(egui::vec2(0.0, height - 2.0))
                .layouter(&mut layouter)
                .show(ui);
            let wrong: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
            numbers(ui, &shown.galley, shown.galley_pos, &wrong);
            widgets::named(shown.response.response, Role::MultilineTextInput, "Source");
        });
    if faults.is_empty() {
        return;
    }
    let clicked = ScrollArea::vertical()
        .id_salt("faults")
        .auto_shrink(false)
        .show(ui, |ui| widgets::inset(ui, |ui| wrong(ui, &faults)))
        .inner;
    let is_current = checked.as_ref().is_some_and(|(known, _)| known == text);
    // The spans belong to the text that was checked.
    let place = match clicked.filter(|_| is_current) {
        Some(FaultClick::Go(span)) => span.start as usize,
        Some(FaultClick::Replace(span, words)) => {
            let range = span.start as usize..span.end as usize;
            if text.get(range.clone()).is_none() {
                return;
            }
            text.replace_range(range.clone(), &words);
            range.start + words.len()
        }
        None => return,
    };
    let letters = text.get(..place).map_or(0, |before| before.chars().count());
    widgets::select(ui, id, CCursorRange::one(CCursor::new(letters)));
    ui.memory_mut(|memory| memory.request_focus(id));
}

/// Draws the number of each line to its left; a long line has several rows and one number.
fn numbers(ui: &Ui, galley: &egui::Galley, at: egui::Pos2, wrong: &[usize]) {
    let tokens = Tokens::of(ui);
    let mut line = 1;
    let mut begins = true;
    for row in &galley.rows {
        if begins {
            let color = if wrong.contains(&line) {
                tokens.bad
            } else {
                tokens.weak
            };
            ui.painter().text(
                egui::pos2(at.x - space::SMALL, at.y + row.rect().center().y),
                Align2::RIGHT_CENTER,
                line,
                code(text::SMALL),
                color,
            );
        }
        begins = row.ends_with_newline;
        line += usize::from(begins);
    }
}

/// Lists the errors. Returns the click on one.
fn wrong(ui: &mut Ui, faults: &[Marked]) -> Option<FaultClick> {
    let tokens = Tokens::of(ui);
    ui.spacing_mut().item_spacing.y = space::HAIR;
    let mut click = None;
    for one in faults {
        let place = format!("line {}, column {}", one.line, one.column);
        ui.horizontal_wrapped(|ui| {
            let words = RichText::new(&place).font(code(text::SMALL));
            let link = widgets::named(ui.link(words), Role::Link, &format!("go to {place}"));
            if link.clicked() {
                click = Some(FaultClick::Go(one.fault.span));
            }
            let words = RichText::new(&one.fault.message).small();
            let label = ui.label(words.color(tokens.strong));
            let name = format!("{place}: {}", one.fault.message);
            widgets::named(label, Role::Label, &name);
            let help = RichText::new(&one.fault.help).small();
            if let Some(replacement) = &one.fault.replacement {
                let link = widgets::named(ui.link(help), Role::Link, &one.fault.help);
                if link.on_hover_text(format!("Write {replacement}")).clicked() {
                    click = Some(FaultClick::Replace(one.fault.span, replacement.clone()));
                }
            } else if !one.fault.help.is_empty() {
                ui.label(help.color(tokens.weak));
            }
        });
    }
    click
}

/// Draws the cost and the generated code.
fn becomes(ui: &mut Ui, state: &State) {
    let tokens = Tokens::of(ui);
    let good = state.editor.edited.as_ref();
    let Some(good) = good.and_then(|edited| edited.good.as_ref()) else {
        let words = "Fix all errors to see the generated code.";
        ui.label(RichText::new(words).color(tokens.weak));
        return;
    };
    costs(ui, good);
    let (Some(catalogue), Some(scene)) = (&state.catalogue, &state.graph.scene) else {
        let words = "Open a function to see the generated code.";
        ui.label(RichText::new(words).color(tokens.weak));
        return;
    };
    match &state.editor.outcome {
        None => {
            ui.label(RichText::new("Compiling…").color(tokens.weak));
        }
        Some(Err(why)) => {
            Frame::NONE
                .fill(tokens.bad_fill)
                .stroke(Stroke::new(1.0, tokens.line))
                .corner_radius(space::CORNER)
                .inner_margin(space::margins(space::SMALL, space::SNUG))
                .show(ui, |ui| {
                    ui.set_width(ui.available_width());
                    for words in why {
                        ui.label(RichText::new(words).small().color(tokens.text));
                    }
                });
        }
        Some(Ok(verified)) => {
            let place = format!("in {}", scene.name);
            widgets::caption(ui, &place);
            for section in PatchView::instruments(catalogue.image(), verified.plan()) {
                patch_pane::section(ui, &section);
            }
        }
    }
}

fn costs(ui: &mut Ui, good: &Good) {
    let tokens = Tokens::of(ui);
    ui.with_layout(Layout::top_down(Align::Min), |ui| {
        let name = RichText::new(&good.definition.name).font(code(text::BODY));
        ui.label(name.color(tokens.strong));
        let summary = good.definition.summary.trim_end_matches('.');
        let words = format!("{summary}. Placed {}.", good.definition.stand());
        ui.label(RichText::new(words).small().color(tokens.text));
        for (head, cost) in &good.costs {
            let words = format!("{head}: {cost}");
            let shown = ui.label(
                RichText::new(&words)
                    .font(code(text::SMALL))
                    .color(tokens.weak),
            );
            widgets::named(shown, Role::Label, &words);
        }
        ui.add_space(space::TIGHT);
    });
}
