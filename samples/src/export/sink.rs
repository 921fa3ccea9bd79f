//! Writers of formats, and the loop that feeds them.

use std::io;
use std::ops::ControlFlow;

use super::items::{Item, Items};
use crate::Error;
use crate::recording::Recording;

/// Samples between two calls of `progress`.
pub(super) const PROGRESS_EVERY: u64 = 1 << 16;

/// Progress of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Samples written.
    pub samples: u64,
    /// Samples in the recording.
    pub of: u64,
}

/// Result of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// Samples written.
    pub samples: u64,
    /// An error for each batch that could not be read and was left out.
    pub damaged: Vec<Error>,
    /// A sentence about what the output cannot show: entries of call traces without a return.
    pub remark: Option<String>,
}

/// Writer of one format.
pub(super) trait Sink {
    /// Writes an item, whose time is not before that of the previous one.
    fn item(&mut self, item: &Item) -> io::Result<()>;
    /// Writes the end of the file.
    fn finish(&mut self) -> io::Result<()>;
    /// Returns a sentence about what the output cannot show, after its end.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// Reasons why an export ended early.
pub(super) enum Poured {
    Io(io::Error),
    Cancelled { samples: u64 },
}

/// Writes every item of a recording to a sink, and finishes it.
pub(super) fn pour(
    recording: &Recording,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> std::result::Result<Exported, Poured> {
    let mut exported = Exported::default();
    let of = recording.samples();
    let mut flow = ControlFlow::Continue(());
    for item in Items::of(recording) {
        let item = match item {
            Ok(item) => item,
            Err(error) => {
                exported.damaged.push(error);
                continue;
            }
        };
        sink.item(&item)?;
        if !matches!(item, Item::Sample(..) | Item::Text(..)) {
            continue;
        }
        exported.samples += 1;
        let samples = exported.samples;
        if samples.is_multiple_of(PROGRESS_EVERY) {
            flow = progress(Progress { samples, of });
        }
        if flow.is_break() {
            break;
        }
    }
    let samples = exported.samples;
    if flow.is_break() {
        return Err(Poured::Cancelled { samples });
    }
    sink.finish()?;
    exported.remark = sink.remark();
    // The last report: all samples are written, so the answer no longer matters.
    let _ = progress(Progress { samples, of });
    Ok(exported)
}
