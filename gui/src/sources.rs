//! Where code comes from: lines of source beside blocks, and files to filter functions by.

use std::path::PathBuf;
use std::process::{Command as Program, Stdio};
use std::sync::Arc;

use egui::accesskit::Role;
use egui::{Context, RichText, Ui};
use gilk_engine::cfg::BlockIndex;
use gilk_engine::image::FunctionId;
use ilk_driver::client::StopFlag;
use ilk_driver::sources::{SourceLine, Sources};

use crate::app::App;
use crate::command::Command;
use crate::graph::Scene;
use crate::state::NoticeKind;
use crate::theme::{Tokens, code, text};
use crate::{widgets, worker};

/// Lines of a block that are listed.
const LISTED: usize = 8;

/// The lines of one block.
#[derive(Debug)]
struct OfBlock {
    of: (FunctionId, BlockIndex),
    /// By the offset in the function, where they change.
    lines: Vec<(u64, SourceLine)>,
}

/// Debug information that is being read.
#[derive(Debug)]
pub struct Reading {
    /// How far that is, from 0 to 1; `None` while it is not known whether there is any.
    pub share: Option<f32>,
    /// Ends it.
    pub stop: StopFlag,
}

/// What is known of source files.
#[derive(Debug, Default)]
pub struct Lines {
    /// The kernel's debug information, once it is open.
    pub sources: Option<Arc<Sources>>,
    /// The file of every function, by its number, once that is known.
    pub files: Option<Arc<Vec<Arc<str>>>>,
    /// What is being read.
    pub reading: Option<Reading>,
    /// The lines of the block that is shown.
    shown: Option<OfBlock>,
}

impl Lines {
    /// Forgets everything: another kernel has other files.
    pub(crate) fn clear(&mut self) {
        if let Some(reading) = &self.reading {
            reading.stop.stop();
        }
        *self = Self::default();
    }

    /// The lines of a block where they change, with the offset in the function of what comes from them.
    fn of_block(&mut self, scene: &Scene, block: BlockIndex) -> &[(u64, SourceLine)] {
        let of = (scene.function(), block);
        if self.shown.as_ref().is_none_or(|shown| shown.of != of) {
            let lines = self
                .sources
                .as_ref()
                .map(|sources| changes(sources, scene, block))
                .unwrap_or_default();
            self.shown = Some(OfBlock { of, lines });
        }
        self.shown.as_ref().map_or(&[], |shown| &shown.lines)
    }
}

fn changes(sources: &Sources, scene: &Scene, block: BlockIndex) -> Vec<(u64, SourceLine)> {
    let mut lines: Vec<(u64, SourceLine)> = Vec::new();
    let Some(block) = scene.cfg.block(block) else {
        return lines;
    };
    for instruction in &block.instructions {
        let at = gilk_engine::Addr(instruction.ip());
        let Some(line) = sources.line(at) else {
            continue;
        };
        if lines.last().is_none_or(|(_, last)| *last != line) {
            lines.push((at.0.saturating_sub(scene.cfg.span.start.0), line));
        }
    }
    lines
}

/// Draws the lines that a block comes from, each a link to its file.
pub(crate) fn show(
    ui: &mut Ui,
    lines: &mut Lines,
    scene: &Scene,
    block: BlockIndex,
    said: &mut Vec<Command>,
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
                said.push(Command::OpenSource(line.clone()));
            }
        });
    }
    if lines.len() > LISTED {
        let words = format!("and {} more", lines.len() - LISTED);
        ui.label(RichText::new(words).small().color(weak));
    }
}

impl App {
    /// Reads the kernel's debug information at `path`, or where distributions put it, in place of what is
    /// being read.
    pub(crate) fn read_sources(&mut self, path: Option<PathBuf>) {
        let Some(catalogue) = self.state.catalogue.clone() else {
            return;
        };
        let stop = StopFlag::new();
        let reading = Reading {
            share: path.as_ref().map(|_| 0.0),
            stop: stop.clone(),
        };
        if let Some(before) = self.state.lines.reading.replace(reading) {
            before.stop.stop();
        }
        worker::sources::open(self.workers.mail(), self.targets, catalogue, path, stop);
    }

    /// Reads no more of it.
    pub(crate) fn stop_sources(&mut self) {
        if let Some(reading) = self.state.lines.reading.take() {
            reading.stop.stop();
            let words =
                "Reading debug information was stopped; open it again from the Target menu.";
            self.state.tell(NoticeKind::Warning, words.to_owned());
        }
    }

    /// Takes debug information that was read, or why it could not be.
    pub(crate) fn sources_read(&mut self, opened: Result<Arc<Sources>, crate::Error>) {
        match opened {
            Ok(sources) => {
                let words = format!("Source lines come from {}.", sources.path().display());
                self.state.tell(NoticeKind::Good, words);
                self.state.lines = Lines {
                    sources: Some(sources),
                    // The files of functions are still to come.
                    reading: self.state.lines.reading.take(),
                    ..Lines::default()
                };
            }
            Err(error) => {
                self.state.lines.reading = None;
                self.state.tell(NoticeKind::Warning, error.to_string());
            }
        }
    }

    /// Opens a source file with the desktop's program for it; where it is not on this machine, the
    /// place is copied.
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
                .tell(NoticeKind::Good, format!("{line} is copied: {why}."));
        }
    }
}
