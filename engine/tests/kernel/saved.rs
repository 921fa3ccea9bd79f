//! A saved live image, for the tests over a whole kernel.

use gilk_engine::Image;
use gilk_engine::cfg::Cfg;
use gilk_engine::kernel::LiveParts;

/// The parts in the file that `GILK_IMAGE` names: [`LiveParts`] as postcard writes them.
pub(crate) fn parts() -> LiveParts {
    let path = std::env::var_os("GILK_IMAGE")
        .expect("GILK_IMAGE must name a saved live image; cargo xtask test makes one");
    let bytes = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{} cannot be read: {error}", path.display()));
    postcard::from_bytes(&bytes)
        .unwrap_or_else(|error| panic!("{} is no saved image: {error}", path.display()))
}

/// Reads the saved image of the kernel under test.
pub(crate) fn image() -> Image {
    Image::from_live(&parts()).expect("the saved image is a kernel's")
}

/// The graphs of every third function, for what is not about all of them at once; of all in long runs, by `GILK_PART`.
pub(crate) fn part_of_graphs(image: &Image) -> Vec<Cfg> {
    let step = std::env::var("GILK_PART").map_or(3, |step| step.parse().unwrap());
    let functions = image.functions().iter().step_by(step);
    functions
        .map(|function| Cfg::of(image, function.id))
        .collect()
}

/// The graphs of all functions.
pub(crate) fn graphs(image: &Image) -> Vec<Cfg> {
    image
        .functions()
        .iter()
        .map(|function| Cfg::of(image, function.id))
        .collect()
}
