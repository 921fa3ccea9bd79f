//! Opening of recordings.

use std::path::{Path, PathBuf};

use ilk_driver::client::StopFlag;

use crate::Error;
use crate::app::App;
use crate::state::{NoticeKind, RecordingTask};
use crate::timeline::{Opened, Record};
use crate::worker::files;

impl App {
    /// Starts to read a recording, or all recordings of a folder, and stops the current read.
    pub(crate) fn read_recording(&mut self, path: PathBuf) {
        let stop = StopFlag::new();
        let reading = RecordingTask {
            done: 0,
            all: 0,
            stop: stop.clone(),
        };
        if let Some(before) = self.state.reading.replace(reading) {
            before.stop.stop();
        }
        files::open_recording(self.workers.mail(), path, stop);
    }

    /// Stops the read in progress.
    pub(crate) fn stop_reading(&mut self) {
        if let Some(reading) = self.state.reading.take() {
            reading.stop.stop();
            let words = "Stopped reading the recording; the timeline is unchanged.";
            self.state.notify(NoticeKind::Warning, words.to_owned());
        }
    }

    /// Shows a recording that was read, or the error.
    pub(crate) fn recording_read(&mut self, path: &Path, opened: Result<Box<Opened>, Error>) {
        self.state.reading = None;
        match opened {
            Ok(opened) => {
                for note in &opened.notes {
                    self.state.notify(NoticeKind::Warning, note.clone());
                }
                self.state.timeline.open(Record::of(*opened));
            }
            Err(error) => {
                self.fail_shot(&error);
                let named = error.to_string();
                let words = if named.contains(&*path.to_string_lossy()) {
                    named
                } else {
                    format!("{}: {named}", path.display())
                };
                self.state.notify(NoticeKind::Bad, words);
            }
        }
    }
}
