//! Draws the palette, and lists its entries: commands, locations (an address, a name, or a name and
//! an offset), or callers and callees.

use egui::accesskit::Role;
use egui::{
    Align2, Context, Frame, Id, Key, Modal, Modifiers, RichText, ScrollArea, TextEdit, Ui, vec2,
};
use gilk_engine::Addr;
use gilk_engine::code::FunctionId;

use super::PaletteKind;
use crate::availability::possible;
use crate::catalogue::{Catalogue, Finder};
use crate::command::Command;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// An entry of the palette.
struct Entry {
    name: String,
    note: String,
    enabled: bool,
    command: Command,
}

/// Distance of the palette from the window's top in points.
const TOP: f32 = 90.0;
/// Maximum height of its list in points.
const LIST: f32 = 360.0;
/// Maximum number of locations listed.
const MAX_LOCATIONS: usize = 40;

/// Draws the palette, if it is open.
pub(crate) fn show(ctx: &Context, state: &mut State, commands: &mut Vec<Command>) {
    let Some(mut palette) = state.palette.take() else {
        return;
    };
    let mut entries = Vec::new();
    let mut chosen = None;
    let frame =
        Frame::window(&ctx.global_style()).inner_margin(space::margins(space::SMALL, space::SMALL));
    let area =
        Modal::default_area(Id::unique("palette")).anchor(Align2::CENTER_TOP, vec2(0.0, TOP));
    let shown =
        Modal::new(Id::unique("palette"))
            .area(area)
            .frame(frame)
            .show(ctx, |ui| {
                ui.set_width(560.0);
                let keys = Keys::pressed(ui);
                let (hint, name) = match palette.kind {
                    PaletteKind::Commands => ("any letters of a command", "Find command"),
                    PaletteKind::Places => ("address, name, or name+0x1a", "Go to"),
                    PaletteKind::References => ("any letters of a caller or callee", "Find reference"),
                };
                let field = TextEdit::singleline(&mut palette.text)
                    .id(Id::unique("palette text"))
                    .font(code(text::BODY))
                    .hint_text(hint)
                    .desired_width(f32::INFINITY)
                    .margin(space::margins(space::SMALL, space::SNUG));
                let response = widgets::named(ui.add(field), Role::TextInput, name);
                response.request_focus();
                if response.changed() {
                    palette.row = 0;
                }
                // Text and Enter may arrive in one frame: the entries are those of the text with them.
                let typed = palette.text.trim();
                entries = match palette.kind {
                    PaletteKind::Commands => command_entries(ctx, state, typed),
                    PaletteKind::Places => places(state, typed),
                    PaletteKind::References => references(state, typed),
                };
                let last = entries.len().saturating_sub(1);
                palette.row = palette.row.saturating_add_signed(keys.rows).min(last);
                chosen = keys.enter.then_some(palette.row);
                ui.add_space(space::TIGHT);
                // A modal has the height of the frame before, so the list requests its own.
                let height = LIST.min(ctx.content_rect().height() - TOP - 110.0);
                ScrollArea::vertical().min_scrolled_height(height).max_height(height).auto_shrink([false, true]).show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 0.0;
            for (row, entry) in entries.iter().enumerate() {
                if line(ui, entry, row == palette.row) {
                    chosen = Some(row);
                }
            }
            if entries.is_empty() {
                let words = match palette.kind {
                            PaletteKind::Places if palette.text.trim().is_empty() => {
                                "Type a location: kernel_clone, kernel_clone+0x61, ffffffff81000000."
                            }
                            PaletteKind::References if state.calls.is_none() => {
                                "Searching all functions for calls…"
                            }
                            PaletteKind::References if palette.text.trim().is_empty() => {
                                "This function has no direct calls and no direct callers."
                            }
                            _ => "Nothing matches; type fewer letters.",
                        };
                ui.label(RichText::new(words).small().color(Tokens::of(ui).weak));
            }
        });
            });
    if let Some(entry) = chosen.and_then(|row| entries.get(row)) {
        if entry.enabled {
            commands.push(entry.command.clone());
        } else {
            state.palette = Some(palette);
        }
    } else if !shown.should_close() {
        state.palette = Some(palette);
    }
}

/// Keys that the field must not receive.
struct Keys {
    /// Rows by which the selection moves.
    rows: isize,
    enter: bool,
}

impl Keys {
    fn pressed(ui: &Ui) -> Self {
        let pressed = |key| ui.input_mut(|input| input.consume_key(Modifiers::NONE, key));
        let moves = [
            (Key::ArrowDown, 1),
            (Key::ArrowUp, -1),
            (Key::PageDown, 10),
            (Key::PageUp, -10),
        ];
        let moved = moves.into_iter().filter(|(key, _)| pressed(*key));
        Self {
            rows: moved.map(|(_, by)| by).sum(),
            enter: pressed(Key::Enter),
        }
    }
}

fn line(ui: &mut Ui, entry: &Entry, marked: bool) -> bool {
    let tokens = Tokens::of(ui);
    let size = vec2(ui.available_width(), space::ROW + 2.0);
    let (rect, response) = ui.allocate_exact_size(size, egui::Sense::click());
    let name = format!("palette: {}", entry.name);
    let response = widgets::chosen(response, Role::ListBoxOption, marked, &name);
    if marked || response.hovered() {
        let fill = if marked {
            tokens.accent_fill
        } else {
            tokens.hover
        };
        ui.painter().rect_filled(rect, 4.0, fill);
    }
    if marked {
        response.scroll_to_me(None);
    }
    let ink = if entry.enabled {
        tokens.text
    } else {
        tokens.weak
    };
    let middle = rect.center().y;
    let note = ui.painter().text(
        egui::pos2(rect.right() - space::SMALL, middle),
        Align2::RIGHT_CENTER,
        &entry.note,
        code(text::SMALL),
        tokens.weak,
    );
    let room = note.left() - rect.left() - 2.0 * space::SMALL;
    let font = crate::theme::prose(text::BODY);
    let galley = widgets::truncated(ui.painter(), entry.name.clone(), font, ink, room);
    let at = egui::pos2(rect.left() + space::SMALL, middle - galley.size().y / 2.0);
    ui.painter().galley(at, galley, ink);
    response.clicked()
}

fn command_entries(ctx: &Context, state: &State, typed: &str) -> Vec<Entry> {
    let mut finder = Finder::new(typed);
    let mut scored: Vec<(u32, Entry)> = Command::listed()
        .filter(|command| **command != Command::ShowPalette)
        .filter_map(|command| {
            let score = finder.score(command.name())?;
            let entry = Entry {
                name: command.name().to_owned(),
                note: command.shortcut_text(ctx),
                enabled: possible(state, command),
                command: command.clone(),
            };
            Some((score, entry))
        })
        .collect();
    // Stable: equal scores stay in the order of the menus.
    scored.sort_by_key(|(score, entry)| (!entry.enabled, std::cmp::Reverse(*score)));
    scored.into_iter().map(|(_, entry)| entry).collect()
}

fn places(state: &State, typed: &str) -> Vec<Entry> {
    let Some(catalogue) = &state.catalogue else {
        return Vec::new();
    };
    if typed.is_empty() {
        return Vec::new();
    }
    if let Some(at) = address(catalogue, typed) {
        let name = catalogue.image().symbol_at(at);
        let name = name.map_or_else(|| at.to_string(), |(name, off)| format!("{name}+{off:#x}"));
        return vec![Entry {
            name,
            note: at.to_string(),
            enabled: true,
            command: Command::GoToAddress(at),
        }];
    }
    let (stem, _) = typed.split_once('+').unwrap_or((typed, ""));
    let locations = catalogue.beginning_with(stem, MAX_LOCATIONS);
    let entry = |id: FunctionId| {
        let function = catalogue.image().function(id)?;
        Some(Entry {
            name: catalogue.name(id)?.to_owned(),
            note: function.span.start.to_string(),
            enabled: true,
            command: Command::OpenFunction(id),
        })
    };
    locations.into_iter().filter_map(entry).collect()
}

/// Parses an address: hexadecimal with or without `0x`, or a name with an optional offset.
fn address(catalogue: &Catalogue, typed: &str) -> Option<Addr> {
    let hexadecimal =
        |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    if typed.len() >= 8
        && let Some(at) = hexadecimal(typed)
    {
        return catalogue.image().function_at(Addr(at)).map(|_| Addr(at));
    }
    let (name, offset) = match typed.split_once('+') {
        Some((name, offset)) => (name.trim(), hexadecimal(offset)?),
        None => (typed, 0),
    };
    let function = catalogue.image().function_named(name).ok()?;
    (offset < function.span.len()).then(|| function.span.start.add(offset))
}

/// Lists the callers and callees of the open function.
fn references(state: &State, typed: &str) -> Vec<Entry> {
    let (Some(catalogue), Some(calls), Some(scene)) =
        (&state.catalogue, &state.calls, &state.graph.scene)
    else {
        return Vec::new();
    };
    let function = scene.function();
    let mut finder = Finder::new(typed);
    let name = |id| catalogue.name(id).unwrap_or_default().to_owned();
    let into = calls.of_callers(function).iter().map(|call| {
        let start = catalogue
            .image()
            .function(call.from)
            .map_or(call.at, |one| one.span.start);
        let offset = call.at.0.saturating_sub(start.0);
        Entry {
            name: format!("called by {}+{offset:#x}", name(call.from)),
            note: call.at.to_string(),
            enabled: true,
            command: Command::GoToAddress(call.at),
        }
    });
    let start = scene.cfg.span.start.0;
    let out = calls.out_of(function).iter().map(|call| Entry {
        name: format!("calls {}", name(call.to)),
        note: format!("at +{:#x}", call.at.0.saturating_sub(start)),
        enabled: true,
        command: Command::OpenFunction(call.to),
    });
    let matches = |entry: &Entry| finder.score(&entry.name).is_some();
    into.chain(out).filter(matches).take(500).collect()
}
