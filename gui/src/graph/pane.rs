//! The graph's pane: its header, and the graph or the welcome page.

use egui::{Align, Frame, Layout, Margin, RichText, Ui, vec2};
use gilk_engine::HookType;

use super::heat::Heat;
use super::marks::sentence;
use super::view;
use crate::command::Command;
use crate::icons::Icon;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::{welcome, widgets};

/// Draws the pane.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    if state.graph.scene.is_some()
        && let Some(metrics) = state.metrics
    {
        if let Some(refusal) = state
            .graph
            .scene
            .as_ref()
            .and_then(|scene| scene.cfg.refusal.clone())
        {
            Frame::NONE
                .fill(tokens.bad_fill)
                .inner_margin(Margin::symmetric(space::PANEL as i8, 6))
                .show(ui, |ui| {
                    ui.set_width(ui.available_width());
                    let words = format!(
                        "No block can be hooked (rule {}). {}",
                        refusal.rule.name(),
                        sentence(&refusal)
                    );
                    ui.label(words);
                });
        }
        let name = state.graph.scene.as_ref().map(|scene| scene.name.clone());
        let opened = state.timeline.opened();
        state.graph.heat = state.timeline.record.as_ref().and_then(|record| {
            let name = name?;
            let samples = record.index.look().samples();
            let heats = &mut state.graph.heats;
            let heat = heats.of(
                (opened, name.clone()),
                samples,
                record.now.is_some(),
                || Heat::of(record, &name),
            );
            heat.clone()
        });
        view::show(ui, &mut state.graph, &state.hooked, metrics, commands);
        return;
    }
    let rect = ui.available_rect_before_wrap();
    ui.painter().rect_filled(rect, 0.0, tokens.canvas);
    let middle = egui::Rect::from_center_size(
        rect.center(),
        vec2(rect.width().min(460.0), rect.height().min(330.0)),
    );
    ui.scope_builder(egui::UiBuilder::new().max_rect(middle), |ui| {
        ui.vertical_centered(|ui| welcome::show(ui, state, commands));
    });
}

/// Draws the pane's header, next to its tab: navigation, the function, and the zoom.
pub(crate) fn header(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let (back, forward) = state.history.available();
    let Some(scene) = &state.graph.scene else {
        widgets::icon_button(ui, Icon::Forward, Command::Forward, forward, commands);
        widgets::icon_button(ui, Icon::Back, Command::Back, back, commands);
        return;
    };
    widgets::button(ui, "Fit", Command::FitGraph, true, commands);
    widgets::button(ui, "1:1", Command::ActualSize, true, commands);
    let zoom = format!("{:.0} %", state.graph.camera.zoom * 100.0);
    ui.label(RichText::new(zoom).small().color(tokens.weak));
    if state.opening.is_some() {
        ui.spinner();
    }
    ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
        widgets::icon_button(ui, Icon::Back, Command::Back, back, commands);
        widgets::icon_button(ui, Icon::Forward, Command::Forward, forward, commands);
        let name = RichText::new(&scene.name).font(code(text::HEADING - 0.5));
        ui.add(egui::Label::new(name.color(tokens.strong)).truncate());
        let count = |hook| scene.hookable(hook).count();
        let words = format!(
            "{} · hookable: {} pre, {} post",
            widgets::counted(scene.cfg.blocks.len(), "block"),
            count(HookType::Pre),
            count(HookType::Post)
        );
        ui.add(egui::Label::new(RichText::new(words).small().color(tokens.weak)).truncate());
    });
}
