//! Folded stacks and flame graphs, written when all calls are known.

use std::io::{self, Write};

use super::flame::{self, Amounts};
use super::items::Item;
use super::sink::Sink;
use crate::calls::{CallTree, Calls, ROOT};
use crate::metadata::{Clock, Metadata};

/// Output format of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackFormat {
    /// A line per stack: `outer;inner 1200`, with nanoseconds.
    Folded,
    /// A flame graph.
    Flame,
}

/// Sink that follows calls, and writes their stacks at the end.
pub(super) struct Stacks<W> {
    out: W,
    format: StackFormat,
    clock: Clock,
    calls: Calls,
}

impl<W: Write> Stacks<W> {
    pub(super) fn new(out: W, format: StackFormat, metadata: &Metadata) -> Self {
        Self {
            out,
            format,
            clock: metadata.clock,
            calls: Calls::new(metadata),
        }
    }

    fn folded(&mut self) -> io::Result<()> {
        let mut open = vec![(ROOT, String::new())];
        while let Some((at, before)) = open.pop() {
            let call = &self.calls.all[at];
            let mut stack = before;
            if at != ROOT {
                if !stack.is_empty() {
                    stack.push(';');
                }
                stack.push_str(&self.calls.name(call.major));
                let own = u128::from(call.own) * 1_000_000_000 / u128::from(self.clock.hz.max(1));
                if own > 0 {
                    writeln!(self.out, "{stack} {own}")?;
                }
            }
            let within = call.calls.values().rev();
            open.extend(within.map(|&within| (within, stack.clone())));
        }
        Ok(())
    }
}

impl<W: Write> Sink for Stacks<W> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        if let Item::Sample(cpu, sample) | Item::Text(cpu, sample, _) = item {
            self.calls.add(*cpu, sample);
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.format {
            StackFormat::Folded => self.folded()?,
            StackFormat::Flame => {
                let tree = CallTree::new(&self.calls, self.clock.hz);
                flame::draw(&mut self.out, &tree, Amounts::Time, None)?;
            }
        }
        self.out.flush()
    }

    fn remark(&self) -> Option<String> {
        self.calls.remark()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use super::*;
    use crate::calls::INSTRUMENT;
    use crate::export::flame_graph;
    use crate::metadata::{Delivers, FunctionInfo, InstrumentInfo, Placed};
    use crate::{HookType, InstrumentId, Sample};

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
            let mut folded_stacks = folded(&metadata, &samples);
            if entries > 0 {
                let remark = folded_stacks.pop().unwrap();
                let noun = if entries == 1 { "entry" } else { "entries" };
                let says = format!("The call traces have {entries} {noun} without a return and 0 returns ");
                prop_assert!(remark.starts_with(&says), "{}", remark);
            }
            prop_assert_eq!(folded_stacks, &expected[..]);

            let mut calls = Calls::new(&metadata);
            samples.iter().for_each(|(cpu, sample)| calls.add(*cpu, sample));
            let tree = CallTree::new(&calls, 1_000_000_000);
            let with_time = tree.iter().filter(|(id, node)| *id != ROOT && node.own_ns > 0);
            let mut from_tree: Vec<String> = with_time
                .map(|(id, node)| {
                    let way = tree.way_to(id);
                    let names: Vec<&str> = way[1..].iter().map(|&id| &*tree[id].name).collect();
                    format!("{} {}", names.join(";"), node.own_ns)
                })
                .collect();
            from_tree.sort();
            prop_assert_eq!(from_tree, expected);
            for (id, node) in tree.iter() {
                let callees: u64 = node.callees.iter().map(|&callee| tree[callee].total_ns).sum();
                prop_assert_eq!(node.total_ns, node.own_ns + callees);
                prop_assert!(node.callees.iter().all(|&callee| tree[callee].caller == Some(id)));
                prop_assert_eq!(tree.counterparts(&tree)[id], Some(id));
            }
        }
    }

    #[test]
    fn counterparts_have_the_same_callers() {
        let metadata = metadata(3);
        let tree = |samples: &[Sample]| {
            let mut calls = Calls::new(&metadata);
            samples.iter().for_each(|sample| calls.add(0, sample));
            CallTree::new(&calls, 1_000_000_000)
        };
        // f1 within f0, and f1 alone.
        let nested = tree(&[
            sample(7, 0, true, 10),
            sample(7, 1, true, 20),
            sample(7, 1, false, 50),
            sample(7, 0, false, 60),
        ]);
        let alone = tree(&[sample(7, 1, true, 10), sample(7, 1, false, 20)]);
        let f0 = nested[ROOT].callees[0];
        let f1 = nested[f0].callees[0];
        let found = nested.counterparts(&alone);
        assert_eq!(
            [found[ROOT], found[f0], found[f1]],
            [Some(ROOT), None, None]
        );
        assert_eq!(
            alone.counterparts(&alone)[alone[ROOT].callees[0]],
            Some(alone[ROOT].callees[0])
        );
        assert!((nested.share(f1) - 0.6).abs() < 1e-9);

        // In a picture of the difference, both calls of the nested run are new, and all is as before.
        let picture = flame_graph(&nested, Some(&alone));
        assert_eq!(picture.matches(" 0.00 % before").count(), 2, "{picture}");
        assert!(picture.contains("(100.00 %, 100.00 % before)"), "{picture}");
        assert!(picture.contains(r##"fill="#e8e8e8""##), "{picture}");
        assert!(picture.contains(r##"fill="#f06450""##), "{picture}");
        let alone = flame_graph(&nested, None);
        assert!(!alone.contains("before"), "{alone}");
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
