//! Purposes of a requested path, with the texts of their dialogs.

use gilk_samples::export::Format;
use serde::{Deserialize, Serialize};

/// Purpose of a requested path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A session file to read.
    OpenSession,
    /// Destination of the session.
    SaveSession,
    /// A recording to read.
    OpenRecording,
    /// An earlier recording to compare the one on the timeline with.
    CompareRecording,
    /// Destination of the next run's recording.
    SaveRecording,
    /// Destination of the graph as SVG or DOT.
    ExportGraph,
    /// Destination of the recording in another format.
    ExportRecording,
    /// An instrument's source to read.
    OpenInstrument,
    /// Destination of an instrument's source.
    SaveInstrument,
    /// Destination of a picture of the window.
    Picture,
    /// The socket of an agent.
    Socket,
    /// A machine to connect to over ssh.
    Machine,
    /// Several machines, separated by commas.
    Machines,
    /// A series, or a vmlinuz and its headers, to boot in the lab.
    LabKernel,
    /// A program to start, with its arguments.
    Program,
    /// A program to start, with its arguments, for the code cache.
    ProgramInCache,
    /// A program, all processes of which are instrumented.
    Every,
    /// A kernel file to open.
    Kernel,
    /// A library that a process has not loaded yet.
    Library,
    /// An object file with instruments.
    Natives,
    /// A kernel's debug information.
    DebugInfo,
}

impl Purpose {
    /// Returns the dialog's title.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::OpenSession => "Open session",
            Self::SaveSession => "Save session",
            Self::OpenRecording => "Open recording",
            Self::CompareRecording => "Compare with an earlier recording",
            Self::SaveRecording => "Record to",
            Self::ExportGraph => "Export graph",
            Self::ExportRecording => "Export recording",
            Self::OpenInstrument => "Open instrument",
            Self::SaveInstrument => "Save instrument",
            Self::Picture => "Save picture of window",
            Self::Socket => "Connect to a socket",
            Self::Machine => "Connect over ssh",
            Self::Machines => "Add machines",
            Self::LabKernel => "Start the lab with another kernel",
            Self::Program => "Start a program",
            Self::ProgramInCache => "Start a program in the code cache",
            Self::Every => "Open all processes of a program",
            Self::Kernel => "Open kernel file",
            Self::Library => "Open library",
            Self::DebugInfo => "Open debug information",
            Self::Natives => "Open native instruments",
        }
    }

    /// Returns the hint in the empty field.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Machine => "user@machine",
            Self::Machines => "here, root@web1, web2=/run/web2.sock",
            Self::LabKernel => "6.12, 6.12 rt, or a vmlinuz and its headers",
            Self::Program | Self::ProgramInCache => "program and arguments, separated by spaces",
            Self::Every => "name or path of the program",
            Self::Socket => "path of the agent's socket",
            Self::Library => "file of a library that the process loads later",
            Self::Natives => "object file that cc -c made from C code with gilk.h",
            Self::DebugInfo => "vmlinux with debug information of exactly this kernel",
            Self::Kernel => "vmlinux, vmlinuz, or image saved by ilk dump",
            _ => "path of the file",
        }
    }

    /// Returns the note below the field, if any.
    #[must_use]
    pub fn note(self) -> Option<String> {
        match self {
            Self::ExportRecording => Some(format!(
                "The extension selects the format: {}.",
                exports().join(", ")
            )),
            Self::Program => Some(
                "It is stopped at its entry, and continues when the session has instrumented it."
                    .to_owned(),
            ),
            Self::Every => Some(
                "The functions of one of its processes are shown. A run instruments all, and those that begin until its end."
                    .to_owned(),
            ),
            Self::ProgramInCache => Some(
                "It is stopped at its entry. The run executes it in the code cache and counts every block, or runs the session's instruments there."
                    .to_owned(),
            ),
            Self::Library => Some(
                "Its functions are listed with those of the process. Instruments in them are placed when it is loaded."
                    .to_owned(),
            ),
            Self::Machines => Some(
                "A session runs on the target and all of these machines, and starts at the same time."
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// Returns the label of the confirm button.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Machine | Self::Machines | Self::Socket => "Connect",
            Self::LabKernel | Self::Program | Self::ProgramInCache => "Start",
            Self::CompareRecording => "Compare",
            _ if self.saves() => "Save",
            _ => "Open",
        }
    }

    /// Returns whether the path is a file, which the desktop's dialog can browse.
    #[must_use]
    pub const fn is_file(self) -> bool {
        !matches!(
            self,
            Self::Machine
                | Self::Machines
                | Self::LabKernel
                | Self::Program
                | Self::ProgramInCache
                | Self::Every
        )
    }

    /// Returns the name and extensions of the dialog's file filter.
    pub(crate) fn filter(self) -> (&'static str, Vec<&'static str>) {
        match self {
            Self::OpenSession | Self::SaveSession => ("Sessions", vec!["ron"]),
            Self::ExportGraph => ("Graphs", vec!["svg", "dot"]),
            Self::ExportRecording => ("Exports", exports().to_vec()),
            Self::Picture => ("Pictures", vec!["png"]),
            Self::OpenInstrument | Self::SaveInstrument => ("Instruments", vec!["gilk"]),
            Self::Natives => ("Object files", vec!["o"]),
            Self::DebugInfo => ("Debug information", vec!["debug"]),
            Self::Socket => ("Sockets", vec!["sock"]),
            Self::Machine
            | Self::Machines
            | Self::LabKernel
            | Self::Program
            | Self::ProgramInCache
            | Self::Every
            | Self::Library
            | Self::Kernel => ("All files", vec!["*"]),
            Self::OpenRecording | Self::CompareRecording | Self::SaveRecording => {
                ("Recordings", vec!["arrow", "gilk"])
            }
        }
    }

    /// Returns the purpose for which recent paths are listed: what was saved can be opened.
    #[must_use]
    pub const fn of_recent(self) -> Self {
        match self {
            Self::SaveSession => Self::OpenSession,
            Self::CompareRecording => Self::OpenRecording,
            Self::ProgramInCache => Self::Program,
            Self::SaveInstrument => Self::OpenInstrument,
            other => other,
        }
    }

    /// Returns whether the file is written.
    #[must_use]
    pub const fn saves(self) -> bool {
        matches!(
            self,
            Self::SaveSession
                | Self::SaveRecording
                | Self::ExportGraph
                | Self::ExportRecording
                | Self::Picture
                | Self::SaveInstrument
        )
    }
}

/// Returns the extensions of exported recordings.
pub(crate) fn exports() -> [&'static str; Format::ALL.len()] {
    Format::ALL.map(Format::extension)
}
