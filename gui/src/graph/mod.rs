//! The control-flow graph of one function: laid out by a worker, drawn only where visible.
//!
//! [`layout`] is pure; [`scene`] is the data of one function that a worker prepares; [`view`] draws
//! it.

mod bundle;
mod camera;
pub mod code;
pub(crate) mod cold;
mod drop;
pub mod find;
pub(crate) mod function_source;
mod grid;
pub mod heat;
mod layers;
pub mod layout;
mod legend;
pub(crate) mod listing;
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

pub use camera::{Camera, Side};
pub use scene::{Metrics, Scene};
pub use view::Graph;
