//! Everything a person can do, in one place: menus, shortcuts, buttons and tests all say a
//! [`Command`], and the window carries it out.

use std::path::PathBuf;

use egui::{Context, Key, KeyboardShortcut, Modifiers};
use gilk_engine::cfg::BlockIndex;
use gilk_engine::image::FunctionId;
use gilk_engine::placement::Style;
use gilk_engine::{Addr, HookType};
use ilk_driver::sources::SourceLine;

use crate::desk::Pane;
use crate::menus::MENUS;
use crate::theme::Colours;
use crate::timeline::Stack;
use crate::timeline::notes::Note;
use crate::worker::files::Purpose;

/// What can be done.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Begin an empty session.
    NewSession,
    /// Choose a session file and open it.
    OpenSession,
    /// Save the session where it was.
    SaveSession,
    /// Choose where, and save the session.
    SaveSessionAs,
    /// Choose a recording and open it.
    OpenRecording,
    /// End the program.
    Quit,
    /// Take the last change of the session back.
    Undo,
    /// Do what was undone again.
    Redo,
    /// Run the session on the target.
    Run,
    /// End the run now: every splice is taken out.
    Stop,
    /// Put the cursor into the filter of functions.
    FocusFilter,
    /// Show the whole graph.
    FitGraph,
    /// Show the graph at its natural size.
    ActualSize,
    /// To the place before.
    Back,
    /// To the place after.
    Forward,
    /// Choose the block after the chosen one.
    NextBlock,
    /// Choose the block before the chosen one.
    PreviousBlock,
    /// Choose the block that a taken branch leads to.
    FollowTaken,
    /// Choose the block that follows when a branch is not taken.
    FollowNotTaken,
    /// Place the inspector's instrument at the chosen block.
    AddInstrument,
    /// Place the inspector's instrument at every block of the function that has the hook.
    AddToEveryBlock,
    /// Show the whole recording.
    FitTimeline,
    /// Keep the newest samples in view.
    FollowLive,
    /// Run a short session that only counts the hits of the inspector's hook.
    CountFirst,
    /// Place what counts the paths through the open function.
    CountPaths,
    /// Stack the timeline's lanes in another way.
    Stack(Stack),
    /// Place what tells which thread runs.
    TellThreads,
    /// Put marker A where the pointer is on the timeline.
    MarkA,
    /// Put marker B where the pointer is on the timeline.
    MarkB,
    /// Take both markers away.
    ClearMarkers,
    /// Begin to write something beside the time at the pointer.
    Annotate,
    /// Have a note stand beside a time, in place of the one at that place.
    WriteNote(Option<usize>, Note),
    /// Take a note away, by its place.
    RemoveNote(usize),
    /// Show the lanes of the chosen block on the timeline.
    ShowSamples,
    /// Change between light, dark and high contrast.
    ToggleTheme,
    /// Choose the colours.
    Theme(Colours),
    /// Show a pane that is not seen, or put it away.
    TogglePane(Pane),
    /// Put all panes where they usually are.
    ResetLayout,
    /// Put all panes side by side.
    TileLayout,
    /// List every command, to be found by its letters.
    ShowPalette,
    /// Ask for an address, a name, or a name and an offset, and go there.
    GoTo,
    /// List who calls the open function, and whom it calls.
    References,
    /// Look for text in the open graph.
    FindInGraph,
    /// Show only the heading of the chosen block, or all of it again.
    FoldBlock,
    /// Show only the headings of all blocks, or all of them again.
    FoldAll,
    /// Write the graph as SVG or DOT.
    ExportGraph,
    /// Write the recording for other programs.
    ExportRecording,
    /// Stop writing the recording for other programs.
    StopExport,
    /// Read no more of the kernel's debug information.
    StopSources,
    /// Read no more of the recording.
    StopReading,
    /// Write a picture of the window.
    SavePicture,
    /// Place the inspector's instrument at the entry of every function that the filter matches.
    AddToMatching,
    /// Put an instrument, by its name, somewhere.
    Put(At, String),
    /// Place the inspector's instrument where the open function is entered.
    AddToEntry,
    /// Place the inspector's instrument wherever the open function is left.
    AddToReturns,
    /// Begin an instrument of one's own.
    NewInstrument,
    /// Show an instrument's source, by its name.
    EditInstrument(String),
    /// Choose a file and show the instrument in it.
    OpenInstrument,
    /// Choose an object file with native instruments.
    OpenNatives,
    /// Add the native instruments that were read: a person takes them upon themselves.
    UseNatives,
    /// Choose where, and save the editor's text.
    SaveInstrument,
    /// Make the editor's text an instrument of the session.
    UseInstrument,
    /// Lay the editor's text out as all are.
    FormatInstrument,
    /// Take the instruments of the chosen block out of the session.
    RemoveHere,
    /// Change the order of instruments: the one at the first place goes to the second.
    MovePlacement(usize, usize),
    /// Show the list of shortcuts.
    ShowShortcuts,
    /// Boot the lab and connect to it.
    StartLab,
    /// Ask for a kernel, and boot the lab with it.
    StartLabWith,
    /// Connect to this machine's own agent.
    ConnectHere,
    /// Ask for an agent's socket and connect to it.
    ConnectSocket,
    /// Ask for a machine and connect to its agent over ssh.
    ConnectSsh,
    /// Ask for machines, and connect to them: a session runs on all at once.
    AddMachines,
    /// Connect to a machine beside the target again, by its number.
    ConnectMachine(u64),
    /// Leave a machine beside the target out, by its number.
    LeaveMachine(u64),
    /// Choose a kernel on a file, to look at and plan on.
    OpenKernel,
    /// Choose a vmlinux with debug information of the target's kernel.
    OpenDebugInfo,
    /// Open a source file at a line.
    OpenSource(SourceLine),
    /// Show the tour from its beginning, or end it.
    Tour,
    /// Show what the words mean and how things are done.
    Manual,
    /// Stop preparing the target, or leave it.
    Disconnect,
    /// Connect again as at the start.
    Reconnect,
    /// Open the block at an address.
    GoToAddress(Addr),
    /// Open a function's graph.
    OpenFunction(FunctionId),
    /// Open a function's graph by the name a session has for it, at a block.
    OpenNamed(String, BlockIndex),
    /// Choose a block of the open function.
    SelectBlock(BlockIndex),
    /// Take an instrument out of the session, by its place in the list.
    RemovePlacement(usize),
    /// Take all instruments out of the session.
    RemoveAll,
    /// Say how the open function is instrumented.
    Style(Style),
    /// Close a message, by its place.
    Dismiss(usize),
    /// Give unsaved changes up, and do something.
    DiscardAnd(Box<Command>),
    /// Save the session, and do something once it is written.
    SaveAnd(Box<Command>),
    /// Open, save or record to a path that was asked for; then do something.
    UsePath(Purpose, PathBuf, Option<Box<Command>>),
}

/// Where an instrument is put. Those in the language stand where their source says: at a block, at its
/// branch, or in a whole function; for them a place says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before or after a block of the open function.
    Hook(BlockIndex, HookType),
    /// On the way from one block to another.
    Edge(BlockIndex, BlockIndex),
    /// Where the open function is entered.
    Entry,
    /// Wherever the open function is left: before it returns, or goes on in another.
    Returns,
    /// Before or after every block of the open function that has the hook.
    EveryBlock(HookType),
    /// Where every function is entered that the filter matches.
    Matching,
    /// Where a function is entered.
    Function(FunctionId),
}

const NONE: Modifiers = Modifiers::NONE;
const CTRL: Modifiers = Modifiers::COMMAND;
const SHIFT: Modifiers = Modifiers::SHIFT;
const CTRL_SHIFT: Modifiers = Modifiers {
    shift: true,
    ..Modifiers::COMMAND
};

impl Command {
    /// What menus, buttons and the sheet of shortcuts call it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NewSession => "New session",
            Self::OpenSession => "Open session…",
            Self::SaveSession => "Save session",
            Self::SaveSessionAs => "Save session as…",
            Self::OpenRecording => "Open recording…",
            Self::Quit => "Quit",
            Self::Undo => "Undo",
            Self::Redo => "Redo",
            Self::Run => "Run session",
            Self::Stop => "Stop run",
            Self::FocusFilter => "Find function",
            Self::FitGraph => "Fit graph",
            Self::ActualSize => "Graph at natural size",
            Self::Back => "Back",
            Self::Forward => "Forward",
            Self::NextBlock => "Next block",
            Self::PreviousBlock => "Previous block",
            Self::FollowTaken => "Follow branch taken",
            Self::FollowNotTaken => "Follow branch not taken",
            Self::AddInstrument => "Add instrument",
            Self::AddToEveryBlock => "Add to every hookable block",
            Self::CountFirst => "Count hits first",
            Self::CountPaths => "Count paths",
            Self::FitTimeline => "Fit timeline",
            Self::FollowLive => "Follow live end",
            Self::Stack(Stack::Session) => "Lanes in the session's order",
            Self::Stack(Stack::Instrument) => "Lanes by instrument",
            Self::Stack(Stack::Cpu) => "Lanes by CPU",
            Self::Stack(Stack::Thread) => "Lanes by thread",
            Self::TellThreads => "Tell threads apart",
            Self::MarkA => "Marker A at pointer",
            Self::MarkB => "Marker B at pointer",
            Self::ClearMarkers => "Clear markers",
            Self::Annotate => "Write note at pointer",
            Self::WriteNote(..) => "Write note",
            Self::RemoveNote(_) => "Remove note",
            Self::ShowSamples => "Samples of block",
            Self::ToggleTheme => "Next colours",
            Self::Theme(Colours::System) => "Colours of the desktop",
            Self::Theme(Colours::Light) => "Light colours",
            Self::Theme(Colours::Dark) => "Dark colours",
            Self::Theme(Colours::Contrast) => "High contrast",
            Self::TogglePane(pane) => pane.title(),
            Self::TileLayout => "Every pane side by side",
            Self::ResetLayout => "Usual arrangement",
            Self::ShowPalette => "Find command",
            Self::GoTo => "Go to…",
            Self::References => "Callers and callees",
            Self::FindInGraph => "Find in graph",
            Self::FoldBlock => "Fold block",
            Self::FoldAll => "Fold all blocks",
            Self::ExportGraph => "Export graph…",
            Self::ExportRecording => "Export recording…",
            Self::StopExport => "Stop export",
            Self::StopSources => "Stop reading debug information",
            Self::StopReading => "Stop reading recording",
            Self::SavePicture => "Save picture of window…",
            Self::AddToMatching => "Add to entry of every match",
            Self::Put(..) => "Place instrument",
            Self::AddToEntry => "Add to function's entry",
            Self::AddToReturns => "Add to every return",
            Self::NewInstrument => "New instrument",
            Self::EditInstrument(_) => "Show source",
            Self::OpenInstrument => "Open instrument…",
            Self::OpenNatives => "Open native instruments…",
            Self::UseNatives => "Use native instruments",
            Self::SaveInstrument => "Save instrument as…",
            Self::UseInstrument => "Use instrument in session",
            Self::FormatInstrument => "Format instrument",
            Self::RemoveHere => "Remove instruments of block",
            Self::MovePlacement(..) => "Change order",
            Self::ShowShortcuts => "Shortcuts",
            Self::StartLab => "Start the lab",
            Self::StartLabWith => "Start the lab with another kernel…",
            Self::ConnectHere => "Connect to this machine",
            Self::ConnectSocket => "Connect to a socket…",
            Self::ConnectSsh => "Connect over ssh…",
            Self::AddMachines => "Add machines…",
            Self::ConnectMachine(_) => "Connect machine again",
            Self::LeaveMachine(_) => "Leave machine out",
            Self::OpenKernel => "Open kernel file…",
            Self::OpenDebugInfo => "Open debug information…",
            Self::OpenSource(_) => "Open source file",
            Self::Tour => "Tour",
            Self::Manual => "Manual",
            Self::Disconnect => "Disconnect",
            Self::Reconnect => "Connect again",
            Self::GoToAddress(_) => "Go to address",
            Self::OpenFunction(_) | Self::OpenNamed(..) => "Open function",
            Self::SelectBlock(_) => "Choose block",
            Self::RemovePlacement(_) => "Remove instrument",
            Self::RemoveAll => "Remove all instruments",
            Self::Style(Style::Auto) => "Function in place or whole, as is cheaper",
            Self::Style(Style::InPlace) => "Function in place",
            Self::Style(Style::Whole) => "Function whole",
            Self::Dismiss(_) => "Dismiss message",
            Self::DiscardAnd(_) => "Discard changes",
            Self::SaveAnd(_) => "Save changes",
            Self::UsePath(purpose, ..) => purpose.title(),
        }
    }

    /// The keys that say it; the first is the one that menus show.
    #[must_use]
    pub fn shortcuts(&self) -> &'static [KeyboardShortcut] {
        const fn on(modifiers: Modifiers, key: Key) -> KeyboardShortcut {
            KeyboardShortcut::new(modifiers, key)
        }
        match self {
            Self::NewSession => const { &[on(CTRL, Key::N)] },
            Self::OpenSession => const { &[on(CTRL, Key::O)] },
            Self::SaveSession => const { &[on(CTRL, Key::S)] },
            Self::SaveSessionAs => const { &[on(CTRL_SHIFT, Key::S)] },
            Self::OpenRecording => const { &[on(CTRL_SHIFT, Key::O)] },
            Self::Quit => const { &[on(CTRL, Key::Q)] },
            Self::Undo => const { &[on(CTRL, Key::Z)] },
            Self::Redo => const { &[on(CTRL_SHIFT, Key::Z), on(CTRL, Key::Y)] },
            Self::Run => const { &[on(NONE, Key::F5)] },
            Self::Stop => const { &[on(SHIFT, Key::F5)] },
            Self::FocusFilter => const { &[on(CTRL, Key::F), on(NONE, Key::Slash)] },
            Self::FitGraph => const { &[on(NONE, Key::Num0)] },
            Self::ActualSize => const { &[on(NONE, Key::Num1)] },
            Self::Back => const { &[on(NONE, Key::Escape), on(Modifiers::ALT, Key::ArrowLeft)] },
            Self::Forward => const { &[on(Modifiers::ALT, Key::ArrowRight)] },
            Self::NextBlock => {
                const {
                    &[
                        on(NONE, Key::J),
                        on(NONE, Key::ArrowDown),
                        on(NONE, Key::ArrowRight),
                    ]
                }
            }
            Self::PreviousBlock => {
                const {
                    &[
                        on(NONE, Key::K),
                        on(NONE, Key::ArrowUp),
                        on(NONE, Key::ArrowLeft),
                    ]
                }
            }
            Self::FollowTaken => const { &[on(NONE, Key::T)] },
            Self::FollowNotTaken => const { &[on(NONE, Key::F), on(NONE, Key::N)] },
            Self::ShowPalette => const { &[on(CTRL_SHIFT, Key::P)] },
            Self::GoTo => const { &[on(NONE, Key::G), on(CTRL, Key::G)] },
            Self::References => const { &[on(NONE, Key::X)] },
            Self::FindInGraph => const { &[on(CTRL_SHIFT, Key::F)] },
            Self::FoldBlock => const { &[on(NONE, Key::C)] },
            Self::FoldAll => const { &[on(SHIFT, Key::C)] },
            Self::RemoveHere => const { &[on(NONE, Key::Delete)] },
            Self::AddInstrument => const { &[on(CTRL, Key::Enter)] },
            Self::FitTimeline => const { &[on(SHIFT, Key::F)] },
            Self::MarkA => const { &[on(NONE, Key::OpenBracket)] },
            Self::MarkB => const { &[on(NONE, Key::CloseBracket)] },
            Self::Annotate => const { &[on(NONE, Key::B)] },
            Self::ShowSamples => const { &[on(NONE, Key::L)] },
            Self::FollowLive => const { &[on(NONE, Key::End)] },
            Self::Manual => const { &[on(NONE, Key::F1)] },
            Self::ShowShortcuts => const { &[on(NONE, Key::Questionmark)] },
            _ => &[],
        }
    }

    /// The first shortcut as a person reads it.
    #[must_use]
    pub fn shortcut_text(&self, ctx: &Context) -> String {
        self.shortcuts()
            .first()
            .map(|shortcut| ctx.format_shortcut(shortcut))
            .unwrap_or_default()
    }

    /// Every command that stands in a menu.
    pub fn listed() -> impl Iterator<Item = &'static Self> {
        MENUS
            .iter()
            .flat_map(|(_, entries)| entries.iter().flatten())
    }
}

/// The commands whose keys were pressed. While a person types into a field, plain keys are text.
#[must_use]
pub fn pressed(ctx: &Context) -> Vec<Command> {
    let typing = ctx.text_edit_focused();
    let mut said = Vec::new();
    // Ctrl+Shift+Z must be looked for before Ctrl+Z, which it contains.
    let mut all: Vec<(&KeyboardShortcut, &Command)> = Command::listed()
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
        // Undo inside a field is the field's own.
        if typing && matches!(command, Command::Undo | Command::Redo) {
            continue;
        }
        if ctx.input_mut(|input| input.consume_shortcut(shortcut)) {
            said.push(command.clone());
        }
    }
    said
}

fn weight(modifiers: Modifiers) -> u32 {
    u32::from(modifiers.command) + u32::from(modifiers.shift) + u32::from(modifiers.alt)
}

const fn is_function_key(key: Key) -> bool {
    matches!(key, Key::F1 | Key::F5)
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
    fn every_command_with_a_key_is_in_a_menu_so_that_it_can_be_found() {
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
