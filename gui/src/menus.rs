//! The menus and shortcuts; the palette and the list of shortcuts have the same commands.

use egui::{Context, Key, KeyboardShortcut, Modifiers};
use gilk_engine::HookType;
use gilk_engine::placement::Style;

use crate::command::Command;
use crate::desk::Pane;
use crate::questions::Question;
use crate::theme::Colours;
use crate::timeline::order::{Axis, LaneSort, Stack};

/// The menus and their entries; `None` is a separator.
pub(crate) const MENUS: &[(&str, &[Option<Command>])] = &[
    (
        "File",
        &[
            Some(Command::NewSession),
            Some(Command::OpenSession),
            Some(Command::SaveSession),
            Some(Command::SaveSessionAs),
            None,
            Some(Command::OpenRecording),
            Some(Command::ExportGraph),
            Some(Command::ExportRecording),
            Some(Command::SavePicture),
            None,
            Some(Command::Quit),
        ],
    ),
    (
        "Edit",
        &[
            Some(Command::Undo),
            Some(Command::Redo),
            None,
            Some(Command::RemoveHere),
            Some(Command::RemoveAll),
            None,
            Some(Command::Style(Style::InPlace)),
            Some(Command::Style(Style::Auto)),
            Some(Command::Style(Style::Whole)),
            None,
            Some(Command::RunProgram),
        ],
    ),
    (
        "Instruments",
        &[
            Some(Command::Hook(HookType::Pre)),
            Some(Command::Hook(HookType::Post)),
            Some(Command::Hook(HookType::Taken)),
            Some(Command::Hook(HookType::Untaken)),
            None,
            Some(Command::AddInstrument),
            Some(Command::AddToEveryBlock),
            Some(Command::AddToEntry),
            Some(Command::AddToReturns),
            Some(Command::AddToMatching),
            Some(Command::CountPaths),
            Some(Command::RecordThreads),
            None,
            Some(Command::NewInstrument),
            Some(Command::OpenInstrument),
            Some(Command::OpenNatives),
            Some(Command::SaveInstrument),
            Some(Command::UseInstrument),
            Some(Command::FormatInstrument),
        ],
    ),
    (
        "Questions",
        &[
            Some(Command::Question(Question::SlowCalls)),
            Some(Command::Question(Question::FrequentCalls)),
            Some(Command::Question(Question::Locks)),
            None,
            Some(Command::Question(Question::TimeInside)),
            Some(Command::Question(Question::Callers)),
            Some(Command::Question(Question::Branches)),
            None,
            Some(Command::CompareRecording),
            Some(Command::StopComparing),
        ],
    ),
    (
        "Graph",
        &[
            Some(Command::GoTo),
            Some(Command::Back),
            Some(Command::Forward),
            Some(Command::References),
            Some(Command::FindInGraph),
            None,
            Some(Command::FitGraph),
            Some(Command::ActualSize),
            Some(Command::FoldBlock),
            Some(Command::FoldAll),
            None,
            Some(Command::NextBlock),
            Some(Command::PreviousBlock),
            Some(Command::FollowTaken),
            Some(Command::FollowNotTaken),
        ],
    ),
    (
        "Samples",
        &[
            Some(Command::FitTimeline),
            Some(Command::FollowLive),
            Some(Command::ShowSamples),
            Some(Command::MarkA),
            Some(Command::MarkB),
            Some(Command::ClearMarkers),
            Some(Command::Annotate),
            None,
            Some(Command::Stack(Stack::Session)),
            Some(Command::Stack(Stack::Function)),
            Some(Command::Stack(Stack::Instrument)),
            Some(Command::Stack(Stack::Cpu)),
            Some(Command::Stack(Stack::Thread)),
            None,
            Some(Command::SortLanes(LaneSort::Session)),
            Some(Command::SortLanes(LaneSort::Count)),
            Some(Command::SortLanes(LaneSort::Largest)),
            Some(Command::SortLanes(LaneSort::Name)),
            None,
            Some(Command::LaneAxis(Axis::Automatic)),
            Some(Command::LaneAxis(Axis::Linear)),
            Some(Command::LaneAxis(Axis::Logarithmic)),
            None,
            Some(Command::ShowLane),
            Some(Command::FilterLanes),
            Some(Command::HideEmptyLanes),
            Some(Command::PinLane),
        ],
    ),
    (
        "View",
        &[
            Some(Command::ShowPalette),
            Some(Command::FocusFilter),
            None,
            Some(Command::NextPane),
            Some(Command::PreviousPane),
            Some(Command::ResetLayout),
            Some(Command::TileLayout),
            None,
            Some(Command::ToggleTheme),
            Some(Command::Theme(Colours::System)),
            Some(Command::Theme(Colours::Light)),
            Some(Command::Theme(Colours::Dark)),
            Some(Command::Theme(Colours::Contrast)),
        ],
    ),
    (
        "Panes",
        &[
            Some(Command::TogglePane(Pane::Functions)),
            Some(Command::TogglePane(Pane::Graph)),
            Some(Command::TogglePane(Pane::Inspector)),
            Some(Command::TogglePane(Pane::Session)),
            Some(Command::TogglePane(Pane::Timeline)),
            Some(Command::TogglePane(Pane::Statistics)),
            Some(Command::TogglePane(Pane::Calls)),
            Some(Command::TogglePane(Pane::Schedule)),
            Some(Command::TogglePane(Pane::Patch)),
            Some(Command::TogglePane(Pane::Instruments)),
            Some(Command::TogglePane(Pane::Editor)),
            Some(Command::TogglePane(Pane::Console)),
        ],
    ),
    (
        "Target",
        &[
            Some(Command::Run),
            Some(Command::Stop),
            Some(Command::CountFirst),
            None,
            Some(Command::StartLab),
            Some(Command::StartLabWith),
            Some(Command::ConnectHere),
            Some(Command::ConnectSsh),
            Some(Command::ConnectSocket),
            Some(Command::AddMachines),
            Some(Command::OpenKernel),
            Some(Command::OpenDebugInfo),
            Some(Command::Reconnect),
            Some(Command::Disconnect),
        ],
    ),
    (
        "Help",
        &[
            Some(Command::Tour),
            Some(Command::Manual),
            Some(Command::ShowShortcuts),
        ],
    ),
];

impl Command {
    /// Returns every command listed in a menu.
    pub fn listed() -> impl Iterator<Item = &'static Self> {
        MENUS
            .iter()
            .flat_map(|(_, entries)| entries.iter().flatten())
    }
}

/// Returns the commands among `possible` whose shortcuts were pressed. While a text field has the
/// focus, plain keys are text.
#[must_use]
pub(crate) fn pressed(ctx: &Context, possible: impl Fn(&Command) -> bool) -> Vec<Command> {
    let typing = ctx.text_edit_focused();
    let mut commands = Vec::new();
    // Ctrl+Shift+Z is matched before Ctrl+Z, which it contains.
    let mut all: Vec<(&KeyboardShortcut, &Command)> = Command::listed()
        .filter(|command| possible(command))
        .flat_map(|command| {
            command
                .shortcuts()
                .iter()
                .map(move |shortcut| (shortcut, command))
        })
        .collect();
    all.sort_by_key(|(shortcut, _)| std::cmp::Reverse(weight(shortcut.modifiers)));
    for (shortcut, command) in all {
        let plain = !shortcut.modifiers.command
            && !shortcut.modifiers.alt
            && !is_function_key(shortcut.logical_key);
        if plain && typing {
            continue;
        }
        // A text field has its own undo.
        if typing && matches!(command, Command::Undo | Command::Redo) {
            continue;
        }
        if ctx.input_mut(|input| input.consume_shortcut(shortcut)) {
            commands.push(command.clone());
        }
    }
    commands
}

fn weight(modifiers: Modifiers) -> u32 {
    u32::from(modifiers.command) + u32::from(modifiers.shift) + u32::from(modifiers.alt)
}

const fn is_function_key(key: Key) -> bool {
    matches!(key, Key::F1 | Key::F5 | Key::F6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_commands_share_a_key() {
        let mut seen: Vec<(&KeyboardShortcut, &Command)> = Vec::new();
        for command in Command::listed() {
            for shortcut in command.shortcuts() {
                if let Some((_, other)) = seen.iter().find(|(known, _)| *known == shortcut) {
                    panic!("{} and {} share {shortcut:?}", other.name(), command.name());
                }
                seen.push((shortcut, command));
            }
        }
    }

    #[test]
    fn commands_with_shortcuts_are_listed_in_menus() {
        for command in [
            Command::Run,
            Command::Stop,
            Command::Undo,
            Command::FocusFilter,
            Command::Back,
        ] {
            assert!(
                Command::listed().any(|listed| *listed == command),
                "{}",
                command.name()
            );
        }
    }
}
