//! Measures the time of a frame, layout of the window and tessellation, median and p99: `cargo run
//! --release -p gilk-gui --example frames -- IMAGE`, where `IMAGE` was saved by `ilk dump`. Symbols
//! are added to the image until there are 100,000; the graph is that of the function with the most
//! blocks, and then a generated one of 2,001 blocks that replaces its code. Nothing is drawn on a
//! screen, so the time of the graphics card is not included. With a function's name after the image,
//! only a session with 100,000 placements and a recording with 10,000 lanes are measured.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark stops at the first error"
)]

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use egui::{Context, RawInput, Rect, Vec2, pos2, vec2};
use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::kernel::LiveParts;
use gilk_engine::session::Placement;
use gilk_engine::{HookType, Image, InstrumentId, Span};
use gilk_gui::app::App;
use gilk_gui::args::{Start, ThemeChoice};
use gilk_gui::desk::Pane;
use gilk_gui::graph::layout::{Link, layout};
use gilk_gui::graph::view::Look;
use gilk_gui::session_duration::set_duration;
use gilk_gui::state::State;
use gilk_gui::timeline::{Losses, Record, Stack};
use gilk_instruments::Library;
use gilk_samples::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata};
use gilk_samples::recording::{Loss, LossCause};
use gilk_samples::{Batch, Meaning, Sample};

/// Frames per case.
const FRAMES: usize = 400;
/// Samples on the timeline.
const SAMPLES: u64 = 100_000_000;
/// Lanes on the timeline.
const LANES: u32 = 50;
/// Placements of a large session.
const PLACEMENTS: u32 = 100_000;
/// Lanes of a large recording.
const MANY_LANES: u32 = 10_000;
/// Symbols in the list.
const SYMBOLS: usize = 100_000;
/// Pairs of blocks of the generated function.
const PAIRS: usize = 1000;
/// Samples that arrive per frame of a run: three million per second.
const ARRIVING: u64 = 50_000;

/// Sizes of the window in points: the usual one, and a 4K screen.
const SIZES: [Vec2; 2] = [vec2(1920.0, 1080.0), vec2(3840.0, 2160.0)];

struct Bench {
    ctx: Context,
    app: App,
    time: f64,
    size: Vec2,
}

impl Bench {
    fn frame(&mut self, events: Vec<egui::Event>) -> Duration {
        self.time += 1.0 / 60.0;
        let input = RawInput {
            screen_rect: Some(Rect::from_min_size(pos2(0.0, 0.0), self.size)),
            time: Some(self.time),
            events,
            ..RawInput::default()
        };
        let began = Instant::now();
        let app = &mut self.app;
        let mut out = self.ctx.run_ui(input, |ui| app.frame(ui));
        // Nothing is drawn on a screen, so no textures are loaded.
        out.textures_delta.clear();
        let drawn = self.ctx.tessellate(out.shapes, out.pixels_per_point);
        let took = began.elapsed();
        assert!(!drawn.is_empty());
        took
    }

    /// Changes the size of the window.
    fn resize(&mut self, size: Vec2) {
        self.size = size;
        println!("at {} × {}:", size.x, size.y);
        for _ in 0..4 {
            self.frame(Vec::new());
        }
    }

    /// Returns the point at a share of the window's width and height.
    fn at(&self, across: f32, down: f32) -> egui::Pos2 {
        pos2(across * self.size.x, down * self.size.y)
    }

    fn until(&mut self, so: impl Fn(&State) -> bool) {
        let began = Instant::now();
        while !so(self.app.state()) {
            self.frame(Vec::new());
            assert!(
                began.elapsed() < Duration::from_secs(300),
                "not in five minutes"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        for _ in 0..30 {
            self.frame(Vec::new());
        }
    }

    /// Measures frames, each with the input of `events`, so that every frame differs from the last.
    fn measure(&mut self, name: &str, events: impl Fn(usize) -> Vec<egui::Event>) {
        self.measure_after(name, events, |_, _| {});
    }

    /// Measures frames including the work of `before`, which precedes each.
    fn measure_after(
        &mut self,
        name: &str,
        events: impl Fn(usize) -> Vec<egui::Event>,
        before: impl Fn(&mut State, usize),
    ) {
        let frame = |at| {
            let (began, busy) = (Instant::now(), processor_time());
            before(self.app.state_mut(), at);
            self.frame(events(at));
            (began.elapsed(), processor_time() - busy)
        };
        report(name, (0..FRAMES).map(frame).unzip());
    }

    /// Measures frames while a thread appends samples to the recording, as the thread of a run does.
    fn measure_arriving(&mut self, name: &str) {
        let record = self.app.state_mut().timeline.record.as_mut().unwrap();
        record.now = Some(record.duration);
        let (metadata, index) = (Arc::clone(&record.metadata), record.index.clone());
        let (wanted, orders) = sync_channel::<u64>(1);
        let (done, appended) = sync_channel::<()>(1);
        let appends = std::thread::spawn(move || {
            let lanes = &metadata.instruments;
            for frame in orders {
                let first = SAMPLES + frame * ARRIVING;
                let sample = |number: u64| Sample {
                    id: lanes[(number % lanes.len() as u64) as usize].id,
                    value: number % 1000,
                    tsc: number * (100_000_000_000 / SAMPLES),
                };
                let samples = (first..first + ARRIVING).map(sample).collect();
                index.append(&Batch { cpu: 0, samples });
                done.send(()).unwrap();
            }
        });
        let frame = |at: usize| {
            wanted.send(at as u64).unwrap();
            let (began, busy) = (Instant::now(), processor_time());
            self.frame(Vec::new());
            let times = (began.elapsed(), processor_time() - busy);
            appended.recv().unwrap();
            times
        };
        report(name, (0..FRAMES).map(frame).unzip());
        drop(wanted);
        appends.join().unwrap();
        self.app.state_mut().timeline.record.as_mut().unwrap().now = None;
        self.frame(Vec::new());
    }
}

/// Prints median and 99th percentile of elapsed and of processor times.
fn report(name: &str, (mut times, mut busy): (Vec<Duration>, Vec<Duration>)) {
    times.sort_unstable();
    busy.sort_unstable();
    let ms = |times: &[Duration], share: f64| {
        times[(share * (FRAMES - 1) as f64) as usize].as_secs_f64() * 1e3
    };
    println!(
        "{name:53} median {:6.2} ms   p99 {:6.2} ms   of processor time {:6.2} ms {:6.2} ms",
        ms(&times, 0.5),
        ms(&times, 0.99),
        ms(&busy, 0.5),
        ms(&busy, 0.99)
    );
}

/// Returns the processor time of this thread, which other work on the machine leaves as it is.
#[expect(
    unsafe_code,
    reason = "the standard library has no clock of a thread's processor time"
)]
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes the structure, which outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Scrolls the wheel up and down in turn, at `at`.
fn wheel(at: egui::Pos2) -> impl Fn(usize) -> Vec<egui::Event> {
    move |frame| {
        let up = if (frame / 40) % 2 == 0 { 12.0 } else { -12.0 };
        vec![
            egui::Event::PointerMoved(at),
            egui::Event::MouseWheel {
                source: egui::MouseWheelSource::Wheel,
                unit: egui::MouseWheelUnit::Point,
                delta: vec2(0.0, up),
                phase: egui::TouchPhase::Move,
                modifiers: egui::Modifiers::NONE,
            },
        ]
    }
}

/// A recording of `count` samples on `lanes` lanes in `lanes / 4` functions.
fn recording(lanes: u32, count: u64) -> Record {
    let clock = Clock {
        hz: 1_000_000_000,
        start: 0,
        start_unix_ns: 0,
    };
    let mut metadata = Metadata {
        clock,
        cpus: 2,
        ..Metadata::default()
    };
    let ids: Vec<u64> = (0..lanes)
        .map(|lane| {
            InstrumentId::new(lane / 4, HookType::Pre, lane % 4, 0)
                .unwrap()
                .pack()
        })
        .collect();
    metadata.functions = (0..=lanes / 4)
        .map(|major| FunctionInfo {
            major,
            name: format!("function_{major}"),
            address: 0,
            blocks: Vec::new(),
            edges: Vec::new(),
        })
        .collect();
    for (lane, &id) in ids.iter().enumerate() {
        metadata.instruments.push(InstrumentInfo {
            id,
            label: format!("argument-0 pre function_{} block {}", lane / 4, lane % 4),
            instrument: "argument-0".into(),
            meaning: Meaning::Value,
            unit: String::new(),
            launch: 0.0,
            splash: 100.0,
            placed: None,
            delivers: Delivers::Samples,
        });
    }
    let mut record = Record::live("bench.arrow".into(), metadata, 100.0);
    let step = 100_000_000_000 / count;
    for first in (0..count).step_by(65_536) {
        let sample = |number: u64| Sample {
            id: ids[(number % u64::from(lanes)) as usize],
            value: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
            tsc: number * step,
        };
        let samples = (first..(first + 65_536).min(count)).map(sample).collect();
        record.append(&Batch { cpu: 0, samples });
    }
    record.now = None;
    record
}

fn layouts() {
    for count in [300usize, 1000, 2000, 10_000] {
        let sizes = vec![vec2(220.0, 90.0); count];
        let links: Vec<Link> = (1..count)
            .flat_map(|to| {
                let back = to.saturating_sub(1 + (to * 7919) % 23);
                let mut links = vec![Link { from: back, to }];
                if to % 11 == 0 {
                    links.push(Link { from: to, to: back });
                }
                links
            })
            .collect();
        let mut times: Vec<Duration> = (0..9)
            .map(|_| {
                let began = Instant::now();
                let made = layout(&sizes, &links);
                assert_eq!(made.boxes.len(), count);
                began.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!(
            "layout of {count:6} blocks {:27} median {:6.2} ms",
            "",
            times[4].as_secs_f64() * 1e3
        );
    }
}

/// Images to open, and the function to show.
struct Prepared {
    /// With added symbols.
    more: tempfile::NamedTempFile,
    /// With added symbols and the generated function.
    large: tempfile::NamedTempFile,
    /// The function with the most blocks.
    function: String,
}

fn saved(parts: &LiveParts) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&postcard::to_allocvec(parts).unwrap())
        .unwrap();
    file
}

/// Overwrites a function with `PAIRS` times two blocks, and a return.
fn overwrite(parts: &mut LiveParts, function: Span) {
    // test edi, edi; je over; inc eax; over:
    let mut code = [0x85, 0xff, 0x74, 0x02, 0xff, 0xc0].repeat(PAIRS);
    code.push(0xc3);
    code.resize(function.len() as usize, 0xcc);
    let (start, bytes) = parts
        .memory
        .iter_mut()
        .find(|(start, bytes)| (start.0..start.0 + bytes.len() as u64).contains(&function.start.0))
        .unwrap();
    let at = (function.start.0 - start.0) as usize;
    bytes[at..at + code.len()].copy_from_slice(&code);
}

fn prepared(path: &str) -> Prepared {
    let bytes = std::fs::read(path).expect("the image can be read");
    let (mut parts, _modules) =
        postcard::take_from_bytes::<LiveParts>(&bytes).expect("it was saved by `ilk dump`");
    let image = Image::from_live(&parts).unwrap();
    let mut large: Vec<_> = image.functions().iter().collect();
    large.sort_by_key(|function| std::cmp::Reverse(function.span.len()));
    let most = large
        .iter()
        .take(60)
        .max_by_key(|function| Cfg::of(&image, function.id).blocks.len())
        .unwrap();
    let mut missing = SYMBOLS.saturating_sub(image.functions().len());
    for function in large.iter().filter(|function| function.id != most.id) {
        for offset in (64..function.span.len()).step_by(64) {
            if missing == 0 {
                break;
            }
            missing -= 1;
            let at = function.span.start.0 + offset;
            parts.kallsyms += &format!("{at:016x} t {}_{offset:x}\n", function.name);
        }
    }
    let (function, span) = (most.name.clone(), most.span);
    let more = saved(&parts);
    overwrite(&mut parts, span);
    Prepared {
        more,
        large: saved(&parts),
        function,
    }
}

/// Measures a session of `PLACEMENTS` placements and a recording of `MANY_LANES` lanes.
fn large_session(bench: &mut Bench) {
    let scene = bench.app.state().graph.scene.clone().unwrap();
    let blocks = scene.cfg.blocks.len() as u32;
    let placement = |number: u32| Placement {
        function: scene.name.as_str().into(),
        block: number % blocks,
        hook: HookType::Pre,
        instrument: "counter".into(),
        launch: 0.0,
        splash: 10.0,
    };
    bench.app.state_mut().document.edit("fill", |session| {
        session.placements = (0..PLACEMENTS).map(placement).collect();
    });
    bench.until(|state| !state.plan.pending());
    let name = |what: &str| format!("{what}, {PLACEMENTS} placements");
    for size in SIZES {
        bench.resize(size);
        bench.measure(&name("nothing happens"), |_| Vec::new());
    }
    bench.resize(SIZES[0]);
    // The inspector lists the instruments of the selected hook.
    bench.app.state_mut().graph.select(BlockIndex(0));
    bench.frame(Vec::new());
    bench.measure(&name("a block selected"), |_| Vec::new());
    bench.measure_after(
        &name("dragging a splash"),
        |_| Vec::new(),
        |state, frame| {
            let times = [(7, 0.0, 5.0 + frame as f64 / 1000.0)];
            state.document.edit_times("splash", &times);
        },
    );
    // Every splash is at the end of the session, and moves with it.
    let dragging = |state: &mut State, frame: usize| {
        let duration = 10.0 + frame as f64 / 1000.0;
        let document = &mut state.document;
        document.edit("duration", |session| set_duration(session, duration));
    };
    bench.measure_after(&name("dragging the duration"), |_| Vec::new(), dragging);
    bench.app.state_mut().document.undo();
    bench.until(|state| !state.plan.pending());
    for pane in [Pane::Schedule, Pane::Patch] {
        bench.app.state_mut().desk.show(pane);
        bench.frame(Vec::new());
        bench.measure(&name(&format!("{} pane", pane.name())), |_| Vec::new());
    }
    bench.app.state_mut().desk.show(Pane::Schedule);
    bench.measure_after(
        &name("dragging a splash in the schedule"),
        |_| Vec::new(),
        |state, frame| {
            let times = [(7, 0.0, 5.0 + frame as f64 / 1000.0)];
            state.document.edit_times("splash", &times);
        },
    );
    bench.measure_after(
        &name("dragging the duration above the schedule"),
        |_| Vec::new(),
        dragging,
    );
    bench.app.state_mut().document.undo();
    bench.app.state_mut().desk.show(Pane::Timeline);
    // Every 40th frame is a click.
    bench.measure_after(
        &name("an instrument added or removed"),
        |_| Vec::new(),
        |state, frame| match frame % 40 {
            0 if frame % 80 == 0 => {
                state.document.edit("add", |session| {
                    session.placements.push(placement(0));
                });
                state.document.close_step();
            }
            0 => {
                state.document.undo();
            }
            _ => {}
        },
    );
    bench.until(|state| !state.plan.pending());
    bench.measure_after(
        &name("an instrument removed in the middle"),
        |_| Vec::new(),
        |state, frame| {
            if frame % 40 == 0 {
                state.document.edit("remove", |session| {
                    session.placements.remove(PLACEMENTS as usize / 2);
                });
                state.document.close_step();
            }
        },
    );
    bench.until(|state| !state.plan.pending());
    bench
        .app
        .state_mut()
        .timeline
        .open(recording(MANY_LANES, 1_000_000));
    bench.frame(Vec::new());
    for size in SIZES {
        bench.resize(size);
        bench.app.state_mut().timeline.stack_by(Stack::Session);
        let name = format!("zooming {MANY_LANES} lanes");
        bench.measure(&name, wheel(bench.at(0.47, 0.83)));
        bench.app.state_mut().timeline.stack_by(Stack::Function);
        let name = format!("scrolling {MANY_LANES} lanes in groups");
        bench.measure(&name, wheel(bench.at(0.05, 0.83)));
    }
    bench.resize(SIZES[0]);
    let name = format!("{ARRIVING} samples arriving on {MANY_LANES} lanes");
    bench.measure_arriving(&name);
    bench.app.state_mut().timeline.open(hours());
    bench.frame(Vec::new());
    let name = "zooming two days with a million losses";
    bench.measure(name, wheel(bench.at(0.47, 0.83)));
}

/// A recording of two days in which a CPU loses samples every fifth of a second.
fn hours() -> Record {
    let mut record = recording(LANES, 1_000_000);
    let clock = record.metadata.clock;
    let losses: Vec<Loss> = (0..1_000_000)
        .map(|number| Loss {
            cpu: (number % 2) as u16,
            tsc: clock.tsc(number as f64 * 0.17),
            cause: LossCause::RingFull,
            count: 3,
        })
        .collect();
    record.duration = 2.0 * 86_400.0;
    for info in &mut Arc::make_mut(&mut record.metadata).instruments {
        info.splash = record.duration;
    }
    record.losses = Losses::of(&losses, clock);
    record
}

/// Opens a function of an image.
fn opened(image: &tempfile::NamedTempFile, function: &str) -> Bench {
    opened_at(image.path(), function)
}

fn opened_at(image: &Path, function: &str) -> Bench {
    let ctx = Context::default();
    let start = Start {
        image: Some(image.to_owned()),
        function: Some(function.to_owned()),
        theme: Some(ThemeChoice::Dark),
        ..Start::default()
    };
    let app = App::new(&ctx, start, Library::builtin().unwrap());
    let mut bench = Bench {
        ctx,
        app,
        time: 0.0,
        size: SIZES[0],
    };
    bench.until(|state| state.graph.scene.is_some() && state.functions.answered.is_some());
    bench
}

/// Measures its graph at natural size and whole.
fn graph(bench: &mut Bench, function: &str) {
    let scene = bench.app.state().graph.scene.as_ref().unwrap();
    let blocks = scene.cfg.blocks.len();
    let name = format!("zooming {function}, {blocks} blocks");
    bench.measure(&name, wheel(pos2(900.0, 350.0)));
    bench.app.state_mut().graph.wanted = Some(Look::Fit);
    bench.measure(&format!("all {blocks} blocks in view"), |_| Vec::new());
}

fn main() {
    let image = std::env::args()
        .nth(1)
        .expect("the image of a kernel, saved by `ilk dump`");
    if let Some(function) = std::env::args().nth(2) {
        // Only a large session, on the image as it is.
        let mut bench = opened_at(Path::new(&image), &function);
        large_session(&mut bench);
        bench.app.end();
        return;
    }
    layouts();
    let Prepared {
        more,
        large,
        function,
    } = prepared(&image);
    let mut bench = opened(&large, &function);
    let scene = bench.app.state().graph.scene.as_ref().unwrap();
    assert!(scene.cfg.blocks.len() > 2 * PAIRS);
    graph(&mut bench, "a generated function");
    bench.app.end();

    let mut bench = opened(&more, &function);
    let functions = bench.app.state().catalogue.as_ref().unwrap().len();
    bench.measure("nothing happens", |_| Vec::new());
    graph(&mut bench, &function);
    let list = pos2(120.0, 400.0);
    bench.measure(&format!("scrolling {functions} functions"), wheel(list));
    bench
        .app
        .state_mut()
        .timeline
        .open(recording(LANES, SAMPLES));
    bench.frame(Vec::new());
    let lanes = pos2(900.0, 900.0);
    let name = format!(
        "zooming {} million samples on {LANES} lanes",
        SAMPLES / 1_000_000
    );
    bench.measure(&name, wheel(lanes));
    let name = format!("{ARRIVING} samples arriving in each frame");
    bench.measure_arriving(&name);
    large_session(&mut bench);
    bench.app.end();
}
