//! Pictures of the window: the screenshot that the arguments request, pictures requested by the
//! user, and the PNG writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use egui::ColorImage;
use gilk_samples::output;

use crate::args::{Source, Start};
use crate::state::{State, TargetState};
use crate::{Error, Result};

/// A screenshot in progress.
#[derive(Debug)]
pub struct Shot {
    pub(crate) path: PathBuf,
    pub(crate) target: bool,
    pub(crate) connected: bool,
    pub(crate) function: bool,
    pub(crate) session: bool,
    pub(crate) recording: bool,
    pub(crate) began: Instant,
    pub(crate) settled: u32,
    pub(crate) taken: bool,
}

/// A picture requested by the user.
#[derive(Debug)]
pub(crate) struct PictureRequest {
    pub(crate) path: PathBuf,
    /// Time at which input was held back, and the frames since.
    pub(crate) held: Option<(f64, u32)>,
}

impl Shot {
    /// Creates a screenshot of what `start` requests.
    #[must_use]
    pub fn new(path: PathBuf, start: &Start) -> Self {
        let source = start.source();
        Self {
            path,
            connected: matches!(
                source,
                Some(
                    Source::Lab
                        | Source::LabOf(_)
                        | Source::Socket(_)
                        | Source::Ssh(_)
                        | Source::Process(_)
                )
            ),
            target: source.is_some(),
            function: start.function.is_some() && start.source().is_some(),
            session: start.session.is_some(),
            recording: start.recording.is_some(),
            began: Instant::now(),
            settled: 0,
            taken: false,
        }
    }

    pub(crate) fn ready(&self, state: &State) -> bool {
        let planned = state.document.session().placements.is_empty()
            || state.catalogue.is_none()
            || !state.plan.pending();
        (!self.target || state.catalogue.is_some())
            && (!self.connected || matches!(state.target, TargetState::Ready(_)))
            && (!self.function || state.graph.scene.is_some())
            && (!self.session || state.document.path().is_some())
            && (!self.recording || state.timeline.record.is_some())
            && (state.catalogue.is_none() || state.functions.answered.is_some())
            && state.opening.is_none()
            && planned
    }
}

/// Writes a picture as PNG.
///
/// # Errors
/// [`Error::Samples`] if the file cannot be written, [`Error::Picture`] if there is no folder for it.
pub fn write(path: &Path, picture: &Arc<ColorImage>) -> Result<()> {
    let failed = |reason: String| Error::Picture {
        path: path.to_path_buf(),
        reason,
    };
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder).map_err(|error| failed(error.to_string()))?;
    }
    let side = |side: usize| u32::try_from(side).map_err(|error| failed(error.to_string()));
    let [width, height] = picture.size;
    let (width, height) = (side(width)?, side(height)?);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    // The window is opaque; the file is smaller without the alpha channel.
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let bytes: Vec<u8> = picture
        .pixels
        .iter()
        .flat_map(|pixel| [pixel.r(), pixel.g(), pixel.b()])
        .collect();
    let mut writer = encoder
        .write_header()
        .map_err(|error| failed(error.to_string()))?;
    writer
        .write_image_data(&bytes)
        .map_err(|error| failed(error.to_string()))?;
    writer.finish().map_err(|error| failed(error.to_string()))?;
    Ok(output::write(path, &file)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::Color32;

    #[test]
    fn a_picture_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er.png");
        let picture = Arc::new(ColorImage::filled([3, 2], Color32::from_rgb(10, 20, 30)));
        write(&path, &picture).unwrap();
        let mut reader =
            png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()))
                .read_info()
                .unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!((info.width, info.height), (3, 2));
        assert_eq!(&bytes[..3], &[10, 20, 30]);
    }

    #[test]
    fn write_errors_name_the_path() {
        let error = write(
            Path::new("/proc/no/picture.png"),
            &Arc::new(ColorImage::filled([1, 1], Color32::BLACK)),
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("/proc/no/picture.png"),
            "{error}"
        );
    }
}
