//! The graph pane: pan, zoom, selection of blocks and hooks.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use egui::accesskit::Role;
use egui::{CursorIcon, Id, Painter, PointerButton, Rect, RichText, Sense, Ui, Vec2, pos2, vec2};
use gilk_engine::HookType;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use gilk_engine::paths::Path;

use super::camera::{Camera, Side};
use super::find::{self, Find};
use super::heat::{BlockChange, Heat};
use super::marks::{Hooked, Mark, cost_steps, sentence};
use super::paint::{Canvas, Emphasis, Galleys};
use super::scene::{Metrics, Scene, inside};
use super::{drop, legend, minimap};
use crate::command::Command;
use crate::dragged_instrument::DraggedInstrument;
use crate::recent::Recent;
use crate::theme::{Palette, Tokens, code, space, text};
use crate::widgets;

/// State of the pane.
#[derive(Debug, Default)]
pub struct Graph {
    /// The function shown.
    pub scene: Option<Arc<Scene>>,
    /// The selected block.
    pub selected: Option<BlockIndex>,
    /// The selected hook of the block, shown in the inspector.
    pub hook: Option<HookType>,
    /// The visible part.
    pub camera: Camera,
    /// A camera change to make once the pane's size is known.
    pub wanted: Option<Look>,
    /// The text search.
    pub find: Option<Find>,
    /// Hit counts of its blocks.
    pub heat: Option<Heat>,
    /// The hits computed last, by recording, function, and the recording that it is compared to.
    pub(crate) heats: Recent<(u64, String, Option<PathBuf>), Option<Heat>>,
    /// The highlighted path.
    pub path: Option<Path>,
    /// Shows the function as text beside its source, in place of the graph.
    pub listed: bool,
    /// Cold regions are one box each: as chosen, or `None` for large functions only.
    pub fold_cold: Option<bool>,
    /// Blocks of the cold regions that were opened.
    pub(crate) opened: BTreeSet<BlockIndex>,
    /// The function, choice and recording for which the regions were computed.
    pub(crate) cold_key: Option<ColdKey>,
    canvas: Vec2,
    galleys: Galleys,
}

/// Inputs of the cold regions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ColdKey {
    pub(crate) function: FunctionId,
    pub(crate) is_on: bool,
    /// The recording, and whether its run has ended.
    pub(crate) recording: (u64, bool),
    /// Number of opened blocks.
    pub(crate) opened: usize,
}

/// A target of the camera.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Look {
    /// All of it if readable, otherwise the entry.
    Opening,
    /// All of it.
    Fit,
    /// The selected block, or the entry, at natural size.
    Natural,
    /// The smallest move that shows the selected block.
    Reveal,
}

/// Number of blocks from which cold regions are folded without a request.
const LARGE: usize = 400;
/// Minimum zoom at which a newly opened graph is shown whole.
const OPENING: f32 = 0.62;
/// Zoom at which an entry is shown.
const ENTRY: f32 = 0.85;

/// Factor of a step of the zoom by keys.
const ZOOM_STEP: f32 = 1.25;

impl Graph {
    /// Zooms by a step around the middle of the canvas.
    pub(crate) fn zoom(&mut self, nearer: bool) {
        let factor = if nearer { ZOOM_STEP } else { 1.0 / ZOOM_STEP };
        self.camera.zoom_at(self.canvas / 2.0, factor);
    }

    /// Moves the visible part towards a side.
    pub(crate) fn shift(&mut self, side: Side) {
        self.camera.shift(side, self.canvas);
    }

    /// Shows a function, with `block` selected.
    pub fn open(&mut self, scene: Arc<Scene>, block: Option<BlockIndex>) {
        self.selected = block.filter(|block| (block.0 as usize) < scene.cfg.blocks.len());
        self.scene = Some(scene);
        self.galleys.clear();
        self.heat = None;
        self.path = None;
        self.opened.clear();
        self.cold_key = None;
        self.wanted = Some(Look::Opening);
        self.hook = None;
    }

    /// Shows the same function with other blocks folded.
    pub fn refold(&mut self, scene: Arc<Scene>) {
        self.scene = Some(scene);
        self.galleys.clear();
        self.wanted = self.wanted.or(Some(Look::Reveal));
    }

    /// Closes the graph.
    pub fn clear(&mut self) {
        *self = Self {
            canvas: self.canvas,
            fold_cold: self.fold_cold,
            listed: self.listed,
            ..Self::default()
        };
    }

    /// Returns whether cold regions are one box each.
    #[must_use]
    pub fn folds_cold(&self) -> bool {
        let is_large = |scene: &Arc<Scene>| scene.cfg.blocks.len() >= LARGE;
        let automatic = || self.scene.as_ref().is_some_and(is_large);
        self.fold_cold.unwrap_or_else(automatic)
    }

    /// Selects a block and brings it into view.
    pub fn select(&mut self, block: BlockIndex) {
        if self.selected != Some(block) {
            self.hook = None;
        }
        self.selected = Some(block);
        self.wanted = Some(Look::Reveal);
    }

    fn look(&mut self, scene: &Scene, look: Look) {
        let size = scene.layout.size;
        let chosen = self.selected.unwrap_or(BlockIndex(0));
        let Some(&rect) = scene.layout.boxes.get(chosen.0 as usize) else {
            return;
        };
        let entry = |zoom: f32, canvas: Vec2| {
            Camera::looking_at(rect.center_top(), zoom, canvas, vec2(0.5, 0.06))
        };
        match look {
            Look::Opening => {
                let whole = Camera::fitting(size, self.canvas);
                self.camera = if whole.zoom >= OPENING {
                    whole
                } else {
                    entry(ENTRY, self.canvas)
                };
            }
            Look::Fit => self.camera = Camera::fitting(size, self.canvas),
            Look::Natural => self.camera = entry(1.0, self.canvas),
            Look::Reveal => self.camera.reveal(rect, self.canvas),
        }
    }
}

/// Draws the pane and handles its input.
pub fn show(
    ui: &mut Ui,
    graph: &mut Graph,
    hooked: &Hooked,
    metrics: Metrics,
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    let rect = ui.available_rect_before_wrap();
    ui.painter().rect_filled(rect, 0.0, tokens.canvas);
    let Some(scene) = graph.scene.clone() else {
        return;
    };
    let (rect, column) = minimap::split(legend::show(ui, rect));
    if graph.canvas != rect.size() && graph.canvas != Vec2::ZERO {
        // The centre of the view stays fixed when the pane is resized.
        graph.camera.origin += (rect.size() - graph.canvas) / 2.0;
    }
    graph.canvas = rect.size();
    if let Some(look) = graph.wanted.take() {
        graph.look(&scene, look);
    }

    let background = ui.interact(rect, Id::unique("graph canvas"), Sense::click_and_drag());
    let background = widgets::named(background, Role::Canvas, "Control-flow graph");
    pan_and_zoom(ui, graph, rect, &background);

    let painter = ui.painter().with_clip_rect(rect.intersect(ui.clip_rect()));
    dots(&painter, rect, graph.camera, tokens);
    let heat = graph.heat.take();
    let canvas = Canvas {
        painter: &painter,
        rect,
        camera: graph.camera,
        tokens,
        palette: Palette::of(ui.visuals()),
        metrics,
        heat: heat.as_ref(),
    };
    let mut hovered = None;
    let mut responses = Vec::new();
    let mut regions = Vec::new();
    for (block, place, region) in scene.boxes() {
        let place = canvas.place(place);
        if !place.intersects(rect) {
            continue;
        }
        let id = Id::unique("block").with(block.0);
        let response = ui.interact(place.intersect(rect), id, Sense::click());
        if let Some(region) = region {
            regions.push((region, place, response));
            continue;
        }
        let name = format!("block {} of {}", block.0, scene.name);
        let is_selected = graph.selected == Some(block);
        let response = widgets::chosen(response, Role::Button, is_selected, &name);
        if response.hovered() {
            hovered = Some(block);
        }
        responses.push((block, place, response));
    }
    let path = graph.path.as_ref();
    canvas.edges(&scene, hovered.or(graph.selected), path);
    for (region, place, response) in regions {
        cold_region(&canvas, region, place, response, commands);
    }
    let blocks: Vec<_> = responses
        .iter()
        .map(|(index, place, _)| (*index, *place))
        .collect();
    for (index, place, response) in responses {
        let emphasis = Emphasis {
            selected: graph.selected == Some(index),
            hovered: response.hovered(),
            found: graph
                .find
                .as_ref()
                .is_some_and(|find| find.found.contains(&index)),
            passed: graph
                .path
                .as_ref()
                .is_some_and(|path| path.blocks.contains(&index)),
        };
        canvas.block(&scene, index, place, hooked, emphasis, &mut graph.galleys);
        if let Some(tag) = canvas.hits(index, place) {
            let mut words = format!(
                "block {} was hit {} times",
                index.0,
                widgets::grouped(tag.1)
            );
            if let Some(change) = canvas.heat.and_then(|heat| heat.change(index)) {
                words += &compared(change);
            }
            let tag = ui.interact(tag.0, Id::unique("hits").with(index.0), Sense::hover());
            widgets::named(tag, Role::Label, &words).on_hover_text(words);
        }
        if response.clicked() {
            response.surrender_focus();
            commands.push(Command::SelectBlock(index));
        }
        let hovering = if canvas.readable() {
            pills(ui, graph, &canvas, &scene, hooked, (index, place), commands)
        } else {
            false
        };
        if !hovering && !canvas.readable() {
            response.on_hover_ui_at_pointer(|ui| describe(ui, &scene, hooked, index));
        }
    }
    drop::show(ui, &canvas, &scene, &blocks, commands);
    // The inspector, which is drawn later, uses the hit counts.
    graph.heat = heat;
    if let Some(column) = column {
        minimap::show(ui, &mut graph.camera, &scene, hooked, (rect, column));
    }
    find::show(ui, &mut graph.find, graph.selected, &scene, rect, commands);
}

/// Describes the change of a block against the earlier recording.
fn compared(change: BlockChange) -> String {
    let certainty = if change.differs {
        ""
    } else {
        ", which may be chance"
    };
    format!(
        "; {} times in the earlier recording, rate {}{certainty}",
        widgets::grouped(change.before),
        change.words()
    )
}

/// Draws the box of a cold region, which a click opens.
fn cold_region(
    canvas: &Canvas<'_>,
    region: &[BlockIndex],
    place: Rect,
    response: egui::Response,
    commands: &mut Vec<Command>,
) {
    let Some((first, last)) = region.first().zip(region.last()) else {
        return;
    };
    let words = widgets::counted(region.len(), "cold block");
    let name = format!("{words} from block {} to block {}", first.0, last.0);
    let response = widgets::named(response, Role::Button, &name);
    canvas.region(&words, place, response.hovered());
    let hint = format!(
        "{name}: not executed in the run on the timeline, or not expected to be. Click to show them."
    );
    if response.on_hover_text(hint).clicked() {
        commands.push(Command::OpenRegion(*first));
    }
}

fn pan_and_zoom(ui: &Ui, graph: &mut Graph, rect: Rect, background: &egui::Response) {
    if background.dragged_by(PointerButton::Primary) || background.dragged_by(PointerButton::Middle)
    {
        graph.camera.origin += background.drag_delta();
        ui.ctx().set_cursor_icon(CursorIcon::Grabbing);
    }
    let pointer = ui.input(|input| input.pointer.hover_pos());
    if let Some(pointer) = pointer.filter(|&pointer| {
        rect.contains(pointer) && ui.ctx().layer_id_at(pointer) == Some(ui.layer_id())
    }) {
        let (scroll, pinch) = ui.input(|input| (input.smooth_scroll_delta(), input.zoom_delta()));
        let factor = pinch * (scroll.y / 240.0).exp();
        if factor != 1.0 {
            graph.camera.zoom_at(pointer - rect.min, factor);
        }
        graph.camera.origin.x += scroll.x;
    }
}

/// Draws faint dots that move with the graph, so that panning is visible where there is no block.
fn dots(painter: &Painter, rect: Rect, camera: Camera, tokens: &Tokens) {
    let mut step = 40.0 * camera.zoom;
    while step < 22.0 {
        step *= 4.0;
    }
    let first = |origin: f32| origin.rem_euclid(step);
    let mut x = rect.left() + first(camera.origin.x);
    while x < rect.right() {
        let mut y = rect.top() + first(camera.origin.y);
        while y < rect.bottom() {
            painter.rect_filled(
                Rect::from_center_size(pos2(x, y), Vec2::splat(1.5)),
                0.0,
                tokens.grid,
            );
            y += step;
        }
        x += step;
    }
}

/// Draws the clickable hooks of a block. Returns whether the pointer is on one.
fn pills(
    ui: &Ui,
    graph: &mut Graph,
    canvas: &Canvas<'_>,
    scene: &Scene,
    hooked: &Hooked,
    block: (BlockIndex, Rect),
    commands: &mut Vec<Command>,
) -> bool {
    let (index, _) = block;
    let mut hovering = false;
    // The ways of a branch have pills while they are of use: graphs have many branches.
    let dragged = DraggedInstrument::by(ui).is_some();
    let active = dragged || graph.selected == Some(index);
    for hook in scene.hooks(index) {
        let pill = canvas.pill_of(scene, block, hook);
        let way = hook.is_way();
        let is_measured = canvas
            .heat
            .is_some_and(|heat| heat.way(index, hook).is_some());
        let used = is_measured || hooked.count(scene.function(), index, hook) > 0;
        if !canvas.rect.contains_rect(pill) || (way && !active && !used) {
            continue;
        }
        let mark = Mark::of(scene, hooked, index, hook);
        let response = ui.interact(
            pill,
            Id::unique("hook").with((index.0, hook)),
            Sense::click(),
        );
        let chosen = graph.selected == Some(index) && graph.hook == Some(hook);
        let (steps, way) = cost_steps(scene, index, hook);
        let extra_cost = if steps > 0 {
            format!(", costs more: {way}")
        } else {
            String::new()
        };
        let hits = canvas.heat.and_then(|heat| heat.way(index, hook));
        let hits = hits.map_or_else(String::new, |hits| {
            format!(", {} hits", widgets::grouped(hits))
        });
        let name = format!(
            "{hook}-hook of block {}: {}{extra_cost}{hits}",
            index.0,
            mark.words()
        );
        let response = widgets::chosen(response, Role::Button, chosen, &name);
        hovering |= response.hovered();
        canvas.pill(
            (index, pill),
            hook,
            (&mark, steps),
            Emphasis {
                selected: chosen,
                hovered: response.hovered(),
                found: false,
                passed: false,
            },
        );
        if response.clicked() {
            commands.push(Command::SelectBlock(index));
            graph.selected = Some(index);
            graph.hook = Some(hook);
        }
        response.on_hover_ui(|ui| hook_words(ui, scene, hooked, index, hook));
    }
    hovering
}

fn describe(ui: &mut Ui, scene: &Scene, hooked: &Hooked, index: BlockIndex) {
    let tokens = Tokens::of(ui);
    let Some(block) = scene.cfg.block(index) else {
        return;
    };
    ui.label(RichText::new(format!("block {}", index.0)).color(tokens.strong));
    let line = format!(
        "{} · {} bytes · {}",
        block.span.start,
        block.span.len(),
        widgets::counted(block.instructions.len(), "instruction")
    );
    ui.label(
        RichText::new(line)
            .font(code(text::SMALL))
            .color(tokens.weak),
    );
    for hook in scene.hooks(index) {
        hook_words(ui, scene, hooked, index, hook);
    }
}

/// Draws the description of a hook.
pub(crate) fn hook_words(
    ui: &mut Ui,
    scene: &Scene,
    hooked: &Hooked,
    block: BlockIndex,
    hook: HookType,
) {
    let tokens = Tokens::of(ui);
    let mark = Mark::of(scene, hooked, block, hook);
    ui.set_max_width(380.0);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = space::SMALL;
        ui.label(RichText::new(format!("{hook}-hook")).color(tokens.strong));
        ui.label(RichText::new(mark.words()).color(mark.color(tokens)));
    });
    match (&mark, scene.hook(block, hook)) {
        (Mark::Refused(refusal), _) => {
            ui.label(sentence(refusal));
            ui.label(
                RichText::new(format!("at {}", refusal.at))
                    .font(code(text::SMALL))
                    .color(tokens.weak),
            );
        }
        (_, Some(Ok(choice))) => {
            let words = format!("{}: {}", choice.tactic.name(), choice.cost);
            ui.label(RichText::new(words).small().color(tokens.weak));
        }
        _ => {}
    }
}

/// Returns the metrics of the code font.
#[must_use]
pub fn metrics(ui: &Ui) -> Metrics {
    let font = code(text::CODE);
    ui.ctx().fonts_mut(|fonts| Metrics {
        letter: fonts.glyph_width(&font, 'm'),
        line: (fonts.row_height(&font) + 2.0).round(),
    })
}

/// Height of a block's heading at zoom 1, for programs that click on one.
pub const HEADING: f32 = inside::HEADING;
