//! Reads a kernel's debug information, and then finds the file of every function.

use std::path::PathBuf;
use std::sync::Arc;

use ilk_driver::client::StopFlag;
use ilk_driver::sources::Sources;

use super::{Mail, Message, spawn};
use crate::catalogue::Catalogue;

/// How far it is when lines are known; finding the file of every function is the rest.
const LINES: f32 = 0.5;

/// Opens what lies at `path`, or where distributions put it; `number` tells targets apart.
pub(crate) fn open(
    mail: &Mail,
    number: u64,
    catalogue: Arc<Catalogue>,
    path: Option<PathBuf>,
    stop: StopFlag,
) {
    let mail = mail.clone();
    spawn("sources", move || {
        let image = catalogue.image();
        let tell = |share| {
            mail.send(Message::SourcesProgress(number, share));
            !stop.is_stopped()
        };
        let lines = |share| tell(LINES * share);
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
        let files = sources.files(image, &|share| tell(LINES + (1.0 - LINES) * share));
        if !stop.is_stopped() {
            mail.send(Message::SourceFiles(number, files.map(Arc::new)));
        }
    });
}
