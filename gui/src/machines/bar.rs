//! The bar of machines below the menus, shown while there are additional machines.

use egui::accesskit::Role;
use egui::{Color32, RichText, Ui};

use super::{Machine, Member};
use crate::command::Command;
use crate::state::{State, TargetState};
use crate::theme::Tokens;
use crate::timeline::scale::accuracy;
use crate::widgets;

/// Draws the bar.
pub(crate) fn show(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    ui.horizontal_wrapped(|ui| {
        if let Some(names) = state.pair_names() {
            return pair(ui, state, &names, commands);
        }
        widgets::caption(ui, "machines");
        let together = state.machines.together.as_ref();
        let first = together.and_then(|together| together.members.first());
        let name = match &state.target {
            TargetState::Ready(info) => info.host.clone(),
            _ => first.map_or_else(|| "target".to_owned(), |member| member.name.clone()),
        };
        chip(ui, state, &name, &state.target, None, first);
        for machine in &state.machines.others {
            let member = machine.part(together);
            let wrong = match &machine.outcome {
                Some(Err(wrong)) => wrong.first().map(String::as_str),
                _ => None,
            };
            chip(ui, state, &machine.name(), &machine.target, wrong, member);
            buttons(ui, state, machine, commands);
        }
    });
}

/// Draws a process and its kernel, each with a button that shows it.
fn pair(ui: &mut Ui, state: &State, names: &[String; 2], commands: &mut Vec<Command>) {
    widgets::caption(ui, "targets");
    let Some(other) = state.beside() else {
        return;
    };
    let session = state.document.session();
    let counts = [
        session.placements.len(),
        session.beside.as_ref().map_or(0, |part| part.len()),
    ];
    let wrong = match &other.outcome {
        Some(Err(wrong)) => wrong.first().map(String::as_str),
        _ => None,
    };
    let sides = [(&state.target, None), (&other.target, wrong)];
    let [shown, beside] = names;
    for (((name, count), (target, wrong)), is_shown) in [shown, beside]
        .into_iter()
        .zip(counts)
        .zip(sides)
        .zip([true, false])
    {
        let tokens = Tokens::of(ui);
        let (words, color, more) = words(tokens, target, wrong, None);
        let words = match (target, wrong) {
            (TargetState::Ready(_), None) => widgets::counted(count, "instrument"),
            _ => words,
        };
        widgets::dot(ui, color);
        let show = ui.selectable_label(is_shown, RichText::new(name).small());
        let show = widgets::chosen(show, Role::Button, is_shown, &format!("show {name}"));
        if show.clicked() && !is_shown {
            commands.push(Command::ShowBeside);
        }
        let label = ui.label(RichText::new(&words).small().color(tokens.weak));
        let label = widgets::named(label, Role::Label, &format!("target {name}: {words}"));
        if let Some(more) = more {
            label.on_hover_text(more);
        }
    }
    buttons(ui, state, other, commands);
}

fn buttons(ui: &mut Ui, state: &State, machine: &Machine, commands: &mut Vec<Command>) {
    let (name, number) = (machine.name(), machine.number);
    if matches!(machine.target, TargetState::Lost(_)) && state.run.active.is_none() {
        let again = ui.small_button("reconnect");
        let again = widgets::named(again, Role::Button, &format!("reconnect to {name}"));
        if again.clicked() {
            commands.push(Command::ConnectMachine(number));
        }
    }
    let leave = widgets::cross(ui, &format!("remove {name}"));
    let leave = leave.on_hover_text("Stops runs on this machine and removes every splice");
    if leave.clicked() {
        commands.push(Command::LeaveMachine(number));
    }
}

/// Draws a machine: a dot, its name, its status, and the accuracy of its times.
fn chip(
    ui: &mut Ui,
    state: &State,
    name: &str,
    target: &TargetState,
    wrong: Option<&str>,
    member: Option<&Member>,
) {
    let tokens = Tokens::of(ui);
    let (words, color, more) = words(tokens, target, wrong, member);
    widgets::dot(ui, color);
    let error = error(state, name);
    let error = error.map_or_else(String::new, |error| format!(" · {error}"));
    let words = format!("{words}{error}");
    ui.label(RichText::new(name).small().color(tokens.strong));
    let label = ui.label(RichText::new(&words).small().color(tokens.weak));
    let label = widgets::named(label, Role::Label, &format!("machine {name}: {words}"));
    if let Some(more) = more {
        label.on_hover_text(more);
    }
}

/// Returns the accuracy of a machine's times on the timeline.
fn error(state: &State, name: &str) -> Option<String> {
    let record = state.timeline.record.as_ref()?;
    let mut machines = record.metadata.machines.iter();
    let machine = machines.find(|machine| machine.name == name)?;
    Some(accuracy(machine.error_ns))
}

fn words(
    tokens: &Tokens,
    target: &TargetState,
    wrong: Option<&str>,
    member: Option<&Member>,
) -> (String, Color32, Option<String>) {
    if let Some(member) = member.filter(|member| member.ended.is_none()) {
        let live = member.status.look();
        let words = format!("{} samples", widgets::grouped(live.samples));
        return (words, tokens.good, None);
    }
    match target {
        TargetState::Lost(why) => ("lost".to_owned(), tokens.bad, Some(why.clone())),
        TargetState::None => ("none".to_owned(), tokens.weak, None),
        TargetState::Offline => ("saved image".to_owned(), tokens.weak, None),
        TargetState::Busy(progress) => {
            let words = format!("{} {:.0} %", progress.name, progress.overall * 100.0);
            (words, tokens.warning, Some(progress.detail.clone()))
        }
        TargetState::Ready(_) if wrong.is_some() => (
            "cannot run the session".to_owned(),
            tokens.bad,
            wrong.map(str::to_owned),
        ),
        TargetState::Ready(info) => {
            let ended = member.and_then(|member| member.ended.as_ref());
            let words = match ended {
                Some(Ok(summary)) => {
                    format!("{} samples", widgets::grouped(summary.recording.samples))
                }
                _ => format!("Linux {} · {} CPUs", info.release, info.cpus),
            };
            (words, tokens.good, None)
        }
    }
}
