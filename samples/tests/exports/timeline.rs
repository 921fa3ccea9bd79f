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
