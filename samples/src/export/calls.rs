//! Stacks of call traces: callers, callees and the time in each.
//!
//! `call-trace` samples a function's entries and returns, with the thread (the number doubled, plus
//! 1 at an entry). Replayed, the samples give the stack of each thread at each time; elapsed time
//! belongs to the function on top. A call without a return (a long jump, a lost sample) ends at the
//! next return of one of its callers.

use std::collections::{BTreeMap, HashMap};

use crate::Sample;
use crate::chart::scale::grouped;
use crate::ids::{Ids, id};
use crate::metadata::Metadata;

/// Name of the instrument.
const INSTRUMENT: &str = "call-trace";
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
pub(super) fn traces(metadata: &Metadata) -> impl Iterator<Item = (u64, u32)> {
    let instruments = metadata.instruments.iter();
    let traces = instruments.filter(|info| info.instrument == INSTRUMENT);
    traces.filter_map(|info| Some((info.id, info.about()?)))
}

id!(
    /// Key of a call in [`Calls::all`].
    pub(super) CallId
);

/// The root, which stands for all threads.
pub(super) const ROOT: CallId = CallId(0);

/// A function in a stack, with its callees.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) major: u32,
    /// The caller; none for the root.
    caller: Option<CallId>,
    /// Callees by major number.
    pub(super) calls: BTreeMap<u32, CallId>,
    /// Time in the function itself, in TSC ticks.
    pub(super) own: u64,
    pub(super) count: u64,
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
pub(super) struct Calls {
    pub(super) all: Ids<CallId, Call>,
    threads: HashMap<(bool, u64), ThreadStack>,
    traces: HashMap<u64, u32>,
    unmatched: Unmatched,
    pub(super) names: HashMap<u32, String>,
}

impl Calls {
    pub(super) fn new(metadata: &Metadata) -> Self {
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

    pub(super) fn add(&mut self, cpu: u16, sample: &Sample) {
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
    pub(super) fn remark(&self) -> Option<String> {
        let open = self
            .threads
            .values()
            .map(|thread| thread.stack.len() as u64);
        let Unmatched { entries, returns } = self.unmatched;
        let entries = entries + open.sum::<u64>();
        if (entries, returns) == (0, 0) {
            return None;
        }
        let plural = |count: u64, one: &'static str, many: &'static str| match count {
            1 => format!("1 {one}"),
            _ => format!("{} {many}", grouped(count)),
        };
        Some(format!(
            "The call traces have {} without a return and {} without an entry: calls at the ends of the recording, \
             calls that never return, or lost samples. Such a call ends with its caller; a return without an entry \
             is left out.",
            plural(entries, "entry", "entries"),
            plural(returns, "return", "returns")
        ))
    }

    /// Returns the name of a function.
    pub(super) fn name(&self, major: u32) -> String {
        let known = self.names.get(&major).cloned();
        known.unwrap_or_else(|| format!("function_{major}"))
    }

    /// Returns the inclusive time of each call in TSC ticks, in the order of `all`.
    pub(super) fn totals(&self) -> Ids<CallId, u64> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::items::Item;
    use crate::export::sink::Sink as _;
    use crate::export::stacks::{StackFormat, Stacks};
    use crate::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Placed};
    use crate::{HookType, InstrumentId};

    fn metadata(functions: u32) -> Metadata {
        let numbers = 0..functions;
        let trace = |major| InstrumentInfo {
            id: id(major, HookType::Pre),
            label: String::new(),
            instrument: INSTRUMENT.into(),
            meaning: crate::Meaning::Value,
            unit: String::new(),
            launch: 0.0,
            splash: 1.0,
            placed: None,
            delivers: Delivers::Samples,
        };
        let left = |major| InstrumentInfo {
            id: id(major, HookType::Post),
            ..trace(major)
        };
        Metadata {
            clock: Clock {
                hz: 1_000_000_000,
                ..Clock::default()
            },
            functions: numbers
                .clone()
                .map(|major| FunctionInfo {
                    major,
                    name: format!("f{major}"),
                    address: 0,
                    blocks: Vec::new(),
                    edges: Vec::new(),
                })
                .collect(),
            instruments: numbers
                .flat_map(|major| [trace(major), left(major)])
                .collect(),
            ..Metadata::default()
        }
    }

    fn id(major: u32, hook: HookType) -> u64 {
        InstrumentId::new(major, hook, 0, 0).unwrap().pack()
    }

    /// Returns the folded stacks of these samples.
    fn folded(metadata: &Metadata, samples: &[(u16, Sample)]) -> Vec<String> {
        let mut out = Vec::new();
        let mut stacks = Stacks::new(&mut out, StackFormat::Folded, metadata);
        for (cpu, sample) in samples {
            stacks.item(&Item::Sample(*cpu, *sample)).unwrap();
        }
        stacks.finish().unwrap();
        let remark = stacks.remark();
        drop(stacks);
        let text = String::from_utf8(out).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines.extend(remark);
        lines
    }

    fn sample(thread: u64, major: u32, enters: bool, tsc: u64) -> Sample {
        Sample {
            id: id(
                major,
                if enters {
                    HookType::Pre
                } else {
                    HookType::Post
                },
            ),
            value: thread << 1 | u64::from(enters),
            tsc,
        }
    }

    proptest! {
        /// Threads call and return at random and migrate between CPUs inside calls.
        #[test]
        fn time_belongs_to_the_function_on_top(
            steps in prop::collection::vec((0u64..4, 0u16..3, 0u32..5, 1u64..1000), 0..400),
        ) {
            let metadata = metadata(5);
            let mut stacks: HashMap<(bool, u64), (Vec<u32>, u64)> = HashMap::new();
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            let (mut samples, mut now) = (Vec::new(), 0);
            for (thread, cpu, major, pause) in steps {
                now += pause;
                let key = (thread == 0, if thread == 0 { u64::from(cpu) } else { thread });
                let (stack, last) = stacks.entry(key).or_default();
                if !stack.is_empty() {
                    let names: Vec<String> = stack.iter().map(|major| format!("f{major}")).collect();
                    *expected.entry(names.join(";")).or_default() += now - *last;
                }
                *last = now;
                // Two of five steps return, so that stacks grow and shrink.
                let enters = major > 1 || stack.is_empty();
                let major = if enters { stack.push(major); major } else { stack.pop().unwrap() };
                samples.push((cpu, sample(thread, major, enters, now)));
            }
            let expected: Vec<String> = expected.iter().map(|(stack, time)| format!("{stack} {time}")).collect();
            let mut expected = expected;
            expected.sort();
            let entries: usize = stacks.values().map(|(stack, _)| stack.len()).sum();
            let mut found = folded(&metadata, &samples);
            if entries > 0 {
                let remark = found.pop().unwrap();
                let noun = if entries == 1 { "entry" } else { "entries" };
                let says = format!("The call traces have {entries} {noun} without a return and 0 returns ");
                prop_assert!(remark.starts_with(&says), "{}", remark);
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_tail_call_ends_where_it_returns() {
        // An instrument placed on the first function also samples its returns in the second.
        let mut metadata = metadata(3);
        let mut back = metadata.instruments[1].clone();
        (back.id, back.placed) = (
            InstrumentId::new(1, HookType::Post, 0, 1).unwrap().pack(),
            Some(Placed {
                placement: 0,
                function: "f0".into(),
                major: 0,
            }),
        );
        metadata.instruments.push(back.clone());
        let came_back = Sample {
            id: back.id,
            ..sample(7, 1, false, 70)
        };
        let samples = [
            (0, sample(7, 2, true, 10)),
            (0, sample(7, 0, true, 20)),
            (0, came_back),
            (0, sample(7, 2, false, 100)),
        ];
        assert_eq!(folded(&metadata, &samples), ["f2 40", "f2;f0 50"]);
    }

    #[test]
    fn a_call_without_a_return_ends_with_its_caller() {
        let metadata = metadata(3);
        let samples = [
            // A return without an entry, a nested call, and the outer call's return alone.
            (0, sample(7, 2, false, 5)),
            (0, sample(7, 0, true, 10)),
            (1, sample(7, 1, true, 30)),
            (1, sample(7, 0, false, 70)),
            (0, sample(7, 2, true, 100)),
            (0, sample(7, 2, false, 101)),
        ];
        let mut lines = folded(&metadata, &samples);
        let remark = lines.pop().unwrap();
        assert_eq!(lines, ["f0 20", "f0;f1 40", "f2 1"]);
        assert!(
            remark.starts_with(
                "The call traces have 1 entry without a return and 1 return without an entry: "
            ),
            "{remark}"
        );
    }
}
