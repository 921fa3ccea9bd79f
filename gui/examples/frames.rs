//! How long a frame takes, layout of the window and tessellation, median and p99:
//! `cargo run --release -p gilk-gui --example frames -- IMAGE [FUNCTION]`, where `IMAGE` is what
//! `ilk dump` saved, or a vmlinux. Nothing is drawn on a screen; the graphics card's part is not in it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a measurement stops where something is not as it should be"
)]

use std::time::{Duration, Instant};

use egui::{Context, RawInput, Rect, pos2, vec2};
use gilk_engine::{HookType, InstrumentId};
use gilk_gui::app::App;
use gilk_gui::args::{Start, ThemeChoice};
use gilk_gui::graph::layout::{Link, layout};
use gilk_gui::state::State;
use gilk_gui::timeline::Record;
use gilk_instruments::Library;
use gilk_samples::metadata::{Clock, InstrumentInfo, Metadata};
use gilk_samples::{Batch, Meaning, Sample};

/// Frames of each case.
const FRAMES: usize = 400;
/// Samples on the timeline, on eight lanes.
const SAMPLES: u64 = 20_000_000;

struct Bench {
    ctx: Context,
    app: App,
    time: f64,
}

impl Bench {
    fn frame(&mut self, events: Vec<egui::Event>) -> Duration {
        self.time += 1.0 / 60.0;
        let input = RawInput {
            screen_rect: Some(Rect::from_min_size(pos2(0.0, 0.0), vec2(1920.0, 1080.0))),
            time: Some(self.time),
            events,
            ..RawInput::default()
        };
        let began = Instant::now();
        let app = &mut self.app;
        let out = self.ctx.run_ui(input, |ui| app.frame(ui));
        let drawn = self.ctx.tessellate(out.shapes, out.pixels_per_point);
        let took = began.elapsed();
        assert!(!drawn.is_empty());
        took
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

    /// Frames in each of which `events` happen, so that nothing is as in the frame before.
    fn measure(&mut self, name: &str, events: impl Fn(usize) -> Vec<egui::Event>) {
        let mut times: Vec<Duration> = (0..FRAMES).map(|at| self.frame(events(at))).collect();
        times.sort_unstable();
        let ms = |share: f64| times[(share * (FRAMES - 1) as f64) as usize].as_secs_f64() * 1e3;
        println!(
            "{name:44} median {:6.2} ms   p99 {:6.2} ms",
            ms(0.5),
            ms(0.99)
        );
    }
}

/// The wheel, up and down in turn, at `at`.
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

fn recording() -> Record {
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
    let ids: Vec<u64> = (0..8)
        .map(|block| {
            InstrumentId::new(0, HookType::Pre, block, 0)
                .unwrap()
                .pack()
        })
        .collect();
    for (lane, &id) in ids.iter().enumerate() {
        metadata.instruments.push(InstrumentInfo {
            id,
            label: format!("argument-0 pre f block {lane}"),
            instrument: "argument-0".into(),
            meaning: Meaning::Value,
            unit: String::new(),
            launch: 0.0,
            splash: 100.0,
        });
    }
    let mut record = Record::live("bench.arrow".into(), metadata, 100.0);
    let step = 100_000_000_000 / SAMPLES;
    for first in (0..SAMPLES).step_by(65_536) {
        let sample = |number: u64| Sample {
            id: ids[(number % 8) as usize],
            value: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
            tsc: number * step,
        };
        let samples = (first..(first + 65_536).min(SAMPLES)).map(sample).collect();
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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let image = arguments
        .next()
        .expect("the image of a kernel, as `ilk dump` saves it");
    let function = arguments
        .next()
        .unwrap_or_else(|| "do_syscall_64".to_owned());
    layouts();
    let ctx = Context::default();
    let start = Start {
        image: Some(image.into()),
        function: Some(function.clone()),
        theme: Some(ThemeChoice::Dark),
        ..Start::default()
    };
    let app = App::new(&ctx, start, Library::builtin().unwrap());
    let mut bench = Bench {
        ctx,
        app,
        time: 0.0,
    };
    bench.until(|state| state.graph.scene.is_some() && state.functions.answered.is_some());
    let state = bench.app.state();
    let blocks = state.graph.scene.as_ref().unwrap().cfg.blocks.len();
    let functions = state.catalogue.as_ref().unwrap().len();
    bench.measure("nothing happens", |_| Vec::new());
    let graph = pos2(900.0, 350.0);
    bench.measure(
        &format!("zooming {function}, {blocks} blocks"),
        wheel(graph),
    );
    let list = pos2(120.0, 400.0);
    bench.measure(&format!("scrolling {functions} functions"), wheel(list));
    bench.app.state_mut().timeline.open(recording());
    bench.frame(Vec::new());
    let lanes = pos2(900.0, 900.0);
    let name = format!("zooming {} million samples on 8 lanes", SAMPLES / 1_000_000);
    bench.measure(&name, wheel(lanes));
    bench.app.end();
}
