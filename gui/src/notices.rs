//! Notices: toasts that float over the window for some seconds, at most two, and a log of all.

use std::time::{Duration, Instant};

use egui::accesskit::Role;
use egui::{Align, Align2, Area, Context, Frame, Id, Layout, Order, RichText, Ui, vec2};

use crate::command::Command;
use crate::state::State;
use crate::theme::{Palette, Tokens, space};
use crate::widgets;

/// Maximum number of notices on the window.
const SHOWN: usize = 2;
/// Maximum number of notices in the log.
const LOGGED: usize = 200;
/// Maximum height of the log in points.
const LOG: f32 = 360.0;
/// Width of a notice in points.
const WIDTH: f32 = 400.0;
/// Height of the status line, which notices do not cover, in points.
const STATUS: f32 = 34.0;

/// A notice for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its severity.
    pub kind: NoticeKind,
    /// The text: what happened, and what to do, in whole sentences.
    pub words: String,
    /// Time since which it is on the window, or since the pointer left it.
    since: Option<Instant>,
}

/// Severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// Success.
    Good,
    /// A condition that needs attention.
    Warning,
    /// A failure.
    Bad,
}

impl NoticeKind {
    /// Returns how long a notice stays: long enough to read a long one twice.
    const fn stays(self) -> Duration {
        match self {
            Self::Good => Duration::from_secs(6),
            Self::Warning => Duration::from_secs(14),
            Self::Bad => Duration::from_secs(30),
        }
    }
}

impl State {
    /// Shows a notice to the user.
    pub fn notify(&mut self, kind: NoticeKind, words: impl Into<String>) {
        let words = words.into();
        // A success replaces the last success, and a repeated notice is shown once.
        let replaced = |notice: &Notice| {
            notice.words == words || (kind, notice.kind) == (NoticeKind::Good, NoticeKind::Good)
        };
        while let Some(place) = self.notices.iter().position(replaced) {
            self.dismiss(place);
        }
        let since = None;
        self.notices.push(Notice { kind, words, since });
        while self.notices.len() > SHOWN {
            self.dismiss(0);
        }
    }

    /// Moves a notice to the log.
    pub(crate) fn dismiss(&mut self, place: usize) {
        if place < self.notices.len() {
            self.log.push(self.notices.remove(place));
        }
        if self.log.len() > LOGGED {
            self.log.remove(0);
        }
    }
}

/// Draws the notices over the window, and moves old ones to the log. Notices that arrive while a
/// button is down appear after its release, so that they cover nothing that is dragged.
pub(crate) fn show(ctx: &Context, state: &mut State, commands: &mut Vec<Command>) {
    let shown = Id::unique("notices shown");
    let down = ctx.input(|input| input.pointer.any_down());
    let before = ctx.data(|data| data.get_temp::<usize>(shown));
    let count = before.filter(|_| down).unwrap_or(state.notices.len());
    ctx.data_mut(|data| data.insert_temp(shown, count));
    if count == 0 || state.notices.is_empty() {
        return;
    }
    let width = WIDTH.min(ctx.content_rect().width() - 2.0 * space::PANEL);
    let area = Area::new(Id::unique("notices"))
        .order(Order::Foreground)
        .anchor(Align2::RIGHT_BOTTOM, vec2(-space::PANEL, -STATUS));
    let area = area.show(ctx, |ui| {
        ui.set_width(width);
        for (place, notice) in state.notices.iter().take(count).enumerate() {
            toast(ui, place, notice, commands);
            ui.add_space(space::TIGHT);
        }
    });
    let pointed = area.response.contains_pointer();
    let now = Instant::now();
    for notice in state.notices.iter_mut().take(count) {
        let since = notice.since.get_or_insert(now);
        if pointed {
            *since = now;
        }
    }
    let rest = |notice: &Notice| {
        let since = notice.since?;
        Some(notice.kind.stays().saturating_sub(since.elapsed()))
    };
    let over = |notice: &Notice| rest(notice) == Some(Duration::ZERO);
    while let Some(place) = state.notices.iter().position(over) {
        state.dismiss(place);
        // This frame has drawn it, and without input no other frame would follow.
        ctx.request_repaint();
    }
    if let Some(next) = state.notices.iter().filter_map(rest).min() {
        ctx.request_repaint_after(next);
    }
}

fn color(kind: NoticeKind, tokens: &Tokens) -> egui::Color32 {
    match kind {
        NoticeKind::Good => tokens.good,
        NoticeKind::Warning => tokens.warning,
        NoticeKind::Bad => tokens.bad,
    }
}

fn toast(ui: &mut Ui, place: usize, notice: &Notice, commands: &mut Vec<Command>) {
    let tokens = Palette::of(ui.visuals()).tokens();
    let fill = match notice.kind {
        NoticeKind::Bad => tokens.bad_fill,
        NoticeKind::Good | NoticeKind::Warning => tokens.card,
    };
    let frame = Frame::popup(ui.style())
        .fill(fill)
        .inner_margin(space::margins(space::PANEL, space::SMALL));
    let shown = frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.with_layout(Layout::right_to_left(Align::Min), |ui| {
            if widgets::cross(ui, "Dismiss message").clicked() {
                commands.push(Command::Dismiss(place));
            }
            ui.with_layout(Layout::left_to_right(Align::Min), |ui| {
                widgets::dot(ui, color(notice.kind, tokens));
                let words = RichText::new(&notice.words).color(tokens.text);
                ui.add(egui::Label::new(words).wrap());
            });
        });
    });
    widgets::named(shown.response, Role::Alert, "Message");
}

/// Draws the button of the log, in the status line.
pub(crate) fn log(ui: &mut Ui, state: &State) {
    if state.log.is_empty() {
        return;
    }
    let tokens = Tokens::of(ui);
    let words = widgets::counted(state.log.len(), "message");
    let label = RichText::new(words).small().color(tokens.weak);
    let menu = ui.menu_button(label, |ui| {
        ui.set_width(WIDTH);
        let height = LOG.min(ui.ctx().content_rect().height() / 2.0);
        let list = egui::ScrollArea::vertical()
            .min_scrolled_height(height)
            .max_height(height);
        list.show(ui, |ui| {
            for notice in state.log.iter().rev() {
                ui.horizontal_top(|ui| {
                    widgets::dot(ui, color(notice.kind, tokens));
                    let words = RichText::new(&notice.words).small().color(tokens.text);
                    ui.add(egui::Label::new(words).wrap().selectable(true));
                });
            }
        });
    });
    widgets::named(menu.response, Role::Button, "Messages so far");
}

#[cfg(test)]
mod tests {
    use super::*;
    use gilk_instruments::Library;

    #[test]
    fn at_most_two_notices_are_shown_and_the_others_are_logged() {
        let mut state = State::new(Library::builtin().unwrap());
        state.notify(NoticeKind::Good, "one");
        state.notify(NoticeKind::Good, "two");
        state.notify(NoticeKind::Bad, "three");
        state.notify(NoticeKind::Warning, "four");
        let words = |notices: &[Notice]| {
            let words = notices.iter().map(|notice| notice.words.clone());
            words.collect::<Vec<_>>()
        };
        assert_eq!(words(&state.notices), ["three", "four"]);
        assert_eq!(words(&state.log), ["one", "two"]);
        state.dismiss(1);
        assert_eq!(words(&state.notices), ["three"]);
        assert_eq!(words(&state.log), ["one", "two", "four"]);
    }
}
