//! Draws the tiles: a bar with tabs and the pane's own controls, and the pane below.

use std::sync::Arc;

use egui::accesskit::Role;
use egui::{Align, Color32, Galley, Id, Layout, RichText, Stroke, Style, Ui, Visuals, WidgetText};
use egui_tiles::{
    Behavior, ResizeState, SimplificationOptions, TabState, Tabs, Tile, TileId, Tiles, Tree,
    UiResponse,
};

use super::{Pane, widths};
use crate::command::Command;
use crate::dragged_instrument::DraggedInstrument;
use crate::state::State;
use crate::theme::{Palette, Tokens, space};
use crate::{
    calls, console_pane, editor, functions, graph, inspector, instruments_pane, patch_pane,
    schedule, session_panel, statistics, timeline, waiting, widgets,
};

/// Points between two panes.
const GAP: f32 = 3.0;

/// Draws every pane.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let empty = Tree::empty(Id::unique("desk"));
    let mut tree = std::mem::replace(&mut state.desk.tree, empty);
    if tree.active_tiles().is_empty() {
        widgets::empty(ui, "All panes are hidden", "Show them from the Panes menu.");
    }
    widths::widen(&mut tree, ui.available_width(), GAP);
    tree.ui(&mut PaneBehavior { state, commands }, ui);
    state.desk.tree = tree;
}

struct PaneBehavior<'a> {
    state: &'a mut State,
    commands: &'a mut Vec<Command>,
}

fn tokens(visuals: &Visuals) -> &'static Tokens {
    Palette::of(visuals).tokens()
}

fn pane(tiles: &Tiles<Pane>, tile: TileId) -> Option<Pane> {
    match tiles.get(tile) {
        Some(Tile::Pane(pane)) => Some(*pane),
        _ => None,
    }
}

/// Lays out the title of a tab.
fn tab_text(ui: &Ui, name: &str, color: Color32) -> Arc<Galley> {
    let font = crate::theme::prose(crate::theme::text::BODY);
    ui.painter().layout_no_wrap(name.to_owned(), font, color)
}

/// Returns the width of a tab in points.
fn tab_width(title: &Galley) -> f32 {
    title.size().x + 2.0 * space::PANEL
}

impl Behavior<Pane> for PaneBehavior<'_> {
    fn pane_ui(&mut self, ui: &mut Ui, _tile: TileId, pane: &mut Pane) -> UiResponse {
        let (state, commands) = (&mut *self.state, &mut *self.commands);
        let fill = Tokens::of(ui).panel;
        ui.painter().rect_filled(ui.max_rect(), 0.0, fill);
        // A pane has its full height, regardless of its contents.
        ui.expand_to_include_rect(ui.max_rect());
        state.focus.stop(ui, *pane);
        ui.push_id(pane.name(), |ui| match pane {
            Pane::Functions => {
                let open = state.graph.scene.as_ref().map(|scene| scene.function());
                let catalogue = state.catalogue.clone();
                let process = waiting::process(catalogue.as_deref(), &state.machines);
                let run = &state.run;
                functions::pane::show(
                    ui,
                    &mut state.functions,
                    catalogue.as_deref(),
                    &|name| waiting::awaited(process, run, name).is_some(),
                    open,
                    commands,
                );
            }
            Pane::Graph => graph::pane::show(ui, state, commands),
            Pane::Inspector => inspector::show(ui, state, commands),
            Pane::Session => session_panel::show(ui, state, commands),
            Pane::Timeline => {
                let scene = state.graph.scene.as_ref();
                let here = scene.zip(state.graph.selected);
                let here = here.map(|(scene, block)| (scene.name.as_str(), block));
                let notes = state.document.notes();
                timeline::view::show(ui, &mut state.timeline, notes, here, commands);
            }
            Pane::Statistics => statistics::pane::show(ui, state, commands),
            Pane::Calls => calls::pane::show(ui, state, commands),
            Pane::Schedule => schedule::show(ui, state, commands),
            Pane::Patch => patch_pane::show(ui, state, commands),
            Pane::Instruments => instruments_pane::show(ui, state, commands),
            Pane::Editor => editor::pane::show(ui, state, commands),
            Pane::Console => console_pane::show(ui, state, commands),
        });
        UiResponse::None
    }

    fn tab_title_for_pane(&mut self, pane: &Pane) -> WidgetText {
        pane.name().into()
    }

    fn tab_ui(
        &mut self,
        tiles: &mut Tiles<Pane>,
        ui: &mut Ui,
        id: Id,
        tile: TileId,
        state: &TabState,
    ) -> egui::Response {
        let tokens = Tokens::of(ui);
        let name = pane(tiles, tile).map_or("Tiles", Pane::name);
        let color = if state.active {
            tokens.strong
        } else {
            tokens.weak
        };
        let galley = tab_text(ui, name, color);
        let size = egui::vec2(tab_width(&galley), ui.available_height());
        let (_, rect) = ui.allocate_space(size);
        let response = ui.interact(rect, id, egui::Sense::click_and_drag());
        let response = widgets::chosen(response, Role::Tab, state.active, &format!("{name} tab"));
        if ui.is_rect_visible(rect) && !state.is_being_dragged {
            if response.hovered() && !state.active {
                ui.painter().rect_filled(rect, 0.0, tokens.hover);
            }
            ui.painter()
                .galley(rect.center() - galley.size() / 2.0, galley, color);
            if state.active {
                let under = rect.bottom() - 1.0;
                let line = Stroke::new(2.0, tokens.accent);
                ui.painter()
                    .hline(rect.shrink(space::SMALL).x_range(), under, line);
            }
        }
        if response.clicked()
            && let Some(pane) = pane(tiles, tile)
        {
            self.state.focus.choose(pane);
        }
        if !state.active
            && DraggedInstrument::opens(ui, &response)
            && let Some(pane) = pane(tiles, tile)
        {
            self.commands.push(Command::TogglePane(pane));
        }
        response.context_menu(|ui| {
            if let Some(pane) = pane(tiles, tile)
                && ui.button(format!("Hide {name}")).clicked()
            {
                self.commands.push(Command::TogglePane(pane));
                ui.close();
            }
        });
        response
    }

    fn top_bar_right_ui(
        &mut self,
        tiles: &Tiles<Pane>,
        ui: &mut Ui,
        _tile: TileId,
        tabs: &Tabs,
        _offset: &mut f32,
    ) {
        let Some(front) = tabs.active.and_then(|front| pane(tiles, front)) else {
            return;
        };
        // Reserves the width of the tabs.
        let panes = tabs.children.iter().filter_map(|tile| pane(tiles, *tile));
        let taken = panes.map(|pane| tab_width(&tab_text(ui, pane.name(), Color32::PLACEHOLDER)));
        // And the spaces around the controls: with less, the bar scrolls its tabs.
        let taken = taken.sum::<f32>() + 3.0 * space::PANEL;
        let room = egui::vec2((ui.available_width() - taken).max(20.0), space::STRIP);
        ui.add_space(space::SMALL);
        let layout = Layout::right_to_left(Align::Center);
        ui.allocate_ui_with_layout(room, layout, |ui| {
            ui.spacing_mut().item_spacing.x = space::SMALL;
            let (state, commands) = (&mut *self.state, &mut *self.commands);
            match front {
                Pane::Functions => functions::pane::header(ui, state),
                Pane::Graph => graph::pane::header(ui, state, commands),
                Pane::Inspector => {}
                Pane::Session => session_panel::header(ui, state, commands),
                Pane::Timeline => timeline::view::header(ui, &state.timeline, commands),
                Pane::Statistics => statistics::pane::header(ui, state, commands),
                Pane::Calls => calls::pane::header(ui, state, commands),
                Pane::Schedule => schedule::header(ui, state, commands),
                Pane::Patch => patch_pane::header(ui, state),
                Pane::Instruments => instruments_pane::header(ui, state, commands),
                Pane::Editor => editor::pane::header(ui, state, commands),
                Pane::Console => console_pane::header(ui, state),
            }
        });
    }

    fn drag_ui(&mut self, tiles: &Tiles<Pane>, ui: &mut Ui, tile: TileId) {
        let name = pane(tiles, tile).map_or("Tiles", Pane::name);
        egui::Frame::popup(ui.style()).show(ui, |ui| ui.label(RichText::new(name).heading()));
    }

    fn tab_bar_height(&self, _style: &Style) -> f32 {
        space::STRIP
    }

    fn tab_bar_color(&self, visuals: &Visuals) -> Color32 {
        tokens(visuals).bar
    }

    fn tab_bar_hline_stroke(&self, visuals: &Visuals) -> Stroke {
        Stroke::new(1.0, tokens(visuals).line)
    }

    fn gap_width(&self, _style: &Style) -> f32 {
        GAP
    }

    fn resize_stroke(&self, style: &Style, resize: ResizeState) -> Stroke {
        let tokens = tokens(&style.visuals);
        match resize {
            ResizeState::Idle => Stroke::new(1.0, tokens.line),
            ResizeState::Hovering | ResizeState::Dragging => Stroke::new(3.0, tokens.accent),
        }
    }

    fn drag_preview_stroke(&self, visuals: &Visuals) -> Stroke {
        Stroke::new(2.0, tokens(visuals).accent)
    }

    fn drag_preview_color(&self, visuals: &Visuals) -> Color32 {
        tokens(visuals).accent.gamma_multiply(0.25)
    }

    fn min_size(&self) -> f32 {
        90.0
    }

    fn cycle_tabs_with_keyboard(&self) -> bool {
        true
    }

    fn simplification_options(&self) -> SimplificationOptions {
        SimplificationOptions {
            all_panes_must_have_tabs: true,
            ..SimplificationOptions::default()
        }
    }
}
