//! Widgets shared by all panes, for a uniform look and uniform accessibility names.

use std::sync::Arc;

use egui::accesskit::Role;
use egui::text::{CCursorRange, LayoutJob, TextWrapping};
use egui::text_edit::TextEditState;
use egui::{
    Align, Align2, Button, Color32, Context, FontId, Frame, Galley, Id, Layout, Modal, Painter,
    Rect, Response, RichText, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2,
};

use gilk_samples::chart::scale;
pub(crate) use gilk_samples::chart::scale::grouped;

use crate::command::Command;
use crate::icons::Icon;
use crate::theme::{Tokens, prose, space, text};

/// Sets a widget's accessibility name, for screen readers and tests.
pub(crate) fn named(response: Response, role: Role, name: &str) -> Response {
    let enabled = response.enabled();
    response.widget_info(|| WidgetInfo::labeled(role, enabled, name));
    response
}

/// Sets the accessibility name of a widget in a selectable group.
pub(crate) fn chosen(response: Response, role: Role, selected: bool, name: &str) -> Response {
    let enabled = response.enabled();
    response.widget_info(|| WidgetInfo::selected(role, enabled, selected, name));
    response
}

/// Draws contents with the panel's margins.
pub(crate) fn inset<R>(ui: &mut Ui, contents: impl FnOnce(&mut Ui) -> R) -> R {
    let margin = space::margins(space::PANEL, space::SNUG);
    Frame::NONE.inner_margin(margin).show(ui, contents).inner
}

/// Draws the message of an empty panel.
pub(crate) fn empty(ui: &mut Ui, title: &str, what_to_do: &str) {
    let tokens = Tokens::of(ui);
    Frame::NONE
        .inner_margin(space::margins(space::LARGE, space::LARGE))
        .show(ui, |ui| {
            ui.vertical_centered(|ui| {
                ui.add_space(space::MEDIUM);
                ui.label(RichText::new(title).color(tokens.text));
                ui.label(RichText::new(what_to_do).small().color(tokens.weak));
            });
        });
}

/// Draws the message of an empty panel, with the command that fills it.
pub(crate) fn empty_with(
    ui: &mut Ui,
    (title, what_to_do): (&str, &str),
    (command, possible): (Command, bool),
    commands: &mut Vec<Command>,
) {
    empty(ui, title, what_to_do);
    ui.vertical_centered(|ui| {
        // The inspector has a button with the command's name.
        let label = match command {
            Command::AddInstrument => "Add the inspector\u{2019}s instrument",
            _ => command.name(),
        };
        let shown = button(ui, label, command, possible, commands);
        named(shown, Role::Button, label);
    });
}

/// Sets the selection of a text field; an empty one is the cursor.
pub(crate) fn select(ui: &Ui, field: Id, range: CCursorRange) {
    let mut state = TextEditState::load(ui.ctx(), field).unwrap_or_default();
    state.cursor.set_char_range(Some(range));
    state.store(ui.ctx(), field);
}

/// Draws a button for a command, with its explanation and its shortcut in the tooltip.
pub(crate) fn button(
    ui: &mut Ui,
    label: &str,
    command: Command,
    enabled: bool,
    commands: &mut Vec<Command>,
) -> Response {
    let keys = command.shortcut_text(ui.ctx());
    let hint = if keys.is_empty() {
        command.explanation().to_owned()
    } else {
        format!("{}  ({keys})", command.explanation())
    };
    let response = ui.add_enabled(enabled, Button::new(label));
    let response = named(response, Role::Button, command.name()).on_hover_text(hint);
    if response.clicked() {
        commands.push(command);
    }
    response
}

/// Draws a square button with an icon for a command.
pub(crate) fn icon_button(
    ui: &mut Ui,
    icon: Icon,
    command: Command,
    enabled: bool,
    commands: &mut Vec<Command>,
) -> Response {
    let response = button(ui, "", command, enabled, commands);
    paint_icon(ui, icon, &response, response.rect.center());
    response
}

/// Draws a button with an icon to the left of its label.
pub(crate) fn labelled_icon(
    ui: &mut Ui,
    icon: Icon,
    label: &str,
    enabled: bool,
    primary: bool,
) -> Response {
    let tokens = Tokens::of(ui);
    let ink = if enabled && primary {
        tokens.on_accent
    } else {
        tokens.text
    };
    // Spaces make space for the icon, because a button has no other indent.
    let mut button = Button::new(RichText::new(format!("      {label}")).color(if enabled {
        ink
    } else {
        tokens.weak
    }));
    if enabled && primary {
        button = button
            .fill(tokens.accent)
            .stroke(Stroke::new(1.0, tokens.accent));
    }
    let response = ui.add_enabled(enabled, button);
    let at = pos2(
        response.rect.left() + ui.spacing().button_padding.x + Icon::SIZE / 2.0,
        response.rect.center().y,
    );
    icon.paint(
        ui.painter(),
        at,
        if enabled {
            ink
        } else {
            ui.visuals().disable(tokens.weak)
        },
    );
    response
}

/// Draws a cross without a frame.
pub(crate) fn cross(ui: &mut Ui, name: &str) -> Response {
    let (rect, response) = ui.allocate_exact_size(vec2(18.0, 18.0), Sense::click());
    let response = named(response, Role::Button, name);
    if response.hovered() {
        ui.painter().rect_filled(rect, 4.0, Tokens::of(ui).hover);
    }
    paint_icon(ui, Icon::Close, &response, rect.center());
    response
}

fn paint_icon(ui: &Ui, icon: Icon, response: &Response, at: egui::Pos2) {
    let tokens = Tokens::of(ui);
    let color = match (response.enabled(), response.hovered()) {
        (false, _) => ui.visuals().disable(tokens.weak),
        (true, true) => tokens.strong,
        (true, false) => tokens.text,
    };
    icon.paint(ui.painter(), at, color);
}

/// Draws a small pill with text. A text that is too wide is cut, and its tooltip has all of it.
pub(crate) fn pill(ui: &mut Ui, label: &str, color: Color32, fill: Color32) -> Response {
    let margin = vec2(18.0, 6.0);
    let mut job = LayoutJob::simple_singleline(label.to_owned(), prose(text::SMALL), color);
    job.wrap = TextWrapping::truncate_at_width((ui.available_width() - margin.x).max(0.0));
    let galley = ui.painter().layout_job(job);
    let (rect, mut response) = ui.allocate_exact_size(galley.size() + margin, Sense::hover());
    if galley.elided {
        response = response.on_hover_text(label);
    }
    ui.painter().rect(
        rect,
        rect.height() / 2.0,
        fill,
        Stroke::new(1.0, color),
        StrokeKind::Inside,
    );
    ui.painter()
        .galley(rect.center() - galley.size() / 2.0, galley, color);
    named(response, Role::Label, label)
}

/// Draws a dot in a lane's colour.
pub(crate) fn dot(ui: &mut Ui, color: Color32) {
    let (rect, _) = ui.allocate_exact_size(vec2(10.0, 16.0), Sense::hover());
    ui.painter().circle_filled(rect.center(), 4.0, color);
}

/// Draws a command's menu entry: a tick if it is a choice in effect, its name, and its shortcut.
pub(crate) fn menu_entry(ui: &mut Ui, command: &Command, ticked: Option<bool>) -> Response {
    let keys = command.shortcut_text(ui.ctx());
    // Two spaces per em reserve the width of the tick.
    let name = match ticked {
        Some(_) => format!("     {}", command.name()),
        None => command.name().to_owned(),
    };
    let response = ui.add(Button::new(name).shortcut_text(keys));
    if ticked == Some(true) {
        let color = Tokens::of(ui).accent;
        let left = response.rect.left() + ui.spacing().button_padding.x;
        let at = pos2(left + 5.0, response.rect.center().y);
        let tick = [vec2(-4.0, 0.0), vec2(-1.5, 3.0), vec2(4.0, -4.0)];
        let line = tick.map(|corner| at + corner).to_vec();
        ui.painter()
            .add(egui::Shape::line(line, Stroke::new(1.8, color)));
    }
    let response = response.on_hover_text(command.explanation());
    match ticked {
        Some(ticked) => chosen(response, Role::MenuItemCheckBox, ticked, command.name()),
        None => named(response, Role::MenuItem, command.name()),
    }
}

/// Draws the triangle of a group: downwards if it is open, to the right if it is folded.
pub(crate) fn triangle(painter: &Painter, at: egui::Pos2, open: bool, color: Color32) {
    let corners = if open {
        [vec2(-4.0, -2.5), vec2(4.0, -2.5), vec2(0.0, 3.5)]
    } else {
        [vec2(-2.5, -4.0), vec2(3.5, 0.0), vec2(-2.5, 4.0)]
    };
    let corners = corners.map(|corner| at + corner).to_vec();
    painter.add(egui::Shape::convex_polygon(corners, color, Stroke::NONE));
}

/// Draws a pin, filled if something is pinned.
pub(crate) fn pin(painter: &Painter, at: egui::Pos2, filled: bool, color: Color32) {
    let line = Stroke::new(1.4, color);
    let head = at + vec2(0.0, -2.0);
    if filled {
        painter.circle_filled(head, 3.6, color);
    } else {
        painter.circle_stroke(head, 3.2, line);
    }
    painter.line_segment([at + vec2(0.0, 1.5), at + vec2(0.0, 6.0)], line);
}

/// Draws a caption to the left of a field.
pub(crate) fn caption(ui: &mut Ui, label: &str) -> Response {
    let tokens = Tokens::of(ui);
    ui.label(RichText::new(label).small().color(tokens.weak))
}

/// Draws a place to drop a dragged instrument. Returns whether the pointer is over it.
pub(crate) fn drop_place(ui: &Ui, painter: &Painter, rect: Rect, name: &str, words: &str) -> bool {
    let tokens = Tokens::of(ui);
    let response = ui.interact(rect, Id::unique("drop place").with(name), Sense::hover());
    named(response, Role::Label, &format!("drop at {name}"));
    let pointer = ui.input(|input| input.pointer.latest_pos());
    let over = pointer.is_some_and(|pointer| rect.contains(pointer));
    let (line, fill) = if over {
        (tokens.accent, tokens.accent_fill)
    } else {
        (tokens.outline, tokens.card)
    };
    let line = Stroke::new(1.5, line);
    painter.rect(rect, space::CORNER, fill, line, StrokeKind::Inside);
    painter.text(
        rect.center(),
        Align2::CENTER_CENTER,
        words,
        prose(text::SMALL),
        tokens.strong,
    );
    over
}

/// Formats a count of things: `1 block`, `2 blocks`, `3 patches`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    scale::counted(count as u64, what)
}

/// Formats a size in bytes with a unit.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = UNITS.iter();
    let mut name = unit.next().copied().unwrap_or("B");
    while value >= 1024.0 {
        let Some(next) = unit.next() else { break };
        value /= 1024.0;
        name = next;
    }
    if name == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {name}")
    }
}

/// Lays out a line of text, truncated with an ellipsis to `room` points.
pub(crate) fn truncated(
    painter: &Painter,
    text: String,
    font: FontId,
    color: Color32,
    room: f32,
) -> Arc<Galley> {
    let mut job = LayoutJob::simple_singleline(text, font, color);
    job.wrap = TextWrapping::truncate_at_width(room.max(10.0));
    painter.layout_job(job)
}

pub(crate) fn title(ui: &mut Ui, words: &str) {
    let tokens = Tokens::of(ui);
    ui.label(RichText::new(words).heading().color(tokens.strong));
    ui.add_space(space::TIGHT);
}

/// Draws the dialog's default button.
pub(crate) fn primary(ui: &mut Ui, label: &str, enabled: bool) -> bool {
    let tokens = Tokens::of(ui);
    let mut button = Button::new(RichText::new(label).color(if enabled {
        tokens.on_accent
    } else {
        tokens.weak
    }));
    if enabled {
        button = button
            .fill(tokens.accent)
            .stroke(Stroke::new(1.0, tokens.accent));
    }
    ui.add_enabled(enabled, button).clicked()
}

/// Draws the buttons of a dialog in a row, the last to the left. The row has a height of its own: a dialog that had more
/// lines before would keep their height.
pub(crate) fn buttons<R>(ui: &mut Ui, add: impl FnOnce(&mut Ui) -> R) -> R {
    let size = vec2(ui.available_width(), ui.spacing().interact_size.y);
    let right = Layout::right_to_left(Align::Center);
    ui.allocate_ui_with_layout(size, right, add).inner
}

pub(crate) fn modal(ctx: &Context, name: &str) -> Modal {
    Modal::new(Id::unique(name)).frame(
        Frame::window(&ctx.global_style()).inner_margin(space::margins(space::LARGE, space::LARGE)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_sizes_have_units() {
        assert_eq!(counted(1, "patch"), "1 patch");
        assert_eq!(counted(1200, "block"), "1,200 blocks");
        assert_eq!(counted(2, "batch"), "2 batches");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(46_123_456), "46,123,456");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 30), "3.0 GiB");
    }
}
