//! Availability of commands in the current state.

use gilk_engine::cfg::BlockIndex;
use gilk_instruments::Stand;

use crate::args::Source;
use crate::command::Command;
use crate::state::{State, TargetState};

/// Returns whether a command is possible now.
pub(crate) fn possible(state: &State, command: &Command) -> bool {
    let graph = state.graph.scene.is_some();
    match command {
        Command::Question(question) => question.hindrance(state).is_none(),
        Command::Undo => state.document.can_undo(),
        Command::Redo => state.document.can_redo(),
        Command::Run => state.run_hindrance().is_none(),
        Command::Stop => state.run.active.is_some(),
        Command::FitGraph | Command::ActualSize | Command::NextBlock | Command::PreviousBlock => {
            graph
        }
        Command::ZoomIn | Command::ZoomOut | Command::MoveGraph(_) => graph,
        Command::Style(_)
        | Command::References
        | Command::FindInGraph
        | Command::FoldAll
        | Command::FoldCold
        | Command::ToggleListing
        | Command::ExportGraph => graph,
        Command::Hook(hook) => state.graph.selected.is_some_and(|block| {
            let scene = state.graph.scene.as_ref();
            scene.is_some_and(|scene| scene.hook(block, *hook).is_some())
        }),
        Command::FoldBlock => graph && state.graph.selected.is_some(),
        Command::FollowTaken | Command::FollowNotTaken => graph && state.graph.selected.is_some(),
        Command::AddInstrument => {
            let block = state.graph.selected;
            block.is_some_and(|block| has_hook(state, block)) && state.offer.refused().is_none()
        }
        Command::AddToEveryBlock => state
            .graph
            .scene
            .as_ref()
            .is_some_and(|scene| scene.hookable(state.draft.hook).next().is_some()),
        Command::CountFirst => crate::hit_count::possible(state),
        Command::AddToMatching => !state.functions.found.is_empty(),
        Command::RemoveHere => state.graph.selected.is_some_and(|block| {
            state.graph.scene.as_ref().is_some_and(|scene| {
                let count = |hook| state.hooked.count(scene.function(), block, hook);
                scene.hooks(block).map(count).sum::<usize>() > 0
            })
        }),
        Command::GoTo | Command::OpenNamed(..) => state.catalogue.is_some(),
        Command::SelectBlock(_) => graph,
        Command::RunProgram => state.document.session().workload.is_none(),
        Command::RemoveAll => !state.document.session().placements.is_empty(),
        Command::Back => state.history.available().0,
        Command::Forward => state.history.available().1,
        Command::ClearMarkers => state.timeline.markers.iter().any(Option::is_some),
        Command::AddToEntry | Command::AddToReturns | Command::Replace(_) => graph,
        Command::UseInstrument | Command::FormatInstrument => state.editor.name().is_some(),
        Command::SaveInstrument => state.editor.text.is_some(),
        Command::ExportRecording => {
            let record = state.timeline.record.as_ref();
            record.is_some_and(|record| record.now.is_none() && record.path.is_some())
                && state.exporting.is_none()
        }
        Command::StopExport => state.exporting.is_some(),
        Command::StopSources => state.lines.reading.is_some(),
        Command::StopReading => state.reading.is_some(),
        Command::MarkA | Command::MarkB | Command::Annotate | Command::FitTimeline => {
            state.timeline.record.is_some()
        }
        Command::CompareRecording => {
            let record = state.timeline.record.as_ref();
            record.is_some_and(|record| record.now.is_none() && record.path.is_some())
        }
        Command::StopComparing => state.statistics.comparison.is_some(),
        Command::PinLane | Command::ShowLane => {
            state.timeline.record.is_some() && state.timeline.chosen.is_some()
        }
        Command::FilterLanes
        | Command::FindSample
        | Command::NextSample
        | Command::PreviousSample => state.timeline.record.is_some(),
        Command::ShowSamples => {
            let here = state.graph.scene.as_ref().zip(state.graph.selected);
            here.is_some_and(|(scene, block)| state.timeline.measures(&scene.name, block))
        }
        Command::FollowLive => state
            .timeline
            .record
            .as_ref()
            .is_some_and(|record| record.now.is_some()),
        Command::Reconnect => state.source.is_some() && state.run.active.is_none(),
        Command::StartLab
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
        | Command::OpenKernel => {
            state.run.active.is_none() && !matches!(state.target, TargetState::Busy(_))
        }
        // Both are about kernels.
        Command::Tour | Command::RecordThreads => !state.shows_process(),
        Command::AddMachines => state.run.active.is_none(),
        Command::AddKernel => {
            let is_process = state.source.as_ref().is_some_and(Source::is_process);
            let is_process = is_process && !state.has_every();
            state.run.active.is_none() && is_process && state.machines.others.is_empty()
        }
        Command::ShowBeside => state.beside_hindrance().is_none(),
        Command::OpenLibrary => {
            state.run.active.is_none()
                && matches!(state.target, TargetState::Ready(_))
                && state.shown_process().is_some()
        }
        Command::OpenDebugInfo => state.catalogue.is_some(),
        Command::Disconnect => !matches!(state.target, TargetState::None | TargetState::Lost(_)),
        _ => true,
    }
}

/// Returns whether the inspector's instrument can be placed at the selected hook; some instruments
/// choose their place in the block or function themselves.
pub(crate) fn has_hook(state: &State, block: BlockIndex) -> bool {
    let definition = state.definition(&state.draft.instrument);
    if definition.is_none_or(|known| known.stand() != Stand::Hook) {
        return true;
    }
    let scene = state.graph.scene.as_ref();
    let hook = scene.and_then(|scene| scene.hook(block, state.draft.hook));
    hook.is_some_and(Result::is_ok)
}

/// Returns whether a command is a choice that is in effect now; `None` if it is not a choice.
pub(crate) fn ticked(state: &State, command: &Command) -> Option<bool> {
    let view = &state.timeline.view;
    Some(match command {
        Command::Stack(stack) => view.stack == *stack,
        Command::SortLanes(sort) => view.sort == *sort,
        Command::LaneAxis(axis) => view.axis == *axis,
        Command::HideEmptyLanes => view.hide_empty,
        Command::FollowLive => state.timeline.follow,
        Command::FoldCold => state.graph.folds_cold(),
        Command::ToggleListing => state.graph.listed,
        Command::Theme(look) => state.look == *look,
        Command::TogglePane(pane) => state.desk.sees(*pane),
        Command::Hook(hook) => state.draft.hook == *hook,
        Command::Style(style) => {
            let scene = state.graph.scene.as_ref();
            scene.is_some_and(|scene| state.document.session().style(&scene.name) == *style)
        }
        Command::RunProgram => state.document.session().workload.is_some(),
        _ => return None,
    })
}
