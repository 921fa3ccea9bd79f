//! The list of functions: a filter, a count, and rows drawn only while visible.

use egui::text::LayoutJob;
use egui::{
    Align, Key, Layout, Modifiers, RichText, ScrollArea, Sense, TextEdit, TextFormat, Ui,
    accesskit::Role, vec2,
};
use gilk_engine::code::FunctionId;

use super::{Functions, Scope};
use crate::catalogue::{Catalogue, Finder};
use crate::command::{Command, Destination};
use crate::dragged_instrument::DraggedInstrument;
use crate::object_names::{Cut, LEFT_OUT, object};
use crate::state::State;
use crate::theme::{Tokens, code, prose, space, text};
use crate::widgets;
use crate::worker::searcher::{folders, named};

/// Draws the choice of scopes.
fn scopes(ui: &mut Ui, functions: &mut Functions) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(space::HAIR, space::HAIR);
        ui.spacing_mut().button_padding = vec2(space::SNUG, 0.0);
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

/// Draws the number of functions next to the pane's tab.
pub(crate) fn header(ui: &mut Ui, state: &State) {
    if let Some(catalogue) = &state.catalogue {
        let words = count(&state.functions, catalogue);
        let weak = Tokens::of(ui).weak;
        ui.label(RichText::new(words).small().color(weak));
    }
}

/// Draws the list. `is_awaited` returns whether a function is of a library that is not loaded, `open` is the function shown
/// in the graph.
pub(crate) fn show(
    ui: &mut Ui,
    functions: &mut Functions,
    catalogue: Option<&Catalogue>,
    is_awaited: &dyn Fn(&str) -> bool,
    open: Option<FunctionId>,
    commands: &mut Vec<Command>,
) {
    widgets::inset(ui, |ui| {
        filter(ui, functions, catalogue.is_some(), commands);
        scopes(ui, functions);
    });
    let Some(catalogue) = catalogue else {
        widgets::empty(
            ui,
            "No functions yet",
            "Open a process, connect to a target, or open a kernel file to list its functions.",
        );
        return;
    };
    if functions.found.is_empty() {
        if functions.answered.as_deref() == Some(functions.filter.as_str()) {
            let by_file = folders(&functions.filter).next().is_some();
            let what = match functions.scope {
                _ if by_file && !functions.filed => {
                    "No source files are known. Open the kernel's debug information from the Target menu."
                }
                Scope::Touched => {
                    "No function with instruments matches. Add an instrument or list all."
                }
                Scope::Hot => "No function that was hit matches. Run the session or list all.",
                Scope::Modules => "No function of a module matches. List all.",
                Scope::Hookable if functions.looking => "Analyzing every function…",
                Scope::Hookable => "No function with a hookable entry matches. List all.",
                Scope::All => "Type fewer letters. Any letters of the name match, in order.",
            };
            widgets::empty(ui, "Nothing matches", what);
        }
        return;
    }
    matches(ui, functions, commands);
    headings(ui);
    rows(ui, functions, (catalogue, is_awaited), open, commands);
}

/// Draws the names of the list's columns.
fn headings(ui: &mut Ui) {
    let inside = vec2(
        ui.available_width() - 2.0 * space::PANEL,
        ui.spacing().interact_size.y,
    );
    ui.horizontal(|ui| {
        ui.add_space(space::PANEL);
        ui.allocate_ui_with_layout(inside, Layout::right_to_left(Align::Center), |ui| {
            widgets::caption(ui, "bytes").on_hover_text("Size of the function's code.");
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                widgets::caption(ui, "function");
            });
        });
    });
}

/// While an instrument is dragged, draws a drop place for the entries of all listed functions.
fn matches(ui: &mut Ui, functions: &Functions, commands: &mut Vec<Command>) {
    if DraggedInstrument::by(ui).is_none() {
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
    if over && let Some(carried) = DraggedInstrument::dropped(ui) {
        commands.push(Command::Put(Destination::Matching, carried));
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

fn filter(ui: &mut Ui, functions: &mut Functions, enabled: bool, commands: &mut Vec<Command>) {
    // Consumed before the field, in which these keys would move the cursor.
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
            commands.push(Command::OpenFunction(id));
            ui.memory_mut(|memory| memory.surrender_focus(filter_id()));
        }
    }
    let field = TextEdit::singleline(&mut functions.filter)
        .id(filter_id())
        .font(code(text::CODE))
        .hint_text("Filter: letters of the name, or a folder/   ( / )")
        .desired_width(f32::INFINITY)
        .margin(space::margins(space::SMALL, space::SNUG));
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

/// Returns the widget id of the filter.
fn filter_id() -> egui::Id {
    egui::Id::unique("filter functions")
}

fn rows(
    ui: &mut Ui,
    functions: &mut Functions,
    (catalogue, is_awaited): (&Catalogue, &dyn Fn(&str) -> bool),
    open: Option<FunctionId>,
    commands: &mut Vec<Command>,
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
            // A step scrolls by a row; a jump also shows the neighbouring rows.
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
    let letter = ui
        .painter()
        .layout_no_wrap("0".into(), code(text::CODE), tokens.text);
    let letter = letter.size().x;
    let mut chosen = None;
    area.show_rows(ui, space::ROW, functions.found.len(), |ui, range| {
        for index in range {
            let Some(&id) = functions.found.get(index) else {
                continue;
            };
            // A result of the last image may still be listed for a frame.
            let (Some(name), Some(function)) = (catalogue.name(id), catalogue.image().function(id))
            else {
                continue;
            };
            let (rect, response) =
                ui.allocate_exact_size(vec2(ui.available_width(), space::ROW), Sense::click());
            let is_awaited = is_awaited(name);
            let named = match is_awaited {
                true => format!("{name}, not loaded"),
                false => name.to_owned(),
            };
            let response = widgets::chosen(response, Role::ListBoxOption, open == Some(id), &named);
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
            let size = match is_awaited {
                true => "not loaded".to_owned(),
                false => bytes(function.span.len()),
            };
            let size = ui
                .painter()
                .layout_no_wrap(size, prose(text::SMALL), tokens.weak);
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
            let letters = ((room - left) / letter).max(0.0) as usize;
            let mut job = label(
                name,
                Cut::of(name, letters),
                (&places, open == Some(id)),
                tokens,
            );
            job.wrap = egui::text::TextWrapping::truncate_at_width((room - left).max(20.0));
            let galley = ui.painter().layout_job(job);
            ui.painter().galley(
                egui::pos2(left, rect.center().y - galley.size().y / 2.0),
                galley,
                tokens.text,
            );
            if DraggedInstrument::by(ui).is_some() && response.contains_pointer() {
                let line = egui::Stroke::new(1.5, tokens.accent);
                ui.painter()
                    .rect_stroke(rect, 0.0, line, egui::StrokeKind::Inside);
                if let Some(carried) = DraggedInstrument::dropped(ui) {
                    commands.push(Command::Put(Destination::Function(id), carried));
                }
            }
            if response
                .on_hover_text(match is_awaited {
                    true => format!("{named} · {} bytes", bytes(function.span.len())),
                    false => format!(
                        "{name}\n{} · {} bytes",
                        function.span.start,
                        bytes(function.span.len())
                    ),
                })
                .clicked()
            {
                chosen = Some((index, id));
            }
        }
    });
    if let Some((index, id)) = chosen {
        functions.row = index;
        commands.push(Command::OpenFunction(id));
    }
}

fn bytes(count: u64) -> String {
    widgets::grouped(count)
}

/// Lays a name out with the matched letters highlighted, and without a part of its object.
fn label(name: &str, cut: Cut, (places, open): (&[u32], bool), tokens: &Tokens) -> LayoutJob {
    let mut job = LayoutJob::default();
    let plain = if open { tokens.strong } else { tokens.text };
    let of_object = object(name).map_or(0, |object| object.chars().count() + 1);
    let mut add = |letter: char, color| {
        let format = TextFormat::simple(code(text::CODE), color);
        job.append(letter.encode_utf8(&mut [0; 4]), 0.0, format);
    };
    for (at, letter) in name.chars().enumerate() {
        if !cut.is_empty() && at == cut.from {
            add(LEFT_OUT, tokens.weak);
        }
        if (cut.from..cut.to).contains(&at) {
            continue;
        }
        let is_match = u32::try_from(at).is_ok_and(|at| places.binary_search(&at).is_ok());
        add(
            letter,
            match is_match {
                true => tokens.accent,
                false if at < of_object && !open => tokens.weak,
                false => plain,
            },
        );
    }
    job
}
