//! Writes the accessibility tree of the window to a file, for programs that drive the window's
//! mouse and keyboard.
//!
//! The first line is the pointer's position at that frame: once it equals the position that a
//! program moved the pointer to, all earlier input was handled. Each further line is a widget,
//! separated by tabs: left, top, right, bottom in pixels of the window, role, `on`, `off` or empty,
//! `disabled` or empty, name, value, as passed to AccessKit.

use std::fmt::Write as _;
use std::path::PathBuf;

use egui::accesskit::{Node, Toggled, TreeUpdate};
use egui::{Context, Event, FullOutput, Plugin, Pos2, RawInput};

/// Plugin that writes the file.
#[derive(Debug)]
pub(crate) struct WidgetDump {
    path: PathBuf,
    pointer: Pos2,
    last: String,
}

impl WidgetDump {
    /// Creates the plugin for the file at `path`.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self {
            path,
            pointer: Pos2::ZERO,
            last: String::new(),
        }
    }
}

impl Plugin for WidgetDump {
    fn debug_name(&self) -> &'static str {
        "widget dump"
    }

    fn setup(&mut self, ctx: &Context) {
        ctx.enable_accesskit();
    }

    fn input_hook(&mut self, _ctx: &Context, input: &mut RawInput) {
        for event in &input.events {
            if let Event::PointerMoved(at) = event {
                self.pointer = *at;
            }
        }
    }

    fn output_hook(&mut self, ctx: &Context, output: &mut FullOutput) {
        // Keeps AccessKit enabled if another client disconnects.
        ctx.enable_accesskit();
        let Some(update) = &output.platform_output.accesskit_update else {
            return;
        };
        let scale = output.pixels_per_point;
        let text = format!(
            "{:.0}\t{:.0}\n{}",
            self.pointer.x * scale,
            self.pointer.y * scale,
            lines(update, f64::from(scale))
        );
        if text == self.last {
            return;
        }
        // Renamed into place, so that a reader never sees a partial file.
        let temporary = self.path.with_extension("new");
        let written = std::fs::write(&temporary, &text);
        if written
            .and_then(|()| std::fs::rename(&temporary, &self.path))
            .is_ok()
        {
            self.last = text;
        }
    }
}

fn lines(update: &TreeUpdate, scale: f64) -> String {
    let mut text = String::new();
    for (_, node) in &update.nodes {
        let name = plain(node.label().unwrap_or_default());
        let value = plain(node.value().unwrap_or_default());
        let Some(at) = node
            .bounds()
            .filter(|_| !name.is_empty() || !value.is_empty())
        else {
            continue;
        };
        let written = writeln!(
            text,
            "{:.0}\t{:.0}\t{:.0}\t{:.0}\t{:?}\t{}\t{}\t{name}\t{value}",
            at.x0 * scale,
            at.y0 * scale,
            at.x1 * scale,
            at.y1 * scale,
            node.role(),
            toggled(node),
            if node.is_disabled() { "disabled" } else { "" },
        );
        debug_assert!(written.is_ok(), "writing to a string does not fail");
    }
    text
}

fn toggled(node: &Node) -> &'static str {
    match node.toggled() {
        Some(Toggled::True) => "on",
        Some(_) => "off",
        None => "",
    }
}

fn plain(text: &str) -> String {
    text.replace(['\t', '\n'], " ")
}
