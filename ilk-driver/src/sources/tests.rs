use std::process::Command;

use super::*;

const ID: [u8; 4] = [0xc0, 0xff, 0xee, 0x01];

/// Builds a small kernel of two files in two folders, linked at `0xffffffff81000000`.
fn build(folder: &Path, options: &[&str]) -> PathBuf {
    for (name, text) in [
        (
            "mm/slab.c",
            "int taken;\n\nint take(int n)\n{\n\ttaken += n;\n\treturn taken;\n}\n",
        ),
        (
            "kernel/fork.c",
            "int take(int n);\n\nint fork_it(int n)\n{\n\treturn take(n + 1) * 3;\n}\n",
        ),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let out = folder.join("vmlinux");
    let done = Command::new("gcc")
        .current_dir(folder)
        .args(["-O0", "-nostdlib", "-static", "-fno-pic", "-mcmodel=kernel"])
        .args(["-Wl,--build-id=0xc0ffee01", "-Wl,-e,fork_it"])
        .args([
            "-Wl,-Ttext=0xffffffff81000000",
            "-Wl,--defsym=_stext=0xffffffff81000000",
        ])
        .args(options)
        .args(["./mm/../mm/slab.c", "kernel/fork.c", "-o"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    out
}

fn kernel(id: &[u8]) -> BinaryIdentity<'_> {
    BinaryIdentity {
        release: "6.1.0-test",
        build_id: Some(id),
        place: BinaryPlace::Text(Addr(0xffff_ffff_a600_0000)),
    }
}

/// Reads a file without cancellation.
fn read(path: &Path, kernel: &BinaryIdentity<'_>) -> Result<Sources> {
    Sources::read(path, kernel, &|_| true).map(|read| read.expect("it was not cancelled"))
}

/// Returns a symbol's address in the running kernel.
fn address_of(vmlinux: &Path, name: &str) -> Addr {
    let bytes = std::fs::read(vmlinux).unwrap();
    let object = object::File::parse(&*bytes).unwrap();
    Addr(object.symbol_by_name(name).unwrap().address() + 0x2500_0000)
}

#[test]
fn lines_are_found_in_a_relocated_kernel() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&["-g"][..], &["-g", "-gz=zlib"], &["-gdwarf-4"]] {
        let path = build(folder.path(), options);
        let sources = read(&path, &kernel(&ID)).unwrap();
        let line = |name| sources.line(address_of(&path, name)).unwrap().to_string();
        assert_eq!(line("take"), "mm/slab.c:4", "{options:?}");
        assert_eq!(line("fork_it"), "kernel/fork.c:4", "{options:?}");
        let local = sources.local(&sources.line(address_of(&path, "take")).unwrap());
        assert!(local.unwrap().ends_with("mm/slab.c"));
        assert_eq!(sources.line(Addr(0xffff_ffff_8100_0000)), None);
    }
}

#[test]
fn a_file_of_another_build_is_refused_with_both_identifiers() {
    let folder = tempfile::tempdir().unwrap();
    let path = build(folder.path(), &["-g"]);
    let refusal = |path: &Path, id: &[u8]| {
        let error = read(path, &kernel(id)).unwrap_err();
        assert!(matches!(error, Error::Sources { .. }));
        error.to_string()
    };
    let error = refusal(&path, &[1, 2]);
    assert!(
        error.contains("c0ffee01") && error.contains("0102") && error.contains("vmlinux"),
        "{error}"
    );
    let bare = build(folder.path(), &["-g0"]);
    assert!(refusal(&bare, &ID).contains("no debug information"));
    std::fs::write(&bare, b"no program").unwrap();
    assert!(refusal(&bare, &ID).contains("not a vmlinux"));
    let unknown = BinaryIdentity {
        build_id: None,
        ..kernel(&ID)
    };
    assert!(read(&path, &unknown).is_err());
    // A truncated or damaged file is an error, not a panic.
    let whole = std::fs::read(build(folder.path(), &["-g"])).unwrap();
    for cut in (0..whole.len()).step_by(701) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let _refused = read(&path, &kernel(&ID));
    }
    for at in (64..whole.len()).step_by(397) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        std::fs::write(&path, &damaged).unwrap();
        if let Ok(sources) = read(&path, &kernel(&ID)) {
            let _any = sources.line(Addr(0xffff_ffff_a600_0000));
        }
    }
}

#[test]
fn progress_is_reported_and_reading_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let path = build(folder.path(), &["-g"]);
    let shares = std::cell::RefCell::new(Vec::new());
    let watch = |share| {
        shares.borrow_mut().push(share);
        true
    };
    assert!(
        Sources::read(&path, &kernel(&ID), &watch)
            .unwrap()
            .is_some()
    );
    let shares = shares.into_inner();
    assert!(
        shares.is_sorted() && shares.first() == Some(&0.0) && shares.last() == Some(&1.0),
        "{shares:?}"
    );
    // A cancellation at any point yields no result.
    for end in 0..shares.len() {
        let calls = std::cell::Cell::new(0);
        let watch = |_| calls.replace(calls.get() + 1) < end;
        assert!(
            Sources::read(&path, &kernel(&ID), &watch)
                .unwrap()
                .is_none()
        );
        assert_eq!(calls.get(), end + 1);
    }
}

#[test]
fn the_usual_paths_are_searched_past_a_wrong_file() {
    let root = tempfile::tempdir().unwrap();
    let below = |id: &[u8]| Sources::find_below(root.path(), &kernel(id), &|_| true);
    assert!(below(&ID).unwrap().is_none());
    let vmlinux = build(root.path(), &["-g"]);
    let last = root.path().join("usr/lib/debug/.build-id/c0/ffee01.debug");
    std::fs::create_dir_all(last.parent().unwrap()).unwrap();
    std::fs::copy(&vmlinux, &last).unwrap();
    assert_eq!(below(&ID).unwrap().unwrap().path(), last);
    // A wrong file at an earlier path does not hide the right one.
    let first = root.path().join("usr/lib/debug/boot/vmlinux-6.1.0-test");
    std::fs::create_dir_all(first.parent().unwrap()).unwrap();
    std::fs::write(&first, b"none").unwrap();
    assert_eq!(below(&ID).unwrap().unwrap().path(), last);
    std::fs::rename(&vmlinux, &first).unwrap();
    assert_eq!(below(&ID).unwrap().unwrap().path(), first);
    assert!(below(&[9, 9, 9]).is_err());
}

#[test]
fn paths_are_normalized() {
    assert_eq!(normal("/a/./b//c/../d.c"), "/a/b/d.c");
    assert_eq!(normal("../x/y.c"), "../x/y.c");
    assert_eq!(common("/a/bc/", "/a/bd/"), "/a/");
    assert_eq!(common("a/", "b/"), "");
}

/// Tests that need files of a real kernel; `cargo xtask test` leaves them out.
mod by_hand {
    use super::*;

    /// Reads a whole kernel's debug package: `GILK_VMLINUX=… GILK_IMAGE=… cargo test -p ilk-driver
    /// --lib -- --ignored --nocapture debug_package`.
    #[test]
    #[ignore = "needs GILK_VMLINUX, a vmlinux with debug information, and GILK_IMAGE, a saved image of that kernel"]
    fn a_debug_package_has_the_lines_of_a_whole_kernel() {
        let path = |name: &str| PathBuf::from(std::env::var_os(name).unwrap());
        let image = crate::saved::open(&path("GILK_IMAGE")).unwrap();
        let start = std::time::Instant::now();
        let sources = Sources::open(&path("GILK_VMLINUX"), &image, &|_| true);
        let sources = sources.unwrap().unwrap();
        println!("opened in {:?}: {sources:?}", start.elapsed());
        let start = std::time::Instant::now();
        let files = sources.files(&image, &|_| true).unwrap();
        let with_file = files.iter().filter(|file| !file.is_empty()).count();
        println!(
            "{with_file} of {} functions have a file, in {:?}",
            files.len(),
            start.elapsed()
        );
        let line_of = |name: &str| sources.line(image.function_named(name).unwrap().span.start);
        for (name, file) in [
            ("kernel_clone", "kernel/fork.c"),
            ("vfs_read", "fs/read_write.c"),
        ] {
            let line = line_of(name).unwrap();
            println!("{name}: {line}");
            assert_eq!(line.file, file);
        }
        assert!(with_file * 100 > files.len() * 95);
    }
}
