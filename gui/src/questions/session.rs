//! Makes the session of a question, on a thread of its own: it is planned, because what a rule
//! refuses is left out and named.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use gilk_engine::cfg::{BlockEnd, Cfg};
use gilk_engine::code::{Function, FunctionId, Origin};
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::plan::plan_possible;
use gilk_engine::session::{Placement, Workload};
use gilk_engine::{HookType, Image, Session};
use gilk_instruments::Library;
use ilk_driver::process::{CalledFunctions, ProcessLayouts};

use super::of_process::{self, CALLERS, QuestionInstrument};
use super::question::Question;

/// Duration of a question's session in seconds.
const DURATION: f64 = 5.0;
/// Maximum number of callees that are timed: each is planned and has lanes.
const MAX_CALLEES: usize = 64;
/// Functions in which threads wait for locks: spinlocks, read-write locks, mutexes, semaphores,
/// futexes.
const SLOW_PATHS: [&str; 9] = [
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
    "__mutex_lock_slowpath",
    "rwsem_down_read_slowpath",
    "rwsem_down_write_slowpath",
    "__down",
    "futex_wait",
];
/// Counts return addresses.
const RETURN_ADDRESSES: QuestionInstrument = QuestionInstrument {
    name: "return-addresses",
    source: Some(
        "instrument return-addresses \"Counts from where the function is called.\" unit \"address\" count;\n\nentry { @callers = values(*(u64 *)reg(\"sp\"), 1024) }\n",
    ),
};

/// The session of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// Session without the placements that a rule refuses.
    pub session: Session,
    /// The number of left out functions or hooks, and an example of the reason.
    pub left_out: Option<(usize, String)>,
    /// Symbols that the process has bound to functions of other names, each with the name.
    pub bound: BTreeMap<String, String>,
}

/// A question with what its session depends on.
pub(super) struct Inquiry<'a> {
    pub(super) question: Question,
    pub(super) image: &'a Image,
    pub(super) library: &'a Library,
    pub(super) layout: QuestionLayout,
    /// The open function, by number and session name.
    pub(super) function: Option<(FunctionId, String)>,
    pub(super) workload: Option<Workload>,
}

/// The layout of the plan of a question's session.
pub(super) enum QuestionLayout {
    /// That of any session: the target's, or a supposed one.
    Fixed(RuntimeLayout),
    /// That of a process, which the session decides.
    Process(ProcessLayouts),
}

impl QuestionLayout {
    fn of(&self, session: &Session, library: &Library) -> ilk_driver::Result<RuntimeLayout> {
        match self {
            Self::Fixed(layout) => Ok(layout.clone()),
            Self::Process(process) => process.layout(session, library),
        }
    }
}

/// Makes the session.
///
/// # Errors
/// A whole sentence, if nothing can be placed.
pub(super) fn make(inquiry: &Inquiry<'_>) -> Result<Made, String> {
    let mut session = Session::empty();
    session.name = name(inquiry.question).to_owned();
    session.duration = DURATION;
    session.workload.clone_from(&inquiry.workload);
    let Placed { omitted, bound } = place(inquiry, &mut session)?;
    let mut watch = |_| ControlFlow::Continue(());
    let layout = inquiry.layout.of(&session, inquiry.library);
    let layout = layout.map_err(|error| error.to_string())?;
    let possible = plan_possible(
        inquiry.image,
        &session,
        inquiry.library,
        &layout,
        &mut watch,
    );
    let possible = possible.map_err(|error| error.to_string())?;
    let left_out = possible.left_out.first().map(|first| {
        let refused = session.placements.get(first.placement);
        let function = refused.map_or("", |placement| &*placement.function);
        let refusal = &first.refusal;
        let example = format!("{function} (rule {}): {}", refusal.rule.name(), refusal.why);
        (possible.left_out.len(), example)
    });
    let left_out = match (left_out, omitted) {
        (Some((count, example)), Some((more, _))) => Some((count + more, example)),
        (left_out, omitted) => left_out.or(omitted),
    };
    if possible.session.placements.is_empty() {
        let target = match inquiry.is_of_process() {
            true => "process",
            false => "kernel",
        };
        return Err(left_out.map_or_else(
            || format!("This {target} has no function for this question."),
            |(_, example)| format!("Every place is refused, for example {example}."),
        ));
    }
    Ok(Made {
        session: possible.session,
        left_out,
        bound,
    })
}

const fn name(question: Question) -> &'static str {
    match question {
        Question::SlowCalls => "slow-system-calls",
        Question::FrequentCalls => "frequent-system-calls",
        Question::Locks => "lock-waits",
        Question::FrequentFunctions => "frequent-functions",
        Question::SlowFunctions => "slow-functions",
        Question::Waits => "waits",
        Question::Allocations => "allocations",
        Question::Callers => "callers",
        Question::TimeInside => "time-inside",
        Question::Branches => "branches",
    }
}

impl Inquiry<'_> {
    fn is_of_process(&self) -> bool {
        self.image.origin() == Origin::Object
    }
}

/// Remarks on the placements of a question.
#[derive(Default)]
struct Placed {
    /// The number of functions that are omitted, and an example of the reason, if there are some.
    omitted: Option<(usize, String)>,
    bound: BTreeMap<String, String>,
}

/// Places the instruments of a question.
fn place(inquiry: &Inquiry<'_>, session: &mut Session) -> Result<Placed, String> {
    let mut placed = Placed::default();
    let image = inquiry.image;
    if let Some(chosen) = of_process::chosen(inquiry.question, image) {
        for (_, instrument) in &chosen.placed {
            instrument.add_source(session);
        }
        let placements = chosen.placed.into_iter();
        let placements = placements.map(|(function, instrument)| Placement {
            function: function.into(),
            block: 0,
            hook: HookType::Pre,
            instrument: instrument.name.into(),
            launch: 0.0,
            splash: DURATION,
        });
        session.placements.extend(placements);
        placed.omitted = chosen.omitted;
        return Ok(placed);
    }
    let mut put = |function: &str, block: u32, hook, instrument: &str| {
        let placement = Placement {
            function: function.into(),
            block,
            hook,
            instrument: instrument.into(),
            launch: 0.0,
            splash: DURATION,
        };
        session.placements.push(placement);
    };
    let open = || {
        let function = inquiry.function.as_ref();
        function.ok_or_else(|| "Open a function first.".to_owned())
    };
    match inquiry.question {
        Question::SlowCalls => {
            let calls = system_calls(image);
            calls.for_each(|name| put(name, 0, HookType::Pre, "elapsed"));
        }
        Question::FrequentCalls => {
            let calls = system_calls(image);
            calls.for_each(|name| put(name, 0, HookType::Pre, "counter"));
        }
        Question::Locks => {
            let paths = SLOW_PATHS.into_iter();
            let paths = paths.filter(|name| image.function_named(name).is_ok());
            paths.for_each(|name| put(name, 0, HookType::Pre, "lock-wait"));
        }
        Question::Callers => {
            let (_, name) = open()?;
            let instrument = match inquiry.is_of_process() {
                true => CALLERS,
                false => RETURN_ADDRESSES,
            };
            put(name, 0, HookType::Pre, instrument.name);
            instrument.add_source(session);
        }
        Question::TimeInside => {
            let (function, name) = open()?;
            put(name, 0, HookType::Pre, "elapsed");
            put(name, 0, HookType::Pre, "caller");
            let cfg = Cfg::of(image, *function);
            let callees = match &inquiry.layout {
                QuestionLayout::Process(process) => {
                    let called = process.called(image, &cfg);
                    placed = Placed::of_calls(image, &called);
                    named(image, called.known.keys().map(|&called| &image[called]))
                }
                QuestionLayout::Fixed(_) => callees(image, &cfg),
            };
            for callee in callees {
                put(&callee, 0, HookType::Pre, "elapsed-when-called");
            }
            for block in &cfg.blocks {
                put(name, block.index.0, HookType::Pre, "counter");
            }
        }
        Question::Branches => {
            let (function, name) = open()?;
            let cfg = Cfg::of(image, *function);
            let branches = cfg.blocks.iter();
            let branches = branches.filter(|block| block.end == BlockEnd::Conditional);
            for block in branches {
                put(name, block.index.0, HookType::Pre, "counter");
                put(name, block.index.0, HookType::Taken, "counter");
                put(name, block.index.0, HookType::Untaken, "counter");
            }
        }
        // Their functions were chosen above.
        Question::FrequentFunctions
        | Question::SlowFunctions
        | Question::Waits
        | Question::Allocations => {}
    }
    Ok(placed)
}

impl Placed {
    /// The functions that a function of a process calls and that are not known, and those that have other names.
    fn of_calls(image: &Image, called: &CalledFunctions) -> Self {
        let example = called.unknown.first_key_value();
        let example = example.map(|(symbol, why)| format!("{symbol} ({why})"));
        let others = called.known.iter().filter_map(|(&function, symbol)| {
            let (name, symbol) = (&image[function].name, symbol.as_ref()?);
            let is_other = name.rsplit(':').next() != Some(symbol);
            is_other.then(|| (symbol.clone(), name.clone()))
        });
        Self {
            omitted: example.map(|example| (called.unknown.len(), example)),
            bound: others.collect(),
        }
    }
}

/// Returns the names of the functions of system calls. A name that several functions have does not
/// name one.
fn system_calls(image: &Image) -> impl Iterator<Item = &str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let names = image.functions().iter().map(|one| one.name.as_str());
    for name in names.filter(|name| is_system_call(name)) {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
        .into_iter()
        .filter(|(_, count)| *count == 1)
        .map(|(name, _)| name)
}

/// Returns whether a name is that of a system call's function, as in
/// arch/x86/include/asm/syscall_wrapper.h, and not a part of one that the compiler has split off.
fn is_system_call(name: &str) -> bool {
    name.strip_prefix("__x64_sys_")
        .is_some_and(|rest| !rest.contains('.'))
}

/// Returns the session names of the functions that a function calls directly.
fn callees(image: &Image, cfg: &Cfg) -> BTreeSet<String> {
    let instructions = cfg
        .blocks
        .iter()
        .flat_map(|block| block.instructions.iter());
    let targets = instructions
        .filter(|instruction| instruction.is_call_near())
        .map(|instruction| gilk_engine::Addr(instruction.near_branch_target()));
    let functions = targets.filter_map(|target| {
        let function = image.function_at(target)?;
        let starts = function.span.start == target && function.name != cfg.name;
        starts.then_some(function)
    });
    named(image, functions)
}

/// Returns the session names of functions, of as many as are timed.
fn named<'i>(image: &Image, functions: impl Iterator<Item = &'i Function>) -> BTreeSet<String> {
    // A name that several functions have does not name one.
    let named = functions.filter(|function| image.function_named(&function.name).is_ok());
    let all: BTreeSet<String> = named.map(|function| function.name.clone()).collect();
    all.into_iter().take(MAX_CALLEES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gilk_engine::Addr;
    use gilk_engine::placement::Style;

    fn made(question: Question, function: &str) -> Result<Made, String> {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../engine/tests/data/fork.image"
        );
        let parts = postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap();
        let image = Image::from_live(&parts).unwrap();
        let id = image.function_named(function).unwrap().id;
        make(&Inquiry {
            question,
            image: &image,
            library: &Library::builtin().unwrap(),
            layout: QuestionLayout::Fixed(RuntimeLayout::supposed(Addr(0xffff_ffff_c100_0000))),
            function: Some((id, function.to_owned())),
            workload: None,
        })
    }

    #[test]
    fn every_question_has_a_session_that_can_be_planned() {
        for question in Question::ALL.into_iter().filter(|one| one.fits(false)) {
            let made = made(question, "kernel_clone");
            if question == Question::Locks {
                // The image has functions of kernel/fork.c only.
                assert_eq!(
                    made.unwrap_err(),
                    "This kernel has no function for this question."
                );
                continue;
            }
            let session = made.unwrap().session;
            session.check().unwrap();
            assert_eq!(session.style("kernel_clone"), Style::default());
            let of = |name: &str| {
                let mut all = session.placements.iter();
                all.any(|one| &*one.function == name)
            };
            assert_eq!(
                of("kernel_clone"),
                question.is_about_function(),
                "{question:?}"
            );
            assert_eq!(
                of("__x64_sys_clone"),
                matches!(question, Question::SlowCalls | Question::FrequentCalls)
            );
        }
    }

    #[test]
    fn functions_that_the_compiler_split_off_are_no_system_calls() {
        assert!(is_system_call("__x64_sys_read"));
        assert!(!is_system_call("__x64_sys_read.cold"));
        assert!(!is_system_call("__ia32_sys_read"));
        assert!(!is_system_call("ksys_read"));
    }
}
