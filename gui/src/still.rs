//! Holds mouse and keys back while a picture of the window is taken: what a person does meanwhile is no
//! part of it, and happens when it is done, in its order.

use std::collections::VecDeque;

use egui::{Context, Event, Plugin, Pos2, RawInput, Ui};

/// What is held back.
#[derive(Debug, Default)]
pub(crate) struct Still {
    holding: bool,
    held: VecDeque<Event>,
    /// Where the pointer is for the window.
    pointer: Option<Pos2>,
}

impl Still {
    /// Lets nothing through, and has the pointer point at nothing.
    pub(crate) fn hold(ctx: &Context) {
        ctx.with_plugin(|still: &mut Self| {
            if !still.holding {
                still.holding = true;
                still.held.extend(still.pointer.map(Event::PointerMoved));
            }
        });
    }

    /// Lets everything through again.
    pub(crate) fn release(ctx: &Context) {
        ctx.with_plugin(|still: &mut Self| still.holding = false);
    }
}

impl Plugin for Still {
    fn debug_name(&self) -> &'static str {
        "still"
    }

    fn input_hook(&mut self, _ctx: &Context, input: &mut RawInput) {
        if self.holding {
            self.held
                .append(&mut std::mem::take(&mut input.events).into());
            if self.pointer.take().is_some() {
                input.events.push(Event::PointerGone);
            }
            return;
        }
        if !self.held.is_empty() {
            // One at a time: a letter behind the keys that open a field is for that field, which gets
            // the focus in the frame between.
            self.held
                .append(&mut std::mem::take(&mut input.events).into());
            input.events.extend(self.held.pop_front());
        }
        for event in &input.events {
            match event {
                Event::PointerMoved(at) => self.pointer = Some(*at),
                Event::PointerGone => self.pointer = None,
                _ => {}
            }
        }
    }

    fn on_end_pass(&mut self, ui: &mut Ui) {
        if !self.held.is_empty() {
            ui.ctx().request_repaint();
        }
    }
}
