//! Checks and compiles the editor's text as it changes, and adds it to the session.

use gilk_engine::HookType;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::{Origin, name_and_address};
use gilk_engine::session::{Placement, Session};
use gilk_instruments::editor::Edited;
use gilk_instruments::{Context, Stand};

use super::CompileRequest;
use crate::app::App;
use crate::desk::Pane;
use crate::state::{NoticeKind, State};

/// Text of a new instrument.
const TEMPLATE: &str = "instrument mine \"Samples the time of every hit.\" unit \"ticks\" event;

hit { sample(tsc) }
";

impl State {
    /// Checks the text again if it or the open function has changed.
    fn check_source(&mut self) {
        let Some(text) = &self.editor.text else {
            return;
        };
        let function = self.graph.scene.as_ref().map(|scene| scene.name.clone());
        if self
            .editor
            .checked
            .as_ref()
            .is_some_and(|(known, of)| known == text && *of == function)
        {
            return;
        }
        let image = self.catalogue.as_ref().map(|catalogue| catalogue.image());
        let types = image.and_then(|image| image.types());
        let of_process = image.is_some_and(|image| image.origin() == Origin::Object);
        let context = Context {
            types,
            function: function.as_deref().map(|name| name_and_address(name).0),
            of_process,
        };
        self.editor.edited = Some(Edited::look(text, &context));
        self.editor.checked = Some((text.clone(), function));
    }

    /// Returns the placement to compile for: at the inspector's hook, or in the open function.
    fn source_placement(&self) -> Option<Placement> {
        let good = self.editor.edited.as_ref()?.good.as_ref()?;
        let scene = self.graph.scene.as_ref()?;
        let block = self.graph.selected.unwrap_or(BlockIndex(0));
        let (block, hook) = match good.definition.stand() {
            Stand::Hook => (block, self.draft.hook),
            Stand::Block | Stand::Branch => (block, HookType::Pre),
            Stand::Function => (BlockIndex(0), HookType::Pre),
        };
        Some(Placement {
            function: scene.name.as_str().into(),
            block: block.0,
            hook,
            instrument: good.definition.name.as_str().into(),
            launch: 0.0,
            splash: self.document.session().duration,
        })
    }
}

impl App {
    /// Updates the check, and requests a compilation if the text or the placement has changed.
    pub(crate) fn update_source_check(&mut self) {
        self.state.check_source();
        let Some(catalogue) = self.state.catalogue.clone() else {
            return;
        };
        if !self.state.desk.sees(Pane::Editor) {
            return;
        }
        let text = self.state.editor.text.clone();
        let request = self.state.source_placement().zip(text);
        let request = request.map(|(placement, text)| CompileRequest {
            text,
            placement,
            target: self.targets,
        });
        if request == self.state.editor.request {
            return;
        }
        self.state.editor.request.clone_from(&request);
        self.state.editor.number += 1;
        let Some(CompileRequest {
            text, placement, ..
        }) = request
        else {
            self.state.editor.outcome = None;
            return;
        };
        let name = placement.instrument.to_string();
        let session = Session {
            placements: vec![placement],
            sources: std::iter::once((name, text)).collect(),
            ..self.state.document.session().without_placements()
        };
        let planning = self.planning(self.state.editor.number, session, &catalogue);
        self.workers.compile(planning);
    }

    /// Opens the source of an instrument, or a new one without a name.
    pub(crate) fn edit_instrument(&mut self, name: Option<&str>) {
        let text = match name {
            None => Some(TEMPLATE.to_owned()),
            Some(name) => self
                .state
                .definition(name)
                .and_then(|one| one.text().map(str::to_owned)),
        };
        if let Some(text) = text {
            self.state.editor.open(text, None);
        }
        self.state.desk.show(Pane::Editor);
    }

    /// Adds the text to the session as an instrument, and selects it in the inspector.
    pub(crate) fn use_instrument(&mut self) {
        let (Some(name), Some(text)) = (
            self.state.editor.name().map(str::to_owned),
            self.state.editor.text.clone(),
        ) else {
            return;
        };
        self.state.document.edit("source", |session| {
            session.sources.insert(name.clone(), text);
        });
        self.state.document.close_step();
        self.state.notify(
            NoticeKind::Good,
            format!("{name} is now an instrument of this session; drag it to a hook."),
        );
        self.state.draft.instrument = name;
        // The list shows the instrument.
        self.state.wanted_instrument.clear();
        self.state.desk.show(Pane::Instruments);
    }

    /// Formats the text.
    pub(crate) fn format_instrument(&mut self) {
        let good = self.state.editor.edited.as_ref();
        if let Some(formatted) = good.and_then(|edited| edited.good.as_ref()) {
            self.state.editor.text = Some(formatted.formatted.clone());
        }
    }
}
