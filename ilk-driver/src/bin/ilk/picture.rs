//! Pictures: SVG by the file's extension, otherwise PNG.

use std::path::Path;

use anyhow::Context as _;
use gilk_samples::chart::png;

/// Writes an SVG picture in the format of the file's extension.
pub(crate) fn write(path: &Path, svg: String) -> anyhow::Result<()> {
    let is_svg = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("svg"));
    let bytes = if is_svg {
        svg.into_bytes()
    } else {
        png(&svg, 1.0)?
    };
    std::fs::write(path, bytes)
        .with_context(|| format!("{} cannot be written; choose another path", path.display()))
}
