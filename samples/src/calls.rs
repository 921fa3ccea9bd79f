//! Stacks of call traces: callers, callees and the time in each.
//!
//! `call-trace` samples a function's entries and returns, with the thread (the number doubled, plus
//! 1 at an entry). Replayed, the samples give the stack of each thread at each time; elapsed time
//! belongs to the function on top. A call without a return (a long jump, a lost sample) ends at the
//! next return of one of its callers.

use std::collections::{BTreeMap, HashMap};

mod tree;

pub use tree::{CallNode, CallTree, is_traced};

use crate::Sample;
use crate::chart::scale::counted;
use crate::ids::{Ids, id};
use crate::metadata::Metadata;

/// Name of the instrument.
pub(crate) const INSTRUMENT: &str = "call-trace";
/// Maximum depth of a stack; the kernel's stacks are far shallower.
const DEEPEST: usize = 1024;
/// Maximum number of distinct stacks; the time of further ones is attributed to their callers.
const MOST: usize = 1 << 20;

/// Decodes a value of a call trace: the thread, and whether the function was entered, not left.
#[must_use]
const fn entered(value: u64) -> (u64, bool) {
    (value >> 1, value & 1 == 1)
}

/// Returns the identifiers of a session's call traces, each with the major number of the traced
/// function, which differs from its own where a tail call returns.
pub(crate) fn traces(metadata: &Metadata) -> impl Iterator<Item = (u64, u32)> {
    let instruments = metadata.instruments.iter();
    let traces = instruments.filter(|info| info.instrument == INSTRUMENT);
    traces.filter_map(|info| Some((info.id, info.about()?)))
}

id!(
    /// Key of a call in a tree of calls.
    pub CallId
);

/// The root, which stands for all threads.
pub const ROOT: CallId = CallId(0);

/// A function in a stack, with its callees.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) major: u32,
    /// The caller; none for the root.
    pub(crate) caller: Option<CallId>,
    /// Callees by major number.
    pub(crate) calls: BTreeMap<u32, CallId>,
    /// Time in the function itself, in TSC ticks.
    pub(crate) own: u64,
    pub(crate) count: u64,
}

/// Numbers of entries without a return, and of returns without an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unmatched {
    entries: u64,
    returns: u64,
}

/// Current stack of a thread.
#[derive(Debug, Default)]
struct ThreadStack {
    stack: Vec<CallId>,
    last: u64,
}

/// All stacks as a tree. A caller precedes its callees.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) all: Ids<CallId, Call>,
    threads: HashMap<(bool, u64), ThreadStack>,
    traces: HashMap<u64, u32>,
    unmatched: Unmatched,
    pub(crate) names: HashMap<u32, String>,
}

impl Calls {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        let traces = traces(metadata).collect();
        let functions = metadata.functions.iter();
        Self {
            all: Ids::from(vec![Call::default()]),
            threads: HashMap::new(),
            traces,
            unmatched: Unmatched::default(),
            // Separators of the folded format may not occur in a name.
            names: functions
                .map(|function| (function.major, function.name.replace([';', ' ', '\n'], "_")))
                .collect(),
        }
    }

    /// Returns the tree of stacks with their amounts, the outermost function first.
    pub(crate) fn of_stacks<'s>(stacks: impl Iterator<Item = (&'s [String], u64)>) -> Self {
        let mut calls = Self::new(&Metadata::default());
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        for (stack, amount) in stacks {
            let mut at = ROOT;
            for name in stack {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                let major = *numbers.entry(name).or_insert(next);
                calls.names.entry(major).or_insert_with(|| name.clone());
                at = enter(&mut calls.all, at, major);
            }
            calls.all[at].own += amount;
        }
        calls
    }

    pub(crate) fn add(&mut self, cpu: u16, sample: &Sample) {
        let Some(&major) = self.traces.get(&sample.id) else {
            return;
        };
        let (number, is_entry) = entered(sample.value);
        // Each CPU has an idle thread, all with number 0.
        let idle = number == 0;
        let key = (idle, if idle { u64::from(cpu) } else { number });
        let thread = self.threads.entry(key).or_default();
        let top = thread.stack.last().copied();
        if let Some(top) = top {
            self.all[top].own += sample.tsc.saturating_sub(thread.last);
        }
        thread.last = sample.tsc;
        if is_entry {
            if thread.stack.len() < DEEPEST {
                thread
                    .stack
                    .push(enter(&mut self.all, top.unwrap_or(ROOT), major));
            }
            return;
        }
        let is_it = |call: &CallId| self.all[*call].major == major;
        // A call that began before the recording has no entry.
        match thread.stack.iter().rposition(is_it) {
            Some(from) => {
                self.unmatched.entries += (thread.stack.len() - from - 1) as u64;
                thread.stack.truncate(from);
            }
            None => self.unmatched.returns += 1,
        }
    }

    /// Returns a sentence about calls that lack their entry or their return; none if there are no such calls.
    pub(crate) fn remark(&self) -> Option<String> {
        let open = self
            .threads
            .values()
            .map(|thread| thread.stack.len() as u64);
        let Unmatched { entries, returns } = self.unmatched;
        let entries = entries + open.sum::<u64>();
        if (entries, returns) == (0, 0) {
            return None;
        }
        Some(format!(
            "The call traces have {} without a return and {} without an entry: calls at the ends of the recording, \
             calls that never return, or lost samples. Such a call ends with its caller; a return without an entry \
             is left out.",
            counted(entries, "entry"),
            counted(returns, "return")
        ))
    }

    /// Returns the name of a function.
    pub(crate) fn name(&self, major: u32) -> String {
        let known = self.names.get(&major).cloned();
        known.unwrap_or_else(|| format!("function_{major}"))
    }

    /// Returns the inclusive time of each call in TSC ticks, in the order of `all`.
    pub(crate) fn totals(&self) -> Ids<CallId, u64> {
        let mut totals: Ids<CallId, u64> = self.all.values().iter().map(|call| call.own).collect();
        for (id, call) in self.all.iter().rev() {
            if let Some(caller) = call.caller {
                totals[caller] += totals[id];
            }
        }
        totals
    }
}

/// Returns the node of a call of `major` by the node `by`, which is inserted if it is new; the caller itself
/// if there are too many.
fn enter(all: &mut Ids<CallId, Call>, by: CallId, major: u32) -> CallId {
    let call = match all[by].calls.get(&major) {
        Some(&call) => call,
        None if all.len() >= MOST => return by,
        None => {
            let call = all.push(Call {
                major,
                caller: Some(by),
                ..Call::default()
            });
            all[by].calls.insert(major, call);
            call
        }
    };
    all[call].count += 1;
    call
}
