//! Pictures: SVG by the file's extension, otherwise PNG.

use std::path::Path;

use gilk_samples::chart::png;
use gilk_samples::output;

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
    Ok(output::write(path, &bytes)?)
}
