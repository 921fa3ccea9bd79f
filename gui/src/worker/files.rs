//! File operations, each on its own thread, because disks and file dialogs can be slow.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gilk_engine::Session;
use gilk_samples::export::{Format, Progress, export_to};
use gilk_samples::index::Index;
use gilk_samples::input;
use gilk_samples::joined::{self, Joined};
use gilk_samples::metadata::MachineInfo;
use gilk_samples::output::{self, Contents, Existing, Goals};
use gilk_samples::recording::Recording;
use gilk_samples::totals::Totals;

use ilk_driver::client::StopFlag;

use super::mail::{Mail, Message};
use crate::document::Edited;
use crate::purpose::{Purpose, exports};
use crate::sidecar::{Sidecar, sidecar_path};
use crate::statistics::comparison::ComparedRuns;
use crate::timeline::{Losses, Opened};
use crate::{Error, Result};

/// Opens the desktop's file dialog; without one, the reply is that no file was chosen.
pub(crate) fn pick(mail: &Mail, purpose: Purpose, near: PathBuf) {
    mail.spawn("dialog", move |mail| {
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
    Ok(input::text(path)?)
}

/// Reads a session file and its sidecar.
pub(crate) fn read_session(mail: &Mail, path: PathBuf) {
    mail.spawn("read session", move |mail| {
        let read = read_text(&path).and_then(|text| Ok(Session::from_ron(&text)?.into()));
        let sidecar = Sidecar::read(&path).map(Box::new);
        mail.send(Message::SessionRead(path, read, sidecar));
    });
}

/// Reads an instrument's source.
pub(crate) fn read_source(mail: &Mail, path: PathBuf) {
    mail.spawn("read instrument", move |mail| {
        let read = read_text(&path);
        mail.send(Message::SourceRead(path, read));
    });
}

/// Writes an instrument's source.
pub(crate) fn write_source(mail: &Mail, path: PathBuf, text: String) {
    mail.spawn("write instrument", move |mail| {
        let written = replace(&path, &text);
        mail.send(Message::SourceWritten(path, written));
    });
}

/// Writes a session file.
pub(crate) fn write_session(mail: &Mail, path: PathBuf, edited: Edited, desk: Option<String>) {
    mail.spawn("write session", move |mail| {
        let written = edited
            .session
            .to_session()
            .to_ron()
            .map_err(Error::from)
            .and_then(|text| replace(&path, &text))
            .and_then(|()| desk.map_or(Ok(()), |desk| replace(&sidecar_path(&path), &desk)));
        mail.send(Message::SessionWritten(path, edited, written));
    });
}

/// Writes an exported text.
pub(crate) fn export(mail: &Mail, path: PathBuf, text: String) {
    mail.spawn("export", move |mail| {
        let written = replace(&path, &text);
        mail.send(Message::Exported(path, written));
    });
}

/// Exports a recording in the format that the extension of `to` selects.
pub(crate) fn export_recording(mail: &Mail, from: PathBuf, to: PathBuf, stop: StopFlag) {
    mail.spawn("export recording", move |mail| {
        let written = write_export(&from, &to, &stop, &|progress| {
            mail.send(Message::Exporting(progress));
        });
        mail.send(Message::Exported(to, written));
    });
}

fn write_export(from: &Path, to: &Path, stop: &StopFlag, report: &dyn Fn(Progress)) -> Result<()> {
    let format = Format::of(to).ok_or_else(|| Error::Format {
        path: to.to_path_buf(),
        endings: exports().join(", "),
    })?;
    // The dialog has confirmed that an existing file is replaced.
    let mut goals = Goals::new(Existing::Confirmed).reads(from);
    goals.goal(to, Contents::Other)?;
    let recording = Recording::open(from)?;
    let exported = export_to(&recording, format, to, &mut |progress| {
        report(progress);
        if stop.is_stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    // Damaged parts are skipped and reported.
    exported
        .damaged
        .into_iter()
        .next()
        .map_or(Ok(()), |damage| Err(damage.into()))
}

/// Writes a file of the window's persistent state, or removes it if there is no text. A failure is
/// only reported.
pub(crate) fn save_state(mail: &Mail, path: PathBuf, text: Option<String>) {
    mail.spawn("keep", move |mail| {
        let saved = match text {
            Some(text) => replace(&path, &text),
            None => std::fs::remove_file(&path).map_err(|source| Error::Io {
                path: path.clone(),
                source,
                hint: "Remove it by hand.",
            }),
        };
        if let Err(error) = saved {
            mail.send(Message::NotSaved(error));
        }
    });
}

/// Writes a file of the window's persistent state, whose text is made on the file's thread.
pub(crate) fn save_state_of(
    mail: &Mail,
    path: PathBuf,
    text: impl FnOnce() -> ron::Result<String> + Send + 'static,
) {
    mail.spawn("keep", move |mail| {
        let saved = match text() {
            Ok(text) => replace(&path, &text),
            Err(error) => Err(Error::NotSerialized {
                path,
                reason: error.to_string(),
            }),
        };
        if let Err(error) = saved {
            mail.send(Message::NotSaved(error));
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
    Ok(output::write(path, text.as_bytes())?)
}

/// Reads what a recording knows better than the window that saw its run: the losses with their times,
/// and the measured launches and splashes.
pub(crate) fn read_measured(mail: &Mail, path: PathBuf) {
    mail.spawn("read measured", move |mail| {
        let measured = Recording::open(&path).and_then(|recording| {
            let clock = recording.metadata().clock;
            let losses = Losses::of(&recording.losses()?, clock);
            let named = names(recording.totals());
            Ok((losses, Box::new((recording.measured()?, named))))
        });
        mail.send(Message::Measured(path, measured.map_err(Error::from)));
    });
}

/// Returns the names of stacks and addresses alone.
fn names(totals: &Totals) -> Totals {
    Totals {
        stacks: totals.stacks.clone(),
        symbols: totals.symbols.clone(),
        ..Totals::default()
    }
}

/// Compares two recordings.
pub(crate) fn compare_recordings(mail: &Mail, before: PathBuf, after: PathBuf) {
    mail.spawn("compare recordings", move |mail| {
        let compared = ComparedRuns::of(before, after).map(Box::new);
        mail.send(Message::Compared(compared));
    });
}

/// Reads a recording and builds its index. No message is sent once it is stopped.
pub(crate) fn open_recording(mail: &Mail, path: PathBuf, stop: StopFlag) {
    mail.spawn("open recording", move |mail| {
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

/// Reads a recording, or all recordings of a folder on one timeline.
fn read_recording(path: &Path, progress: &dyn Fn(u64, u64) -> ControlFlow<()>) -> Result<Opened> {
    let mut reported = 0;
    let mut report = |done, all| {
        if done - reported <= 200_000 {
            return ControlFlow::Continue(());
        }
        reported = done;
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
            joined.measured()?,
            joined.index(|done| report(done, all)),
            joined.losses()?,
            joined.totals(),
            notes,
            joined.recordings().map(|one| size(one.path())).sum(),
        )
    } else {
        let recording = Recording::open(path)?;
        let all = recording.samples();
        (
            recording.measured()?,
            Index::of(&recording, |done| report(done, all)),
            recording.losses()?,
            recording.totals().clone(),
            note(&recording).into_iter().collect(),
            size(path),
        )
    };
    notes.extend(troubles.iter().map(ToString::to_string));
    let stretches = Losses::of(&losses, metadata.clock);
    // Recordings of other programs have no session.
    let session = Session::from_ron(&metadata.session);
    Ok(Opened {
        duration: session.map_or(0.0, |session| session.duration),
        path: path.to_path_buf(),
        metadata,
        index,
        bytes,
        lost: losses.iter().map(|loss| loss.count).sum(),
        losses: stretches,
        totals: totals.added_up.clone(),
        named: names(&totals),
        cost: totals.cost,
        cache: totals.cache,
        notes,
    })
}

/// Describes the accuracy of a machine's times in a sentence.
fn exactness(machine: &MachineInfo) -> String {
    let name = &machine.name;
    match machine.error_ns {
        Some(error) => format!(
            "Times of {name} are accurate to ±{} µs.",
            error.div_ceil(1000)
        ),
        None => {
            format!("Times of {name} are from its own clock; their accuracy is unknown.")
        }
    }
}

#[cfg(test)]
mod tests {
    use gilk_samples::metadata::Metadata;
    use gilk_samples::recording::Writer;

    use super::*;

    #[test]
    fn an_export_never_replaces_its_own_recording() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording.csv");
        Writer::create(&path, &Metadata::default())
            .and_then(Writer::finish)
            .unwrap();
        let before = std::fs::read(&path).unwrap();
        let refused = write_export(&path, &path, &StopFlag::new(), &|_| ());
        let reason = refused.unwrap_err().to_string();
        assert!(reason.contains("which is read for it"), "{reason}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
        // Another file is replaced: the dialog has confirmed it.
        let other = folder.path().join("other.csv");
        std::fs::write(&other, "an older export").unwrap();
        write_export(&path, &other, &StopFlag::new(), &|_| ()).unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap().lines().count(), 1);
    }
}
