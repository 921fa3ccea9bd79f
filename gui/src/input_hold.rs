//! Holds input back that the window cannot take yet, and replays it in order: while a picture of the
//! window is taken, and while a field opens that takes the focus a frame after the key that opened it.
//! Without it, letters that follow a shortcut are lost on a machine that is slower than their typist.

use std::collections::VecDeque;

use egui::{Context, Event, Key, Plugin, Pos2, RawInput, Ui};

/// The part of the input after which a field may open.
#[derive(Clone, Copy, PartialEq)]
enum Opener {
    /// A shortcut with Ctrl, a key that ends an input, or the end of a click.
    Sole,
    /// A letter without Ctrl, which is a shortcut outside of text fields: the text of the same letter
    /// belongs to it.
    Letter,
}

impl Opener {
    /// Returns whether an event may open a field. In a text field, letters are text.
    fn of(event: &Event, typing: bool) -> Option<Self> {
        match event {
            Event::PointerButton { pressed: false, .. } => Some(Self::Sole),
            Event::Key {
                pressed: true,
                modifiers,
                ..
            } if modifiers.command || modifiers.ctrl => Some(Self::Sole),
            Event::Key {
                pressed: true,
                key: Key::Enter | Key::Escape | Key::Tab,
                ..
            } => Some(Self::Sole),
            Event::Key { pressed: true, .. } if !typing => Some(Self::Letter),
            _ => None,
        }
    }
}

/// Plugin that holds input back.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputHold {
    holding: bool,
    /// True if a field has opened that takes the focus in the next frame.
    pausing: bool,
    /// True until what was held back for a picture is replayed, one event a frame.
    replaying: bool,
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
                // Input that waits already is later than the pointer's position.
                if let Some(at) = hold.pointer {
                    hold.held.push_front(Event::PointerMoved(at));
                }
            }
        });
    }

    /// Holds the input of the next frame back, in which a field takes the focus.
    pub(crate) fn pause(ctx: &Context) {
        ctx.with_plugin(|hold: &mut Self| hold.pausing = true);
        ctx.request_repaint();
    }

    /// Starts to replay the input.
    pub(crate) fn release(ctx: &Context) {
        ctx.with_plugin(|hold: &mut Self| {
            hold.holding = false;
            hold.replaying = true;
        });
    }
}

impl InputHold {
    /// Takes the events up to the first one after which a field may open.
    fn next(&mut self, typing: bool) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.held.front() {
            let opener = Opener::of(event, typing);
            let has_text = events.iter().any(|event| matches!(event, Event::Text(_)));
            if opener == Some(Opener::Sole) && has_text {
                // A key that ends a text comes a frame after it, when lists show its matches.
                break;
            }
            events.extend(self.held.pop_front());
            let Some(opener) = opener else { continue };
            let is_own = |event: &Event| match event {
                Event::Text(text) => text.chars().count() == 1,
                _ => false,
            };
            if opener == Opener::Letter && self.held.front().is_some_and(is_own) {
                events.extend(self.held.pop_front());
            }
            break;
        }
        events
    }
}

impl Plugin for InputHold {
    fn debug_name(&self) -> &'static str {
        "input hold"
    }

    fn input_hook(&mut self, ctx: &Context, input: &mut RawInput) {
        if self.holding {
            self.held
                .append(&mut std::mem::take(&mut input.events).into());
            if self.pointer.take().is_some() {
                input.events.push(Event::PointerGone);
            }
            return;
        }
        self.held
            .append(&mut std::mem::take(&mut input.events).into());
        if !std::mem::take(&mut self.pausing) {
            self.replaying &= !self.held.is_empty();
            input.events = if self.replaying {
                self.held.pop_front().into_iter().collect()
            } else {
                self.next(ctx.text_edit_focused())
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use egui::Modifiers;

    fn key(key: Key, modifiers: Modifiers) -> Event {
        Event::Key {
            key,
            physical_key: None,
            pressed: true,
            repeat: false,
            modifiers,
        }
    }

    #[test]
    fn what_follows_a_shortcut_waits_for_the_field_that_it_opens() {
        let text = |text: &str| Event::Text(text.to_owned());
        let open = key(Key::O, Modifiers::COMMAND);
        let go = key(Key::G, Modifiers::NONE);
        let mut hold = InputHold {
            held: vec![
                open.clone(),
                text("/"),
                text("t"),
                go.clone(),
                text("g"),
                text("k"),
            ]
            .into(),
            ..InputHold::default()
        };
        assert_eq!(hold.next(false), [open]);
        // The dialog has the focus: letters are text.
        let mut typed = hold.clone();
        let all = [text("/"), text("t"), go.clone(), text("g"), text("k")];
        assert_eq!(typed.next(true), all);
        // Without it, a letter is a shortcut, and its text is not that of the field.
        assert_eq!(hold.next(false), [text("/"), text("t"), go, text("g")]);
        assert_eq!(hold.next(false), [text("k")]);
        // A text that ends opens something else, perhaps.
        let enter = key(Key::Enter, Modifiers::NONE);
        hold.held = vec![text("x"), enter.clone(), text("y")].into();
        assert_eq!(hold.next(true), [text("x")]);
        assert_eq!(hold.next(true), [enter]);
        assert_eq!(hold.next(true), [text("y")]);
        assert!(hold.next(false).is_empty());
    }
}
