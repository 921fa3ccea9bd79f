//! The graph's pane: its header, and the graph or the welcome page.

use egui::{Align, Frame, Layout, RichText, ScrollArea, Ui, vec2};
use gilk_engine::HookType;

use super::heat::Heat;
use super::listing;
use super::marks::sentence;
use super::view;
use crate::command::Command;
use crate::icons::Icon;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::{object_names, welcome, widgets};

/// Height of the start page in points, which is in the middle of the pane if it fits.
const START: f32 = 330.0;

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
                .inner_margin(space::margins(space::PANEL, space::SNUG))
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
            let runs = state.statistics.comparison.as_ref();
            let runs = runs.filter(|runs| record.path.as_ref() == Some(&runs.after));
            let before = runs.map(|runs| runs.before.clone());
            let key = (opened, name.clone(), before);
            let heat = heats.of(key, samples, record.now.is_some(), || {
                let mut heat = Heat::of(record, &name)?;
                if let Some(runs) = runs {
                    heat.compare(record, &name, &runs.instruments);
                }
                Some(heat)
            });
            heat.clone()
        });
        match state.graph.scene.clone().filter(|_| state.graph.listed) {
            Some(scene) => listing::show(ui, state, &scene, commands),
            None => view::show(ui, &mut state.graph, &state.hooked, metrics, commands),
        }
        return;
    }
    let rect = ui.available_rect_before_wrap();
    ui.painter().rect_filled(rect, 0.0, tokens.canvas);
    let size = vec2(rect.width().min(space::READABLE), rect.height());
    let middle = egui::Rect::from_center_size(rect.center(), size);
    ui.scope_builder(egui::UiBuilder::new().max_rect(middle), |ui| {
        ScrollArea::vertical().id_salt("start").show(ui, |ui| {
            let above = (rect.height() - START).max(0.0) / 2.0;
            ui.add_space(above);
            ui.vertical_centered(|ui| welcome::show(ui, state, commands));
        });
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
    if state.graph.listed {
        widgets::button(ui, "Graph", Command::ToggleListing, true, commands);
        listing::header(ui, state);
    } else {
        widgets::button(ui, "Fit", Command::FitGraph, true, commands);
        widgets::button(ui, "1:1", Command::ActualSize, true, commands);
        let zoom = format!("{:.0} %", state.graph.camera.zoom * 100.0);
        ui.label(RichText::new(zoom).small().color(tokens.weak));
    }
    if state.opening.is_some() {
        ui.spinner();
    }
    ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
        widgets::icon_button(ui, Icon::Back, Command::Back, back, commands);
        widgets::icon_button(ui, Icon::Forward, Command::Forward, forward, commands);
        let name = object_names::fitting_here(ui, &scene.name, &code(text::HEADING));
        let name = RichText::new(name).font(code(text::HEADING));
        ui.add(egui::Label::new(name.color(tokens.strong)).truncate())
            .on_hover_text(&scene.name);
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
