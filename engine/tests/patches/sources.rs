//! Instruments in the language that share a thread's variable and a word for lost values.

use std::sync::{Arc, LazyLock};

use gilk_engine::layout::CounterSlot;
use gilk_engine::patch::{Home, Homes, HookProgram, Probed};
use gilk_instruments::program::Scope;
use gilk_instruments::{Context, Source};

/// Number of the thread's variable.
pub(crate) const THREAD: u8 = 9;
/// The word that counts values which found the variable's entry taken.
pub(crate) const NO_ROOM: CounterSlot = CounterSlot { bank: 0, slot: 4 };

/// The first probe of a source. Aggregates are counted in the counter of the instrument.
pub(crate) fn probed(source: &str) -> Probed {
    let source = Source::parse(source).unwrap();
    let checked = source.check(&Context::default()).unwrap();
    let variables = checked.variables.values().iter();
    let homes = Homes {
        variables: variables
            .map(|variable| match variable.scope {
                Scope::Thread => Home::Thread(THREAD),
                _ => panic!("only variables of a thread have homes here"),
            })
            .collect(),
        no_room: Some(NO_ROOM),
        ..Homes::default()
    };
    Probed {
        checked: Arc::new(checked),
        index: 0,
        homes: Arc::new(homes),
    }
}

/// Programs that the tests run at a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Count,
    Time,
    Block,
    Argument(u8),
    Start,
    Stop,
}

static COUNT: LazyLock<Probed> = LazyLock::new(|| probed("hit { @hits = count() }"));
static TIME: LazyLock<Probed> = LazyLock::new(|| probed("hit { sample(tsc) }"));
static BLOCK: LazyLock<Probed> = LazyLock::new(|| probed("hit { sample(block) }"));
static ARGUMENTS: LazyLock<[Probed; 6]> =
    LazyLock::new(|| [0, 1, 2, 3, 4, 5].map(|n| probed(&format!("hit {{ sample(arg{n}) }}"))));
static START: LazyLock<Probed> =
    LazyLock::new(|| probed("shared thread @timer; hit { @timer = tsc }"));
static STOP: LazyLock<Probed> = LazyLock::new(|| {
    probed("shared thread @timer; hit / @timer != 0 / { sample(tsc - @timer); @timer = 0; }")
});

impl Kind {
    pub(crate) fn program(self) -> HookProgram<'static> {
        HookProgram::Probe(match self {
            Self::Count => &COUNT,
            Self::Time => &TIME,
            Self::Block => &BLOCK,
            Self::Argument(number) => &ARGUMENTS[usize::from(number)],
            Self::Start => &START,
            Self::Stop => &STOP,
        })
    }
}
