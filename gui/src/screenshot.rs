//! Screenshots: waits until everything that the arguments request is loaded and drawn, writes a
//! PNG, and exits.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egui::{ColorImage, Context, ScreenshotCallback, ViewportCommand};

use crate::app::App;
use crate::args::{Source, Start};
use crate::input_hold::InputHold;
use crate::state::{State, TargetState};
use crate::worker::{Message, spawn};
use crate::{Error, Result};

/// Frames to wait for scroll bars and fades once everything is loaded.
const SETTLING: u32 = 24;
/// Time limit, long enough to prepare the lab from scratch.
const LIMIT: Duration = Duration::from_secs(1200);

/// A screenshot in progress.
#[derive(Debug)]
pub struct Shot {
    path: PathBuf,
    target: bool,
    connected: bool,
    function: bool,
    session: bool,
    recording: bool,
    began: Instant,
    settled: u32,
    taken: bool,
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
                Some(Source::Lab | Source::LabOf(_) | Source::Socket(_) | Source::Ssh(_))
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

    fn ready(&self, state: &State) -> bool {
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

    /// Takes the screenshot once everything is loaded; called every frame.
    pub(crate) fn frame(&mut self, ctx: &Context, app: &mut App) {
        if self.taken {
            return;
        }
        ctx.request_repaint_after(Duration::from_millis(16));
        if let TargetState::Lost(why) = &app.state.target
            && self.target
        {
            let error = Error::NothingToShow {
                reason: why.clone(),
            };
            app.note_failure(error);
        } else if self.began.elapsed() > LIMIT {
            app.note_failure(Error::NothingToShow {
                reason: "The requested content did not load in twenty minutes.".to_owned(),
            });
        }
        if app.has_failed() {
            self.taken = true;
            app.leaving = true;
            ctx.send_viewport_cmd(ViewportCommand::Close);
            return;
        }
        if !self.ready(&app.state) {
            self.settled = 0;
            return;
        }
        self.settled += 1;
        if self.settled < SETTLING {
            return;
        }
        self.taken = true;
        let (path, mail) = (self.path.clone(), app.workers.mail().clone());
        ctx.send_viewport_cmd(ViewportCommand::Screenshot(ScreenshotCallback::new(
            move |picture| {
                spawn("picture", move || {
                    mail.send(Message::Pictured(write(&path, &picture)));
                });
            },
        )));
    }
}

/// Seconds, and minimum frames, until closed dialogs and released buttons have faded.
const FADE: (f64, u32) = (0.3, 4);

/// A picture requested by the user.
#[derive(Debug)]
pub(crate) struct PictureRequest {
    path: PathBuf,
    /// Time at which input was held back, and the frames since.
    held: Option<(f64, u32)>,
}

impl App {
    /// Requests a picture of the window without the dialog.
    pub(crate) fn request_picture(&mut self, path: PathBuf) {
        self.picture_request = Some(PictureRequest { path, held: None });
    }

    /// Takes the requested picture once the dialog has faded. Until then input is held back, so
    /// that the picture shows the window as it was at the request, however slow its frames are.
    pub(crate) fn take_picture(&mut self, ctx: &Context) {
        let Some(request) = &mut self.picture_request else {
            return;
        };
        let now = ctx.input(|input| input.time);
        let (since, frames) = request.held.unwrap_or((now, 0));
        if frames < FADE.1 || now - since < FADE.0 {
            InputHold::hold(ctx);
            request.held = Some((since, frames + 1));
            ctx.request_repaint();
            return;
        }
        let Some(PictureRequest { path, .. }) = self.picture_request.take() else {
            return;
        };
        InputHold::release(ctx);
        let mail = self.workers.mail().clone();
        ctx.send_viewport_cmd(ViewportCommand::Screenshot(ScreenshotCallback::new(
            move |picture| {
                spawn("picture", move || {
                    let written = write(&path, &picture);
                    mail.send(Message::Exported(path, written));
                });
            },
        )));
        ctx.request_repaint();
    }

    /// Records why a picture could not be made.
    pub(crate) fn note_failure(&self, error: Error) {
        if let Ok(mut failed) = self.failure.lock() {
            failed.get_or_insert(error);
        }
    }

    /// Records that a screenshot in progress failed because its content did not load.
    pub(crate) fn fail_shot(&self, error: &Error) {
        if self.shot.is_some() {
            self.note_failure(Error::NothingToShow {
                reason: error.to_string(),
            });
        }
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().is_ok_and(|failed| failed.is_some())
    }
}

/// Writes a picture as PNG.
///
/// # Errors
/// [`Error::Picture`] if the file cannot be written.
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
    let file = std::fs::File::create(path).map_err(|error| failed(error.to_string()))?;
    let [width, height] = picture.size.map(|side| u32::try_from(side).unwrap_or(0));
    let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
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
    writer.finish().map_err(|error| failed(error.to_string()))
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
