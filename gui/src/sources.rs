//! Source lines of blocks, and source files to filter functions by.

use std::path::PathBuf;
use std::process::{Command as Program, Stdio};
use std::sync::Arc;

use egui::accesskit::Role;
use egui::{Context, RichText, Ui};
use gilk_engine::cfg::BlockIndex;
use ilk_driver::client::StopFlag;
use ilk_driver::sources::{SourceLine, Sources};

use crate::app::App;
use crate::command::Command;
use crate::graph::Scene;
use crate::source_lines::{Lines, SourcesTask};
use crate::state::NoticeKind;
use crate::theme::{Tokens, code, text};
use crate::{widgets, worker};

/// Maximum number of lines listed for a block.
const LISTED: usize = 8;

/// Draws the source lines of a block, each a link to its file.
pub(crate) fn show(
    ui: &mut Ui,
    lines: &mut Lines,
    scene: &Scene,
    block: BlockIndex,
    commands: &mut Vec<Command>,
) {
    let lines = lines.of_block(scene, block);
    if lines.is_empty() {
        return;
    }
    let weak = Tokens::of(ui).weak;
    widgets::caption(ui, "source");
    for (offset, line) in lines.iter().take(LISTED) {
        ui.horizontal(|ui| {
            let offset = format!("+{offset:<4x}");
            ui.label(RichText::new(offset).font(code(text::SMALL)).color(weak));
            let words = line.to_string();
            let link = ui.link(RichText::new(&words).font(code(text::SMALL)));
            let link = widgets::named(link, Role::Link, &format!("source {words}"));
            if link.clicked() {
                commands.push(Command::OpenSource(line.clone()));
            }
        });
    }
    if lines.len() > LISTED {
        let words = format!("and {} more", lines.len() - LISTED);
        ui.label(RichText::new(words).small().color(weak));
    }
}

impl App {
    /// Starts to read the kernel's debug information from `path`, or from where distributions
    /// install it, and stops the current read.
    pub(crate) fn read_sources(&mut self, path: Option<PathBuf>) {
        let Some(catalogue) = self.state.catalogue.clone() else {
            return;
        };
        let stop = StopFlag::new();
        let reading = SourcesTask {
            share: path.as_ref().map(|_| 0.0),
            stop: stop.clone(),
        };
        if let Some(before) = self.state.lines.reading.replace(reading) {
            before.stop.stop();
        }
        worker::sources::open(self.workers.mail(), self.targets, catalogue, path, stop);
    }

    /// Stops reading.
    pub(crate) fn stop_sources(&mut self) {
        if let Some(reading) = self.state.lines.reading.take() {
            reading.stop.stop();
            let words = "Stopped reading debug information; open it again from the Target menu.";
            self.state.notify(NoticeKind::Warning, words.to_owned());
        }
    }

    /// Stores the debug information, or reports the error.
    pub(crate) fn sources_read(&mut self, opened: Result<Arc<Sources>, crate::Error>) {
        match opened {
            Ok(sources) => {
                let words = format!("Using source lines from {}.", sources.path().display());
                self.state.notify(NoticeKind::Good, words);
                self.state.lines = Lines {
                    sources: Some(sources),
                    // The read of the functions' files continues.
                    reading: self.state.lines.reading.take(),
                    ..Lines::default()
                };
            }
            Err(error) => {
                self.state.lines.reading = None;
                self.state.notify(NoticeKind::Warning, error.to_string());
            }
        }
    }

    /// Opens a source file with the desktop's program for it; if it is not on this machine, copies
    /// the location.
    pub(crate) fn open_source(&mut self, line: &SourceLine, ctx: &Context) {
        let sources = self.state.lines.sources.as_ref();
        let path = sources.and_then(|sources| sources.local(line));
        let opened = path.as_ref().is_some_and(|path| {
            Program::new("xdg-open")
                .arg(path)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .is_ok()
        });
        if !opened {
            ctx.copy_text(line.to_string());
            let why = match path {
                Some(_) => "no program of the desktop opens it",
                None => "the file is not on this machine",
            };
            self.state
                .notify(NoticeKind::Good, format!("{line} is copied: {why}."));
        }
    }
}
