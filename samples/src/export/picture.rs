//! The timeline as a picture.

use std::ops::ControlFlow;
use std::path::Path;

use super::sink::{Exported, Progress};
use crate::chart::{Chart, png, svg, totals};
use crate::index::Index;
use crate::output;
use crate::recording::Recording;
use crate::{Error, Result};

/// Writes a picture of all of `recording`, as SVG or as PNG.
///
/// # Errors
/// As for [`export_to`](super::export_to); nothing is written if it is cancelled.
pub(super) fn export(
    recording: &Recording,
    as_png: bool,
    path: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Exported> {
    let (mut index, mut exported) = (Index::new(), Exported::default());
    let of = recording.samples();
    for batch in recording.batches() {
        match batch {
            Ok(batch) => index.append(&batch),
            Err(error) => {
                exported.damaged.push(error);
                continue;
            }
        }
        exported.samples = index.samples();
        let samples = exported.samples;
        if progress(Progress { samples, of }).is_break() {
            return Err(Error::Cancelled { samples: 0 });
        }
    }
    let (losses, marks) = (recording.losses()?, recording.marks()?);
    let metadata = &recording.measured()?;
    let mut chart = Chart::new(metadata, &index);
    chart.losses = &losses;
    chart.marks = &marks;
    let name = recording.path().file_stem().unwrap_or_default();
    chart.title = format!("{} — Linux {}", name.to_string_lossy(), metadata.kernel);
    chart.notes = totals::text(recording.totals(), metadata, false);
    let picture = svg(&chart);
    let bytes = if as_png {
        png(&picture, 1.0)?
    } else {
        picture.into_bytes()
    };
    output::write(path, &bytes)?;
    Ok(exported)
}
