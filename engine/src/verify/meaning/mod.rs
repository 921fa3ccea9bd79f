pub(crate) mod batch;
pub(crate) mod hooks;
pub(crate) mod reach;
pub(crate) mod retirement;
pub(crate) mod state;
pub(crate) mod transition;
