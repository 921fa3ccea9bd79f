//! The window's layout: bars and panes.

use egui::{Align, Frame, Layout, MenuBar, Panel, ProgressBar, RichText, Ui, accesskit::Role};
use gilk_engine::code::Origin;

use crate::availability::{possible, ticked};
use crate::command::Command;
use crate::icons::Icon;
use crate::menus::{MENUS, MenuItem};
use crate::state::{State, TargetState};
use crate::theme::{Tokens, space, text};
use crate::{desk, machines, status, tour, widgets};

/// Draws the window.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let bar = Frame::NONE
        .fill(tokens.bar)
        .inner_margin(space::margins(space::PANEL, space::SNUG));
    let bare = Frame::NONE.fill(tokens.panel);
    Panel::top("top bar")
        .frame(bar)
        .show(ui, |ui| top_bar(ui, state, commands));
    if !state.machines.others.is_empty() {
        Panel::top("machines")
            .frame(bar)
            .show(ui, |ui| machines::bar::show(ui, state, commands));
    }
    tour::show(ui, state, commands);
    let low = Frame::NONE
        .fill(tokens.bar)
        .inner_margin(space::margins(space::PANEL, space::TIGHT));
    Panel::bottom("status")
        .frame(low)
        .show(ui, |ui| status::show(ui, state, commands));
    egui::CentralPanel::default()
        .frame(bare)
        .show(ui, |ui| desk::panes::show(ui, state, commands));
}

fn top_bar(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    MenuBar::new().ui(ui, |ui| {
        ui.label(
            RichText::new("GILK")
                .size(text::HEADING)
                .strong()
                .color(tokens.strong),
        );
        ui.add_space(space::TIGHT);
        for (menu, entries) in MENUS {
            ui.menu_button(*menu, |ui| {
                ui.set_min_width(220.0);
                for item in *entries {
                    match item {
                        MenuItem::Entry(command) => menu_entry(ui, state, command, commands),
                        MenuItem::Line => {
                            ui.separator();
                        }
                        MenuItem::Menu(name, entries) => {
                            ui.menu_button(*name, |ui| {
                                for command in *entries {
                                    menu_entry(ui, state, command, commands);
                                }
                            });
                        }
                    }
                }
            });
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            run_controls(ui, state, commands);
        });
    });
}

fn menu_entry(ui: &mut Ui, state: &State, command: &Command, commands: &mut Vec<Command>) {
    let response = ui
        .add_enabled_ui(possible(state, command), |ui| {
            widgets::menu_entry(ui, command, ticked(state, command))
        })
        .inner;
    if response.clicked() {
        commands.push(command.clone());
        ui.close();
    }
}

fn run_controls(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let running = state.run.active.is_some();
    let stop = widgets::labelled_icon(ui, Icon::Stop, "Stop", running, false);
    if widgets::named(stop, Role::Button, Command::Stop.name())
        .on_hover_text("Stop run  (Shift+F5)")
        .clicked()
    {
        commands.push(Command::Stop);
    }
    let hindrance = state.run_hindrance();
    let response = widgets::labelled_icon(ui, Icon::Run, "Run", hindrance.is_none(), true);
    let response = widgets::named(response, Role::Button, Command::Run.name());
    let response = match hindrance {
        Some(why) => response.on_disabled_hover_text(why),
        None => response.on_hover_text("Run session  (F5)"),
    };
    if response.clicked() {
        commands.push(Command::Run);
    }
    if let Some(active) = &state.run.active {
        let elapsed = active.elapsed();
        let share = (elapsed / active.duration.max(1e-9)) as f32;
        let words = if active.stop.is_stopped() {
            "stopping".to_owned()
        } else if active.started.is_some() {
            format!("{elapsed:.1} of {} s", active.duration)
        } else {
            "loading the plan".to_owned()
        };
        ui.add(
            ProgressBar::new(share)
                .desired_width(190.0)
                .desired_height(20.0)
                .corner_radius(space::CORNER)
                .text(RichText::new(words).small()),
        );
    }
    target_pill(ui, state);
    // Without an image, the welcome page has the same button.
    if matches!(state.target, TargetState::Lost(_)) && state.catalogue.is_some() {
        let command = Command::Reconnect;
        let possible = possible(state, &command);
        widgets::button(ui, "Reconnect", command, possible, commands);
    }
}

fn target_pill(ui: &mut Ui, state: &State) {
    let tokens = Tokens::of(ui);
    let (words, color) = match &state.target {
        TargetState::None => ("no target".to_owned(), tokens.weak),
        TargetState::Busy(progress) => (format!("{} …", progress.name), tokens.warning),
        TargetState::Offline => {
            let release = state
                .catalogue
                .as_ref()
                .map_or("", |catalogue| catalogue.image().release());
            (format!("saved image · Linux {release}"), tokens.weak)
        }
        TargetState::Ready(info) => {
            let catalogue = state.catalogue.as_ref();
            let origin = catalogue.map(|catalogue| catalogue.image().origin());
            let system = match origin {
                Some(Origin::Object) => info.release.clone(),
                _ => format!("Linux {}", info.release),
            };
            let words = format!("{} · {system} · {} CPUs", info.host, info.cpus);
            (words, tokens.good)
        }
        TargetState::Lost(_) => ("target lost".to_owned(), tokens.bad),
    };
    widgets::pill(ui, &words, color, tokens.panel);
}
