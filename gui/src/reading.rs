//! Recordings that are read from the disk.

use std::path::{Path, PathBuf};

use ilk_driver::client::StopFlag;

use crate::Error;
use crate::app::App;
use crate::state::{NoticeKind, Reading};
use crate::timeline::{Opened, Record};
use crate::worker::files;

impl App {
    /// Reads a recording, or all of a folder, in place of what is being read.
    pub(crate) fn read_recording(&mut self, path: PathBuf) {
        let stop = StopFlag::new();
        let reading = Reading {
            done: 0,
            all: 0,
            stop: stop.clone(),
        };
        if let Some(before) = self.state.reading.replace(reading) {
            before.stop.stop();
        }
        files::open_recording(self.workers.mail(), path, stop);
    }

    /// Reads no more of it.
    pub(crate) fn stop_reading(&mut self) {
        if let Some(reading) = self.state.reading.take() {
            reading.stop.stop();
            let words =
                "Reading the recording was stopped; what was on the timeline is still there.";
            self.state.tell(NoticeKind::Warning, words.to_owned());
        }
    }

    /// Takes a recording that was read, or why it could not be.
    pub(crate) fn recording_read(&mut self, path: &Path, opened: Result<Box<Opened>, Error>) {
        self.state.reading = None;
        match opened {
            Ok(opened) => {
                for note in &opened.notes {
                    self.state.tell(NoticeKind::Warning, note.clone());
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
                self.state.tell(NoticeKind::Bad, words);
            }
        }
    }
}
