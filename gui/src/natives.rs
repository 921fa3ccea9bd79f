//! Instruments that a person compiled: read from an object file, and used when that person has said so.

use std::path::PathBuf;
use std::sync::Arc;

use egui::accesskit::Role;
use egui::{Align, Context, Layout, RichText};
use gilk_instruments::Definition;

use crate::app::App;
use crate::command::Command;
use crate::dialogs::{modal, primary, title};
use crate::error::Error;
use crate::state::{NoticeKind, State};
use crate::theme::{Tokens, code, space, text};
use crate::widgets;
use crate::worker::{Mail, Message, spawn};

/// What it means to use them.
const MEANING: &str = "This is code of your own that runs inside the kernel. That it is called rightly, \
    and changes no register, is proven; what it computes is not: a mistake in it can stop the machine. \
    It is used until the window closes, and in no saved session.";

/// Instruments of an object file that wait for a person's word.
#[derive(Debug)]
pub struct Natives {
    /// The file.
    pub path: PathBuf,
    /// Its instruments.
    pub definitions: Vec<Definition>,
}

/// Reads an object file.
pub(crate) fn read(mail: &Mail, path: PathBuf) {
    let mail = mail.clone();
    spawn("natives", move || {
        let read = std::fs::read(&path)
            .map_err(|source| Error::Io {
                path: path.clone(),
                source,
                hint: "Name what a compiler made of a file with gilk.h, as cc -c does.",
            })
            .and_then(|bytes| Ok(Definition::natives(&path.display().to_string(), &bytes)?));
        mail.send(Message::Natives(path, read));
    });
}

/// Asks whether they are to be used.
pub(crate) fn ask(ctx: &Context, state: &mut State, said: &mut Vec<Command>) {
    let Some(natives) = &state.natives else {
        return;
    };
    let shown = modal(ctx, "natives").show(ctx, |ui| {
        ui.set_width(460.0);
        title(ui, "Use code that nobody proves?");
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
        ui.add_space(space::MEDIUM);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let used = primary(ui, Command::UseNatives.name(), true);
            (used, ui.button("Cancel").clicked())
        })
        .inner
    });
    let (used, cancelled) = shown.inner;
    if used {
        said.push(Command::UseNatives);
    } else if cancelled || shown.should_close() {
        state.natives = None;
    }
}

impl App {
    /// Adds the instruments that wait. Those of a file that was read before are the newer ones now.
    pub(crate) fn use_natives(&mut self) {
        let Some(natives) = self.state.natives.take() else {
            return;
        };
        let mut library = (*self.state.library).clone();
        let count = natives.definitions.len();
        for one in natives.definitions {
            library.forget_native(&one.name);
            if let Err(error) = library.add(one) {
                self.state.tell(NoticeKind::Bad, error.to_string());
                return;
            }
        }
        self.state.library = Arc::new(library);
        // Sessions that name them can be planned now.
        self.planned = None;
        let words = format!(
            "{} can be placed.",
            widgets::counted(count, "native instrument")
        );
        self.state.tell(NoticeKind::Good, words);
    }
}
