//! The window's layout: bars, panes and notices.

use egui::{
    Align, Button, Frame, Id, Layout, Margin, MenuBar, Panel, ProgressBar, RichText, Stroke, Ui,
    accesskit::Role, vec2,
};
use gilk_engine::cfg::BlockIndex;
use gilk_instruments::Stand;

use crate::command::Command;
use crate::icons::Icon;
use crate::menus::MENUS;
use crate::state::{NoticeKind, State, TargetState};
use crate::theme::{Tokens, space, text};
use crate::{desk, machines, status, widgets};

/// Draws the window.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let bar = Frame::NONE
        .fill(tokens.bar)
        .inner_margin(Margin::symmetric(space::PANEL as i8, 6));
    let bare = Frame::NONE.fill(tokens.panel);
    Panel::top("top bar")
        .frame(bar)
        .show(ui, |ui| top_bar(ui, state, commands));
    if !state.machines.others.is_empty() {
        Panel::top("machines")
            .frame(bar)
            .show(ui, |ui| machines::bar::show(ui, state, commands));
    }
    // Notices that arrive while a button is down appear after its release, so that nothing moves
    // under the pointer.
    let id = Id::unique("notices shown");
    let down = ui.input(|input| input.pointer.any_down());
    let before = ui.data(|data| data.get_temp(id)).filter(|_| down);
    let shown = before.unwrap_or(state.notices.len());
    ui.data_mut(|data| data.insert_temp(id, shown));
    if shown > 0 {
        Panel::top("notices")
            .frame(bare)
            .show_separator_line(false)
            .show(ui, |ui| notices(ui, state, shown, commands));
    }
    let low = Frame::NONE
        .fill(tokens.bar)
        .inner_margin(Margin::symmetric(space::PANEL as i8, 3));
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
                for entry in *entries {
                    match entry {
                        Some(command) => menu_entry(ui, state, command, commands),
                        None => {
                            ui.separator();
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
    let keys = command.shortcut_text(ui.ctx());
    let button = Button::new(command.name()).shortcut_text(keys);
    let response = ui.add_enabled(possible(state, command), button);
    let response = widgets::named(response, Role::MenuItem, command.name());
    if response.clicked() {
        commands.push(command.clone());
        ui.close();
    }
}

/// Returns whether a command is possible now.
pub(crate) fn possible(state: &State, command: &Command) -> bool {
    let graph = state.graph.scene.is_some();
    match command {
        Command::Undo => state.document.can_undo(),
        Command::Redo => state.document.can_redo(),
        Command::Run => state.run_hindrance().is_none(),
        Command::Stop => state.run.active.is_some(),
        Command::FitGraph | Command::ActualSize | Command::NextBlock | Command::PreviousBlock => {
            graph
        }
        Command::Style(_)
        | Command::References
        | Command::FindInGraph
        | Command::FoldAll
        | Command::ExportGraph => graph,
        Command::FoldBlock => graph && state.graph.selected.is_some(),
        Command::FollowTaken | Command::FollowNotTaken => graph && state.graph.selected.is_some(),
        Command::AddInstrument => {
            let block = state.graph.selected;
            block.is_some_and(|block| has_hook(state, block)) && state.offer.refused().is_none()
        }
        Command::AddToEveryBlock => state
            .graph
            .scene
            .as_ref()
            .is_some_and(|scene| scene.hookable(state.draft.hook).next().is_some()),
        Command::CountFirst => crate::hit_count::possible(state),
        Command::AddToMatching => !state.functions.found.is_empty(),
        Command::RemoveHere => state.graph.selected.is_some_and(|block| {
            state.graph.scene.as_ref().is_some_and(|scene| {
                let count = |hook| state.hooked.count(scene.function(), block, hook);
                count(gilk_engine::HookType::Pre) + count(gilk_engine::HookType::Post) > 0
            })
        }),
        Command::GoTo => state.catalogue.is_some(),
        Command::RemoveAll => !state.document.session().placements.is_empty(),
        Command::Back => state.history.available().0,
        Command::Forward => state.history.available().1,
        Command::ClearMarkers => state.timeline.markers.iter().any(Option::is_some),
        Command::AddToEntry | Command::AddToReturns => graph,
        Command::UseInstrument | Command::FormatInstrument => state.editor.name().is_some(),
        Command::SaveInstrument => state.editor.text.is_some(),
        Command::ExportRecording => {
            let record = state.timeline.record.as_ref();
            record.is_some_and(|record| record.now.is_none() && record.path.is_some())
                && state.exporting.is_none()
        }
        Command::StopExport => state.exporting.is_some(),
        Command::StopSources => state.lines.reading.is_some(),
        Command::StopReading => state.reading.is_some(),
        Command::MarkA | Command::MarkB | Command::Annotate | Command::FitTimeline => {
            state.timeline.record.is_some()
        }
        Command::ShowSamples => {
            let here = state.graph.scene.as_ref().zip(state.graph.selected);
            let record = state.timeline.record.as_ref();
            record.zip(here).is_some_and(|(record, (scene, block))| {
                crate::timeline::view::measured(record, (scene.name.as_str(), block))
            })
        }
        Command::FollowLive => state
            .timeline
            .record
            .as_ref()
            .is_some_and(|record| record.now.is_some()),
        Command::Reconnect => state.source.is_some() && state.run.active.is_none(),
        Command::StartLab
        | Command::StartLabWith
        | Command::ConnectHere
        | Command::ConnectSocket
        | Command::ConnectSsh
        | Command::OpenKernel => {
            state.run.active.is_none() && !matches!(state.target, TargetState::Busy(_))
        }
        Command::AddMachines => state.run.active.is_none(),
        Command::OpenDebugInfo => state.catalogue.is_some(),
        Command::Disconnect => !matches!(state.target, TargetState::None | TargetState::Lost(_)),
        _ => true,
    }
}

/// Returns whether the inspector's instrument can be placed at the selected hook; some instruments
/// choose their place in the block or function themselves.
pub(crate) fn has_hook(state: &State, block: BlockIndex) -> bool {
    let definition = state.definition(&state.draft.instrument);
    if definition.is_none_or(|known| known.stand() != Stand::Hook) {
        return true;
    }
    let scene = state.graph.scene.as_ref();
    let hook = scene.and_then(|scene| scene.hook(block, state.draft.hook));
    hook.is_some_and(Result::is_ok)
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
                .corner_radius(4.0)
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
        TargetState::Ready(info) => (
            format!(
                "{} · Linux {} · {} CPUs",
                info.host, info.release, info.cpus
            ),
            tokens.good,
        ),
        TargetState::Lost(_) => ("target lost".to_owned(), tokens.bad),
    };
    widgets::pill(ui, &words, color, tokens.panel);
}

fn notices(ui: &mut Ui, state: &State, shown: usize, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    ui.spacing_mut().item_spacing.y = 0.0;
    for (place, notice) in state.notices.iter().take(shown).enumerate() {
        let (color, fill) = match notice.kind {
            NoticeKind::Good => (tokens.good, tokens.panel),
            NoticeKind::Warning => (tokens.warning, tokens.panel),
            NoticeKind::Bad => (tokens.bad, tokens.bad_fill),
        };
        Frame::NONE
            .fill(fill)
            .inner_margin(Margin::symmetric(space::PANEL as i8, 5))
            .show(ui, |ui| {
                ui.horizontal(|ui| {
                    let (rect, _) = ui.allocate_exact_size(vec2(4.0, 18.0), egui::Sense::hover());
                    ui.painter().rect_filled(rect, 2.0, color);
                    ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                        if widgets::cross(ui, "Dismiss message").clicked() {
                            commands.push(Command::Dismiss(place));
                        }
                        ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                            ui.add(
                                egui::Label::new(RichText::new(&notice.words).color(tokens.text))
                                    .wrap(),
                            );
                        });
                    });
                });
            });
        ui.painter().hline(
            ui.max_rect().x_range(),
            ui.cursor().top(),
            Stroke::new(1.0, tokens.line),
        );
    }
}
