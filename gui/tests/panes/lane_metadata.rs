//! Metadata of a recording as planned for a kernel, and the lanes that the timeline derives from
//! it.

use crate::support::catalogue;
use egui_kittest::Harness;
use egui_kittest::kittest::{AccessKitNode, By, NodeT as _, Queryable};
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::session::Placement;
use gilk_engine::{Addr, HookType, InstrumentId, Session};
use gilk_gui::theme;
use gilk_gui::timeline::{self, Record, Timeline};
use gilk_instruments::Library;
use gilk_samples::index::Index;
use gilk_samples::metadata::{Clock, InstrumentInfo, Metadata};
use gilk_samples::totals::{Total, TotalValue};
use ilk_driver::client::{self, TargetInfo};

/// Returns the metadata of a recording with these instruments at these functions.
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
        boot: String::new(),
    };
    let clock = Clock {
        hz: info.tsc_hz,
        ..Clock::default()
    };
    client::metadata(&plan, &session, &info, clock).unwrap()
}

/// Returns the accessibility names of the lanes shown.
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
fn instruments_without_samples_have_no_empty_lane() {
    let metadata = described(&[
        ("elapsed", "kernel_clone"),
        ("elapsed-histogram", "kernel_clone"),
        ("caller", "kernel_clone"),
        ("counter", "kernel_clone"),
    ]);
    let instruments = metadata.instruments.len();
    let live = || {
        let record = Record::live("recordings/a.arrow".into(), metadata.clone(), 9.0);
        record
            .index
            .replace(Index::new().by_thread_and_level(&metadata));
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
        ["lane elapsed-histogram of kernel_clone: aggregates only; shown when the run has ended"]
    );
    assert_eq!(
        of("caller"),
        ["lane caller of kernel_clone: no samples: supports another instrument"]
    );
    assert_eq!(of("counter").len(), 1);
    // Elapsed samples at the function's returns, and never at its entry.
    let elapsed = of("elapsed");
    assert!(!elapsed.is_empty(), "{shown:?}");
    assert!(
        elapsed
            .iter()
            .all(|lane| lane.starts_with("lane elapsed post ")),
        "{elapsed:?}"
    );

    // After the run its total is shown.
    let mut ended = live();
    ended.now = None;
    ended.totals = vec![Total {
        placement: 1,
        instrument: "elapsed-histogram".into(),
        name: "ticks".into(),
        unit: "ticks".into(),
        may_be_zero: false,
        value: TotalValue::Values(vec![(3, 4), (5, 6)], 2),
    }];
    let expected = String::from("lane elapsed-histogram of kernel_clone: @ticks: 12 values");
    let shown = lanes(ended);
    assert!(shown.contains(&expected), "{shown:?}");
}

#[test]
fn samples_after_a_tail_call_name_the_function_of_their_placement() {
    // It ends by a jump to another function, whose returns end its calls.
    let metadata = described(&[("elapsed", "mmput"), ("elapsed", "__mmput")]);
    let of = |placement: u32| {
        let placed = metadata.instruments.iter();
        placed.filter(move |info| info.placed.as_ref().unwrap().placement == placement)
    };
    let place = |info: &InstrumentInfo| {
        let id = InstrumentId::unpack(info.id).unwrap();
        let mut functions = metadata.functions.iter();
        let function = functions.find(|one| one.major == id.major).unwrap();
        format!("{} {} block {}", id.hook, function.name, id.block)
    };
    let elsewhere: Vec<_> = of(0).filter(|info| info.is_elsewhere()).collect();
    assert!(!elsewhere.is_empty());
    for info in of(0) {
        let site = place(info);
        let label = match info.is_elsewhere() {
            true => format!("elapsed of mmput, {site}"),
            false => format!("elapsed {site}"),
        };
        assert_eq!(info.label, label);
        assert_eq!(site.contains("__mmput"), info.is_elsewhere(), "{site}");
        assert_eq!(info.placed.as_ref().unwrap().function, "mmput");
    }
    assert!(of(1).all(|info| info.label == format!("elapsed {}", place(info))));
    // Labels are distinct where both sample at the same return.
    let mut labels: Vec<&str> = metadata
        .instruments
        .iter()
        .filter(|info| info.delivers.is_samples())
        .map(|info| &*info.label)
        .collect();
    labels.sort_unstable();
    assert!(
        labels.windows(2).all(|pair| pair[0] != pair[1]),
        "{labels:?}"
    );
    let record = Record::live("recordings/a.arrow".into(), metadata.clone(), 9.0);
    let shown = lanes(record);
    let sampling = elsewhere.iter().find(|info| info.delivers.is_samples());
    let expected = format!("lane {}: 0", sampling.unwrap().label);
    assert!(shown.contains(&expected), "{expected} not in {shown:?}");
}
