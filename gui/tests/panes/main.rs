//! Tests of the window's panes by the tasks of people. One program: each more would link everything again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first failure"
)]

mod access;
mod cached;
mod cached_children;
mod calls;
mod desk;
mod every;
mod fifth_pass;
mod fourth_pass;
mod graph;
mod keyboard;
mod lane_metadata;
mod large;
mod live;
mod loading;
mod loading_elsewhere;
mod machines;
mod natives;
mod pair;
mod places;
mod placing;
mod process_questions;
mod processes;
mod questions;
mod refused_values;
mod remote;
mod repairs;
mod replacing;
mod schedule;
mod second_pass;
mod sizes;
mod snapshots;
mod sources;
mod starting;
mod styles;
mod support;
mod theme_snapshots;
mod third_pass;
mod threads;
mod timeline;
mod undo;
mod viewing;
mod window;
