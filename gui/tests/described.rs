//! What a recording says of what was placed, as planned for a kernel, and the lanes that come of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use egui_kittest::Harness;
use egui_kittest::kittest::{AccessKitNode, By, NodeT as _, Queryable};
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::session::Placement;
use gilk_engine::{Addr, HookType, Session};
use gilk_gui::theme;
use gilk_gui::timeline::{self, Record, Timeline};
use gilk_instruments::Library;
use gilk_samples::index::Index;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::totals::{Summary, Total};
use ilk_driver::client::{self, TargetInfo};
use support::catalogue;

/// What a recording says of these instruments at these functions.
fn described(placements: &[(&str, &str)]) -> Metadata {
    let catalogue = catalogue();
    let layout = RuntimeLayout::supposed(Addr(0xffff_ffff_c100_0000));
    let placement = |&(instrument, function): &(&str, &str)| Placement {
        function: function.into(),
        block: 0,
        hook: HookType::Pre,
        instrument: instrument.into(),
        launch: 0.0,
        splash: 9.0,
        timer: 0,
    };
    let session = Session {
        duration: 9.0,
        placements: placements.iter().map(placement).collect(),
        ..Session::empty()
    };
    let library = Library::builtin().unwrap();
    let plan = gilk_engine::plan::plan(catalogue.image(), &session, &library, &layout).unwrap();
    let info = TargetInfo {
        host: "here".into(),
        release: plan.release.clone(),
        cpus: 2,
        tsc_hz: 1_000_000_000,
        layout,
        runs_programs: false,
    };
    let clock = Clock {
        hz: info.tsc_hz,
        ..Clock::default()
    };
    client::metadata(&plan, &session, &info, clock).unwrap()
}

/// The lanes that the window shows, by what they are called.
fn lanes(record: Record) -> Vec<String> {
    let mut timeline = Timeline::default();
    timeline.open(record);
    let mut harness = Harness::builder()
        .with_size([1000.0, 600.0])
        .build_ui(move |ui| {
            theme::install(ui.ctx(), theme::Colours::Dark);
            timeline::view::show(ui, &mut timeline, &[], None, &mut Vec::new());
        });
    harness.run_steps(4);
    let called = |node: &AccessKitNode<'_>| node.label().or_else(|| node.value());
    let is_lane =
        |node: &AccessKitNode<'_>| called(node).is_some_and(|label| label.starts_with("lane "));
    let nodes = harness.query_all(By::new().predicate(is_lane));
    nodes
        .filter_map(|node| called(&node.accesskit_node()))
        .collect()
}

#[test]
fn what_samples_nothing_has_no_empty_lane() {
    let metadata = described(&[
        ("elapsed", "kernel_clone"),
        ("elapsed-histogram", "kernel_clone"),
        ("caller", "kernel_clone"),
        ("counter", "kernel_clone"),
    ]);
    let instruments = metadata.instruments.len();
    let live = || {
        let record = Record::live("recordings/a.arrow".into(), metadata.clone(), 9.0);
        record.index.replace(Index::new().telling(&metadata));
        record
    };
    let shown = lanes(live());
    assert!(shown.len() < instruments, "{shown:?} of {instruments}");
    let of = |instrument: &str| {
        let start = format!("lane {instrument} ");
        let own = shown.iter().filter(|lane| lane.starts_with(&start));
        own.map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(
        of("elapsed-histogram"),
        ["lane elapsed-histogram of kernel_clone: adds up, and is told when the run has ended"]
    );
    assert_eq!(
        of("caller"),
        ["lane caller of kernel_clone: samples nothing: it is there for other instruments"]
    );
    assert_eq!(of("counter").len(), 1);
    // It is told where the function returns, and never where it is entered.
    let elapsed = of("elapsed");
    assert!(!elapsed.is_empty(), "{shown:?}");
    assert!(
        elapsed
            .iter()
            .all(|lane| lane.starts_with("lane elapsed post ")),
        "{elapsed:?}"
    );

    // When the run has ended it is told what it came to.
    let mut ended = live();
    ended.now = None;
    ended.totals = vec![Total {
        placement: 1,
        instrument: "elapsed-histogram".into(),
        name: "ticks".into(),
        unit: "ticks".into(),
        value: Summary::Values(vec![(3, 4), (5, 6)], 2),
    }];
    let told = String::from("lane elapsed-histogram of kernel_clone: @ticks: 12 values");
    let shown = lanes(ended);
    assert!(shown.contains(&told), "{shown:?}");
}
