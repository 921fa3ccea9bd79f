//! Takes pictures of the window at the right frame: a screenshot once everything is loaded, a picture
//! requested by the user once the dialog has faded.

use std::path::PathBuf;
use std::time::Duration;

use egui::{Context, ScreenshotCallback, ViewportCommand};

use crate::Error;
use crate::app::App;
use crate::input_hold::InputHold;
use crate::screenshot::{PictureRequest, Shot, write};
use crate::state::TargetState;
use crate::worker::Message;

/// Frames to wait for scroll bars and fades once everything is loaded.
const SETTLING: u32 = 24;

/// Time limit, long enough to prepare the lab from scratch.
const LIMIT: Duration = Duration::from_secs(1200);

/// Seconds, and minimum frames, until closed dialogs and released buttons have faded.
const FADE: (f64, u32) = (0.3, 4);

impl App {
    /// Takes the screenshot once everything is loaded; called every frame.
    pub(crate) fn take_screenshot(&mut self, ctx: &Context, shot: &mut Shot) {
        if shot.taken {
            return;
        }
        ctx.request_repaint_after(Duration::from_millis(16));
        if let TargetState::Lost(why) = &self.state.target
            && shot.target
        {
            let error = Error::NothingToShow {
                reason: why.clone(),
            };
            self.note_failure(error);
        } else if shot.began.elapsed() > LIMIT {
            self.note_failure(Error::NothingToShow {
                reason: "The requested content did not load in twenty minutes.".to_owned(),
            });
        }
        if self.has_failed() {
            shot.taken = true;
            self.leaving = true;
            ctx.send_viewport_cmd(ViewportCommand::Close);
            return;
        }
        if !shot.ready(&self.state) {
            shot.settled = 0;
            return;
        }
        shot.settled += 1;
        if shot.settled < SETTLING {
            return;
        }
        shot.taken = true;
        let (path, mail) = (shot.path.clone(), self.workers.mail().clone());
        ctx.send_viewport_cmd(ViewportCommand::Screenshot(ScreenshotCallback::new(
            move |picture| {
                mail.spawn("picture", move |mail| {
                    mail.send(Message::Pictured(write(&path, &picture)));
                });
            },
        )));
    }

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
                mail.spawn("picture", move |mail| {
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
