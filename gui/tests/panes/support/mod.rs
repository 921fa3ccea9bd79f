//! A window on a small real image, without a screen.

pub(crate) mod raster;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egui::{Event, Modifiers, PointerButton, Pos2};
use egui_kittest::kittest::Queryable;
use egui_kittest::{Harness, LazyRenderer};
use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::kernel::LiveParts;
use gilk_engine::{Addr, HookType, Image, InstrumentId};
use gilk_gui::app::App;
use gilk_gui::args::{Start, ThemeChoice};
use gilk_gui::catalogue::Catalogue;
use gilk_gui::graph::Scene;
use gilk_gui::placements::Placements;
use gilk_gui::state::State;
use gilk_gui::timeline::Record;
use gilk_instruments::Library;
use gilk_samples::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata};
use gilk_samples::recording::Recording;
use gilk_samples::{Batch, Meaning, Sample};
use raster::Rasteriser;

/// Returns the path of the functions of kernel/fork.c of a stock kernel, made by the engine\'s
/// example `trim_image`.
pub(crate) fn image_path() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../engine/tests/data/fork.image"
    ))
}

/// Reads the small image.
pub(crate) fn catalogue() -> Catalogue {
    let parts = postcard::from_bytes(&std::fs::read(image_path()).unwrap()).unwrap();
    Catalogue::new(Image::from_live(&parts).unwrap())
}

/// Writes the small image with one more function on the kprobes blacklist, because all other
/// functions of it have a hook at every block.
fn forbidding(function: &str) -> PathBuf {
    let mut parts: LiveParts = postcard::from_bytes(&std::fs::read(image_path()).unwrap()).unwrap();
    let span = Image::from_live(&parts)
        .unwrap()
        .function_named(function)
        .unwrap()
        .span;
    let (start, end) = (span.start.0, span.end.0);
    parts.blacklist += &format!("{start:#018x}-{end:#018x}\t{function}\n");
    let path = tempfile::tempdir().unwrap().keep().join("kernel");
    std::fs::write(&path, postcard::to_allocvec(&parts).unwrap()).unwrap();
    path
}

/// Writes the small image with a function renamed.
pub(crate) fn renamed(function: &str, name: &str) -> PathBuf {
    let mut parts: LiveParts = postcard::from_bytes(&std::fs::read(image_path()).unwrap()).unwrap();
    let (old, new) = (format!(" {function}\n"), format!(" {name}\n"));
    assert!(parts.kallsyms.contains(&old));
    parts.kallsyms = parts.kallsyms.replace(&old, &new);
    let path = tempfile::tempdir().unwrap().keep().join("kernel");
    std::fs::write(&path, postcard::to_allocvec(&parts).unwrap()).unwrap();
    path
}

/// Writes the small image with the type of `kernel_clone`'s argument, and with the one string in
/// read-only data that the function refers to.
pub(crate) fn typed() -> PathBuf {
    let mut parts: LiveParts = postcard::from_bytes(&std::fs::read(image_path()).unwrap()).unwrap();
    let names = "\0u64\0kernel_clone_args\0flags\0pidfd\0child_tid\0parent_tid\0exit_signal\0int\0kernel_clone\0args\0";
    let name = |text: &str| names.find(&format!("\0{text}\0")).unwrap() as u32 + 1;
    // Documentation/bpf/btf.rst: an integer, another, the structure, a pointer to it, prototype,
    // function.
    let words: Vec<u32> = [
        vec![name("u64"), 1 << 24, 8, 64],
        vec![name("int"), 1 << 24, 4, 1 << 24 | 32],
        vec![name("kernel_clone_args"), 4 << 24 | 5, 88],
        vec![name("flags"), 1, 0, name("pidfd"), 1, 64],
        vec![name("child_tid"), 1, 128, name("parent_tid"), 1, 192],
        vec![name("exit_signal"), 2, 256],
        vec![0, 2 << 24, 3],
        vec![0, 13 << 24 | 1, 2, name("args"), 4],
        vec![name("kernel_clone"), 12 << 24 | 1, 5],
    ]
    .concat();
    let len = words.len() as u32 * 4;
    let header = [24, 0, len, len, names.len() as u32];
    let mut types = vec![0x9f, 0xeb, 1, 0];
    types.extend(
        header
            .iter()
            .chain(&words)
            .flat_map(|word| word.to_le_bytes()),
    );
    types.extend(names.bytes());

    let line = |name: &str| {
        let found = parts.kallsyms.lines().find(|line| line.ends_with(name));
        u64::from_str_radix(found.unwrap().split(' ').next().unwrap(), 16).unwrap()
    };
    let start = line(" __start_rodata");
    let catalogue = catalogue();
    let image = catalogue.image();
    let clone = Cfg::of(image, image.function_named("kernel_clone").unwrap().id);
    let text_at = clone
        .blocks
        .iter()
        .flat_map(|block| &block.instructions)
        .filter(|one| one.op1_kind() == iced_x86::OpKind::Immediate32to64)
        .map(|one| one.immediate32to64().cast_unsigned())
        .find(|at| (start..start + (64 << 20)).contains(at))
        .unwrap();
    let end = text_at + 0x100;
    let of_types = end + 0x1000;
    let mut kallsyms: Vec<String> = parts
        .kallsyms
        .lines()
        .filter(|line| !line.ends_with("__end_rodata"))
        .map(str::to_owned)
        .collect();
    kallsyms.push(format!("{end:016x} R __end_rodata"));
    kallsyms.push(format!("{of_types:016x} R __start_BTF"));
    kallsyms.push(format!(
        "{:016x} R __stop_BTF",
        of_types + types.len() as u64
    ));
    parts.kallsyms = kallsyms.join("\n") + "\n";
    let mut data = vec![0; (end - start) as usize];
    let place = (text_at - start) as usize;
    data[place..place + 8].copy_from_slice(b"&x->wait");
    parts.memory.push((Addr(start), data));
    parts.memory.push((Addr(of_types), types));
    let path = tempfile::tempdir().unwrap().keep().join("kernel");
    std::fs::write(&path, postcard::to_allocvec(&parts).unwrap()).unwrap();
    path
}

/// Writes the small image with a build identifier, and a vmlinux of that build whose `kernel_clone`
/// comes from `kernel/fork.c`.
pub(crate) fn with_debug_information() -> (PathBuf, PathBuf) {
    let mut parts: LiveParts = postcard::from_bytes(&std::fs::read(image_path()).unwrap()).unwrap();
    let catalogue = catalogue();
    let image = catalogue.image();
    let place = image.function_named("kernel_clone").unwrap().span.start;
    let notes = image.extent().end.0 + 0x10_0000;
    let mut note = Vec::new();
    for word in [4u32, 4, 3] {
        note.extend(word.to_le_bytes());
    }
    note.extend(b"GNU\0\xc0\xff\xee\x01");
    parts.kallsyms += &format!("{notes:016x} R __start_notes\n");
    parts.kallsyms += &format!("{:016x} R __stop_notes\n", notes + note.len() as u64);
    parts.memory.push((Addr(notes), note));
    let folder = tempfile::tempdir().unwrap().keep();
    let kernel = folder.join("kernel-image");
    std::fs::write(&kernel, postcard::to_allocvec(&parts).unwrap()).unwrap();

    std::fs::create_dir_all(folder.join("kernel")).unwrap();
    let source = "int kernel_clone(int n)\n{\n\treturn n + 1;\n}\n";
    std::fs::write(folder.join("kernel/fork.c"), source).unwrap();
    let vmlinux = folder.join("vmlinux");
    let text = 0xffff_ffff_8100_0000_u64;
    let from = text + (place.0 - image.text().start.0);
    let done = std::process::Command::new("gcc")
        .current_dir(&folder)
        .args([
            "-g",
            "-O0",
            "-nostdlib",
            "-static",
            "-fno-pic",
            "-mcmodel=kernel",
        ])
        .args(["-Wl,--build-id=0xc0ffee01", "-Wl,-e,kernel_clone"])
        .arg(format!("-Wl,-Ttext={from:#x}"))
        .arg(format!("-Wl,--defsym=_stext={text:#x}"))
        .args(["kernel/fork.c", "-o"])
        .arg(&vmlinux)
        .status()
        .unwrap();
    assert!(done.success());
    std::fs::remove_dir_all(folder.join("kernel")).unwrap();
    (kernel, vmlinux)
}

/// Opens a window of `size`.
pub(crate) fn window(start: Start, size: [f32; 2]) -> Harness<'static, App> {
    window_at(start, size, 1.0)
}

/// Opens a window with a session's file alone.
pub(crate) fn window_of_session(session: PathBuf) -> Window {
    let start = Start {
        session: Some(session),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the session is open", |state| {
        state.document.path().is_some()
    });
    harness
}

/// Saves the session as a file.
pub(crate) fn save_as(harness: &mut Window, session: &Path) {
    run_command(harness, "save session as");
    fill(harness, "Path", &session.display().to_string());
    click(harness, "Save");
    until(harness, "it is saved", |state| !state.document.unsaved());
}

/// Opens a window at a number of pixels per point.
pub(crate) fn window_at(start: Start, size: [f32; 2], pixels: f32) -> Harness<'static, App> {
    let theme = if start.theme == Some(ThemeChoice::Light) {
        egui::Theme::Light
    } else {
        egui::Theme::Dark
    };
    Harness::builder()
        .with_size(size)
        .with_pixels_per_point(pixels)
        .with_theme(theme)
        .renderer(LazyRenderer::new(Rasteriser::default))
        .build_eframe(move |creation| {
            App::new(&creation.egui_ctx, start, Library::builtin().unwrap())
        })
}

/// Opens `function` of the small image.
pub(crate) fn browsing(function: &str) -> Harness<'static, App> {
    browsing_in(image_path(), function)
}

/// Opens `function` of an image that blacklists it.
pub(crate) fn browsing_forbidden(function: &str) -> Harness<'static, App> {
    browsing_in(forbidding(function), function)
}

/// Opens `function` of an image.
pub(crate) fn browsing_in(image: PathBuf, function: &str) -> Harness<'static, App> {
    let start = Start {
        image: Some(image),
        function: Some(function.to_owned()),
        theme: Some(ThemeChoice::Dark),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the function is open", |state| {
        state.graph.scene.is_some() && state.functions.answered.is_some()
    });
    settle(&mut harness);
    harness
}

/// Runs frames until a condition holds.
pub(crate) fn until(harness: &mut Harness<'_, App>, what: &str, so: impl Fn(&State) -> bool) {
    until_within(harness, Duration::from_secs(60), what, so);
}

/// Runs frames until the record that is shown is described as a finished recording, with the measured times.
pub(crate) fn until_measured(harness: &mut Harness<'_, App>, recorded: &Recording) {
    let measured = recorded.measured().unwrap();
    until(harness, "the measured times are shown", |state| {
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| *record.metadata == measured)
    });
}

/// Runs frames until a condition holds, for at most `limit`.
pub(crate) fn until_within(
    harness: &mut Harness<'_, App>,
    limit: Duration,
    what: &str,
    so: impl Fn(&State) -> bool,
) {
    let began = Instant::now();
    loop {
        harness.step();
        let state = harness.state().state();
        if so(state) {
            return;
        }
        assert!(
            began.elapsed() < limit,
            "{what}: not within {limit:?}; a run is hindered by {:?}; notices: {:?}",
            state.run_hindrance(),
            state.notices
        );
        // Frames as fast as they can be would take the processor from the lab and from what is waited for.
        let is_short = began.elapsed() < Duration::from_millis(200);
        std::thread::sleep(Duration::from_millis(if is_short { 2 } else { 25 }));
    }
}

/// Returns the open function.
pub(crate) fn scene(harness: &Window) -> &Arc<Scene> {
    let graph = &harness.state().state().graph;
    graph.scene.as_ref().expect("a function is open")
}

/// Runs frames until a function is open.
pub(crate) fn until_open(harness: &mut Window, function: &str) {
    until(harness, &format!("{function} is open"), |state| {
        let scene = state.graph.scene.as_ref();
        scene.is_some_and(|scene| scene.name == function)
    });
}

/// Runs frames until the list shows the result of a filter.
pub(crate) fn until_filtered(harness: &mut Window, filter: &str) {
    until(harness, &format!("the list answers {filter}"), |state| {
        state.functions.answered.as_deref() == Some(filter)
    });
}

/// Returns the session's placements.
pub(crate) fn placements(harness: &Window) -> &Placements {
    &harness.state().state().document.session().placements
}

/// Returns the centre of the widget with this name.
pub(crate) fn middle(harness: &Window, name: &str) -> Pos2 {
    harness.get_by_label(name).rect().center()
}

/// Presses or releases the primary mouse button.
pub(crate) fn button(harness: &mut Window, pos: Pos2, pressed: bool) {
    harness.event(Event::PointerButton {
        pos,
        button: PointerButton::Primary,
        pressed,
        modifiers: Modifiers::NONE,
    });
    harness.run_steps(2);
}

/// Runs frames until all worker requests are answered.
pub(crate) fn settle(harness: &mut Harness<'_, App>) {
    for _ in 0..3 {
        until(harness, "the session is planned", |state| {
            !state.plan.pending() && state.opening.is_none()
        });
        harness.run_steps(4);
    }
}

/// Clicks the widget with this name.
pub(crate) fn click(harness: &mut Harness<'_, App>, name: &str) {
    harness.get_by_label(name).click();
    harness.run_steps(3);
    settle(harness);
}

/// Scrolls to a widget: one that is out of view receives no click.
pub(crate) fn scroll_to(harness: &mut Harness<'_, App>, name: &str) {
    harness.get_by_label(name).scroll_to_me();
    let mut rect = harness.get_by_label(name).rect();
    loop {
        harness.run_steps(2);
        let after = harness.get_by_label(name).rect();
        if after == rect {
            break;
        }
        rect = after;
    }
}

/// Replaces the contents of a field.
pub(crate) fn fill(harness: &mut Harness<'_, App>, name: &str, text: &str) {
    // A list may still be scrolling, so that the click arrives beside the field.
    for _ in 0..3 {
        harness.get_by_label(name).click();
        harness.run_steps(2);
        if harness.get_by_label(name).is_focused() {
            break;
        }
    }
    harness.key_press_modifiers(Modifiers::COMMAND, egui::Key::A);
    harness.get_by_label(name).type_text(text);
    harness.run_steps(3);
}

/// Returns the first block of the open function whose hook is refused.
pub(crate) fn refused(state: &State, hook: HookType) -> BlockIndex {
    let scene = state.graph.scene.as_ref().unwrap();
    let is_refused = |block: &BlockIndex| scene.hook(*block, hook).unwrap().is_err();
    scene
        .cfg
        .blocks
        .iter()
        .map(|block| block.index)
        .find(is_refused)
        .unwrap()
}

/// A run in which block 0 was hit 300 times and block 2 only 5.
pub(crate) fn record() -> Record {
    let clock = Clock {
        hz: 1_000_000,
        start: 0,
        start_unix_ns: 0,
    };
    let function = FunctionInfo {
        major: 0,
        name: "kernel_clone".into(),
        address: 0,
        blocks: Vec::new(),
        edges: Vec::new(),
    };
    let mut metadata = Metadata {
        clock,
        cpus: 1,
        functions: vec![function],
        ..Metadata::default()
    };
    let mut batch = Batch {
        cpu: 0,
        samples: Vec::new(),
    };
    for (block, hits) in [(0, 300u64), (2, 5)] {
        let id = InstrumentId::new(0, HookType::Pre, block, 0)
            .unwrap()
            .pack();
        metadata.instruments.push(InstrumentInfo {
            id,
            label: format!("timestamp pre kernel_clone block {block}"),
            instrument: "timestamp".into(),
            meaning: Meaning::Event,
            unit: String::new(),
            launch: 0.0,
            splash: 10.0,
            placed: None,
            delivers: Delivers::Samples,
        });
        let sample = |hit: u64| Sample {
            id,
            value: hit,
            tsc: 1000 * hit + u64::from(block),
        };
        batch.samples.extend((1..=hits).map(sample));
    }
    batch.samples.sort_by_key(|sample| sample.tsc);
    let record = Record::live("run.arrow".into(), metadata, 10.0);
    record.append(&batch);
    record
}

/// A window under test.
pub(crate) type Window = Harness<'static, App>;

/// Presses a key, and runs some frames.
pub(crate) fn press(harness: &mut Window, modifiers: Modifiers, key: egui::Key) {
    harness.key_press_modifiers(modifiers, key);
    harness.run_steps(3);
}

/// Executes a command through the palette.
pub(crate) fn run_command(harness: &mut Window, letters: &str) {
    press(harness, Modifiers::COMMAND | Modifiers::SHIFT, egui::Key::P);
    harness.get_by_label("Find command").type_text(letters);
    harness.run_steps(3);
    press(harness, Modifiers::NONE, egui::Key::Enter);
}
