//! From an empty window to exported samples, in a real window, by mouse and keys alone: the display
//! is Xvfb, xdotool moves the pointer, the kernel is the lab's.
//!
//! `GILK_PICTURES` names a folder for the pictures saved on the way. To run it by hand: `cargo test
//! -p gilk-gui --test screen -- --ignored --nocapture`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first failure"
)]

mod display;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use display::{SIZE, SOON, Screen};
use gilk_engine::Session;
use gilk_gui::theme::Palette;
use gilk_samples::recording::Recording;

/// Time limit for the lab to be prepared and booted.
const BOOT: Duration = Duration::from_secs(600);
/// Time limit of the workload, which takes 4 s on an idle machine.
const RUN: Duration = Duration::from_secs(110);

/// Waits until a file is complete: it no longer grows.
fn written(screen: &mut Screen, path: &Path) {
    let mut before = 0;
    screen.wait(&format!("{} is written", path.display()), SOON, |_| {
        let size = std::fs::metadata(path).ok()?.len();
        std::thread::sleep(Duration::from_millis(200));
        (size > 0 && std::mem::replace(&mut before, size) == size).then_some(())
    });
}

/// Opens a function by some letters of its name.
fn open(screen: &mut Screen, letters: &str, name: &str) {
    screen.click("Functions tab");
    screen.fill("Filter functions", letters);
    screen.words(name, SOON);
    screen.press("Return");
    screen.named(&format!("block 0 of {name}"));
}

/// Fills in the path dialog.
fn answer(screen: &mut Screen, path: &Path, verb: &str) {
    let confirmed = match path.parent() {
        _ if verb != "Save" => None,
        Some(folder) if !folder.exists() => Some("Create folder and save"),
        _ if path.exists() => Some("Replace file"),
        _ => None,
    };
    screen.fill("Path", &path.to_string_lossy());
    screen.click(verb);
    if let Some(button) = confirmed {
        screen.click(button);
    }
    screen.gone("Browse…");
}

/// Saves a picture of the window, and checks its colours and that no dialog covers the window.
fn picture(screen: &mut Screen, path: &Path, colours: Palette) {
    // Removes the picture of an earlier run.
    let _none_there = std::fs::remove_file(path);
    let run = screen.named("Run session");
    screen.run_command("save picture");
    answer(screen, path, "Save");
    written(screen, path);
    // The notice about the file has its time, which a busy machine may spend before it is looked for.
    screen.notices_go();

    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    assert_eq!((info.width, info.height), SIZE);
    let mut colour = BTreeMap::<&[u8], usize>::new();
    for pixel in bytes.chunks_exact(3) {
        *colour.entry(pixel).or_default() += 1;
    }
    assert!(colour.len() > 50, "only {} colours", colour.len());
    let (most, _) = colour.iter().max_by_key(|(_, times)| **times).unwrap();
    let tokens = colours.tokens();
    let grounds = [tokens.canvas, tokens.panel].map(|ground| ground.to_array());
    assert!(
        grounds.iter().any(|ground| &ground[..3] == *most),
        "most of {} is {most:?}, which is no background of {colours:?}",
        path.display()
    );
    // A dialog would darken everything below it, including the accented button.
    let (left, middle) = run.left_middle();
    let inside = 3 * (middle as usize * SIZE.0 as usize + left as usize + 2);
    assert_eq!(bytes[inside..inside + 3], tokens.accent.to_array()[..3]);
}

mod live {
    use super::*;

    #[test]
    #[ignore = "boots the lab in a window; run it by its name, with --ignored"]
    fn a_session_is_placed_run_saved_reopened_and_exported() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let pictures =
            std::env::var_os("GILK_PICTURES").map_or_else(|| at("pictures"), PathBuf::from);
        let mut screen = Screen::open(folder.path(), &["--theme", "dark"]);

        // On the first start the tour is shown, and starts the lab.
        screen.words("tour 1 of 7", SOON);
        screen.click("tour: Start the lab");
        screen.words("· Linux ", BOOT);

        // A function by some letters, and its entry block.
        open(&mut screen, "x64sysclone", "__x64_sys_clone");
        // An instrument dragged to the block's pre-hook.
        screen.click("Instruments tab");
        screen.fill("Filter instruments", "timestamp");
        screen.drag("instrument timestamp", "pre-hook of block 0: can be hooked");
        screen.words("pre-hook of block 0: 1 instrument", SOON);
        screen.words("1 instrument, ", SOON);

        // A workload, and the session's duration.
        screen.fill("Session name", "forks");
        screen.click("Run a program");
        screen.fill("Program and arguments", "/bin/pulsar 500");
        // Long enough for a busy machine: the run is stopped when the workload is done.
        screen.fill("Session duration", "120");
        screen.press("Return");
        screen.fill("Program start", "1");
        screen.press("Return");
        screen.fill("Recording path", "forks.arrow");

        // The hits are counted before anything else is added.
        screen.click("block 0 of __x64_sys_clone");
        screen.click("Count hits first");
        screen.words("1 of 2 batches done", SOON);
        screen.words("samples are in forks-count.arrow", SOON);
        screen.words("A second of that run, with these: ", SOON);

        // All blocks of a second function.
        open(&mut screen, "copy_process", "copy_process");
        screen.click("Instruments tab");
        screen.fill("Filter instruments", "counter");
        screen.drag("instrument counter", "drop at before every block");
        let blocks = screen.number_after("plan verified: ", |count| count > 100);
        // A histogram of its duration, aggregated in the kernel.
        screen.fill("Filter instruments", "elapsed-histogram");
        screen.drag("instrument elapsed-histogram", "drop at entry");
        screen.number_after("plan verified: ", |count| count == blocks + 1);
        screen.click("Functions tab");

        screen.click("Run session");
        screen.words("live", SOON);
        // Instruments that launch at 0 s are in place before the workload starts.
        screen.words("1 of 2 batches done", SOON);
        screen.words("started at ", SOON);
        screen.words(" s: exit status: 0", RUN);
        screen.words("lane timestamp pre __x64_sys_clone block 0: 160", SOON);
        screen.words("Totals up to now", SOON);
        screen.click("Stop run");
        screen.wait("the run is over", SOON, |screen| {
            screen
                .find(|one| one.name == "Stop run" && one.disabled)
                .filter(|_| at("forks.arrow").exists())
                .map(drop)
        });
        let forks = screen.words("block 0 was hit ", SOON).value;
        let forks: u64 = forks
            .trim_end_matches(" times")
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(forks >= 160, "kernel threads are forked too: {forks}");
        screen.words("Done", SOON);
        screen.words("Totals at the end of the run", SOON);
        screen.words("@ticks of elapsed-histogram: ", SOON);
        screen.click("End the tour");
        screen.notices_go();
        screen.click("block 0 of copy_process");
        picture(&mut screen, &pictures.join("window.png"), Palette::Dark);

        // Saved, closed, and reopened unchanged.
        screen.press("ctrl+s");
        answer(&mut screen, &at("forks.ron"), "Save");
        written(&mut screen, &at("forks.ron"));
        let saved = Session::from_ron(&std::fs::read_to_string(at("forks.ron")).unwrap()).unwrap();
        assert_eq!((saved.name.as_str(), saved.duration), ("forks", 120.0));
        assert_eq!(&*saved.placements[0].function, "__x64_sys_clone");
        assert!(saved.placements.len() > 50, "{}", saved.placements.len());
        screen.press("ctrl+n");
        screen.words("No instruments yet", SOON);
        // The recording belongs to the session before.
        screen.words("No samples yet", SOON);
        screen.press("ctrl+o");
        answer(&mut screen, &at("forks.ron"), "Open");
        screen.words("plan verified", SOON);

        // Exports of the samples and the graph.
        screen.press("ctrl+shift+o");
        answer(&mut screen, &at("forks.arrow"), "Open");
        screen.words("lane timestamp pre __x64_sys_clone block 0: 160", SOON);
        screen.run_command("export recording");
        answer(&mut screen, &at("forks.csv"), "Save");
        written(&mut screen, &at("forks.csv"));
        screen.run_command("export graph");
        answer(&mut screen, &at("copy_process.svg"), "Save");
        written(&mut screen, &at("copy_process.svg"));
        screen.notices_go();
        let recording = Recording::open(at("forks.arrow")).unwrap();
        let lines = std::fs::read_to_string(at("forks.csv")).unwrap();
        assert_eq!(lines.lines().count() as u64, recording.samples() + 1);
        let forks = |line: &&str| line.contains("timestamp pre __x64_sys_clone block 0");
        assert_eq!(
            lines.lines().filter(forks).count(),
            160,
            "5 rounds of 32 forks"
        );
        let svg = std::fs::read_to_string(at("copy_process.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("block 0"));

        // Light colours with the Patch pane; high contrast with the schedule.
        screen.run_command("light colours");
        screen.click("Patch tab");
        screen.click("block 0 of copy_process");
        picture(
            &mut screen,
            &pictures.join("window-light.png"),
            Palette::Light,
        );
        screen.run_command("contrast");
        screen.click("Schedule tab");
        picture(
            &mut screen,
            &pictures.join("window-contrast.png"),
            Palette::Contrast,
        );

        assert!(screen.ends_by("ctrl+q"), "it exits successfully");
    }
}
