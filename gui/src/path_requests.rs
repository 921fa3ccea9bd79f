//! Requests for paths, and the actions that use them.

use std::path::PathBuf;

use crate::app::App;
use crate::args::Source;
use crate::command::Command;
use crate::natives;
use crate::path_dialog::PathDialog;
use crate::purpose::Purpose;
use crate::run::default_path;
use crate::sidecar::Sidecar;
use crate::worker::files;

impl App {
    /// Opens the path dialog.
    pub(crate) fn request_path(&mut self, purpose: Purpose, then: Option<Command>) {
        let text = match (purpose, self.state.document.path()) {
            (Purpose::SaveSession, Some(path)) => path.display().to_string(),
            (Purpose::SaveSession, None) => {
                let name = default_path(&self.state.document.session().name);
                let stem = name
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                format!("sessions/{stem}.ron")
            }
            (Purpose::ExportGraph, _) => {
                let scene = self.state.graph.scene.as_ref();
                scene.map_or_else(String::new, |scene| format!("{}.svg", scene.name))
            }
            (Purpose::ExportRecording, _) => {
                let record = self.state.timeline.record.as_ref();
                let path = record.and_then(|record| record.path.as_ref());
                path.map_or_else(String::new, |path| {
                    path.with_extension("csv").display().to_string()
                })
            }
            (Purpose::SaveInstrument, _) => {
                let editor = &self.state.editor;
                let name = editor.name().unwrap_or("mine");
                let path = editor.path.clone();
                path.map_or_else(|| format!("{name}.gilk"), |path| path.display().to_string())
            }
            (Purpose::Picture, _) => "gilk.png".to_owned(),
            _ => String::new(),
        };
        self.state.dialogs += 1;
        self.state.dialog = Some(PathDialog {
            number: self.state.dialogs,
            question: None,
            completed: None,
            completions: Vec::new(),
            purpose,
            text,
            browsing: false,
            then,
            focused: false,
        });
    }

    /// Saves the session to its file, or requests a path if it has none.
    pub(crate) fn save(&mut self, then: Option<Command>) {
        match self.state.document.path().map(PathBuf::from) {
            Some(path) => {
                self.after_saving = then;
                let edited = self.state.document.edited();
                let desk = Sidecar::text(&self.state.desk, &edited);
                files::write_session(self.workers.mail(), path, edited, desk);
            }
            None => self.request_path(Purpose::SaveSession, then),
        }
    }

    /// Executes the action for which the path was requested.
    pub(crate) fn use_path(&mut self, purpose: Purpose, path: PathBuf, then: Option<Command>) {
        self.state.recent_paths.add(purpose, &path);
        let mail = self.workers.mail();
        match purpose {
            Purpose::OpenSession => files::read_session(mail, path),
            Purpose::OpenRecording => self.read_recording(path),
            Purpose::CompareRecording => {
                let record = self.state.timeline.record.as_ref();
                if let Some(after) = record.and_then(|record| record.path.clone()) {
                    files::compare_recordings(mail, path, after);
                }
            }
            Purpose::SaveSession => {
                self.after_saving = then;
                let edited = self.state.document.edited();
                let desk = Sidecar::text(&self.state.desk, &edited);
                files::write_session(mail, path, edited, desk);
            }
            Purpose::ExportGraph => self.export_graph(path),
            Purpose::ExportRecording => self.export_recording(path),
            Purpose::OpenInstrument => files::read_source(mail, path),
            Purpose::SaveInstrument => {
                let text = self.state.editor.text.clone().unwrap_or_default();
                files::write_source(mail, path, text);
            }
            Purpose::Picture => self.request_picture(path),
            Purpose::Socket => self.connect(Source::Socket(path)),
            Purpose::Machine => self.connect(Source::Ssh(path.display().to_string())),
            Purpose::Machines => self.add_typed(&path.display().to_string()),
            Purpose::LabKernel => self.connect(Source::LabOf(path.display().to_string())),
            Purpose::Program => self.connect(Source::Program(path.display().to_string())),
            Purpose::Every => self.connect(Source::Every(path.display().to_string())),
            Purpose::ProgramInCache => {
                self.connect(Source::ProgramInCache(path.display().to_string()));
            }
            Purpose::Kernel => self.connect(Source::Image(path)),
            Purpose::Library => {
                if let Some(target) = &self.target {
                    target.open_library(path);
                }
            }
            Purpose::Natives => natives::read(mail, path),
            Purpose::DebugInfo => self.read_sources(Some(path)),
            Purpose::SaveRecording => self.state.run.path = path.display().to_string(),
        }
    }
}
