//! Reads a kernel's debug information, and then finds the file of every function.

use std::path::PathBuf;
use std::sync::Arc;

use ilk_driver::sources::Sources;

use super::{Mail, Message, spawn};
use crate::catalogue::Catalogue;

/// Opens what lies at `path`, or where distributions put it; `number` tells targets apart.
pub(crate) fn open(mail: &Mail, number: u64, catalogue: Arc<Catalogue>, path: Option<PathBuf>) {
    let mail = mail.clone();
    spawn("sources", move || {
        let image = catalogue.image();
        let found = match path {
            Some(path) => Sources::open(&path, image).map(Some),
            None => Sources::find(image),
        };
        let sources = match found {
            Ok(Some(sources)) => Arc::new(sources),
            Ok(None) => return,
            Err(error) => return mail.send(Message::Sources(number, Err(error.into()))),
        };
        mail.send(Message::Sources(number, Ok(Arc::clone(&sources))));
        if let Some(files) = sources.files(image, &|| true) {
            mail.send(Message::SourceFiles(number, Arc::new(files)));
        }
    });
}
