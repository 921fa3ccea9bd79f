//! Pictures of the timeline.

use super::*;

#[test]
fn the_timeline_is_drawn() {
    let dir = tempfile::TempDir::new().unwrap();
    let (recording, _) = record(&dir.path().join("recording.arrow"));
    for format in [Format::Svg, Format::Png] {
        let path = dir.path().join("out").with_extension(format.extension());
        let stopped = export_to(&recording, format, &path, &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(Error::Cancelled { .. })) && !path.exists());
        let done = export_to(
            &recording,
            format,
            &path,
            &mut |_| ControlFlow::Continue(()),
        );
        assert_eq!(done.unwrap().samples, 180_000);
        let bytes = std::fs::read(&path).unwrap();
        match format {
            Format::Svg => {
                let text = String::from_utf8(bytes).unwrap();
                assert!(text.starts_with("<svg") && text.contains("kernel_clone block 3"));
            }
            _ => {
                // The width is the first number of the first chunk.
                assert!(bytes.starts_with(b"\x89PNG") && bytes[16..20] == 1280u32.to_be_bytes());
            }
        }
    }
}

#[test]
#[ignore = "needs GILK_PYTHON, a python with Pillow; cargo xtask test makes one"]
fn readers_of_pictures_find_lanes() {
    let dir = tempfile::TempDir::new().unwrap();
    let (recording, _) = record(&dir.path().join("recording.arrow"));
    let paths = [Format::Svg, Format::Png].map(|format| {
        let path = dir.path().join("out").with_extension(format.extension());
        let done = export_to(
            &recording,
            format,
            &path,
            &mut |_| ControlFlow::Continue(()),
        );
        done.unwrap();
        path
    });
    let printed = python(
        r#"
import sys, xml.etree.ElementTree as tree
from PIL import Image
svg = tree.parse(sys.argv[1]).getroot()
words = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
print(sum("kernel_clone block 3" in (text or "") for text in words), svg.get("width"), svg.get("height"))
image = Image.open(sys.argv[2]).convert("RGB")
image.load()
print(*image.size, len(set(image.getdata())) > 8)
"#,
        &[&paths[0], &paths[1]],
    );
    let lines: Vec<Vec<&str>> = printed
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    // A label for each of four instruments; the picture has the drawing's size and more than one
    // colour.
    assert_eq!(lines[0][0], "4", "{printed}");
    assert_eq!(lines[1], [lines[0][1], lines[0][2], "True"], "{printed}");
}
