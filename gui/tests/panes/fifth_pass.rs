//! Tasks of the window's fifth pass: a process chosen by keys, branches counted at their edges, a recording without its target.

use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::cfg::{BlockIndex, EdgeKind};
use gilk_engine::{HookType, InstrumentId};
use gilk_gui::args::Start;
use gilk_gui::graph::Scene;
use gilk_gui::state::Tour;
use gilk_gui::timeline::Record;
use gilk_samples::metadata::{Delivers, InstrumentInfo};
use gilk_samples::{Batch, Meaning, Sample};

use crate::processes::{Cat, read};
use crate::support::{
    Window, browsing, click, fill, press, record, run_command, scene, settle, until, window,
};

#[test]
fn enter_opens_the_first_process_and_its_own_functions_are_listed_first() {
    let cat = Cat::start();
    let mut harness = window(Start::default(), [1500.0, 950.0]);
    harness.state_mut().state_mut().tour = Some(Tour::default());
    run_command(&mut harness, "process…");
    until(&mut harness, "the processes are listed", |state| {
        let dialog = state.processes.as_ref();
        dialog.is_some_and(|dialog| matches!(dialog.listed, Some(Ok(_))))
    });
    // The command line of this process has the names of tests, and so most words.
    fill(&mut harness, "Filter of processes", "xqzxqz");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert!(harness.state().state().processes.is_some());
    fill(&mut harness, "Filter of processes", &cat.pid().to_string());
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert!(harness.state().state().processes.is_none());
    read(&mut harness);

    let state = harness.state().state();
    // Its steps are those of a kernel.
    assert!(state.tour.is_none() && state.shows_process());
    let catalogue = state.catalogue.as_ref().unwrap();
    let names: Vec<&str> = state
        .functions
        .found
        .iter()
        .map(|&id| catalogue.name(id).unwrap())
        .collect();
    let own = names.iter().take_while(|name| !name.contains(':')).count();
    assert!(own > 0 && own < names.len(), "{own} of {}", names.len());
    assert!(names[own..].iter().all(|name| name.contains(':')));
}

/// The positions at which the edges of a block's branch begin: taken, not taken.
fn starts(scene: &Scene, block: BlockIndex) -> Option<(f32, f32)> {
    let start = |kind| {
        let mut edges = scene.edges().zip(&scene.layout.routes);
        let (_, route) = edges.find(|(edge, _)| (edge.from, edge.kind) == (block, kind))?;
        Some(route.points.first()?.x)
    };
    Some((start(EdgeKind::Taken)?, start(EdgeKind::Fallthrough)?))
}

/// A run that counts the ways of a block's branch: 7,001 times taken, 12,001 times not.
fn with_ways(block: BlockIndex) -> Record {
    let first = record();
    let mut metadata = std::sync::Arc::unwrap_or_clone(first.metadata);
    metadata.instruments.clear();
    let mut samples = Vec::new();
    for (hook, hits) in [(HookType::Taken, 7001), (HookType::Untaken, 12_001)] {
        let id = InstrumentId::new(0, hook, block.0, 0).unwrap().pack();
        metadata.instruments.push(InstrumentInfo {
            id,
            label: format!("counter {hook} kernel_clone block {}", block.0),
            instrument: "counter".into(),
            meaning: Meaning::Count,
            unit: "hits".into(),
            launch: 0.0,
            splash: 10.0,
            placed: None,
            delivers: Delivers::Samples,
        });
        samples.push(Sample {
            id,
            value: hits,
            tsc: 1000,
        });
    }
    let run = Record::live("run.arrow".into(), metadata, 10.0);
    run.append(&Batch { cpu: 0, samples });
    run
}

/// The horizontal position of the pill of a way with so many hits.
fn pill(harness: &Window, block: BlockIndex, hits: &str) -> f32 {
    let name = format!("-hook of block {}: ", block.0);
    let mut named = harness.query_all_by_label_contains(&name);
    let pill = named.find(|node| {
        let label = node.accesskit_node().label();
        label.is_some_and(|label| label.ends_with(&format!(", {hits} hits")))
    });
    pill.unwrap_or_else(|| panic!("{hits}")).rect().center().x
}

#[test]
fn the_ways_of_a_branch_have_their_hits_at_the_side_of_their_edges() {
    let mut harness = browsing("kernel_clone");
    let scene = std::sync::Arc::clone(scene(&harness));
    let blocks: Vec<BlockIndex> = scene.ways.keys().copied().collect();
    let is_right = |block: &BlockIndex| {
        let (taken, untaken) = starts(&scene, *block)?;
        assert_eq!(scene.is_taken_to_the_right(*block), taken > untaken);
        Some(taken > untaken)
    };
    for side in [true, false] {
        let block = blocks.iter().find(|block| is_right(block) == Some(side));
        let block = *block.expect("a function has branches to both sides");
        let state = harness.state_mut().state_mut();
        state.timeline.open(with_ways(block));
        state.graph.select(block);
        settle(&mut harness);
        harness.run_steps(10);
        let (taken, untaken) = (
            pill(&harness, block, "7,001"),
            pill(&harness, block, "12,001"),
        );
        assert_eq!(taken > untaken, side, "block {}", block.0);
        // The graph has them, too.
        let heat = harness.state().state().graph.heat.as_ref().unwrap();
        assert_eq!(heat.way(block, HookType::Taken), Some(7001));
        for (kind, hits) in [(EdgeKind::Taken, 7001), (EdgeKind::Fallthrough, 12_001)] {
            let mut edges = scene.edges();
            let edge = edges.find(|edge| (edge.from, edge.kind) == (block, kind));
            assert_eq!(heat.edge(&scene.cfg, edge.unwrap()), Some(hits));
        }
    }
}

#[test]
fn a_function_of_a_recording_without_its_target_is_refused_with_the_reason() {
    let mut harness = window(Start::default(), [1500.0, 950.0]);
    harness.state_mut().state_mut().timeline.open(record());
    click(&mut harness, "Statistics tab");
    until(&mut harness, "the table is computed", |state| {
        !state.statistics.rows.is_empty()
    });
    harness.run_steps(3);
    harness
        .get_by_label_contains("kernel_clone timestamp: 305")
        .click();
    harness.run_steps(3);
    click(&mut harness, "Open function");
    let notices = &harness.state().state().notices;
    let words = notices.last().map(|one| one.words.as_str());
    assert_eq!(
        words,
        Some(
            "kernel_clone cannot be shown while no process or kernel is open. Open the one that was measured from the \
             Target menu."
        )
    );
}
