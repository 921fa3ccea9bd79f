//! Status of a target.

use ilk_driver::client::TargetInfo;

/// Status of the target.
#[derive(Debug)]
pub enum TargetState {
    /// Not requested.
    None,
    /// Connecting.
    Busy(crate::worker::Progress),
    /// A saved image, on which sessions cannot run.
    Offline,
    /// Ready to run sessions.
    Ready(Box<TargetInfo>),
    /// Failed or lost, with the reason.
    Lost(String),
}
