//! Worker that reads a kernel's debug information, then the source file of every function.

use std::path::PathBuf;
use std::sync::Arc;

use ilk_driver::client::StopFlag;
use ilk_driver::sources::Sources;

use super::mail::{Mail, Message};
use crate::catalogue::Catalogue;

/// Share of the progress at which lines are available; the rest is the files of functions.
const LINES: f32 = 0.5;

/// Opens the debug information at `path`, or where distributions install it; `number` identifies
/// the target.
pub(crate) fn open(
    mail: &Mail,
    number: u64,
    catalogue: Arc<Catalogue>,
    path: Option<PathBuf>,
    stop: StopFlag,
) {
    mail.spawn("sources", move |mail| {
        let image = catalogue.image();
        let report = |share| {
            mail.send(Message::SourcesProgress(number, share));
            !stop.is_stopped()
        };
        let lines = |share| report(LINES * share);
        let found = match path {
            Some(path) => Sources::open(&path, image, &lines),
            None => Sources::find(image, &lines),
        };
        let sources = match found {
            _ if stop.is_stopped() => return,
            Ok(sources) => sources.map(Arc::new),
            Err(error) => return mail.send(Message::Sources(number, Err(error.into()))),
        };
        let Some(sources) = sources else {
            return mail.send(Message::SourceFiles(number, None));
        };
        mail.send(Message::Sources(number, Ok(Arc::clone(&sources))));
        let files = sources.files(image, &|share| report(LINES + (1.0 - LINES) * share));
        if !stop.is_stopped() {
            mail.send(Message::SourceFiles(number, files.map(Arc::new)));
        }
    });
}
