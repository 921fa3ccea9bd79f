//! The timeline, targets and help, by accessibility names.

use std::sync::Arc;

use crate::support::{
    Window, browsing, click, fill, press, record, run_command, settle, until, window,
};
use egui::{Key, Modifiers, Pos2, vec2};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::cfg::BlockIndex;
use gilk_gui::args::Start;
use gilk_gui::state::TargetState;
use gilk_gui::timeline::Record;
use gilk_instruments::program::{Bucket, Summary as Aggregated};
use gilk_samples::chart::totals;
use gilk_samples::metadata::Metadata;
use gilk_samples::recording::{Loss, LossCause, Writer};
use gilk_samples::{Batch, Meaning, Sample};
use ilk_driver::client::{AggregateSummary, InstrumentSummary, Prediction, RunHits, Summary};

/// Width of the lanes' scale in points.
const SCALE: f32 = 92.0;

/// Opens a window with a run on its timeline.
fn looking() -> Window {
    let mut harness = browsing("kernel_clone");
    harness.state_mut().state_mut().timeline.open(record());
    harness.run_steps(3);
    harness
}

/// Ends the run.
fn end(harness: &mut Window) {
    let timeline = &mut harness.state_mut().state_mut().timeline;
    timeline.record.as_mut().unwrap().now = None;
}

/// A run of a second on two CPUs: durations of `a` on both, 500 and 1600 of them, and events of `b`
/// on the second.
fn two_cpus() -> Record {
    let record = record();
    let info = &record.metadata.instruments;
    let (mut a, mut b) = (info[0].clone(), info[1].clone());
    (a.instrument, a.label, a.meaning) =
        ("elapsed".into(), "elapsed of a".into(), Meaning::Duration);
    (b.instrument, b.label) = ("clock".into(), "clock of b".into());
    let metadata = Metadata {
        instruments: vec![a.clone(), b.clone()],
        ..Metadata::clone(&record.metadata)
    };
    let mut record = Record::live("two.arrow".into(), metadata, 1.0);
    let sample = |id, tsc, value| Sample { id, value, tsc };
    let times = |count: u64| (0..count).map(move |hit| (1_000_000 / count * hit, 100 + hit));
    let batch = |cpu, samples| Batch { cpu, samples };
    let first = times(500).map(|(tsc, value)| sample(a.id, tsc, value));
    let mut second: Vec<Sample> = times(1600)
        .map(|(tsc, value)| sample(a.id, tsc, value))
        .collect();
    second.extend(times(60).map(|(tsc, _)| sample(b.id, tsc, 0)));
    second.sort_by_key(|sample| sample.tsc);
    record.append(&batch(0, first.collect()));
    record.append(&batch(1, second));
    record.now = None;
    record
}

/// Returns the position of a time in the lane of `label`.
fn at(harness: &Window, seconds: f64, label: &str) -> Pos2 {
    let canvas = harness.get_by_label("Timeline").rect();
    let name = harness
        .get_by_label_contains(&format!("lane {label}"))
        .rect();
    let range = harness.state().state().timeline.range;
    let share = ((seconds - range.start) / range.width()) as f32;
    egui::pos2(
        // The scale of the lanes is to the right of their samples.
        name.right() + share * (canvas.right() - SCALE - name.right()),
        name.center().y,
    )
}

#[test]
fn statistics_cover_the_range_between_the_markers() {
    let mut harness = looking();
    let label = "timestamp pre kernel_clone block 0";
    for (seconds, key) in [(0.1, Key::OpenBracket), (0.2, Key::CloseBracket)] {
        let place = at(&harness, seconds, label);
        harness.hover_at(place);
        harness.run_steps(3);
        press(&mut harness, Modifiers::NONE, key);
    }
    let (a, b) = harness.state().state().timeline.span().unwrap();
    assert!((a - 0.1).abs() < 0.02 && (b - 0.2).abs() < 0.02, "{a} {b}");
    let index = harness
        .state()
        .state()
        .timeline
        .record
        .as_ref()
        .unwrap()
        .index
        .look();
    let clock = harness
        .state()
        .state()
        .timeline
        .record
        .as_ref()
        .unwrap()
        .metadata
        .clock;
    let id = harness
        .state()
        .state()
        .timeline
        .record
        .as_ref()
        .unwrap()
        .lanes()[0]
        .id;
    let count = index.total(id, clock.tsc(a), clock.tsc(b)).count;
    drop(index);
    assert!(count > 60, "one per millisecond: {count}");
    harness.get_by_label(&format!("{label}: {count} between A and B"));
    harness.get_by_label_contains("marker A at 0.");
    click(&mut harness, "Clear markers");
    assert_eq!(harness.state().state().timeline.markers, [None; 2]);
}

#[test]
fn shift_and_drag_selects_a_range_and_does_not_pan() {
    let mut harness = looking();
    let label = "timestamp pre kernel_clone block 0";
    let range = harness.state().state().timeline.range;
    let (from, to) = (at(&harness, 2.0, label), at(&harness, 5.0, label));
    let button = |pos, pressed| egui::Event::PointerButton {
        pos,
        button: egui::PointerButton::Primary,
        pressed,
        modifiers: Modifiers::SHIFT,
    };
    harness.event(egui::Event::ModifiersChanged(Modifiers::SHIFT));
    harness.event(button(from, true));
    harness.run_steps(2);
    harness.hover_at(from.lerp(to, 0.5));
    harness.run_steps(2);
    harness.hover_at(to);
    harness.run_steps(2);
    harness.event(button(to, false));
    harness.run_steps(2);
    harness.event(egui::Event::ModifiersChanged(Modifiers::NONE));
    harness.run_steps(2);
    let timeline = &harness.state().state().timeline;
    let (a, b) = timeline.span().unwrap();
    assert!((a - 2.0).abs() < 0.05 && (b - 5.0).abs() < 0.05, "{a} {b}");
    assert_eq!(timeline.range, range);
}

#[test]
fn lanes_can_be_ordered_by_instrument_and_by_cpu() {
    let mut harness = looking();
    harness.state_mut().state_mut().timeline.open(two_cpus());
    harness.run_steps(3);
    let top = |harness: &Window, name: &str| harness.get_by_label_contains(name).rect().top();
    let (first, second) = ("lane elapsed of a: 2100", "lane clock of b: 60");
    assert!(top(&harness, first) < top(&harness, second));
    click(&mut harness, "lanes by instrument");
    assert!(top(&harness, first) > top(&harness, second));
    click(&mut harness, "lanes by CPU");
    let lanes = [
        "lane elapsed of a on CPU 0: 500",
        "lane clock of b on CPU 1: 60",
    ];
    assert!(top(&harness, lanes[0]) < top(&harness, lanes[1]));
    // By the palette too.
    run_command(&mut harness, "lanes in session order");
    harness.run_steps(2);
    harness.get_by_label(second);
}

/// Returns the names of the lanes in view, from the top.
fn lanes(harness: &Window) -> Vec<String> {
    let lanes = harness.query_all_by_label_contains("lane ");
    let mut lanes: Vec<(f32, String)> = lanes
        .filter_map(|node| {
            let node_text = node.accesskit_node();
            let label = node_text.label().or_else(|| node_text.value())?;
            let name = label.strip_prefix("lane ")?.to_owned();
            Some((node.rect().top(), name))
        })
        .collect();
    lanes.sort_by(|a, b| a.0.total_cmp(&b.0));
    lanes.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn lanes_are_filtered_sorted_pinned_and_grouped() {
    let mut harness = looking();
    end(&mut harness);
    let (first, second) = (
        "timestamp pre kernel_clone block 0: 300",
        "timestamp pre kernel_clone block 2: 5",
    );
    assert_eq!(lanes(&harness), [first, second]);
    harness.get_by_label("shown: 2 lanes");

    // The second is pinned by its name's button.
    let name = harness.get_by_label(&format!("lane {second}")).rect();
    harness.hover_at(name.center());
    harness.run_steps(3);
    click(&mut harness, "pin timestamp pre kernel_clone block 2");
    assert_eq!(lanes(&harness), [second, first]);
    fill(&mut harness, "Filter lanes", "block 9");
    assert_eq!(lanes(&harness), [second]);
    harness.get_by_label("shown: 1 of 2 lanes");
    fill(&mut harness, "Filter lanes", "CLONE block 0");
    assert_eq!(lanes(&harness), [second, first]);
    let name = harness.get_by_label(&format!("lane {second}")).rect();
    harness.hover_at(name.center());
    harness.run_steps(3);
    click(&mut harness, "release timestamp pre kernel_clone block 2");
    assert_eq!(lanes(&harness), [first]);
    fill(&mut harness, "Filter lanes", " ");

    // A group folds.
    run_command(&mut harness, "lanes by function");
    click(&mut harness, "fold kernel_clone: 2 lanes");
    assert_eq!(lanes(&harness), [""; 0]);
    click(&mut harness, "unfold kernel_clone: 2 lanes");
    assert_eq!(lanes(&harness).len(), 2);
}

#[test]
fn lanes_with_many_values_are_heat_maps() {
    let mut harness = looking();
    harness.state_mut().state_mut().timeline.open(two_cpus());
    click(&mut harness, "lanes by CPU");
    // 500 are drawn one by one, 1600 are not.
    harness.get_by_label("lane elapsed of a on CPU 0: 500");
    harness.get_by_label_contains("lane elapsed of a on CPU 1: 1600, heat map of up to ");
}

#[test]
fn totals_are_shown_next_to_the_lanes_and_can_be_hidden() {
    let mut harness = looking();
    let total = |name: &str, unit: &str, value| AggregateSummary {
        placement: 0,
        instrument: "sizes".into(),
        name: name.into(),
        unit: unit.into(),
        may_be_zero: true,
        value,
    };
    let bucket = |from, to, count| Bucket {
        from: Some(from),
        to: Some(to),
        count,
    };
    let buckets = vec![
        bucket(0, 0, 0),
        bucket(256, 511, 12),
        bucket(512, 1023, 0),
        bucket(1024, 2047, 3000),
        bucket(2048, 4095, 0),
    ];
    let mut record = record();
    record.totals = vec![
        total("lengths", "bytes", Aggregated::Buckets(buckets)),
        total("sum", "", Aggregated::Number(-1234)),
        total("seen", "", Aggregated::Values(vec![(7, 41), (9, 1)], 5)),
    ];
    harness.state_mut().state_mut().timeline.open(record);
    harness.run_steps(3);
    for name in [
        "@lengths of sizes: 256 bytes to 511 bytes: 12",
        "@lengths of sizes: 512 bytes to 1,023 bytes: 0",
        "@lengths of sizes: 1,024 bytes to 2,047 bytes: 3,000",
        "@sum of sizes: -1,234",
        "@seen of sizes: 7: 41",
        "@seen of sizes: other values: 5",
    ] {
        harness.get_by_label(name);
    }
    let empty = "@lengths of sizes: 2,048 bytes to 4,095 bytes: 0";
    assert!(harness.query_by_label(empty).is_none());
    click(&mut harness, "Hide totals");
    assert!(harness.query_by_label("@sum of sizes: -1,234").is_none());
}

#[test]
fn fit_shows_the_recorded_range_then_the_whole_session() {
    let mut harness = looking();
    end(&mut harness);
    let (first, last) = (0.001, 0.3);
    click(&mut harness, "Fit timeline");
    let range = harness.state().state().timeline.range;
    assert!(range.start < first && range.end > last, "{range:?}");
    assert!(range.width() < 1.1 * (last - first), "{range:?}");
    click(&mut harness, "Fit timeline");
    let range = harness.state().state().timeline.range;
    assert!(range.start < 0.0 && range.end > 10.0, "{range:?}");
}

#[test]
fn the_cost_of_an_instrument_is_predicted_from_hit_counts() {
    let mut harness = looking();
    click(&mut harness, "block 0 of kernel_clone");
    harness.get_by_label("Count hits first");
    until(&mut harness, "the draft is planned", |state| {
        matches!(state.preview.outcome, Some(Ok(_)))
    });
    harness.run_steps(2);
    // 300 hits in ten seconds.
    end(&mut harness);
    harness.run_steps(2);
    harness.get_by_label_contains("A second of that run, with timestamp: ");
}

/// The terminal predicts the cost of the same placement from the same hits.
#[test]
fn the_window_and_the_terminal_have_one_estimate_of_a_cost() {
    let mut harness = looking();
    click(&mut harness, "block 0 of kernel_clone");
    until(&mut harness, "the draft is planned", |state| {
        matches!(state.preview.outcome, Some(Ok(_)))
    });
    end(&mut harness);
    harness.run_steps(2);
    let state = harness.state().state();
    let plan = Arc::clone(state.preview.outcome.as_ref().unwrap().as_ref().unwrap());
    let (plan, place) = (plan.plan(), state.document.session().placements.len());
    let drafted = plan.instruments.iter().find(|one| one.placement == place);
    let drafted = drafted.unwrap();
    let counted = Summary {
        instruments: vec![InstrumentSummary {
            id: drafted.id.pack(),
            label: String::new(),
            samples: 0,
            total: Some(300),
        }],
        ..Summary::default()
    };
    let prediction = Prediction::of(plan, &counted, 10.0);
    let mut alone = plan.clone();
    alone.instruments.retain(|one| one.placement == place);
    let run = RunHits {
        instruments: &counted.instruments,
        taken: 0,
        lost: 0,
        seconds: 10.0,
    };
    let mut cost = prediction.compare(&alone, &run);
    assert_eq!(cost.estimated.hits, 300.0);
    let lasts = drafted.splash - drafted.launch;
    cost.predicted.hits /= lasts;
    cost.predicted.seconds /= lasts;
    assert!(cost.predicted.seconds > 0.0, "{cost:?}");
    cost.planned_for = 1.0;
    let lines = totals::cost(&cost);
    let (_, predicted) = lines[0].split_once(" of counting: ").unwrap();
    let predicted = predicted.trim_end_matches('.');
    assert!(predicted.starts_with("30 hits, "), "{predicted}");
    harness.get_by_label(&format!(
        "A second of that run, with timestamp: {predicted}"
    ));
}

#[test]
fn a_click_on_a_lane_opens_its_block() {
    let mut harness = looking();
    let place = at(&harness, 4.0, "timestamp pre kernel_clone block 2");
    harness.drag_at(place);
    harness.run_steps(1);
    harness.drop_at(place);
    harness.run_steps(3);
    settle(&mut harness);
    assert_eq!(harness.state().state().graph.selected, Some(BlockIndex(2)));
}

#[test]
fn notes_are_saved_in_the_sidecar_of_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("noted.ron");
    let mut harness = looking();
    let place = at(&harness, 3.0, "timestamp pre kernel_clone block 0");
    harness.hover_at(place);
    harness.run_steps(2);
    press(&mut harness, Modifiers::NONE, Key::B);
    harness.get_by_label("Note").type_text("here it slows down");
    harness.run_steps(2);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    harness.get_by_label("note: here it slows down");
    assert!(harness.state().state().document.unsaved());
    // The layout is saved with it.
    run_command(&mut harness, "functions pane");
    assert!(harness.query_by_label("Filter functions").is_none());
    press(&mut harness, Modifiers::COMMAND, Key::S);
    fill(&mut harness, "Path", &path.display().to_string());
    click(&mut harness, "Save");
    until(&mut harness, "it is saved", |state| {
        state.document.path().is_some()
    });

    let mut again = browsing("kernel_clone");
    again.state_mut().state_mut().timeline.open(record());
    press(&mut again, Modifiers::COMMAND, Key::O);
    fill(&mut again, "Path", &path.display().to_string());
    click(&mut again, "Open");
    until(&mut again, "it is open", |state| {
        state.document.path().is_some()
    });
    again.run_steps(3);
    again.get_by_label("note: here it slows down");
    assert!(again.query_by_label("Filter functions").is_none());
    let note = &again.state().state().document.notes()[0];
    assert!((note.at - 3.0).abs() < 0.05);
}

#[test]
fn a_kernel_file_can_be_opened_from_the_menu() {
    let mut harness = window(Start::default(), [1400.0, 900.0]);
    harness.run_steps(3);
    run_command(&mut harness, "open kernel file");
    fill(
        &mut harness,
        "Path",
        &crate::support::image_path().display().to_string(),
    );
    harness.get_by_label("Open").click();
    until(&mut harness, "its functions are listed", |state| {
        state.catalogue.is_some() && matches!(state.target, TargetState::Offline)
    });
}

#[test]
fn a_machine_without_an_agent_is_reported_with_advice() {
    let mut harness = window(Start::default(), [1400.0, 900.0]);
    harness.run_steps(3);
    run_command(&mut harness, "connect to this machine");
    until(&mut harness, "no agent answers", |state| {
        matches!(state.target, TargetState::Lost(_))
    });
    harness.run_steps(3);
    let words = format!("No agent listens at {}", ilk_driver::agent::SOCKET);
    let mut said = harness.query_all_by_label_contains(&words);
    assert!(said.next().is_some());
    harness.get_by_label("target lost");
}

#[test]
fn an_unreachable_ssh_host_is_reported_with_the_message_of_ssh() {
    let mut harness = window(Start::default(), [1400.0, 900.0]);
    harness.run_steps(3);
    run_command(&mut harness, "connect over ssh");
    fill(&mut harness, "Path", "-oProxyCommand=true");
    harness.get_by_label("Connect").click();
    until(&mut harness, "it is refused", |state| {
        matches!(state.target, TargetState::Lost(_))
    });
    harness.run_steps(3);
    assert!(
        harness
            .query_all_by_label_contains("the host name is empty")
            .next()
            .is_some()
    );
}

#[test]
fn the_tour_can_be_skipped_and_the_manual_has_every_heading() {
    let folder = tempfile::tempdir().unwrap();
    let start = Start {
        state: Some(folder.path().to_owned()),
        ..Start::default()
    };
    let mut harness = window(start, [1400.0, 900.0]);
    harness.run_steps(3);
    harness.get_by_label("tour 1 of 7: Connect to a kernel");
    harness.get_by_label("tour: Start the lab");
    click(&mut harness, "Skip the tour");
    assert!(harness.state().state().tour.is_none());
    // F1 opens the manual.
    press(&mut harness, Modifiers::NONE, Key::F1);
    let manual = include_str!("../../src/manual.md");
    let headings: Vec<&str> = manual
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .collect();
    assert!(headings.contains(&"Targets") && headings.len() > 8);
    for heading in headings {
        harness.get_by_label(heading);
    }
    press(&mut harness, Modifiers::NONE, Key::F1);
    assert!(harness.query_by_label("Terms").is_none());
}

#[test]
fn dragging_pans_without_zooming() {
    let mut harness = looking();
    let before = harness.state().state().timeline.range;
    let place = at(&harness, 5.0, "timestamp pre kernel_clone block 0");
    harness.drag_at(place);
    harness.run_steps(2);
    harness.hover_at(place + vec2(60.0, 0.0));
    harness.run_steps(2);
    harness.drop_at(place + vec2(60.0, 0.0));
    harness.run_steps(2);
    let after = harness.state().state().timeline.range;
    assert!(after.start < before.start, "{before:?} {after:?}");
    assert!((after.width() - before.width()).abs() < 1e-9);
}

#[test]
fn a_loss_is_hatched_on_the_lanes_of_its_cpu_with_cause_and_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lossy.arrow");
    let recorded = record();
    let mut writer = Writer::create(&path, &recorded.metadata).unwrap();
    let id = recorded.lanes()[0].id;
    let sample = |place: u64| Sample {
        id,
        value: place,
        tsc: place * 10_000,
    };
    let samples = (0..500).map(sample).collect();
    writer.write(&Batch { cpu: 0, samples }).unwrap();
    let loss = |tsc, count| Loss {
        cpu: 0,
        tsc,
        cause: LossCause::RingFull,
        count,
    };
    // Readings a tenth of a second apart are one stretch.
    writer
        .losses(&[loss(5_100_000, 1000), loss(5_200_000, 234)])
        .unwrap();
    writer.finish().unwrap();
    let start = Start {
        recording: Some(path),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the recording is open", |state| {
        state.timeline.record.is_some()
    });
    harness.run_steps(3);
    let label = recorded.lanes()[0].label.as_str();
    let words = format!("1,234 hits lost within 200 ms: the ring of CPU 0 was full on {label}");
    let hatch = harness.get_by_label(&words).rect();
    assert!(hatch.width() > 3.0, "{hatch:?}");
    harness.hover_at(hatch.center());
    harness.run_steps(40);
    harness.get_by_label("1,234 hits lost within 200 ms: the ring of CPU 0 was full");
}

#[test]
fn the_table_has_a_row_per_instrument_and_function_and_is_sorted_limited_and_copied() {
    let mut harness = browsing("kernel_clone");
    harness.state_mut().state_mut().timeline.open(two_cpus());
    end(&mut harness);
    click(&mut harness, "Statistics tab");
    until(&mut harness, "the table is computed", |state| {
        state.statistics.rows.len() == 2
    });
    harness.run_steps(3);
    harness.get_by_label("kernel_clone elapsed: 2,100");
    harness.get_by_label("kernel_clone clock: 60");
    let first = |harness: &Window| {
        harness.state().state().statistics.shown()[0]
            .instrument
            .clone()
    };
    assert_eq!(first(&harness), "elapsed", "most samples first");
    let values = harness.state().state().statistics.shown()[0]
        .values
        .unwrap();
    // 500 values from 100 to 599 and 1600 from 100 to 1699.
    let sum = (0..500).chain(0..1600).map(|hit| 100 + hit).sum::<u64>();
    assert_eq!((values.sum, values.max), (sum as f64, 1699));
    let mut sorted: Vec<u64> = (0..500).chain(0..1600).map(|hit| 100 + hit).collect();
    sorted.sort_unstable();
    for (share, found) in [50, 90, 99].into_iter().zip(values.percentiles) {
        let exact = sorted[(sorted.len() * share).div_ceil(100) - 1];
        assert!(
            found >= exact && found - exact <= exact / 60,
            "p{share}: {found} for {exact}"
        );
    }
    assert_eq!(values.share, Some(sum as f64 / 1_000_000.0));
    click(&mut harness, "sort by count");
    assert_eq!(
        first(&harness),
        "clock",
        "the same column again is ascending"
    );
    click(&mut harness, "sort by function");
    fill(&mut harness, "Filter statistics", "elap");
    assert_eq!(harness.state().state().statistics.shown().len(), 1);
    // Only the first half of the run.
    harness.state_mut().state_mut().timeline.markers = [Some(0.0), Some(0.5)];
    until(&mut harness, "it is limited to the markers", |state| {
        state.statistics.shown()[0].count == 1050
    });
    harness.run_steps(2);
    harness.get_by_label("Copy CSV").click();
    harness.step();
    let copied = harness
        .output()
        .platform_output
        .commands
        .iter()
        .find_map(|one| match one {
            egui::OutputCommand::CopyText(text) => Some(text.clone()),
            _ => None,
        });
    let copied = copied.expect("a text was copied");
    let lines: Vec<&str> = copied.lines().collect();
    assert!(lines[0].starts_with("function,instrument,count,per second,sum,mean,p50,p90,p99,max"));
    assert!(
        lines.len() == 2 && lines[1].starts_with("kernel_clone,elapsed,1050,2100.0"),
        "{copied}"
    );
}
