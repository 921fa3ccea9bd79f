//! The tour, whose steps are done when they have happened, and the manual.

use egui::accesskit::Role;
use egui::{Align, Align2, Context, Frame, Id, Layout, RichText, ScrollArea, Window, vec2};

use crate::command::Command;
use crate::state::{State, TargetState};
use crate::theme::{Tokens, space};
use crate::widgets;

/// How far the tour is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tour {
    step: usize,
}

/// A step: what is to be done, why, whether it is done, and a command that does it.
struct Step {
    title: &'static str,
    words: &'static str,
    done: fn(&State) -> bool,
    offer: Option<(&'static str, Command)>,
}

const STEPS: [Step; 6] = [
    Step {
        title: "Get a kernel",
        words: "The lab is a stock kernel in a virtual machine: nothing on this computer is touched. The Target menu has this machine, others over ssh, and kernels on files, which can be looked at and planned on.",
        done: |state| matches!(state.target, TargetState::Ready(_)),
        offer: Some(("Start the lab", Command::StartLab)),
    },
    Step {
        title: "Open a function",
        words: "Type a few letters of its name in the list on the left and press Enter: kclone finds kernel_clone. G goes to an address.",
        done: |state| state.graph.scene.is_some(),
        offer: Some(("Find function", Command::FocusFilter)),
    },
    Step {
        title: "Choose a block",
        words: "Click one in the graph. Its bar says whether it can be hooked before (upper half) and after (lower half); if not, the inspector names the rule. T and F follow branches, X lists callers.",
        done: |state| state.graph.selected.is_some(),
        offer: Some(("First block", Command::NextBlock)),
    },
    Step {
        title: "Add an instrument",
        words: "Choose one in the inspector and add it. The Patch tab shows what will be written before it is; the Schedule tab has its bar from launch to splash.",
        done: |state| !state.document.session().placements.is_empty(),
        offer: Some(("Add instrument", Command::AddInstrument)),
    },
    Step {
        title: "Run",
        words: "F5 runs the session: its plan was verified when you made it. Tick \u{201c}run\u{201d} in the session if a program should make something happen meanwhile.",
        done: |state| state.run.active.is_some() || state.run.last.is_some(),
        offer: Some(("Run session", Command::Run)),
    },
    Step {
        title: "Look at the samples",
        words: "Every instrument has a lane on the timeline, and blocks show how often they were hit. W, A, S and D move; Shift and drag measures a range; a click on a lane goes to its block.",
        done: |state| {
            let record = state.timeline.record.as_ref();
            record.is_some_and(|record| record.index.look().samples() > 0)
        },
        offer: None,
    },
];

/// Draws the card of the step that is next.
pub(crate) fn show(ctx: &Context, state: &mut State, said: &mut Vec<Command>) {
    let Some(mut tour) = state.tour else {
        return;
    };
    while STEPS.get(tour.step).is_some_and(|step| (step.done)(state)) {
        tour.step += 1;
    }
    state.tour = Some(tour);
    let style = ctx.global_style();
    let frame = Frame::window(&style).inner_margin(14);
    let mut open = true;
    Window::new("tour")
        .id(Id::unique("tour"))
        .title_bar(false)
        .resizable(false)
        .frame(frame)
        .anchor(Align2::CENTER_BOTTOM, vec2(0.0, -52.0))
        .fixed_size(vec2(470.0, 120.0))
        .show(ctx, |ui| {
            let tokens = Tokens::of(ui);
            let (title, words, offer) = match STEPS.get(tour.step) {
                Some(step) => {
                    let title = format!("{} of {}: {}", tour.step + 1, STEPS.len(), step.title);
                    (title, step.words, step.offer.clone())
                }
                None => (
                    "That is all".to_owned(),
                    "You have measured a running kernel. Save the session with Ctrl+S; the recording is on disk already. Ctrl+Shift+P finds every command, ? lists the keys, F1 opens the manual.",
                    None,
                ),
            };
            let heading = ui.label(RichText::new(&title).heading().color(tokens.strong));
            widgets::named(heading, Role::Heading, &format!("tour {title}"));
            ui.label(RichText::new(words).color(tokens.text));
            ui.add_space(space::SMALL);
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let label = if tour.step < STEPS.len() { "Skip the tour" } else { "End the tour" };
                open &= !ui.button(label).clicked();
                if let Some((label, command)) = offer {
                    let response = ui.button(label);
                    if widgets::named(response, Role::Button, &format!("tour: {label}")).clicked() {
                        said.push(command);
                    }
                }
            });
        });
    if !open {
        state.tour = None;
    }
}

/// Draws the manual, if it is open.
pub(crate) fn manual(ctx: &Context, state: &mut State) {
    let mut open = state.manual;
    Window::new("Manual")
        .id(Id::unique("manual"))
        .open(&mut open)
        .default_size(vec2(620.0, 520.0))
        .default_pos(ctx.content_rect().center() - vec2(310.0, 280.0))
        .show(ctx, |ui| {
            ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
                let tokens = Tokens::of(ui);
                for part in include_str!("manual.md").split("\n\n") {
                    match part.trim().strip_prefix("# ") {
                        Some(title) => {
                            ui.add_space(space::SMALL);
                            let shown =
                                ui.label(RichText::new(title).heading().color(tokens.strong));
                            widgets::named(shown, Role::Heading, title);
                        }
                        None => {
                            let text = part.trim().replace('\n', " ");
                            ui.label(RichText::new(text).color(tokens.text));
                        }
                    }
                }
            });
        });
    state.manual = open;
}
