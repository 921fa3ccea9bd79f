//! The window of GILK: draws state, sends commands, owns no logic of instrumentation.
//!
//! [`app::App`] owns a [`state::State`] and carries [`command::Command`]s out; panels draw the one
//! and say the other. Everything that takes longer than a frame is done by a [`worker`], which
//! answers with [`worker::Message`]s. [`theme`] has every colour.

pub mod app;
pub mod args;
mod asking;
mod at_hook;
pub mod calls;
pub mod catalogue;
pub mod command;
mod console_pane;
mod counting;
pub mod desk;
mod dialogs;
pub mod document;
pub mod editor;
mod error;
mod execute;
mod follow;
pub mod functions;
pub mod graph;
pub mod history;
mod icons;
mod inbox;
pub mod inspector;
mod instruments_pane;
pub mod keep;
pub mod machines;
mod menus;
pub mod natives;
mod palette;
mod panels;
mod patch_pane;
pub mod patch_view;
pub mod paths;
mod placing;
mod reading;
pub mod run;
pub mod schedule;
pub mod screenshot;
mod seen;
mod session_panel;
pub mod sources;
pub mod state;
mod status;
mod still;
mod style_panel;
pub mod theme;
pub mod timeline;
pub mod tour;
#[cfg(test)]
mod undoing;
mod walking;
mod welcome;
mod widgets;
pub mod worker;

pub use error::{Error, Result};
