//! Native instruments: read from an object file and used after the user has accepted the risk.

use std::path::PathBuf;
use std::sync::Arc;

use egui::accesskit::Role;
use egui::{Context, RichText};
use gilk_instruments::Definition;

use crate::app::App;
use crate::command::Command;
use crate::error::Error;
use crate::state::{NoticeKind, State};
use crate::theme::{Tokens, code, space, text};
use crate::widgets::{self, buttons, modal, primary, title};
use crate::worker::{Mail, Message};

/// The risk that the user accepts.
const MEANING: &str = "This code runs inside the kernel, or in the process that is the target. GILK proves that it is \
    called correctly and that registers are preserved, but not what it computes: a mistake in it can crash the machine, \
    or the process. It can be used until the window closes and is not saved with sessions.";
/// The use of replacements.
const REPLACEMENTS: &str =
    "Replacements are for functions of a process: the inspector has them for the open function.";

/// Reads an object file.
pub(crate) fn read(mail: &Mail, path: PathBuf) {
    mail.spawn("natives", move |mail| {
        let read = std::fs::read(&path)
            .map_err(|source| Error::Io {
                path: path.clone(),
                source,
                hint: "Open an object file that cc -c made from C code with gilk.h.",
            })
            .and_then(|bytes| Ok(Definition::natives(&path.display().to_string(), &bytes)?));
        mail.send(Message::Natives(path, read));
    });
}

/// Draws the confirmation dialog.
pub(crate) fn confirm(ctx: &Context, state: &mut State, said: &mut Vec<Command>) {
    let Some(natives) = &state.natives else {
        return;
    };
    let shown = modal(ctx, "natives").show(ctx, |ui| {
        ui.set_width(460.0);
        title(ui, "Use unverified code?");
        let file = natives.path.display().to_string();
        ui.label(RichText::new(file).font(code(text::SMALL)));
        ui.add_space(space::TIGHT);
        for one in &natives.definitions {
            let words = format!("{}: {}", one.name, one.summary);
            ui.label(RichText::new(words).small());
        }
        ui.add_space(space::SMALL);
        let meaning = ui.label(RichText::new(MEANING).color(Tokens::of(ui).warning));
        widgets::named(meaning, Role::Label, MEANING);
        if natives.definitions.iter().any(Definition::replaces) {
            ui.label(RichText::new(REPLACEMENTS).small());
        }
        ui.add_space(space::MEDIUM);
        buttons(ui, |ui| {
            let used = primary(ui, Command::UseNatives.name(), true);
            (used, ui.button("Cancel").clicked())
        })
    });
    let (used, cancelled) = shown.inner;
    if used {
        said.push(Command::UseNatives);
    } else if cancelled || shown.should_close() {
        state.natives = None;
    }
}

impl App {
    /// Adds the confirmed instruments; they replace earlier ones with the same names.
    pub(crate) fn use_natives(&mut self) {
        let Some(natives) = self.state.natives.take() else {
            return;
        };
        let mut library = (*self.state.library).clone();
        let count = natives.definitions.len();
        for one in natives.definitions {
            library.forget_native(&one.name);
            if let Err(error) = library.add(one) {
                self.state.notify(NoticeKind::Bad, error.to_string());
                return;
            }
        }
        self.state.library = Arc::new(library);
        // Sessions that refer to them are planned again.
        self.planned = None;
        let words = format!(
            "{} can be placed.",
            widgets::counted(count, "native instrument")
        );
        self.state.notify(NoticeKind::Good, words);
    }
}
