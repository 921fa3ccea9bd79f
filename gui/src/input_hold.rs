//! Holds input back while a picture of the window is taken, and replays it in order afterwards.

use std::collections::VecDeque;

use egui::{Context, Event, Plugin, Pos2, RawInput, Ui};

/// Plugin that holds input back.
#[derive(Debug, Default)]
pub(crate) struct InputHold {
    holding: bool,
    held: VecDeque<Event>,
    /// The pointer's position for the window.
    pointer: Option<Pos2>,
}

impl InputHold {
    /// Starts to hold input back, and removes the pointer from the window.
    pub(crate) fn hold(ctx: &Context) {
        ctx.with_plugin(|hold: &mut Self| {
            if !hold.holding {
                hold.holding = true;
                hold.held.extend(hold.pointer.map(Event::PointerMoved));
            }
        });
    }

    /// Starts to replay the input.
    pub(crate) fn release(ctx: &Context) {
        ctx.with_plugin(|hold: &mut Self| hold.holding = false);
    }
}

impl Plugin for InputHold {
    fn debug_name(&self) -> &'static str {
        "input hold"
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
            // One event per frame: a letter typed after the shortcut that opens a field belongs to
            // that field, which gets the focus in the next frame.
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
