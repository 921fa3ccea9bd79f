//! The paths through the open function: their counts, and one of them highlighted in the graph.

use std::sync::Arc;

use egui::accesskit::Role;
use egui::{RichText, Ui};
use gilk_engine::Session;

use crate::app::App;
use crate::command::Command;
use crate::graph::Scene;
use crate::state::{NoticeKind, State};
use crate::theme::{Tokens, code, text};
use crate::widgets;

/// Maximum number of paths listed.
const MAX_LISTED: usize = 10;

/// Draws the counted paths, most frequent first, or a button to count them.
pub(crate) fn show(
    ui: &mut Ui,
    state: &mut State,
    scene: &Arc<Scene>,
    commands: &mut Vec<Command>,
) {
    if scene.cfg.blocks.len() < 2 || scene.name != scene.cfg.name {
        return;
    }
    let tokens = Tokens::of(ui);
    widgets::caption(ui, "paths through the function");
    let (count, profile) = match state.function_paths.counted(scene, &state.timeline) {
        Ok(counted) => counted,
        Err(why) => {
            let words = format!("Paths cannot be counted. {why}");
            ui.label(RichText::new(words).small().color(tokens.weak));
            return;
        }
    };
    let is_counted = state.hooked.counts_paths(&scene.name);
    if profile.paths.is_empty() && is_counted {
        let words = format!(
            "The next run counts {}; they are listed here then.",
            widgets::counted(usize::try_from(count).unwrap_or(usize::MAX), "path")
        );
        ui.label(RichText::new(words).small().color(tokens.text));
        let stop = Command::RemovePaths(scene.name.as_str().into());
        widgets::button(ui, stop.name(), stop.clone(), true, commands);
        return;
    }
    if profile.paths.is_empty() {
        let words = format!("Count paths ({})", widgets::grouped(count));
        let button = widgets::named(ui.button(words), Role::Button, Command::CountPaths.name());
        let hint = "Places counters on the fewest edges that identify the paths. After the run the paths are listed here.";
        if button.on_hover_text(hint).clicked() {
            commands.push(Command::CountPaths);
        }
        return;
    }
    for path in profile.paths.iter().take(MAX_LISTED) {
        let chosen = state.graph.path.as_ref().map(|one| one.number) == Some(path.number);
        let turn = if path.from_entry {
            ""
        } else {
            ", loop iteration"
        };
        let words = format!(
            "path {}: {} times, {}{turn}",
            widgets::grouped(path.number),
            widgets::grouped(path.count),
            widgets::counted(path.blocks.len(), "block")
        );
        let row = ui.selectable_label(chosen, RichText::new(&words).font(code(text::SMALL)));
        if widgets::chosen(row, Role::ListBoxOption, chosen, &words).clicked() {
            state.graph.path = (!chosen).then(|| path.clone());
        }
    }
    let more: u64 = profile
        .paths
        .iter()
        .skip(MAX_LISTED)
        .map(|path| path.count)
        .sum();
    if more + profile.others > 0 {
        let words = format!("others: {} times", widgets::grouped(more + profile.others));
        ui.label(RichText::new(words).small().color(tokens.weak));
    }
}

impl App {
    /// Places the instruments that count the open function's paths, as one undo step.
    pub(crate) fn count_paths(&mut self) {
        let Some(scene) = self.state.graph.scene.clone() else {
            return;
        };
        // The instruments are added to an empty list, so that the others are not copied.
        let mut session = self.state.document.session().without_placements();
        let times = (self.state.draft.launch, self.state.draft.splash);
        let added = match self.state.function_paths.of(&scene) {
            Ok(paths) => paths
                .add_to(&mut session, times)
                .map_err(|error| error.to_string()),
            Err(why) => Err(why.to_owned()),
        };
        match added {
            Ok(()) => {
                let Session {
                    placements,
                    sources,
                    ..
                } = session;
                self.state.document.edit("count paths", |own| {
                    *own.sources = sources;
                    for placement in placements {
                        own.placements.push(placement);
                    }
                });
                self.state.document.close_step();
            }
            Err(why) => self.state.notify(NoticeKind::Warning, why),
        }
    }
}
