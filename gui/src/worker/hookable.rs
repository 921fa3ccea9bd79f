//! Worker that finds the functions with a hookable entry, on the first request for a kernel.

use std::sync::Arc;

use gilk_engine::cfg::Cfg;
use gilk_engine::placement::at_instruction;

use super::mail::{Mail, Message};
use crate::catalogue::Catalogue;

/// Starts to analyse `catalogue`; `number` identifies the target.
pub(crate) fn look(mail: &Mail, number: u64, catalogue: Arc<Catalogue>) {
    mail.spawn("hookable", move |mail| {
        let image = catalogue.image();
        let hookable = image.functions().iter().map(|one| one.id).filter(|&id| {
            let cfg = Cfg::of(image, id);
            at_instruction(image, &cfg, cfg.span.start).is_ok()
        });
        let hookable = Arc::new(hookable.collect());
        mail.send(Message::Hookable(number, hookable));
    });
}
