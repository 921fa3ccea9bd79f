//! The list of functions: a filter, a count, and rows that exist only while they are seen.

use std::sync::Arc;

use egui::text::LayoutJob;
use egui::{
    Key, Modifiers, RichText, ScrollArea, Sense, TextEdit, TextFormat, Ui, accesskit::Role, vec2,
};
use gilk_engine::image::FunctionId;

use crate::catalogue::{Catalogue, Finder};
use crate::command::{At, Command};
use crate::instruments_pane::Carried;
use crate::state::State;
use crate::theme::{Tokens, code, prose, space, text};
use crate::widgets;
use crate::worker::searcher::{folders, named};

/// The list's state.
#[derive(Debug, Default)]
pub struct Functions {
    /// What was typed.
    pub filter: String,
    /// The functions that match it, best first.
    pub found: Arc<Vec<FunctionId>>,
    /// The filter that `found` answers.
    pub answered: Option<String>,
    /// Which functions are listed at all.
    pub scope: Scope,
    /// Whether it is still being found out which can be hooked.
    pub(crate) looking: bool,
    /// The row that Enter opens.
    pub row: usize,
    /// The filter is to get the cursor.
    pub focus: bool,
    scroll_to_row: bool,
    /// Whether it is known which file each comes from.
    pub(crate) filed: bool,
}

impl Functions {
    /// Takes the answer to a search.
    pub fn answer(&mut self, filter: String, found: Arc<Vec<FunctionId>>) {
        self.found = found;
        self.answered = Some(filter);
        self.row = 0;
        self.scroll_to_row = true;
    }

    /// Brings a function's row into view, if it is among those that were found.
    pub fn reveal(&mut self, function: FunctionId) {
        if let Some(row) = self.found.iter().position(|&found| found == function) {
            self.row = row;
            self.scroll_to_row = true;
        }
    }

    /// Forgets everything but what was typed.
    pub fn clear(&mut self) {
        self.found = Arc::default();
        self.answered = None;
        self.row = 0;
    }
}

/// Which functions are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    #[default]
    All,
    /// Those that the session touches.
    Touched,
    /// Those that the run on the timeline hit.
    Hot,
    /// Those of modules.
    Modules,
    /// Those whose entries can be hooked.
    Hookable,
}

impl Scope {
    const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::All, "all", "every function"),
        (
            Self::Touched,
            "touched",
            "functions that the session has instruments in",
        ),
        (
            Self::Hot,
            "hot",
            "functions that were hit in the run on the timeline",
        ),
        (Self::Modules, "modules", "functions of loaded modules"),
        (
            Self::Hookable,
            "hookable",
            "functions whose entry can be hooked",
        ),
    ];
}

/// The scopes to choose from.
fn scopes(ui: &mut Ui, functions: &mut Functions) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(2.0, 2.0);
        ui.spacing_mut().button_padding = vec2(7.0, 1.0);
        ui.spacing_mut().interact_size.y = 20.0;
        for (scope, label, words) in Scope::ALL {
            let chosen = functions.scope == scope;
            let text = RichText::new(label).small();
            let response = ui.selectable_label(chosen, text).on_hover_text(words);
            let name = format!("list {words}");
            if widgets::chosen(response, Role::RadioButton, chosen, &name).clicked() {
                functions.scope = scope;
            }
        }
    });
}

/// What stands beside the pane's tab: how many there are.
pub(crate) fn header(ui: &mut Ui, state: &State) {
    if let Some(catalogue) = &state.catalogue {
        let words = count(&state.functions, catalogue);
        let weak = Tokens::of(ui).weak;
        ui.label(RichText::new(words).small().color(weak));
    }
}

/// Draws the list. `open` is the function whose graph is shown.
pub fn show(
    ui: &mut Ui,
    functions: &mut Functions,
    catalogue: Option<&Catalogue>,
    open: Option<FunctionId>,
    said: &mut Vec<Command>,
) {
    widgets::inset(ui, |ui| {
        filter(ui, functions, catalogue.is_some(), said);
        scopes(ui, functions);
    });
    let Some(catalogue) = catalogue else {
        widgets::empty(
            ui,
            "No kernel yet",
            "Functions appear here when a target is connected or a kernel image is open.",
        );
        return;
    };
    if functions.found.is_empty() {
        if functions.answered.as_deref() == Some(functions.filter.as_str()) {
            let by_file = folders(&functions.filter).next().is_some();
            let what = match functions.scope {
                _ if by_file && !functions.filed => {
                    "No source files are known: open the kernel's debug information from the Target menu."
                }
                Scope::Touched => "No function with instruments matches: add one, or list all.",
                Scope::Hot => "No function that was hit matches: run the session, or list all.",
                Scope::Modules => "No function of a module matches: list all.",
                Scope::Hookable if functions.looking => {
                    "Every function is being looked at; they appear when that is done."
                }
                Scope::Hookable => "No function that can be hooked at its entry matches: list all.",
                Scope::All => "Type fewer letters: they may be any of the name's, in order.",
            };
            widgets::empty(ui, "Nothing matches", what);
        }
        return;
    }
    matches(ui, functions, said);
    rows(ui, functions, catalogue, open, said);
}

/// While an instrument is carried: a place that means every function of the list.
fn matches(ui: &mut Ui, functions: &Functions, said: &mut Vec<Command>) {
    if Carried::by(ui).is_none() {
        return;
    }
    let size = vec2(ui.available_width(), space::ROW + space::SMALL);
    let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
    let words = format!(
        "entry of all {}",
        widgets::counted(functions.found.len(), "function")
    );
    let inside = rect.shrink2(vec2(space::SMALL, 2.0));
    let over = widgets::drop_place(ui, ui.painter(), inside, "every match", &words);
    if over && let Some(carried) = Carried::dropped(ui) {
        said.push(Command::Put(At::Matching, carried));
    }
}

fn count(functions: &Functions, catalogue: &Catalogue) -> String {
    if functions.filter.trim().is_empty() && functions.scope == Scope::All {
        widgets::grouped(catalogue.len() as u64)
    } else {
        format!(
            "{} of {}",
            widgets::grouped(functions.found.len() as u64),
            widgets::grouped(catalogue.len() as u64)
        )
    }
}

fn filter(ui: &mut Ui, functions: &mut Functions, enabled: bool, said: &mut Vec<Command>) {
    // Taken before the field sees them: there they would move the cursor.
    let focused = ui.memory(|memory| memory.has_focus(filter_id()));
    if focused {
        let last = functions.found.len().saturating_sub(1);
        let mut go = |by: isize, ui: &mut Ui, key: Key| {
            if ui.input_mut(|input| input.consume_key(Modifiers::NONE, key)) {
                functions.row = functions.row.saturating_add_signed(by).min(last);
                functions.scroll_to_row = true;
            }
        };
        go(1, ui, Key::ArrowDown);
        go(-1, ui, Key::ArrowUp);
        go(20, ui, Key::PageDown);
        go(-20, ui, Key::PageUp);
        if ui.input_mut(|input| input.consume_key(Modifiers::NONE, Key::Enter))
            && let Some(&id) = functions.found.get(functions.row)
        {
            said.push(Command::OpenFunction(id));
            ui.memory_mut(|memory| memory.surrender_focus(filter_id()));
        }
    }
    let field = TextEdit::singleline(&mut functions.filter)
        .id(filter_id())
        .font(code(text::CODE + 0.5))
        .hint_text("Filter: letters of the name, or a folder/   ( / )")
        .desired_width(f32::INFINITY)
        .margin(vec2(8.0, 6.0));
    let response = widgets::named(
        ui.add_enabled(enabled, field),
        Role::TextInput,
        "Filter functions",
    );
    if functions.focus {
        functions.focus = false;
        response.request_focus();
    }
}

/// Where the filter keeps its cursor.
fn filter_id() -> egui::Id {
    egui::Id::unique("filter functions")
}

fn rows(
    ui: &mut Ui,
    functions: &mut Functions,
    catalogue: &Catalogue,
    open: Option<FunctionId>,
    said: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    let names = named(&functions.filter);
    let mut finder = (!names.is_empty()).then(|| Finder::new(&names));
    ui.spacing_mut().item_spacing.y = 0.0;
    let mut area = ScrollArea::vertical()
        .auto_shrink(false)
        .id_salt("functions");
    if std::mem::take(&mut functions.scroll_to_row) {
        let id = ui.make_persistent_id(egui::Id::unique("functions"));
        let top = egui::scroll_area::State::load(ui.ctx(), id)
            .map_or(0.0, |state| state.clamped_offset().y);
        let (row, height) = (functions.row as f32 * space::ROW, ui.available_height());
        if row < top + space::ROW || row + 2.0 * space::ROW > top + height {
            // A step shows the next row; a jump shows what is around.
            let near = (row - top).abs() < space::ROW * 2.0
                || (row + space::ROW * 2.0 - top - height).abs() < space::ROW * 2.0;
            let above = if near && row > top {
                height - 2.0 * space::ROW
            } else if near {
                space::ROW
            } else {
                height * 0.4
            };
            area = area.vertical_scroll_offset((row - above).max(0.0));
        }
    }
    let mut chosen = None;
    area.show_rows(ui, space::ROW, functions.found.len(), |ui, range| {
        for index in range {
            let Some(&id) = functions.found.get(index) else {
                continue;
            };
            let (Some(name), Some(function)) = (catalogue.name(id), catalogue.image().function(id))
            else {
                continue;
            };
            let (rect, response) =
                ui.allocate_exact_size(vec2(ui.available_width(), space::ROW), Sense::click());
            let response = widgets::chosen(response, Role::ListBoxOption, open == Some(id), name);
            let fill = if open == Some(id) {
                Some(tokens.accent_fill)
            } else if response.hovered() || (index == functions.row && finder.is_some()) {
                Some(tokens.hover)
            } else {
                None
            };
            if let Some(fill) = fill {
                ui.painter().rect_filled(rect, 0.0, fill);
            }
            let size = ui.painter().layout_no_wrap(
                bytes(function.span.len()),
                prose(text::SMALL),
                tokens.weak,
            );
            let right = rect.right() - space::PANEL;
            let room = right - size.size().x - space::SMALL;
            ui.painter().galley(
                egui::pos2(right - size.size().x, rect.center().y - size.size().y / 2.0),
                size,
                tokens.weak,
            );
            let places = finder
                .as_mut()
                .map(|finder| finder.places(name))
                .unwrap_or_default();
            let left = rect.left() + space::PANEL;
            let galley = ui.painter().layout_job(label(
                name,
                &places,
                open == Some(id),
                room - left,
                tokens,
            ));
            ui.painter().galley(
                egui::pos2(left, rect.center().y - galley.size().y / 2.0),
                galley,
                tokens.text,
            );
            if Carried::by(ui).is_some() && response.contains_pointer() {
                let line = egui::Stroke::new(1.5, tokens.accent);
                ui.painter()
                    .rect_stroke(rect, 0.0, line, egui::StrokeKind::Inside);
                if let Some(carried) = Carried::dropped(ui) {
                    said.push(Command::Put(At::Function(id), carried));
                }
            }
            if response
                .on_hover_text(format!(
                    "{name}\n{} · {} bytes",
                    function.span.start,
                    function.span.len()
                ))
                .clicked()
            {
                chosen = Some((index, id));
            }
        }
    });
    if let Some((index, id)) = chosen {
        functions.row = index;
        said.push(Command::OpenFunction(id));
    }
}

fn bytes(count: u64) -> String {
    widgets::grouped(count)
}

/// A name with the letters that matched set off.
fn label(name: &str, places: &[u32], open: bool, room: f32, tokens: &Tokens) -> LayoutJob {
    let wrap = egui::text::TextWrapping::truncate_at_width(room.max(20.0));
    let mut job = LayoutJob {
        wrap,
        ..LayoutJob::default()
    };
    let plain = if open { tokens.strong } else { tokens.text };
    for (at, letter) in (0u32..).zip(name.chars()) {
        let color = if places.binary_search(&at).is_ok() {
            tokens.accent
        } else {
            plain
        };
        let mut buffer = [0; 4];
        job.append(
            letter.encode_utf8(&mut buffer),
            0.0,
            TextFormat::simple(code(text::CODE), color),
        );
    }
    job
}
