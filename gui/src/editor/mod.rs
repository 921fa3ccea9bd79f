//! An instrument that is being written: its text, what is wrong with it as it is typed, and the code
//! that it becomes where the inspector stands.

mod ink;
pub(crate) mod pane;

use std::path::PathBuf;
use std::sync::Arc;

use gilk_engine::HookType;
use gilk_engine::VerifiedPlan;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::image::name_and_address;
use gilk_engine::session::{Placement, Session};
use gilk_instruments::editor::Edited;
use gilk_instruments::{Context, Stand};

use crate::app::App;
use crate::desk::Pane;
use crate::state::{NoticeKind, State};

/// What a new instrument begins with.
const BEGINNING: &str = "instrument mine \"Samples the time of every hit.\" unit \"ticks\" event;

hit { sample(tsc) }
";

/// The editor's state.
#[derive(Debug, Default)]
pub struct Editor {
    /// The text, while there is one.
    pub text: Option<String>,
    /// The file that it was read from or written to.
    pub path: Option<PathBuf>,
    /// What was looked at last, and for which function.
    looked: Option<(String, Option<String>)>,
    /// What is to be said of it.
    pub edited: Option<Edited>,
    /// What it was last compiled for.
    asked: Option<Compiled>,
    /// The number of the last question.
    pub(crate) number: u64,
    /// The plan with nothing but this instrument, or why there is none.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
}

/// What a text was compiled for: where, as which text, on which state of the target.
#[derive(Clone, Debug, PartialEq)]
struct Compiled {
    text: String,
    placement: Placement,
    target: u64,
}

impl Editor {
    /// Begins with a text.
    pub(crate) fn open(&mut self, text: String, path: Option<PathBuf>) {
        *self = Self {
            text: Some(text),
            path,
            number: self.number,
            ..Self::default()
        };
    }

    /// The name of the instrument, if there is nothing wrong with it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let good = self.edited.as_ref()?.good.as_ref()?;
        Some(&good.definition.name)
    }
}

impl State {
    /// Looks at the text again if it, or the open function, is another.
    fn look_at_source(&mut self) {
        let Some(text) = &self.editor.text else {
            return;
        };
        let function = self.graph.scene.as_ref().map(|scene| scene.name.clone());
        if self
            .editor
            .looked
            .as_ref()
            .is_some_and(|(known, of)| known == text && *of == function)
        {
            return;
        }
        let types = self
            .catalogue
            .as_ref()
            .and_then(|catalogue| catalogue.image().types());
        let context = Context {
            types,
            function: function.as_deref().map(|name| name_and_address(name).0),
        };
        self.editor.edited = Some(Edited::look(text, &context));
        self.editor.looked = Some((text.clone(), function));
    }

    /// Where the instrument would stand: at the inspector's hook, or in the open function.
    fn stand_of_source(&self) -> Option<Placement> {
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
            timer: 0,
        })
    }
}

impl App {
    /// Keeps what is said of the text true, and has it compiled where it would stand.
    pub(crate) fn keep_up_source(&mut self) {
        self.state.look_at_source();
        let Some(catalogue) = self.state.catalogue.clone() else {
            return;
        };
        if !self.state.desk.sees(Pane::Editor) {
            return;
        }
        let text = self.state.editor.text.clone();
        let asked = self.state.stand_of_source().zip(text);
        let asked = asked.map(|(placement, text)| Compiled {
            text,
            placement,
            target: self.targets,
        });
        if asked == self.state.editor.asked {
            return;
        }
        self.state.editor.asked.clone_from(&asked);
        self.state.editor.number += 1;
        let Some(Compiled {
            text, placement, ..
        }) = asked
        else {
            self.state.editor.outcome = None;
            return;
        };
        let name = placement.instrument.to_string();
        let session = Session {
            placements: vec![placement],
            sources: std::iter::once((name, text)).collect(),
            ..self.state.document.session().clone()
        };
        let planning = self.planning(self.state.editor.number, session, &catalogue);
        self.workers.compile(planning);
    }

    /// Shows the source of an instrument; without a name, a new one.
    pub(crate) fn edit_instrument(&mut self, name: Option<&str>) {
        let text = match name {
            None => Some(BEGINNING.to_owned()),
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

    /// Makes the text an instrument of the session, and the inspector's.
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
        self.state.tell(
            NoticeKind::Good,
            format!(
                "{name} is an instrument of this session now: drag it to where it shall stand."
            ),
        );
        self.state.draft.instrument = name;
        self.state.desk.show(Pane::Instruments);
    }

    /// Lays the text out as all are.
    pub(crate) fn format_instrument(&mut self) {
        let good = self.state.editor.edited.as_ref();
        if let Some(formatted) = good.and_then(|edited| edited.good.as_ref()) {
            self.state.editor.text = Some(formatted.formatted.clone());
        }
    }
}
