//! The tour, whose steps complete when the user has done them.

use egui::accesskit::Role;
use egui::{Align, Frame, Layout, Panel, RichText, Ui};
use gilk_engine::cfg::BlockIndex;

use crate::availability::possible;
use crate::command::Command;
use crate::state::{State, TargetState};
use crate::theme::{Tokens, space};
use crate::widgets;

/// A step: what to do, why, a test for its completion, and a command that does it.
struct Step {
    title: &'static str,
    words: &'static str,
    done: fn(&State) -> bool,
    offer: Option<fn() -> (&'static str, Command)>,
}

/// The function of the tour, which every start of a program calls.
const FUNCTION: &str = "kernel_clone";

const STEPS: [Step; 7] = [
    Step {
        title: "Connect to a kernel",
        words: "The lab runs a stock kernel in a virtual machine and does not touch this computer. The Target menu also connects to this machine or to others over ssh, and opens kernel files to browse and plan on.",
        done: |state| matches!(state.target, TargetState::Ready(_)),
        offer: Some(|| ("Start the lab", Command::StartLab)),
    },
    Step {
        title: "Open a function",
        words: "Type a few letters of its name in the list on the left and press Enter: kclone finds kernel_clone, which every new process calls. G goes to an address.",
        done: |state| state.graph.scene.is_some(),
        offer: Some(|| ("Open kernel_clone", open_block(None))),
    },
    Step {
        title: "Select a block",
        words: "Click a block in the graph. Its bar shows whether it can be hooked before (upper half) and after (lower half); if not, the inspector names the rule. T and F follow branches, X lists callers.",
        done: |state| state.graph.selected.is_some(),
        offer: Some(|| ("First block", Command::SelectBlock(BlockIndex(0)))),
    },
    Step {
        title: "Add an instrument",
        words: "Choose an instrument in the inspector and add it. The Patch tab previews what will be written; the Schedule tab shows the time from launch to splash.",
        done: |state| !state.document.session().placements.is_empty(),
        offer: Some(|| ("Add instrument", Command::AddInstrument)),
    },
    Step {
        title: "Give the kernel work",
        words: "An idle kernel calls few functions. Tick \u{201c}run\u{201d} in the session: the program runs during the session. /bin/pulsar of the lab forks 160 times.",
        done: |state| state.document.session().workload.is_some(),
        offer: Some(|| ("Run a program", Command::RunProgram)),
    },
    Step {
        title: "Run",
        words: "F5 runs the session, whose plan is already verified. The progress is in the bar above.",
        done: |state| state.run.active.is_some() || state.run.last.is_some(),
        offer: Some(|| ("Run session", Command::Run)),
    },
    Step {
        title: "View the samples",
        words: "Every instrument has a lane on the timeline, and blocks show their hit counts. W, A, S and D zoom and pan; Shift and drag measures a range; a click on a lane goes to its block.",
        done: |state| {
            let record = state.timeline.record.as_ref();
            record.is_some_and(|record| record.index.look().samples() > 0)
        },
        offer: None,
    },
];

fn open_block(block: Option<BlockIndex>) -> Command {
    Command::OpenNamed(FUNCTION.to_owned(), block)
}

/// Draws the current step below the menus, where it covers nothing that it names.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    // Its steps are those of a kernel.
    if state.shows_process() {
        state.tour = None;
    }
    let Some(mut tour) = state.tour else {
        return;
    };
    while STEPS.get(tour.step).is_some_and(|step| (step.done)(state)) {
        tour.step += 1;
    }
    state.tour = Some(tour);
    let tokens = Tokens::of(ui);
    let frame = Frame::NONE
        .fill(tokens.accent_fill)
        .inner_margin(space::margins(space::PANEL, space::SMALL));
    let mut open = true;
    Panel::top("tour").frame(frame).show(ui, |ui| {
        let (title, words, offer) = match STEPS.get(tour.step) {
            Some(step) => {
                let title = format!("{} of {}: {}", tour.step + 1, STEPS.len(), step.title);
                (title, step.words, step.offer)
            }
            None => (
                "Done".to_owned(),
                "You have measured a running kernel. Save the session with Ctrl+S; the recording is already on disk. Ctrl+Shift+P finds every command, ? lists the shortcuts, F1 opens the manual.",
                None,
            ),
        };
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let label = if tour.step < STEPS.len() { "Skip the tour" } else { "End the tour" };
            open &= !ui.button(label).clicked();
            if let Some((label, command)) = offer.map(|offer| offer()) {
                let enabled = possible(state, &command);
                let response = ui.add_enabled(enabled, egui::Button::new(label));
                if widgets::named(response, Role::Button, &format!("tour: {label}")).clicked() {
                    commands.push(command);
                }
            }
            ui.with_layout(Layout::top_down(Align::Min), |ui| {
                let heading = ui.label(RichText::new(&title).heading().color(tokens.strong));
                widgets::named(heading, Role::Heading, &format!("tour {title}"));
                ui.add(egui::Label::new(RichText::new(words).color(tokens.text)).wrap());
            });
        });
    });
    if !open {
        state.tour = None;
    }
}
