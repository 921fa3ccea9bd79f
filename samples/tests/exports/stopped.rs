//! An export that is stopped before its end.

use super::*;

#[test]
#[ignore = "needs GILK_PYTHON and babeltrace2; cargo xtask test makes one"]
fn a_stopped_export_is_a_valid_file() {
    let dir = tempfile::TempDir::new().unwrap();
    let (recording, _) = record(&dir.path().join("recording.arrow"));
    for format in [
        Format::Parquet,
        Format::Perfetto,
        Format::Chrome,
        Format::Ctf,
    ] {
        let path = dir.path().join("out").with_extension(format.extension());
        let stopped = export_to(&recording, format, &path, &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(Error::Cancelled { samples: 65_536 })));
        let read = match format {
            Format::Parquet => {
                "import duckdb, sys; print(duckdb.sql(f\"select count(*) from '{sys.argv[1]}' where kind = 0\").fetchall()[0][0])"
            }
            Format::Perfetto => {
                "import sys; from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as p; print(sum(q.HasField('track_event') and q.track_event.type != 2 for q in p.Trace.FromString(open(sys.argv[1], 'rb').read()).packet) - 1)"
            }
            Format::Chrome => {
                "import sys, json; print(sum(e['ph'] in 'CiX' for e in json.load(open(sys.argv[1]))['traceEvents']) - 1)"
            }
            _ => {
                let printed = said(Command::new("babeltrace2").arg(&path));
                assert_eq!(printed.lines().count(), 65_536 + 1, "samples and a mark");
                continue;
            }
        };
        assert_eq!(python(read, &[&path]).trim(), "65536", "{format:?}");
    }
}
