//! Files, each task on a thread of its own: discs and desktops may take their time.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gilk_engine::Session;
use gilk_samples::export::{Format, Progress, export_to};
use gilk_samples::index::Index;
use gilk_samples::joined::{self, Joined};
use gilk_samples::metadata::MachineInfo;
use gilk_samples::recording::{LossCause, Recording};

use ilk_driver::client::StopFlag;

use super::{Mail, Message, spawn};
use crate::document::Edited;
use crate::keep;
use crate::timeline::Opened;
use crate::{Error, Result};

/// What a path is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A session to open.
    OpenSession,
    /// Where to save the session.
    SaveSession,
    /// A recording to open.
    OpenRecording,
    /// Where a run is to be recorded.
    SaveRecording,
    /// Where the graph is to be written, as SVG or DOT.
    ExportGraph,
    /// Where the recording is to be written for other programs.
    ExportRecording,
    /// An instrument's source to open.
    OpenInstrument,
    /// Where an instrument's source is to be saved.
    SaveInstrument,
    /// Where a picture of the window is to be written.
    Picture,
    /// The socket of an agent.
    Socket,
    /// A machine, as ssh knows it.
    Machine,
    /// Several machines, with commas between.
    Machines,
    /// A kernel for the lab.
    LabKernel,
    /// A kernel to look at.
    Kernel,
    /// An object file with instruments.
    Natives,
    /// A kernel's debug information.
    DebugInfo,
}

impl Purpose {
    /// What a dialog is called.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::OpenSession => "Open session",
            Self::SaveSession => "Save session",
            Self::OpenRecording => "Open recording",
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
            Self::Kernel => "Open kernel file",
            Self::DebugInfo => "Open debug information",
            Self::Natives => "Open native instruments",
        }
    }

    /// What stands in the field while it is empty.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Machine => "user@machine",
            Self::Machines => "here, root@web1, web2=/run/web2.sock",
            Self::LabKernel => "6.12, 6.12 rt, or a vmlinuz and its headers",
            Self::Socket => "path of the agent's socket",
            Self::Natives => "object file, as cc -c makes it with gilk.h",
            Self::DebugInfo => "vmlinux with debug information, of this very kernel",
            Self::Kernel => "vmlinux, vmlinuz, or what ilk dump saved",
            _ => "path of the file",
        }
    }

    /// What stands below the field, where there is something to know.
    #[must_use]
    pub fn note(self) -> Option<String> {
        match self {
            Self::ExportRecording => Some(format!(
                "The end of the name chooses the format: {}.",
                exports().join(", ")
            )),
            Self::Machines => Some(
                "A session runs on the target and on all of these, from the same moment on."
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// What the button that goes on says.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Machine | Self::Machines | Self::Socket => "Connect",
            Self::LabKernel => "Start",
            _ if self.saves() => "Save",
            _ => "Open",
        }
    }

    /// Whether it is a file, which the desktop's dialog can look for.
    #[must_use]
    pub const fn is_file(self) -> bool {
        !matches!(self, Self::Machine | Self::Machines | Self::LabKernel)
    }

    /// What a dialog calls the files that it lists, and how their names end.
    fn filter(self) -> (&'static str, Vec<&'static str>) {
        match self {
            Self::OpenSession | Self::SaveSession => ("Sessions", vec!["ron"]),
            Self::ExportGraph => ("Graphs", vec!["svg", "dot"]),
            Self::ExportRecording => ("Exports", exports().to_vec()),
            Self::Picture => ("Pictures", vec!["png"]),
            Self::OpenInstrument | Self::SaveInstrument => ("Instruments", vec!["gilk"]),
            Self::Natives => ("Object files", vec!["o"]),
            Self::DebugInfo => ("Debug information", vec!["debug"]),
            Self::Socket => ("Sockets", vec!["sock"]),
            Self::Machine | Self::Machines | Self::LabKernel | Self::Kernel => {
                ("All files", vec!["*"])
            }
            Self::OpenRecording | Self::SaveRecording => ("Recordings", vec!["arrow", "gilk"]),
        }
    }

    /// Whether the file is written.
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

/// How the names of exported recordings may end.
fn exports() -> [&'static str; Format::ALL.len()] {
    Format::ALL.map(Format::extension)
}

/// Opens the desktop's dialog. Where there is none, the answer is that nothing was chosen.
pub(crate) fn pick(mail: &Mail, purpose: Purpose, near: PathBuf) {
    let mail = mail.clone();
    spawn("dialog", move || {
        let (name, endings) = purpose.filter();
        let mut dialog = rfd::FileDialog::new()
            .set_title(purpose.title())
            .add_filter(name, &endings);
        if let Some(folder) = near.parent().filter(|folder| folder.is_dir()) {
            dialog = dialog.set_directory(folder);
        }
        if purpose.saves()
            && let Some(name) = near.file_name()
        {
            dialog = dialog.set_file_name(name.to_string_lossy());
        }
        mail.send(Message::Picked(if purpose.saves() {
            dialog.save_file()
        } else {
            dialog.pick_file()
        }));
    });
}

fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::Io {
        path: path.to_path_buf(),
        source,
        hint: "Check the path, or choose another file.",
    })
}

/// Reads a session file.
pub(crate) fn read_session(mail: &Mail, path: PathBuf) {
    let mail = mail.clone();
    spawn("read session", move || {
        let read = read_text(&path).and_then(|text| Ok(Session::from_ron(&text)?));
        let beside = keep::Beside::read(&path).map(Box::new);
        mail.send(Message::SessionRead(path, read, beside));
    });
}

/// Reads an instrument's source.
pub(crate) fn read_source(mail: &Mail, path: PathBuf) {
    let mail = mail.clone();
    spawn("read instrument", move || {
        let read = read_text(&path);
        mail.send(Message::SourceRead(path, read));
    });
}

/// Writes an instrument's source.
pub(crate) fn write_source(mail: &Mail, path: PathBuf, text: String) {
    let mail = mail.clone();
    spawn("write instrument", move || {
        let written = replace(&path, &text);
        mail.send(Message::SourceWritten(path, written));
    });
}

/// Writes a session file: beside the old one first, so that a full disc loses nothing.
pub(crate) fn write_session(mail: &Mail, path: PathBuf, edited: Edited, desk: Option<String>) {
    let mail = mail.clone();
    spawn("write session", move || {
        let written = edited
            .session
            .to_ron()
            .map_err(Error::from)
            .and_then(|text| replace(&path, &text))
            .and_then(|()| desk.map_or(Ok(()), |desk| replace(&keep::beside(&path), &desk)));
        mail.send(Message::SessionWritten(path, edited, written));
    });
}

/// Writes what a person asked for.
pub(crate) fn export(mail: &Mail, path: PathBuf, text: String) {
    let mail = mail.clone();
    spawn("export", move || {
        let written = replace(&path, &text);
        mail.send(Message::Exported(path, written));
    });
}

/// Writes a recording for other programs, in the format that the end of the path's name asks for.
pub(crate) fn export_recording(mail: &Mail, from: PathBuf, to: PathBuf, stop: StopFlag) {
    let mail = mail.clone();
    spawn("export recording", move || {
        let written = write_export(&from, &to, &stop, &|progress| {
            mail.send(Message::Exporting(progress));
        });
        mail.send(Message::Exported(to, written));
    });
}

fn write_export(from: &Path, to: &Path, stop: &StopFlag, tell: &dyn Fn(Progress)) -> Result<()> {
    let format = Format::of(to).ok_or_else(|| Error::Format {
        path: to.to_path_buf(),
        endings: exports().join(", "),
    })?;
    let recording = Recording::open(from)?;
    let exported = export_to(&recording, format, to, &mut |progress| {
        tell(progress);
        if stop.is_stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    // What could not be read is left out, and that is said.
    exported
        .damaged
        .into_iter()
        .next()
        .map_or(Ok(()), |damage| Err(damage.into()))
}

/// Keeps a text in a file of the window's own, or takes the file away. Where that fails nothing is
/// lost but what a crash would take.
pub(crate) fn keep(mail: &Mail, path: PathBuf, text: Option<String>) {
    let mail = mail.clone();
    spawn("keep", move || {
        let kept = match text {
            Some(text) => replace(&path, &text),
            None => std::fs::remove_file(&path).map_err(|source| Error::Io {
                path: path.clone(),
                source,
                hint: "Remove it by hand.",
            }),
        };
        if let Err(error) = kept {
            mail.send(Message::NotKept(error));
        }
    });
}

fn replace(path: &Path, text: &str) -> Result<()> {
    let failed = |source| Error::Io {
        path: path.to_path_buf(),
        source,
        hint: "Choose another place.",
    };
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, text).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}

/// Reads a recording and makes its index. Nothing is told of one that is stopped.
pub(crate) fn open_recording(mail: &Mail, path: PathBuf, stop: StopFlag) {
    let mail = mail.clone();
    spawn("open recording", move || {
        let opened = read_recording(&path, &|done, all| {
            if stop.is_stopped() {
                return ControlFlow::Break(());
            }
            mail.send(Message::RecordingProgress(done, all));
            ControlFlow::Continue(())
        })
        .map(Box::new);
        if !stop.is_stopped() {
            mail.send(Message::Recording(path, opened));
        }
    });
}

/// A recording, or all of a folder on one timeline.
fn read_recording(path: &Path, progress: &dyn Fn(u64, u64) -> ControlFlow<()>) -> Result<Opened> {
    let mut told = 0;
    let mut tell = |done, all| {
        if done - told <= 200_000 {
            return ControlFlow::Continue(());
        }
        told = done;
        progress(done, all)
    };
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let note = |recording: &Recording| recording.recovered().map(str::to_owned);
    let (metadata, (index, troubles), losses, totals, mut notes, bytes) = if path.is_dir() {
        let joined = Joined::open(&joined::files(path)?)?;
        let all = joined.samples();
        let mut notes: Vec<String> = joined.recordings().filter_map(note).collect();
        notes.extend(joined.metadata().machines.iter().map(exactness));
        (
            joined.metadata().clone(),
            joined.index(|done| tell(done, all)),
            joined.losses()?,
            joined.totals(),
            notes,
            joined.recordings().map(|one| size(one.path())).sum(),
        )
    } else {
        let recording = Recording::open(path)?;
        let all = recording.samples();
        (
            recording.metadata().clone(),
            Index::of(&recording, |done| tell(done, all)),
            recording.losses()?,
            recording.totals().clone(),
            note(&recording).into_iter().collect(),
            size(path),
        )
    };
    notes.extend(troubles.iter().map(ToString::to_string));
    let (mut full, mut unmatched) = (0, 0);
    for loss in losses {
        match loss.cause {
            LossCause::Unmatched => unmatched += loss.count,
            // In one way or another, the ring had no room for them.
            _ => full += loss.count,
        }
    }
    Ok(Opened {
        path: path.to_path_buf(),
        metadata,
        index,
        bytes,
        lost: (full, unmatched),
        totals: totals.added_up,
        notes,
    })
}

/// How exactly a machine's times are known, in a sentence.
fn exactness(machine: &MachineInfo) -> String {
    let name = &machine.name;
    match machine.error_ns {
        Some(error) => format!("Times of {name} are right to ±{} µs.", error.div_ceil(1000)),
        None => {
            format!("Times of {name} are by its own clock, and nobody knows how right that is.")
        }
    }
}
