//! Draws the window, frame by frame.

use egui::{Context, Ui, ViewportCommand};

use crate::app::App;
use crate::command::Command;
use crate::dragged_instrument::DraggedInstrument;
use crate::graph::view::metrics;
use crate::input_hold::InputHold;
use crate::notices::NoticeKind;
use crate::{dialogs, focus_ring, manual, menus, notices, palette, panels, threads};

impl App {
    /// Draws a frame.
    pub fn frame(&mut self, ui: &mut Ui) {
        if self.state.metrics.is_none() {
            self.state.metrics = Some(metrics(ui));
        }
        self.listen(ui.ctx());
        for words in threads::reported(ui.ctx()) {
            self.state.notify(NoticeKind::Bad, words);
        }
        self.request_updates();
        let fields = self.state.fields_open();
        let mut commands = self.pressed(ui.ctx());
        self.state.timeline.hovered_note = None;
        panels::show(ui, &mut self.state, &mut commands);
        dialogs::show(
            ui.ctx(),
            &mut self.state,
            self.workers.mail(),
            &mut commands,
        );
        notices::show(ui.ctx(), &mut self.state, &mut commands);
        palette::view::show(ui.ctx(), &mut self.state, &mut commands);
        manual::view::show(ui.ctx(), &mut self.state, &mut commands);
        DraggedInstrument::show(ui.ctx());
        focus_ring::show(ui.ctx());
        for command in commands {
            self.execute(command, ui.ctx());
        }
        let opened = self.state.fields_open();
        if opened
            .iter()
            .zip(fields)
            .any(|(now, before)| *now && !before)
        {
            InputHold::pause(ui.ctx());
        }
        self.end_step(ui.ctx());
        self.guard_closing(ui.ctx());
        self.request_updates();
        self.title(ui.ctx());
        self.save_state(ui.ctx());
        if let Some(mut shot) = self.shot.take() {
            self.take_screenshot(ui.ctx(), &mut shot);
            self.shot = Some(shot);
        }
        self.take_picture(ui.ctx());
        self.typed = ui.ctx().text_edit_focused();
        let active = self.state.run.active.as_ref();
        if active.is_some_and(|active| active.started.is_some()) {
            // The clock advances even if nothing else changes. While the plan is loaded there is none: the lab
            // needs the processor.
            ui.ctx()
                .request_repaint_after(std::time::Duration::from_millis(33));
        }
    }

    /// Returns the commands whose shortcuts were pressed. Escape closes the topmost menu, dialog or
    /// text field; without one it is the shortcut of *Back*.
    fn pressed(&mut self, ctx: &Context) -> Vec<Command> {
        let state = &mut self.state;
        if state.dialog.is_some()
            || state.guard.is_some()
            || state.natives.is_some()
            || state.palette.is_some()
        {
            return Vec::new();
        }
        if state.shortcuts {
            return menus::pressed(ctx, |command| *command == Command::ShowShortcuts);
        }
        if egui::Popup::is_any_open(ctx) {
            return menus::pressed(ctx, |command| *command != Command::Back);
        }
        let escape = |input: &mut egui::InputState| {
            input.consume_key(egui::Modifiers::NONE, egui::Key::Escape)
        };
        // A text field has lost the focus to this key by now.
        let typed = self.typed && state.graph.find.is_none();
        if typed {
            ctx.input_mut(escape);
        } else if state.manual.is_some() && ctx.input_mut(escape) {
            state.manual = None;
        }
        menus::pressed(ctx, |_| true)
    }

    /// Closes the undo step when the mouse button is released or the focus moves: one drag is one
    /// step, and so is the text typed into a field.
    fn end_step(&mut self, ctx: &Context) {
        let focus = ctx.memory(|memory| memory.focused());
        let released = ctx.input(|input| input.pointer.any_released());
        if released || focus != self.focus {
            self.focus = focus;
            self.state.document.close_step();
        }
    }

    fn guard_closing(&mut self, ctx: &Context) {
        if ctx.input(|input| input.viewport().close_requested()) && !self.leaving {
            self.state.finish_note();
            if self.state.document.unsaved() {
                ctx.send_viewport_cmd(ViewportCommand::CancelClose);
                self.execute(Command::Quit, ctx);
            } else {
                self.leaving = true;
            }
        }
    }

    fn title(&self, ctx: &Context) {
        let session = &self.state.document.session().name;
        let mark = if self.state.document.unsaved() {
            "● "
        } else {
            ""
        };
        let title = format!("{mark}{session} – GILK");
        let id = egui::Id::unique("window title");
        if ctx.data(|data| data.get_temp::<String>(id)).as_ref() != Some(&title) {
            ctx.send_viewport_cmd(ViewportCommand::Title(title.clone()));
            ctx.data_mut(|data| data.insert_temp(id, title));
        }
    }
}

impl eframe::App for App {
    fn raw_input_hook(&mut self, _ctx: &Context, input: &mut egui::RawInput) {
        if self.shot.is_some() {
            // The resting position of the pointer is not part of the picture.
            input.events.retain(|event| {
                !matches!(
                    event,
                    egui::Event::PointerMoved(_) | egui::Event::MouseMoved(_)
                )
            });
        }
    }

    fn ui(&mut self, ui: &mut Ui, _frame: &mut eframe::Frame) {
        self.frame(ui);
    }

    fn on_exit(&mut self, _gl: Option<&eframe::glow::Context>) {
        self.end();
    }
}
