//! Every user action: menus, shortcuts, buttons and tests emit a [`Command`], and the window
//! executes it.

use std::path::PathBuf;
use std::sync::Arc;

use egui::{Context, Key, KeyboardShortcut, Modifiers};
use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use gilk_engine::placement::Style;
use gilk_engine::{Addr, HookType};
use ilk_driver::sources::SourceLine;

use crate::desk::Pane;
use crate::document::Note;
use crate::graph::Side;
use crate::purpose::Purpose;
use crate::questions::Question;
use crate::theme::Colours;
use crate::timeline::order::{Axis, LaneSort, Stack};

/// A user action.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Makes the session of a question.
    Question(Question),
    /// Starts an empty session.
    NewSession,
    /// Opens a session file chosen by the user.
    OpenSession,
    /// Saves the session to its file.
    SaveSession,
    /// Saves the session to a file chosen by the user.
    SaveSessionAs,
    /// Opens a recording chosen by the user.
    OpenRecording,
    /// Compares the recording on the timeline with another, chosen by the user.
    CompareRecording,
    /// Closes the comparison.
    StopComparing,
    /// Shows the lane selected last on the timeline.
    ShowLane,
    /// Ends the program.
    Quit,
    /// Undoes the last change of the session.
    Undo,
    /// Redoes the last undone change.
    Redo,
    /// Runs the session on the target.
    Run,
    /// Stops the run now: every splice is removed.
    Stop,
    /// Focuses the search of the pane in use.
    Find,
    /// Focuses the filter of functions.
    FocusFilter,
    /// Shows the whole graph.
    FitGraph,
    /// Shows the graph at its natural size.
    ActualSize,
    /// Shows the graph larger.
    ZoomIn,
    /// Shows the graph smaller.
    ZoomOut,
    /// Moves the visible part of the graph.
    MoveGraph(Side),
    /// Returns to the previous location.
    Back,
    /// Returns to the location that `Back` left.
    Forward,
    /// Selects the next block.
    NextBlock,
    /// Selects the previous block.
    PreviousBlock,
    /// Selects the target of the branch when taken.
    FollowTaken,
    /// Selects the block that follows the branch when not taken.
    FollowNotTaken,
    /// Selects a hook of the selected block.
    Hook(HookType),
    /// Has calls of the open function call a function of an object file in its place, or the function itself again.
    Replace(Option<String>),
    /// Places the inspector's instrument at the selected block.
    AddInstrument,
    /// Places the inspector's instrument at every block of the function that has the hook.
    AddToEveryBlock,
    /// Shows the whole recording.
    FitTimeline,
    /// Keeps the newest samples in view.
    FollowLive,
    /// Runs a short session that only counts the hits of the inspector's hook.
    CountFirst,
    /// Places the counters that identify the paths through the open function.
    CountPaths,
    /// Groups the timeline's lanes in another way.
    Stack(Stack),
    /// Orders the timeline's lanes in another way.
    SortLanes(LaneSort),
    /// Changes the axis of the lanes' values.
    LaneAxis(Axis),
    /// Hides lanes without samples, or shows them.
    HideEmptyLanes,
    /// Keeps the selected lane at the top, or releases it.
    PinLane,
    /// Focuses the filter of lanes.
    FilterLanes,
    /// Opens the search among samples.
    FindSample,
    /// Goes to the next sample that matches.
    NextSample,
    /// Goes to the previous sample that matches.
    PreviousSample,
    /// Places the instrument that records which thread runs.
    RecordThreads,
    /// Sets marker A at the pointer's time on the timeline.
    MarkA,
    /// Sets marker B at the pointer's time on the timeline.
    MarkB,
    /// Removes both markers.
    ClearMarkers,
    /// Starts a note at the pointer's time.
    Annotate,
    /// Adds a note, or replaces the note at the given index.
    WriteNote(Option<usize>, Note),
    /// Removes a note, by index.
    RemoveNote(usize),
    /// Shows the lanes of the selected block on the timeline.
    ShowSamples,
    /// Switches between light, dark and high contrast.
    ToggleTheme,
    /// Selects the colours.
    Theme(Colours),
    /// Shows or hides a pane.
    TogglePane(Pane),
    /// Moves the keyboard focus to the next visible pane.
    NextPane,
    /// Moves the keyboard focus to the previous visible pane.
    PreviousPane,
    /// Restores the default layout of panes.
    ResetLayout,
    /// Tiles all panes.
    TileLayout,
    /// Opens a searchable list of all commands.
    ShowPalette,
    /// Requests an address, a name, or a name and an offset, and opens it.
    GoTo,
    /// Lists the callers and callees of the open function.
    References,
    /// Searches for text in the open graph.
    FindInGraph,
    /// Folds the selected block to its heading, or unfolds it.
    FoldBlock,
    /// Folds all blocks to their headings, or unfolds them.
    FoldAll,
    /// Shows the open function as text beside its source, or as a graph.
    ToggleListing,
    /// Shows each cold region of the graph as one box, or all blocks.
    FoldCold,
    /// Shows the blocks of a cold region, by its first block.
    OpenRegion(BlockIndex),
    /// Exports the graph as SVG or DOT.
    ExportGraph,
    /// Exports the recording in a format for other programs.
    ExportRecording,
    /// Stops the export of the recording.
    StopExport,
    /// Stops reading debug information.
    StopSources,
    /// Stops reading the recording.
    StopReading,
    /// Saves a picture of the window.
    SavePicture,
    /// Places the inspector's instrument at the entry of every function that matches the filter.
    AddToMatching,
    /// Places the instrument with the given name.
    Put(Destination, String),
    /// Places the inspector's instrument at the entry of the open function.
    AddToEntry,
    /// Places the inspector's instrument at every return of the open function.
    AddToReturns,
    /// Starts a new instrument in the editor.
    NewInstrument,
    /// Shows an instrument's source, by name.
    EditInstrument(String),
    /// Opens an instrument file chosen by the user.
    OpenInstrument,
    /// Opens an object file with native instruments, chosen by the user.
    OpenNatives,
    /// Adds the native instruments that were read, after the user accepted the risk.
    UseNatives,
    /// Saves the editor's text to a file chosen by the user.
    SaveInstrument,
    /// Adds the editor's text to the session as an instrument.
    UseInstrument,
    /// Formats the editor's text.
    FormatInstrument,
    /// Removes the instruments of the selected block from the session.
    RemoveHere,
    /// Moves a placement from the first index to the second.
    MovePlacement(usize, usize),
    /// Shows the list of shortcuts.
    ShowShortcuts,
    /// Boots the lab and connects to it.
    StartLab,
    /// Requests a kernel and boots the lab with it.
    StartLabWith,
    /// Shows the processes of this machine.
    ChooseProcess,
    /// Makes a process of this machine the target.
    OpenProcess(u32),
    /// Shows the processes of this machine, for the code cache.
    ChooseProcessInCache,
    /// Makes a process of this machine the target of runs in the code cache.
    OpenProcessInCache(u32),
    /// Requests a program and its arguments, and starts it.
    StartProgram,
    /// Requests a program and its arguments, and starts it for the code cache.
    StartProgramInCache,
    /// Requests a program, all processes of which are the target.
    ChooseEvery,
    /// Connects to the agent on this machine.
    ConnectHere,
    /// Requests an agent's socket and connects to it.
    ConnectSocket,
    /// Requests a machine and connects to its agent over ssh.
    ConnectSsh,
    /// Requests machines and connects to them: a session runs on all of them.
    AddMachines,
    /// Connects to this machine's agent: sessions run in the process and its kernel.
    AddKernel,
    /// Shows the kernel beside the process, or the process again.
    ShowBeside,
    /// Reconnects to an additional machine, by number.
    ConnectMachine(u64),
    /// Removes an additional machine, by number.
    LeaveMachine(u64),
    /// Opens a kernel from a file, to browse and plan on.
    OpenKernel,
    /// Opens a library that the process has not loaded yet.
    OpenLibrary,
    /// Opens a vmlinux with debug information of the target's kernel.
    OpenDebugInfo,
    /// Opens a source file at a line.
    OpenSource(SourceLine),
    /// Starts the tour from its first step.
    Tour,
    /// Runs a program of the lab during the session.
    RunProgram,
    /// Shows the manual.
    Manual,
    /// Stops preparing the target, or disconnects from it.
    Disconnect,
    /// Connects to the last source again.
    Reconnect,
    /// Opens the block at an address.
    GoToAddress(Addr),
    /// Opens a function's graph.
    OpenFunction(FunctionId),
    /// Opens the graph of a function by its session name, at a block if there is one.
    OpenNamed(String, Option<BlockIndex>),
    /// Selects a block of the open function.
    SelectBlock(BlockIndex),
    /// Removes an instrument from the session, by index.
    RemovePlacement(usize),
    /// Removes the instruments that count a function's paths.
    RemovePaths(Arc<str>),
    /// Removes all instruments from the session.
    RemoveAll,
    /// Sets the style of the open function.
    Style(Style),
    /// Copies a text to the clipboard, with words for what it is.
    Copy(Arc<str>, String),
    /// Closes a message, by index.
    Dismiss(usize),
    /// Discards unsaved changes, then executes a command.
    DiscardAnd(Box<Command>),
    /// Saves the session, then executes a command.
    SaveAnd(Box<Command>),
    /// Opens, saves or records at the requested path, then executes a command.
    UsePath(Purpose, PathBuf, Option<Box<Command>>),
}

/// Destination of a placed instrument. An instrument in the language fires where its source says
/// (at a block, at its branch, or in a whole function); the destination then selects which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Before or after a block of the open function.
    Hook(BlockIndex, HookType),
    /// The edge from one block to another.
    Edge(BlockIndex, BlockIndex),
    /// The entry of the open function.
    Entry,
    /// Every exit of the open function: before it returns or jumps to another function.
    Returns,
    /// Every block of the open function that has the hook.
    EveryBlock(HookType),
    /// The entry of every function that matches the filter.
    Matching,
    /// The entry of a function.
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
    /// Returns the label in menus, buttons and the list of shortcuts.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Question(question) => question.text(),
            Self::NewSession => "New session",
            Self::OpenSession => "Open session…",
            Self::SaveSession => "Save session",
            Self::SaveSessionAs => "Save session as…",
            Self::OpenRecording => "Open recording…",
            Self::CompareRecording => "Compare with another run…",
            Self::StopComparing => "Close comparison",
            Self::ShowLane => "Show lane",
            Self::Quit => "Quit",
            Self::Undo => "Undo",
            Self::Redo => "Redo",
            Self::Run => "Run session",
            Self::Stop => "Stop run",
            Self::Find => "Find in pane",
            Self::FocusFilter => "Find function",
            Self::FitGraph => "Fit graph",
            Self::ActualSize => "Graph at natural size",
            Self::ZoomIn => "Zoom graph in",
            Self::ZoomOut => "Zoom graph out",
            Self::MoveGraph(Side::Left) => "Move graph left",
            Self::MoveGraph(Side::Right) => "Move graph right",
            Self::MoveGraph(Side::Up) => "Move graph up",
            Self::MoveGraph(Side::Down) => "Move graph down",
            Self::Back => "Back",
            Self::Forward => "Forward",
            Self::NextBlock => "Next block",
            Self::PreviousBlock => "Previous block",
            Self::FollowTaken => "Follow branch taken",
            Self::FollowNotTaken => "Follow branch not taken",
            Self::Hook(HookType::Pre) => "Hook before block",
            Self::Hook(HookType::Post) => "Hook after block",
            Self::Hook(HookType::Taken) => "Hook where branch is taken",
            Self::Hook(HookType::Untaken) => "Hook where branch is not taken",
            Self::AddInstrument => "Add instrument",
            Self::AddToEveryBlock => "Add to every hookable block",
            Self::CountFirst => "Count hits first",
            Self::CountPaths => "Count paths",
            Self::FitTimeline => "Fit timeline",
            Self::FollowLive => "Follow newest samples",
            Self::Stack(Stack::Session) => "Lanes in session order",
            Self::Stack(Stack::Function) => "Lanes by function",
            Self::Stack(Stack::Instrument) => "Lanes by instrument",
            Self::Stack(Stack::Cpu) => "Lanes by CPU",
            Self::Stack(Stack::Thread) => "Lanes by thread",
            Self::Stack(Stack::Process) => "Lanes by process",
            Self::SortLanes(LaneSort::Session) => "Sort lanes as in session",
            Self::SortLanes(LaneSort::Count) => "Sort lanes by samples",
            Self::SortLanes(LaneSort::Largest) => "Sort lanes by largest value",
            Self::SortLanes(LaneSort::Name) => "Sort lanes by name",
            Self::LaneAxis(Axis::Automatic) => "Automatic axis",
            Self::LaneAxis(Axis::Linear) => "Linear axis",
            Self::LaneAxis(Axis::Logarithmic) => "Logarithmic axis",
            Self::HideEmptyLanes => "Hide lanes without samples",
            Self::PinLane => "Pin selected lane",
            Self::FilterLanes => "Filter lanes",
            Self::FindSample => "Find samples",
            Self::NextSample => "Next sample",
            Self::PreviousSample => "Previous sample",
            Self::RecordThreads => "Record running threads",
            Self::MarkA => "Marker A at pointer",
            Self::MarkB => "Marker B at pointer",
            Self::ClearMarkers => "Clear markers",
            Self::Annotate => "Add note at pointer",
            Self::WriteNote(..) => "Add note",
            Self::RemoveNote(_) => "Remove note",
            Self::ShowSamples => "Show samples of block",
            Self::ToggleTheme => "Next colours",
            Self::Theme(Colours::System) => "Colours of the desktop",
            Self::Theme(Colours::Light) => "Light colours",
            Self::Theme(Colours::Dark) => "Dark colours",
            Self::Theme(Colours::Contrast) => "High contrast",
            Self::TogglePane(pane) => pane.title(),
            Self::NextPane => "Next pane",
            Self::PreviousPane => "Previous pane",
            Self::TileLayout => "Tile all panes",
            Self::ResetLayout => "Default layout",
            Self::ShowPalette => "Find command",
            Self::GoTo => "Go to…",
            Self::References => "Callers and callees",
            Self::FindInGraph => "Find in graph",
            Self::FoldBlock => "Fold block",
            Self::FoldAll => "Fold all blocks",
            Self::ToggleListing => "Listing with source",
            Self::FoldCold => "Fold cold regions",
            Self::OpenRegion(_) => "Show cold region",
            Self::ExportGraph => "Export graph…",
            Self::ExportRecording => "Export recording…",
            Self::StopExport => "Stop export",
            Self::StopSources => "Stop reading debug information",
            Self::StopReading => "Stop reading recording",
            Self::SavePicture => "Save picture of window…",
            Self::AddToMatching => "Add to entry of every match",
            Self::Put(..) => "Place instrument",
            Self::Replace(_) => "Replace function",
            Self::AddToEntry => "Add to function entry",
            Self::AddToReturns => "Add to every return",
            Self::NewInstrument => "New instrument",
            Self::EditInstrument(_) => "Show source",
            Self::OpenInstrument => "Open instrument…",
            Self::OpenNatives => "Open native instruments…",
            Self::UseNatives => "Use native instruments",
            Self::SaveInstrument => "Save instrument as…",
            Self::UseInstrument => "Use instrument in session",
            Self::FormatInstrument => "Format instrument",
            Self::RemoveHere => "Remove instruments from block",
            Self::MovePlacement(..) => "Change order",
            Self::ShowShortcuts => "Shortcuts",
            Self::StartLab => "Start the lab",
            Self::StartLabWith => "Start the lab with another kernel…",
            Self::ChooseProcess => "Process…",
            Self::OpenProcess(_) => "Open process",
            Self::ChooseProcessInCache => "Process in the code cache…",
            Self::OpenProcessInCache(_) => "Open process in the code cache",
            Self::StartProgram => "Program…",
            Self::StartProgramInCache => "Program in the code cache…",
            Self::ChooseEvery => "All processes of a program…",
            Self::ConnectHere => "Connect to this machine",
            Self::ConnectSocket => "Connect to a socket…",
            Self::ConnectSsh => "Connect over ssh…",
            Self::AddMachines => "Add machines…",
            Self::AddKernel => "Add this machine's kernel to the process",
            Self::ShowBeside => "Show the kernel or the process",
            Self::ConnectMachine(_) => "Reconnect machine",
            Self::LeaveMachine(_) => "Remove machine",
            Self::OpenKernel => "Open kernel file…",
            Self::OpenLibrary => "Open library…",
            Self::OpenDebugInfo => "Open debug information…",
            Self::OpenSource(_) => "Open source file",
            Self::Tour => "Tour",
            Self::RunProgram => "Run a program during the session",
            Self::Manual => "Manual",
            Self::Disconnect => "Disconnect",
            Self::Reconnect => "Reconnect",
            Self::GoToAddress(_) => "Go to address",
            Self::OpenFunction(_) | Self::OpenNamed(..) => "Open function",
            Self::SelectBlock(_) => "Select block",
            Self::RemovePlacement(_) => "Remove instrument",
            Self::RemovePaths(_) => "Stop counting paths",
            Self::RemoveAll => "Remove all instruments",
            Self::Style(Style::Auto) => "Instrument in place or whole, whichever costs less",
            Self::Style(Style::InPlace) => "Instrument in place",
            Self::Style(Style::Whole) => "Instrument whole function",
            Self::Copy(..) => "Copy",
            Self::Dismiss(_) => "Dismiss message",
            Self::DiscardAnd(_) => "Discard changes",
            Self::SaveAnd(_) => "Save changes",
            Self::UsePath(purpose, ..) => purpose.title(),
        }
    }

    /// Returns the shortcuts of the command; menus show the first.
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
            Self::Find => const { &[on(CTRL, Key::F)] },
            Self::FocusFilter => const { &[on(NONE, Key::Slash)] },
            Self::FitGraph => const { &[on(NONE, Key::Num0)] },
            Self::ActualSize => const { &[on(NONE, Key::Num1)] },
            Self::ZoomIn => const { &[on(NONE, Key::Plus), on(NONE, Key::Equals)] },
            Self::ZoomOut => const { &[on(NONE, Key::Minus)] },
            Self::MoveGraph(Side::Left) => const { &[on(SHIFT, Key::ArrowLeft)] },
            Self::MoveGraph(Side::Right) => const { &[on(SHIFT, Key::ArrowRight)] },
            Self::MoveGraph(Side::Up) => const { &[on(SHIFT, Key::ArrowUp)] },
            Self::MoveGraph(Side::Down) => const { &[on(SHIFT, Key::ArrowDown)] },
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
            Self::ToggleListing => const { &[on(NONE, Key::V)] },
            Self::FoldCold => const { &[on(NONE, Key::H)] },
            Self::RemoveHere => const { &[on(NONE, Key::Delete)] },
            Self::Hook(HookType::Pre) => const { &[on(Modifiers::ALT, Key::Num1)] },
            Self::Hook(HookType::Post) => const { &[on(Modifiers::ALT, Key::Num2)] },
            Self::Hook(HookType::Taken) => const { &[on(Modifiers::ALT, Key::Num3)] },
            Self::Hook(HookType::Untaken) => const { &[on(Modifiers::ALT, Key::Num4)] },
            Self::AddInstrument => const { &[on(CTRL, Key::Enter)] },
            Self::FitTimeline => const { &[on(SHIFT, Key::F)] },
            Self::MarkA => const { &[on(NONE, Key::OpenBracket)] },
            Self::MarkB => const { &[on(NONE, Key::CloseBracket)] },
            Self::Annotate => const { &[on(NONE, Key::B)] },
            Self::ShowSamples => const { &[on(NONE, Key::L)] },
            Self::FilterLanes => const { &[on(SHIFT, Key::L)] },
            Self::FindSample => const { &[on(CTRL, Key::L)] },
            Self::NextSample => const { &[on(NONE, Key::Period)] },
            Self::PreviousSample => const { &[on(NONE, Key::Comma)] },
            Self::PinLane => const { &[on(NONE, Key::P)] },
            Self::FollowLive => const { &[on(NONE, Key::End)] },
            Self::NextPane => const { &[on(NONE, Key::F6)] },
            Self::PreviousPane => const { &[on(SHIFT, Key::F6)] },
            Self::Manual => const { &[on(NONE, Key::F1)] },
            Self::ShowShortcuts => const { &[on(NONE, Key::Questionmark)] },
            _ => &[],
        }
    }

    /// Returns the first shortcut as text.
    #[must_use]
    pub fn shortcut_text(&self, ctx: &Context) -> String {
        self.shortcuts()
            .first()
            .map(|shortcut| key_words(ctx, shortcut))
            .unwrap_or_default()
    }
}

/// Returns a shortcut as labelled on a keyboard.
pub(crate) fn key_words(ctx: &Context, keys: &KeyboardShortcut) -> String {
    ctx.format_shortcut(keys)
        .replace("Slash", "/")
        .replace("Questionmark", "?")
        .replace("Escape", "Esc")
        .replace("OpenBracket", "[")
        .replace("CloseBracket", "]")
        .replace("Period", ".")
        .replace("Comma", ",")
        .replace("Plus", "+")
        .replace("Equals", "=")
        .replace("Minus", "-")
}
