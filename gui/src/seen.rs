//! What is on the screen, by name and place, in a file that follows it: a program that drives the
//! window's mouse and keys finds its way by it, as people do by looking.
//!
//! The first line says where the pointer was when it was drawn: who has moved it there knows that
//! everything before was heard. Then one line a widget, with tabs between: left, top, right, bottom in pixels of the window, role,
//! `on`, `off` or nothing, `disabled` or nothing, name, value. They are what AccessKit is told.

use std::fmt::Write as _;
use std::path::PathBuf;

use egui::accesskit::{Node, Toggled, TreeUpdate};
use egui::{Context, Event, FullOutput, Plugin, Pos2, RawInput};

/// Keeps the file.
#[derive(Debug)]
pub(crate) struct Seen {
    path: PathBuf,
    pointer: Pos2,
    last: String,
}

impl Seen {
    /// Of a window, in the file at `path`.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self {
            path,
            pointer: Pos2::ZERO,
            last: String::new(),
        }
    }
}

impl Plugin for Seen {
    fn debug_name(&self) -> &'static str {
        "seen"
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
        // Whoever else listens may have gone: this goes on.
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
        // Renamed into place, so that a reader never sees half of it.
        let beside = self.path.with_extension("new");
        let written = std::fs::write(&beside, &text);
        if written
            .and_then(|()| std::fs::rename(&beside, &self.path))
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
        let _always = writeln!(
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
