//! The menus and shortcuts; the palette and the list of shortcuts have the same commands.

use egui::{Context, Key, KeyboardShortcut, Modifiers};
use gilk_engine::HookType;
use gilk_engine::placement::Style;

use crate::command::Command;
use crate::desk::Pane;
use crate::graph::Side;
use crate::questions::Question;
use crate::theme::Colours;
use crate::timeline::order::{Axis, LaneSort, Stack};

use MenuItem::{Entry, Line, Menu};

/// A line of a menu.
#[derive(Debug)]
pub(crate) enum MenuItem {
    /// A command.
    Entry(Command),
    /// A separator.
    Line,
    /// A submenu: its title and its commands.
    Menu(&'static str, &'static [Command]),
}

/// The menus and their items.
pub(crate) const MENUS: &[(&str, &[MenuItem])] = &[
    (
        "File",
        &[
            Entry(Command::NewSession),
            Entry(Command::OpenSession),
            Entry(Command::SaveSession),
            Entry(Command::SaveSessionAs),
            Line,
            Entry(Command::OpenRecording),
            Entry(Command::ExportGraph),
            Entry(Command::ExportRecording),
            Entry(Command::SavePicture),
            Line,
            Entry(Command::Quit),
        ],
    ),
    (
        "Edit",
        &[
            Entry(Command::Undo),
            Entry(Command::Redo),
            Line,
            Entry(Command::RemoveHere),
            Entry(Command::RemoveAll),
            Line,
            Menu(
                "Style of the function",
                &[
                    Command::Style(Style::InPlace),
                    Command::Style(Style::Auto),
                    Command::Style(Style::Whole),
                ],
            ),
            Entry(Command::RunProgram),
        ],
    ),
    (
        "Instruments",
        &[
            Menu(
                "Hook",
                &[
                    Command::Hook(HookType::Pre),
                    Command::Hook(HookType::Post),
                    Command::Hook(HookType::Taken),
                    Command::Hook(HookType::Untaken),
                ],
            ),
            Entry(Command::AddInstrument),
            Entry(Command::AddToEveryBlock),
            Entry(Command::AddToEntry),
            Entry(Command::AddToReturns),
            Entry(Command::AddToMatching),
            Entry(Command::CountPaths),
            Entry(Command::RecordThreads),
            Line,
            Entry(Command::NewInstrument),
            Entry(Command::OpenInstrument),
            Entry(Command::OpenNatives),
            Entry(Command::SaveInstrument),
            Entry(Command::UseInstrument),
            Entry(Command::FormatInstrument),
        ],
    ),
    (
        "Questions",
        &[
            Entry(Command::Question(Question::SlowCalls)),
            Entry(Command::Question(Question::FrequentCalls)),
            Entry(Command::Question(Question::Locks)),
            Line,
            Entry(Command::Question(Question::FrequentFunctions)),
            Entry(Command::Question(Question::SlowFunctions)),
            Entry(Command::Question(Question::Waits)),
            Entry(Command::Question(Question::Allocations)),
            Line,
            Entry(Command::Question(Question::TimeInside)),
            Entry(Command::Question(Question::Callers)),
            Entry(Command::Question(Question::Branches)),
            Line,
            Entry(Command::CompareRecording),
            Entry(Command::StopComparing),
        ],
    ),
    (
        "Graph",
        &[
            Entry(Command::GoTo),
            Entry(Command::Back),
            Entry(Command::Forward),
            Entry(Command::References),
            Entry(Command::FindInGraph),
            Line,
            Menu(
                "Move and zoom",
                &[
                    Command::FitGraph,
                    Command::ActualSize,
                    Command::ZoomIn,
                    Command::ZoomOut,
                    Command::MoveGraph(Side::Left),
                    Command::MoveGraph(Side::Right),
                    Command::MoveGraph(Side::Up),
                    Command::MoveGraph(Side::Down),
                ],
            ),
            Entry(Command::ToggleListing),
            Entry(Command::FoldBlock),
            Entry(Command::FoldAll),
            Entry(Command::FoldCold),
            Line,
            Entry(Command::NextBlock),
            Entry(Command::PreviousBlock),
            Entry(Command::FollowTaken),
            Entry(Command::FollowNotTaken),
        ],
    ),
    (
        "Samples",
        &[
            Entry(Command::FitTimeline),
            Entry(Command::FollowLive),
            Entry(Command::ShowSamples),
            Entry(Command::MarkA),
            Entry(Command::MarkB),
            Entry(Command::ClearMarkers),
            Entry(Command::Annotate),
            Line,
            Menu(
                "Groups of lanes",
                &[
                    Command::Stack(Stack::Session),
                    Command::Stack(Stack::Function),
                    Command::Stack(Stack::Instrument),
                    Command::Stack(Stack::Cpu),
                    Command::Stack(Stack::Thread),
                    Command::Stack(Stack::Process),
                ],
            ),
            Menu(
                "Order of lanes",
                &[
                    Command::SortLanes(LaneSort::Session),
                    Command::SortLanes(LaneSort::Count),
                    Command::SortLanes(LaneSort::Largest),
                    Command::SortLanes(LaneSort::Name),
                ],
            ),
            Menu(
                "Axis of lanes",
                &[
                    Command::LaneAxis(Axis::Automatic),
                    Command::LaneAxis(Axis::Linear),
                    Command::LaneAxis(Axis::Logarithmic),
                ],
            ),
            Line,
            Menu(
                "Search among samples",
                &[
                    Command::FindSample,
                    Command::NextSample,
                    Command::PreviousSample,
                ],
            ),
            Entry(Command::ShowLane),
            Entry(Command::FilterLanes),
            Entry(Command::HideEmptyLanes),
            Entry(Command::PinLane),
        ],
    ),
    (
        "View",
        &[
            Entry(Command::ShowPalette),
            Entry(Command::Find),
            Entry(Command::FocusFilter),
            Line,
            Entry(Command::NextPane),
            Entry(Command::PreviousPane),
            Entry(Command::ResetLayout),
            Entry(Command::TileLayout),
            Line,
            Entry(Command::ToggleTheme),
            Menu(
                "Colours",
                &[
                    Command::Theme(Colours::System),
                    Command::Theme(Colours::Light),
                    Command::Theme(Colours::Dark),
                    Command::Theme(Colours::Contrast),
                ],
            ),
        ],
    ),
    (
        "Panes",
        &[
            Entry(Command::TogglePane(Pane::Functions)),
            Entry(Command::TogglePane(Pane::Graph)),
            Entry(Command::TogglePane(Pane::Inspector)),
            Entry(Command::TogglePane(Pane::Session)),
            Entry(Command::TogglePane(Pane::Timeline)),
            Entry(Command::TogglePane(Pane::Statistics)),
            Entry(Command::TogglePane(Pane::Calls)),
            Entry(Command::TogglePane(Pane::Schedule)),
            Entry(Command::TogglePane(Pane::Patch)),
            Entry(Command::TogglePane(Pane::Instruments)),
            Entry(Command::TogglePane(Pane::Editor)),
            Entry(Command::TogglePane(Pane::Console)),
        ],
    ),
    (
        "Target",
        &[
            Entry(Command::Run),
            Entry(Command::Stop),
            Entry(Command::CountFirst),
            Line,
            Entry(Command::StartLab),
            Entry(Command::StartLabWith),
            Entry(Command::ChooseProcess),
            Entry(Command::StartProgram),
            Entry(Command::ChooseEvery),
            Entry(Command::ChooseProcessInCache),
            Entry(Command::StartProgramInCache),
            Menu(
                "Connect",
                &[
                    Command::ConnectHere,
                    Command::ConnectSsh,
                    Command::ConnectSocket,
                    Command::AddMachines,
                    Command::AddKernel,
                    Command::ShowBeside,
                ],
            ),
            Menu(
                "Open",
                &[
                    Command::OpenKernel,
                    Command::OpenLibrary,
                    Command::OpenDebugInfo,
                ],
            ),
            Entry(Command::Reconnect),
            Entry(Command::Disconnect),
        ],
    ),
    (
        "Help",
        &[
            Entry(Command::Tour),
            Entry(Command::Manual),
            Entry(Command::ShowShortcuts),
        ],
    ),
];

/// Returns the commands of a menu, those of its menus included.
pub(crate) fn commands(items: &'static [MenuItem]) -> impl Iterator<Item = &'static Command> {
    items.iter().flat_map(|item| match item {
        Entry(command) => std::slice::from_ref(command),
        Line => &[],
        Menu(_, commands) => commands,
    })
}

impl Command {
    /// Returns every command listed in a menu.
    pub fn listed() -> impl Iterator<Item = &'static Self> {
        MENUS.iter().flat_map(|(_, items)| commands(items))
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
    fn menus_have_at_most_fifteen_items() {
        for (menu, items) in MENUS {
            let entries = items.iter().filter(|item| !matches!(item, Line));
            assert!(entries.count() <= 15, "{menu}");
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
