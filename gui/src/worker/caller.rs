//! Finds out who calls whom, once for each kernel that it is asked of.

use std::sync::Arc;

use super::{Mail, Message, spawn};
use crate::calls::Calls;
use crate::catalogue::Catalogue;

/// Looks through `catalogue`; `number` tells targets apart.
pub(crate) fn look(mail: &Mail, number: u64, catalogue: Arc<Catalogue>) {
    let mail = mail.clone();
    spawn("calls", move || {
        mail.send(Message::Calls(number, Arc::new(Calls::of(&catalogue))));
    });
}
