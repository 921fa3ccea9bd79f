//! Property test: any sequence of commands can be undone and redone.

use std::sync::Mutex;

use egui_kittest::Harness;
use gilk_engine::HookType;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::placement::Style;
use gilk_instruments::Library;
use proptest::prelude::*;

use crate::app::App;
use crate::args::Start;
use crate::command::{Command, Destination};
use crate::document::Document;
use crate::document::Note;

/// Returns whether a command can change the session. The match is exhaustive, so a new command must
/// be classified here.
fn edits(command: &Command) -> bool {
    match command {
        Command::AddInstrument
        | Command::AddToEveryBlock
        | Command::AddToMatching
        | Command::Put(..)
        | Command::Replace(_)
        | Command::AddToEntry
        | Command::AddToReturns
        | Command::CountPaths
        | Command::RecordThreads
        | Command::RunProgram
        | Command::UseInstrument
        | Command::RemoveHere
        | Command::MovePlacement(..)
        | Command::RemovePlacement(_)
        | Command::RemoveAll
        | Command::RemovePaths(_)
        | Command::Style(_)
        | Command::WriteNote(..)
        | Command::RemoveNote(_) => true,
        // Commands that replace the state or the document.
        Command::Undo
        | Command::Redo
        | Command::NewSession
        | Command::OpenSession
        | Command::Question(_)
        | Command::SaveSession
        | Command::SaveSessionAs
        | Command::DiscardAnd(_)
        | Command::SaveAnd(_)
        | Command::UsePath(..)
        | Command::Quit => false,
        // Commands that change the view.
        Command::CompareRecording
        | Command::StopComparing
        | Command::ShowLane
        | Command::NextPane
        | Command::PreviousPane
        | Command::SortLanes(_)
        | Command::LaneAxis(_)
        | Command::HideEmptyLanes
        | Command::PinLane
        | Command::FilterLanes
        | Command::FindSample
        | Command::NextSample
        | Command::PreviousSample
        | Command::FoldCold
        | Command::ToggleListing
        | Command::OpenRegion(_)
        | Command::Find
        | Command::FocusFilter
        | Command::FitGraph
        | Command::ActualSize
        | Command::ZoomIn
        | Command::ZoomOut
        | Command::MoveGraph(_)
        | Command::Back
        | Command::Forward
        | Command::NextBlock
        | Command::PreviousBlock
        | Command::FollowTaken
        | Command::FollowNotTaken
        | Command::Hook(_)
        | Command::FitTimeline
        | Command::FollowLive
        | Command::Stack(_)
        | Command::MarkA
        | Command::MarkB
        | Command::ClearMarkers
        | Command::Annotate
        | Command::ShowSamples
        | Command::ToggleTheme
        | Command::Theme(_)
        | Command::TogglePane(_)
        | Command::ResetLayout
        | Command::TileLayout
        | Command::ShowPalette
        | Command::GoTo
        | Command::References
        | Command::FindInGraph
        | Command::FoldBlock
        | Command::FoldAll
        | Command::ShowShortcuts
        | Command::Tour
        | Command::Manual
        | Command::GoToAddress(_)
        | Command::OpenFunction(_)
        | Command::OpenNamed(..)
        | Command::SelectBlock(_)
        | Command::OpenSource(_)
        | Command::Copy(..)
        | Command::Dismiss(_) => false,
        // Commands of the editor, whose text is part of the session only once it is used.
        Command::NewInstrument
        | Command::EditInstrument(_)
        | Command::OpenInstrument
        | Command::OpenNatives
        | Command::UseNatives
        | Command::SaveInstrument
        | Command::FormatInstrument => false,
        // Commands for files and targets.
        Command::OpenRecording
        | Command::ExportGraph
        | Command::ExportRecording
        | Command::StopExport
        | Command::StopSources
        | Command::StopReading
        | Command::SavePicture
        | Command::Run
        | Command::Stop
        | Command::CountFirst
        | Command::StartLab
        | Command::StartLabWith
        | Command::ChooseProcess
        | Command::OpenProcess(_)
        | Command::StartProgram
        | Command::ChooseProcessInCache
        | Command::OpenProcessInCache(_)
        | Command::StartProgramInCache
        | Command::ChooseEvery
        | Command::ConnectHere
        | Command::ConnectSocket
        | Command::ConnectSsh
        | Command::AddMachines
        | Command::AddKernel
        | Command::ShowBeside
        | Command::ConnectMachine(_)
        | Command::LeaveMachine(_)
        | Command::OpenKernel
        | Command::OpenLibrary
        | Command::OpenDebugInfo
        | Command::Disconnect
        | Command::Reconnect => false,
    }
}

/// Generates commands of every kind that changes the session.
fn change() -> impl Strategy<Value = Command> {
    let hook = || prop_oneof![Just(HookType::Pre), Just(HookType::Post)];
    let block = || (0u32..6).prop_map(BlockIndex);
    let at = prop_oneof![
        (block(), hook()).prop_map(|(block, hook)| Destination::Hook(block, hook)),
        (block(), block()).prop_map(|(from, to)| Destination::Edge(from, to)),
        Just(Destination::Entry),
        Just(Destination::Returns),
        hook().prop_map(Destination::EveryBlock),
        Just(Destination::Matching),
    ];
    let name = prop::sample::select(vec!["timestamp", "counter", "branch", "elapsed", "none"]);
    let style = prop::sample::select(Style::ALL.to_vec());
    let note = (0u8..9, "[a-c]{0,2}").prop_map(|(at, text)| Note {
        at: f64::from(at),
        run: None,
        text,
    });
    prop_oneof![
        4 => (at, name).prop_map(|(at, name)| Command::Put(at, name.to_owned())),
        2 => prop::sample::select(vec![
            Command::AddInstrument,
            Command::AddToEveryBlock,
            Command::AddToMatching,
            Command::AddToEntry,
            Command::AddToReturns,
            Command::CountPaths,
            Command::RecordThreads,
            Command::RunProgram,
            Command::UseInstrument,
            Command::RemoveHere,
            Command::RemoveAll,
            Command::RemovePaths("kernel_clone".into()),
        ]),
        1 => (0usize..12).prop_map(Command::RemovePlacement),
        2 => (0usize..12, 0usize..12).prop_map(|(from, to)| Command::MovePlacement(from, to)),
        1 => style.prop_map(Command::Style),
        2 => (prop::option::of(0usize..4), note).prop_map(|(at, note)| Command::WriteNote(at, note)),
        1 => (0usize..4).prop_map(Command::RemoveNote),
    ]
}

/// Generates steps: mostly changes, and sometimes a selection, an undo or a redo.
fn step() -> impl Strategy<Value = Command> {
    prop_oneof![
        8 => change(),
        1 => (0u32..6).prop_map(|block| Command::SelectBlock(BlockIndex(block))),
        1 => prop::sample::select(vec![Command::Undo, Command::Redo]),
    ]
}

/// Opens the small image with a function in the graph and a text in the editor.
fn browsing() -> Harness<'static, App> {
    let image = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../engine/tests/data/fork.image"
    );
    let start = Start {
        image: Some(image.into()),
        function: Some("kernel_clone".into()),
        block: Some(0),
        ..Start::default()
    };
    let mut harness = Harness::builder().build_eframe(move |creation| {
        App::new(&creation.egui_ctx, start, Library::builtin().unwrap())
    });
    let began = std::time::Instant::now();
    while harness.state().state.graph.scene.is_none() {
        harness.step();
        assert!(began.elapsed().as_secs() < 60, "the function is not open");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    // A filter with few enough matches to instrument them all.
    harness.state_mut().state.functions.filter = "^mm".to_owned();
    while harness.state().state.functions.answered.as_deref() != Some("^mm") {
        harness.step();
    }
    harness.state_mut().edit_instrument(None);
    while harness.state().state.editor.name().is_none() {
        harness.step();
    }
    harness
}

#[test]
fn every_change_can_be_undone_and_redone() {
    let harness = Mutex::new(browsing());
    let seen = Mutex::new(std::collections::BTreeSet::new());
    let config = ProptestConfig::with_cases(128);
    proptest!(config, |(steps in prop::collection::vec(step(), 1..30))| {
        let mut harness = harness.lock().unwrap();
        let ctx = harness.ctx.clone();
        let app = harness.state_mut();
        app.replace_document(Document::new());
        for command in steps {
            let before = app.state.document.edited();
            app.execute(command.clone(), &ctx);
            let after = app.state.document.edited();
            if matches!(command, Command::Undo | Command::Redo) {
                continue;
            }
            if after == before {
                continue;
            }
            prop_assert!(edits(&command), "{:?} changes the session", command);
            seen.lock().unwrap().insert(command.name());
            app.execute(Command::Undo, &ctx);
            prop_assert_eq!(&app.state.document.edited(), &before, "{:?} undone", command);
            app.execute(Command::Redo, &ctx);
            prop_assert_eq!(&app.state.document.edited(), &after, "{:?} redone", command);
        }
        while app.state.document.redo() {}
        let last = app.state.document.edited();
        while app.state.document.undo() {}
        prop_assert_eq!(app.state.document.edited(), Document::new().edited());
        while app.state.document.redo() {}
        prop_assert_eq!(app.state.document.edited(), last);
    });
    // Each of them had an effect, except RecordThreads: this image lacks finish_task_switch.
    let seen = seen.into_inner().unwrap();
    let all = [
        Command::AddInstrument,
        Command::AddToEveryBlock,
        Command::AddToMatching,
        Command::AddToEntry,
        Command::AddToReturns,
        Command::CountPaths,
        Command::RunProgram,
        Command::UseInstrument,
        Command::RemoveHere,
        Command::RemoveAll,
        Command::Put(Destination::Entry, String::new()),
        Command::RemovePlacement(0),
        Command::MovePlacement(0, 0),
        Command::Style(Style::Whole),
        Command::WriteNote(None, Note::default()),
        Command::RemoveNote(0),
    ];
    for command in all {
        assert!(
            seen.contains(command.name()),
            "{} had no effect",
            command.name()
        );
    }
}

#[test]
fn commands_that_do_not_edit_leave_the_session_unchanged() {
    let mut harness = browsing();
    let ctx = harness.ctx.clone();
    let app = harness.state_mut();
    app.execute(Command::AddInstrument, &ctx);
    let before = app.state.document.changes();
    // Except those that replace the session or connect to a target.
    let looks = Command::listed().filter(|command| {
        !edits(command)
            && !matches!(
                command,
                Command::Undo
                    | Command::Redo
                    | Command::NewSession
                    | Command::Quit
                    | Command::StartLab
                    | Command::ConnectHere
                    | Command::Reconnect
                    | Command::Disconnect
            )
    });
    let mut count = 0;
    for command in looks {
        app.execute(command.clone(), &ctx);
        count += 1;
        assert_eq!(app.state.document.changes(), before, "{}", command.name());
    }
    assert!(count > 40, "{count}");
}
