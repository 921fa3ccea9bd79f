//! The control-flow graph of one function: laid out off the UI thread, drawn in view only.
//!
//! [`layout`] is pure; [`scene`] is everything about one function that a worker makes ready;
//! [`view`] draws it.

mod camera;
pub mod code;
mod drop;
pub mod find;
pub mod heat;
mod layers;
pub mod layout;
mod legend;
pub mod marks;
mod minimap;
mod order;
mod paint;
pub(crate) mod pane;
mod position;
mod route;
pub mod scene;
pub mod svg;
mod table;
mod tags;
pub mod view;

#[cfg(test)]
mod tests;

pub use camera::Camera;
pub use scene::{Metrics, Scene};
pub use view::Graph;
