//! SVG to PNG with embedded fonts: no font of the machine is used, so the same recording gives the
//! same picture everywhere.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb::Database};

use crate::{Error, Result};

/// The two typefaces of the charts.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    fonts.load_font_data(epaint_default_fonts::HACK_REGULAR.to_vec());
    Arc::new(fonts)
});

/// Maximum side in pixels: a picture of this size takes a gigabyte.
const MAX_SIDE: f32 = 16_384.0;

/// Renders the output of [`svg`](super::svg()), `scale` pixels to each of its units.
///
/// # Errors
/// [`Error::Chart`] if `svg` is not SVG, or the picture would be larger than 16,384 pixels a side.
pub fn png(svg: &str, scale: f32) -> Result<Vec<u8>> {
    let refuse = |reason: String| Error::Chart { reason };
    let options = Options {
        fontdb: Arc::clone(&FONTS),
        font_family: "Ubuntu".to_owned(),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).map_err(|error| refuse(error.to_string()))?;
    let size = tree.size();
    let (width, height) = (
        (size.width() * scale).ceil(),
        (size.height() * scale).ceil(),
    );
    if !(1.0..=MAX_SIDE).contains(&width) || !(1.0..=MAX_SIDE).contains(&height) {
        return Err(refuse(format!(
            "{width} by {height} pixels is no possible size; draw fewer lanes or smaller"
        )));
    }
    let mut pixels =
        Pixmap::new(width as u32, height as u32).ok_or_else(|| refuse("no memory".to_owned()))?;
    resvg::render(
        &tree,
        Transform::from_scale(scale, scale),
        &mut pixels.as_mut(),
    );
    pixels
        .encode_png()
        .map_err(|error| refuse(error.to_string()))
}
