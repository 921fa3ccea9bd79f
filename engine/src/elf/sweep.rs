//! Functions and what refers to them: bounds by symbols and unwind entries, and, for code that has
//! neither, by what calls it and points to it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Register};

use super::file::{Contents, LoadedSection};
use super::frames::FrameEntry;
use super::plt::{self, Stub};
use crate::code::{Branch, Memory, present};
use crate::isa::decode::{branch_target, computed_address, is_direct_call, is_padding};
use crate::{Addr, Span};

/// The functions of an object, and all that instructions refer to in its code.
#[derive(Debug, Default)]
pub(super) struct SweptObject {
    /// By address, without the padding after them.
    pub(super) functions: Vec<Span>,
    /// Branches to other functions, and all calls: unsorted.
    pub(super) branches: Vec<Branch>,
    /// Targets of direct calls.
    pub(super) called: HashSet<Addr>,
    /// Addresses of code that instructions compute.
    pub(super) values: Vec<Addr>,
    /// Addresses of data that instructions name.
    pub(super) data: BTreeSet<Addr>,
    /// Functions with a jump through a register, by their start.
    pub(super) jumping: HashSet<Addr>,
    /// Functions that begin a transaction of the processor (`xbegin`), by their start.
    pub(super) transactional: HashSet<Addr>,
}

/// The starts of functions, and their ends where those are known.
struct Starts<'c> {
    contents: &'c Contents<'c>,
    ends: BTreeMap<Addr, Option<Addr>>,
    /// By address.
    frames: Vec<Span>,
}

impl<'c> Starts<'c> {
    fn new(contents: &'c Contents<'c>, frames: &[FrameEntry], stubs: &[Stub]) -> Self {
        let is_code = |at: Addr| {
            let section = contents.code_at(at);
            section.is_some_and(|section| !plt::is_table(&section.name))
        };
        let mut spans: Vec<Span> = frames.iter().map(|frame| frame.span).collect();
        spans.retain(|span| is_code(span.start));
        spans.sort_unstable();
        let mut ends: BTreeMap<Addr, Option<Addr>> = BTreeMap::new();
        let symbols = contents.symbols.iter().filter(|symbol| is_code(symbol.at));
        let symbols = symbols.map(|symbol| {
            let end = symbol.at.0.checked_add(symbol.size).map(Addr);
            (symbol.at, end.filter(|_| symbol.size > 0))
        });
        let spans_of = spans.iter().map(|span| (span.start, Some(span.end)));
        let stubs = stubs
            .iter()
            .map(|stub| (stub.span.start, Some(stub.span.end)));
        for (start, end) in symbols.chain(spans_of).chain(stubs) {
            let known = ends.entry(start).or_default();
            *known = (*known).max(end);
        }
        Self {
            contents,
            ends,
            frames: spans,
        }
    }

    /// The functions, each up to its end or the next start.
    fn spans(&self) -> Vec<Span> {
        let nexts = self.ends.keys().skip(1).copied().map(Some).chain([None]);
        self.ends
            .iter()
            .zip(nexts)
            .filter_map(|((&start, &end), next)| {
                let section = self.contents.code_at(start)?;
                let limit = section.span.end.min(next.unwrap_or(section.span.end));
                // The rest of an unwind entry in which another symbol begins is that symbol's.
                let after = self.frames.partition_point(|frame| frame.start <= start);
                let around = after.checked_sub(1).and_then(|at| self.frames.get(at));
                let around = around.filter(|frame| frame.contains(start));
                let end = end.max(around.map(|frame| frame.end)).unwrap_or(limit);
                Some(Span {
                    start,
                    end: end.min(limit),
                })
            })
            .collect()
    }
}

/// Code between functions.
fn gaps(section: &LoadedSection, spans: &[Span]) -> Vec<Span> {
    let mut gaps = Vec::new();
    let mut at = section.span.start;
    let first = spans.partition_point(|span| span.end <= section.span.start);
    for span in spans.iter().skip(first) {
        if span.start >= section.span.end {
            break;
        }
        if at < span.start {
            gaps.push(Span {
                start: at,
                end: span.start,
            });
        }
        at = at.max(span.end);
    }
    if at < section.span.end {
        gaps.push(Span {
            start: at,
            end: section.span.end,
        });
    }
    gaps
}

/// Finds the functions, and reads each of them once. `pointers` are addresses of code in data.
pub(super) fn sweep(
    contents: &Contents<'_>,
    memory: &Memory,
    frames: &[FrameEntry],
    stubs: &[Stub],
    pointers: &[Addr],
) -> SweptObject {
    let mut starts = Starts::new(contents, frames, stubs);
    let mut swept = SweptObject::default();
    let mut read: BTreeSet<Addr> = BTreeSet::new();
    loop {
        let spans = starts.spans();
        for (index, span) in spans.iter().enumerate() {
            let section = contents.code_at(span.start);
            let last = section.map_or(span.end, |section| section.span.end);
            let next = spans.get(index + 1).map_or(last, |next| next.start);
            let limit = next.min(last).max(span.end);
            if read.insert(span.start) {
                swept.read(*span, limit, contents, memory);
            }
        }
        let in_gap = |at: &Addr| {
            let after = spans.partition_point(|span| span.start <= *at);
            let before = after.checked_sub(1).and_then(|at| spans.get(at));
            contents.code_at(*at).is_some() && before.is_none_or(|span| span.end <= *at)
        };
        let branched = swept.branches.iter().map(|branch| branch.target);
        let pointed = swept.values.iter().chain(pointers).copied();
        // Numbers look like addresses where those are fixed.
        let pointed = pointed.filter(|at| !contents.fixed_addresses || at.0.is_multiple_of(16));
        let mut entries: Vec<Addr> = branched.chain(pointed).filter(in_gap).collect();
        entries.retain(|&at| !begins_with_padding(memory, at));
        if entries.is_empty() {
            // Code that nothing is known to reach may still branch.
            for section in contents.code() {
                for gap in gaps(section, &spans) {
                    swept.read_gap(gap, contents, memory);
                }
            }
            break;
        }
        for start in entries {
            starts.ends.insert(start, None);
        }
    }
    swept.functions.sort_unstable();
    swept
}

/// Returns whether there is padding at `at`, which a table of addresses may bound.
fn begins_with_padding(memory: &Memory, at: Addr) -> bool {
    let bytes = present(memory.bytes_from(at, 15));
    let instruction = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
    is_padding(&instruction) || instruction.is_invalid() || bytes.starts_with(&[0, 0])
}

impl SweptObject {
    /// Reads a function; `limit` is the start of the next one.
    fn read(&mut self, span: Span, limit: Addr, contents: &Contents<'_>, memory: &Memory) {
        let bytes = present(memory.bytes(span));
        let mut end = span.start;
        let mut falls_through = false;
        let mut decoder = Decoder::with_ip(64, bytes, span.start.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let position = decoder.position();
            decoder.decode_out(&mut instruction);
            let zero = bytes
                .get(position..)
                .is_some_and(|rest| rest.starts_with(&[0, 0]));
            if is_padding(&instruction) || zero {
                if falls_through && instruction.code() != Code::Int3 && !zero {
                    end = Addr(instruction.next_ip());
                }
                continue;
            }
            end = Addr(instruction.next_ip());
            falls_through = matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            );
            self.refer(&instruction, span, contents);
            let register = instruction.flow_control() == FlowControl::IndirectBranch
                && instruction.op0_register() != Register::None;
            if register {
                self.jumping.insert(span.start);
            }
            if matches!(instruction.code(), Code::Xbegin_rel16 | Code::Xbegin_rel32) {
                self.transactional.insert(span.start);
            }
        }
        if falls_through && end == span.end {
            // Into the next symbol, as assembly does, through the padding before it.
            let rest = Span {
                start: end,
                end: limit,
            };
            // There may be nothing.
            let bytes = memory.bytes(rest).unwrap_or_default();
            for instruction in Decoder::with_ip(64, bytes, rest.start.0, DecoderOptions::NONE) {
                if !is_padding(&instruction) || instruction.code() == Code::Int3 {
                    break;
                }
                end = Addr(instruction.next_ip());
            }
        }
        if end > span.start {
            self.functions.push(Span {
                start: span.start,
                end: end.min(limit),
            });
        }
    }

    fn refer(&mut self, instruction: &Instruction, span: Span, contents: &Contents<'_>) {
        if instruction.flow_control() == FlowControl::Next {
            let value = computed_address(instruction);
            if instruction.memory_base() == Register::RIP {
                let named = Addr(instruction.ip_rel_memory_address());
                if contents.code_at(named).is_none() {
                    self.data.insert(named);
                }
            }
            self.values
                .extend(value.filter(|&to| contents.code_at(to).is_some()));
            return;
        }
        let from_outside = |to: &Addr| is_direct_call(instruction) || !span.contains(*to);
        let source = Addr(instruction.ip());
        let target = branch_target(instruction).filter(from_outside);
        let target = target.filter(|&to| contents.code_at(to).is_some());
        if is_direct_call(instruction) {
            self.called.extend(target);
        }
        self.branches
            .extend(target.map(|target| Branch { target, source }));
    }

    /// Reads code that no function is known to have; it may be data.
    fn read_gap(&mut self, gap: Span, contents: &Contents<'_>, memory: &Memory) {
        let bytes = present(memory.bytes(gap));
        for instruction in Decoder::with_ip(64, bytes, gap.start.0, DecoderOptions::NONE) {
            if instruction.flow_control() != FlowControl::Next {
                // As a value, since it counts only where an instruction begins.
                let target = branch_target(&instruction);
                self.values
                    .extend(target.filter(|&to| contents.code_at(to).is_some()));
            }
        }
    }
}
