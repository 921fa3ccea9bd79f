//! GILK's window: draws state and sends commands; contains no instrumentation logic.
//!
//! [`app::App`] owns a [`state::State`] and executes [`command::Command`]s; panels draw the state
//! and emit commands. Work that takes longer than a frame runs in a [`worker`], which replies with
//! [`worker::Message`]s. [`theme`] defines every colour.

pub mod app;
pub mod args;
mod availability;
mod background;
pub mod call_graph;
pub mod calls;
pub mod catalogue;
pub mod command;
mod console_pane;
mod derived;
pub mod desk;
mod dialogs;
pub mod document;
pub mod draft;
mod dragged_instrument;
mod edited;
pub mod editor;
mod error;
mod execute;
mod explanation;
#[cfg(test)]
mod fixture;
mod focus_ring;
mod frame;
pub mod function_paths;
pub mod functions;
pub mod graph;
pub mod history;
mod hit_count;
mod hook_facts;
mod hook_instruments;
mod icons;
mod inbox;
mod input_hold;
pub mod inspector;
mod instrument_group;
mod instruments_pane;
mod live;
pub mod machines;
pub mod manual;
mod menus;
pub mod natives;
mod navigation;
mod notices;
mod palette;
mod panels;
mod patch_pane;
pub mod patch_view;
pub mod path_dialog;
mod path_requests;
pub mod paths;
mod persistence;
mod placement_rows;
pub mod placements;
mod placing;
mod plan_reply;
pub mod plan_state;
pub mod process_dialog;
mod processes;
pub mod purpose;
pub mod questions;
mod recent;
mod recent_paths;
mod recording_reader;
pub mod run;
pub mod schedule;
pub mod screenshot;
mod screenshot_frames;
mod seconds;
pub mod session_duration;
mod session_options;
mod session_panel;
pub mod sidecar;
pub mod source_lines;
pub mod sources;
pub mod state;
mod state_saver;
pub mod statistics;
mod status;
mod style_panel;
pub mod target_state;
pub mod theme;
mod threads;
pub mod timeline;
pub mod tour;
#[cfg(test)]
mod undo_tests;
mod welcome;
mod widget_dump;
mod widgets;
pub mod worker;

pub use error::{Error, Result};
