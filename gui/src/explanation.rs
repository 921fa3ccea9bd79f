//! The tooltip of each command: what it does, in a sentence.

use gilk_engine::HookType;
use gilk_engine::placement::Style;

use crate::command::Command;
use crate::desk::Pane;
use crate::theme::Colours;
use crate::timeline::order::{Axis, LaneSort, Stack};

impl Command {
    /// Returns the tooltip in menus and of buttons.
    #[must_use]
    pub const fn explanation(&self) -> &'static str {
        match self {
            Self::Question(question) => question.explanation(),
            Self::NewSession => "Starts an empty session.",
            Self::OpenSession => "Opens a session file.",
            Self::SaveSession => "Saves the session to its file.",
            Self::SaveSessionAs => "Saves the session to another file.",
            Self::OpenRecording => "Opens the samples of an earlier run.",
            Self::CompareRecording => {
                "Shows what changed between an earlier recording and the one on the timeline."
            }
            Self::StopComparing => "Shows the statistics of one recording again.",
            Self::ShowLane => "Shows the samples of the selected row on the timeline.",
            Self::Quit => "Ends the program and removes everything from the target.",
            Self::Undo => "Undoes the last change of the session.",
            Self::Redo => "Makes the undone change again.",
            Self::Run => "Installs the session's instruments and records their samples.",
            Self::Stop => "Ends the run now and removes every instrument from the target.",
            Self::Find => {
                "Searches the pane clicked last: samples in the timeline, text in the graph, rows in a table; otherwise functions."
            }
            Self::FocusFilter => "Lists functions by any letters of their names.",
            Self::FitGraph => "Shows the whole graph.",
            Self::ActualSize => "Shows the graph at its natural size.",
            Self::ZoomIn => "Shows the graph larger, around its middle.",
            Self::ZoomOut => "Shows the graph smaller, around its middle.",
            Self::MoveGraph(_) => "Shows another part of the graph, a quarter of the pane away.",
            Self::Back => "Returns to the location before.",
            Self::Forward => "Returns to the location that Back left.",
            Self::NextBlock => "Selects the next block.",
            Self::PreviousBlock => "Selects the previous block.",
            Self::FollowTaken => "Selects the block that the branch jumps to.",
            Self::FollowNotTaken => "Selects the block that the branch falls through to.",
            Self::Hook(HookType::Pre) => "Places instruments before the block.",
            Self::Hook(HookType::Post) => "Places instruments after the block.",
            Self::Hook(HookType::Taken) => "Places instruments where the branch is taken.",
            Self::Hook(HookType::Untaken) => "Places instruments where the branch is not taken.",
            Self::AddInstrument => "Places the inspector's instrument at the selected hook.",
            Self::AddToEveryBlock => {
                "Places the inspector's instrument at every block that has the hook."
            }
            Self::CountFirst => "Runs a short session that only counts the hits of the hook.",
            Self::CountPaths => "Places counters on the fewest edges that identify the paths.",
            Self::FitTimeline => "Shows all samples.",
            Self::FollowLive => "Keeps the newest samples in view.",
            Self::Stack(Stack::Session) => "Shows the lanes without groups.",
            Self::Stack(Stack::Function) => "Groups the lanes by the measured function.",
            Self::Stack(Stack::Instrument) => "Groups the lanes by instrument.",
            Self::Stack(Stack::Cpu) => "Splits the lanes by CPU.",
            Self::Stack(Stack::Thread) => "Splits the lanes by thread.",
            Self::Stack(Stack::Process) => {
                "Splits the lanes by thread, and groups them by process."
            }
            Self::SortLanes(LaneSort::Session) => "Shows the lanes in the order of the session.",
            Self::SortLanes(LaneSort::Count) => "Shows the lanes with the most samples first.",
            Self::SortLanes(LaneSort::Largest) => "Shows the lanes with the largest values first.",
            Self::SortLanes(LaneSort::Name) => "Shows the lanes by the names of their functions.",
            Self::LaneAxis(Axis::Automatic) => {
                "Draws values logarithmically where they differ by a large factor."
            }
            Self::LaneAxis(Axis::Linear) => "Draws values linearly.",
            Self::LaneAxis(Axis::Logarithmic) => "Draws values logarithmically.",
            Self::HideEmptyLanes => "Hides lanes that have no samples.",
            Self::PinLane => "Keeps the selected lane above all others.",
            Self::FilterLanes => "Shows lanes by any letters of a function, instrument or thread.",
            Self::FindSample => "Searches samples by value, CPU, thread and time.",
            Self::NextSample => "Goes to the next sample of the selected lane that matches.",
            Self::PreviousSample => {
                "Goes to the previous sample of the selected lane that matches."
            }
            Self::RecordThreads => "Places the instrument that records which thread runs.",
            Self::MarkA => "Sets the start of the measured range at the pointer.",
            Self::MarkB => "Sets the end of the measured range at the pointer.",
            Self::ClearMarkers => "Removes the markers A and B.",
            Self::Annotate | Self::WriteNote(..) => "Writes a note at a time of the session.",
            Self::RemoveNote(_) => "Removes the note.",
            Self::ShowSamples => "Scrolls to the lanes of the selected block.",
            Self::ToggleTheme => "Changes between light, dark and high contrast.",
            Self::Theme(Colours::System) => "Uses the colours of the desktop.",
            Self::Theme(Colours::Light) => "Uses dark text on a light background.",
            Self::Theme(Colours::Dark) => "Uses light text on a dark background.",
            Self::Theme(Colours::Contrast) => "Uses white text on black, and strong lines.",
            Self::TogglePane(pane) => pane_explanation(*pane),
            Self::NextPane => "Moves the keyboard focus to the next visible pane.",
            Self::PreviousPane => "Moves the keyboard focus to the previous visible pane.",
            Self::TileLayout => "Shows all panes side by side, for large screens.",
            Self::ResetLayout => "Restores the layout of the first start.",
            Self::ShowPalette => "Lists every command by any letters of its name.",
            Self::GoTo => "Opens an address, a name, or a name and an offset.",
            Self::References => "Lists the functions that call this one, and those that it calls.",
            Self::FindInGraph => "Searches the instructions of the open graph.",
            Self::FoldBlock => "Reduces the selected block to its heading.",
            Self::FoldAll => "Reduces all blocks to their headings.",
            Self::ToggleListing => {
                "Shows the function's instructions beside its source lines, or its graph."
            }
            Self::FoldCold => {
                "Shows connected blocks that are not executed as one box with their number."
            }
            Self::OpenRegion(_) => "Shows the blocks of the region.",
            Self::ExportGraph => "Writes the graph as SVG or DOT.",
            Self::ExportRecording => "Writes the samples in a format for other programs.",
            Self::StopExport => "Stops the export.",
            Self::StopSources => "Stops reading debug information.",
            Self::StopReading => "Stops reading the recording.",
            Self::SavePicture => "Writes a picture of the window.",
            Self::AddToMatching => {
                "Places the inspector's instrument in every function that the list shows."
            }
            Self::Put(..) => "Places the instrument.",
            Self::Replace(_) => {
                "Has calls of the open function call a function of an object file in its place."
            }
            Self::AddToEntry => "Places the inspector's instrument where the function is entered.",
            Self::AddToReturns => "Places the inspector's instrument where the function returns.",
            Self::NewInstrument => "Writes an instrument of your own.",
            Self::EditInstrument(_) => "Shows the source of the instrument.",
            Self::OpenInstrument => "Opens the source of an instrument.",
            Self::OpenNatives => "Opens instruments compiled from C, Rust or assembly.",
            Self::UseNatives => "Adds the native instruments to the session.",
            Self::SaveInstrument => "Saves the source of the instrument to a file.",
            Self::UseInstrument => "Adds the instrument to the session.",
            Self::FormatInstrument => "Formats the source of the instrument.",
            Self::RemoveHere => "Removes the instruments of the selected block from the session.",
            Self::MovePlacement(..) => "Changes the order in which instruments of a hook run.",
            Self::ShowShortcuts => "Lists the keys of all commands.",
            Self::StartLab => "Boots a stock kernel in a virtual machine.",
            Self::StartLabWith => "Boots another kernel in a virtual machine.",
            Self::ChooseProcess => {
                "Instruments a running process of this machine, with its libraries."
            }
            Self::OpenProcess(_) => "Makes the process the target.",
            Self::StartProgram => "Starts a program, which waits at its entry for the session.",
            Self::ChooseProcessInCache => {
                "Counts every block of a running process, which executes in the code cache meanwhile, or runs instruments there."
            }
            Self::OpenProcessInCache(_) => {
                "Makes the process the target of runs in the code cache."
            }
            Self::ChooseEvery => {
                "Shows a process of a program; runs instrument all of its processes, and those that begin meanwhile."
            }
            Self::StartProgramInCache => {
                "Starts a program, of which the run counts every block in the code cache, or runs instruments there."
            }
            Self::ConnectHere => "Connects to the agent of this machine's kernel.",
            Self::ConnectSocket => "Connects to the socket of an agent.",
            Self::ConnectSsh => "Connects to the agent of another machine.",
            Self::AddMachines => "Runs sessions on several machines at the same time.",
            Self::AddKernel => {
                "Runs sessions in the process and its kernel at the same time; needs the agent."
            }
            Self::ShowBeside => {
                "Shows the kernel beside the process with its part of the session, or the process again."
            }
            Self::ConnectMachine(_) => "Connects to the machine again.",
            Self::LeaveMachine(_) => "Removes the machine.",
            Self::OpenLibrary => {
                "Lists the functions of a library that the process has not loaded yet; instruments in them wait until it is."
            }
            Self::OpenKernel => "Opens a kernel file to browse and plan on.",
            Self::OpenDebugInfo => "Reads source lines from a vmlinux of this kernel.",
            Self::OpenSource(_) => "Opens the source file at the line.",
            Self::Tour => "Shows the way from a kernel to its samples.",
            Self::RunProgram => "Starts a program at the beginning of the session.",
            Self::Manual => "Explains the window.",
            Self::Disconnect => "Leaves the target and removes everything from it.",
            Self::Reconnect => "Connects to the last target again.",
            Self::GoToAddress(_) => "Opens the block at the address.",
            Self::OpenFunction(_) | Self::OpenNamed(..) => "Opens the graph of the function.",
            Self::SelectBlock(_) => "Selects the block.",
            Self::RemovePlacement(_) => "Removes the instrument from the session.",
            Self::RemovePaths(_) => "Removes the counters of the function's paths.",
            Self::RemoveAll => "Removes all instruments from the session.",
            Self::Style(Style::Auto) => "Moves the whole function if that costs less.",
            Self::Style(Style::InPlace) => "Changes only the instructions at the hooks.",
            Self::Style(Style::Whole) => "Moves the whole function to a copy.",
            Self::Copy(..) => "Copies to the clipboard.",
            Self::Dismiss(_) => "Closes the message.",
            Self::DiscardAnd(_) => "Discards the changes of the session.",
            Self::SaveAnd(_) => "Saves the changes of the session.",
            Self::UsePath(..) => "Uses the path.",
        }
    }
}

const fn pane_explanation(pane: Pane) -> &'static str {
    match pane {
        Pane::Functions => "The functions of the kernel.",
        Pane::Graph => "The blocks of a function and the ways between them.",
        Pane::Inspector => "Facts about a block, and the form to add an instrument.",
        Pane::Session => "The instruments of the session.",
        Pane::Timeline => "The samples, a lane per instrument.",
        Pane::Statistics => "The numbers of the samples, a row per instrument and function.",
        Pane::Calls => {
            "The calls of a recording with call traces: callees below their callers, as wide as their time."
        }
        Pane::Schedule => "The time of each instrument in the session.",
        Pane::Patch => "The code that will be written.",
        Pane::Instruments => "The instruments that can be placed.",
        Pane::Editor => "The source of an instrument.",
        Pane::Console => "The console of the lab's kernel.",
    }
}
