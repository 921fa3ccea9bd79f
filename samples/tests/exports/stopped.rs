//! An export that ends before its end.

use super::*;

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

/// Returns the names and sizes of everything in a folder.
fn listing(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut results = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            results.extend(listing(&path));
        }
        let bytes = std::fs::metadata(&path).unwrap().len();
        results.push((path, bytes));
    }
    results.sort();
    results
}

#[test]
fn a_stopped_export_leaves_its_goal_as_it_was() {
    let dir = tempfile::TempDir::new().unwrap();
    let (recording, _) = record(&dir.path().join("recording.arrow"));
    for format in [
        Format::Csv,
        Format::Parquet,
        Format::Perfetto,
        Format::Chrome,
        Format::Ctf,
        Format::Png,
    ] {
        let path = dir.path().join("out").with_extension(format.extension());
        for before in ["nothing", "an export"] {
            let files = listing(dir.path());
            let stopped = export_to(&recording, format, &path, &mut |_| ControlFlow::Break(()));
            assert!(matches!(stopped, Err(Error::Cancelled { .. })), "{format}");
            assert_eq!(listing(dir.path()), files, "{format} over {before}");
            export_to(&recording, format, &path, &mut |_| GO_ON).unwrap();
        }
    }
}

#[test]
fn a_trace_never_replaces_a_folder_of_other_files() {
    let dir = tempfile::TempDir::new().unwrap();
    let (recording, _) = record(&dir.path().join("recording.arrow"));
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("thesis.txt"), "precious").unwrap();
    let refused = export_to(&recording, Format::Ctf, &home, &mut |_| GO_ON);
    let reason = refused.unwrap_err().to_string();
    assert!(reason.contains("thesis.txt"), "{reason}");
    let kept = std::fs::read(home.join("thesis.txt")).unwrap();
    assert_eq!(kept, b"precious");
}
