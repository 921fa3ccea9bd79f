//! Code of a process that numbers its stack for an instrument, and the tables that the code reads and fills.
//!
//! A patch calls the code with three words pushed: an address, the counter of failed reads, and a request: the number of
//! bytes that the patch has pushed above the frame of the original instruction, the most frames from bit 16 on, and a kind
//! from bit 24 on. The code replaces the first word by the number of the stack whose first frame is at the address: a hash
//! of the addresses of its frames. The frames of a number that is new are kept in a table, until it is full; the number is
//! right also without them. So one frame at any address numbers that address.
//!
//! Callers are found by [rows](CallerTable) that were made of the unwind tables of the process's objects before
//! ([`crate::elf::caller_rules`]), so code needs no frame pointer. The stack is copied by the kernel, as numbers in memory are
//! ([`crate::reads`]), 1 KiB at a time: rows that are wrong end a stack early or give it a wrong frame, and no load
//! faults.

mod code;

use std::collections::HashMap;

use crate::layout::{ReadGate, StackTables};
use crate::{Addr, Span};

/// A way to find the caller of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallerRule {
    /// There is no code.
    #[default]
    NoCode,
    /// The code has no caller, or none that a row can state.
    End,
    /// The frame ends this many bytes above the stack pointer.
    Stack {
        /// Bytes from the stack pointer to the end of the frame, above the return address.
        end: i32,
        /// Distance of the saved rbp from the end; 0 if rbp is the caller's.
        saved_rbp: i16,
    },
    /// The frame ends this many bytes above rbp.
    Base {
        /// Bytes from rbp to the end.
        end: i32,
        /// As of `Stack`.
        saved_rbp: i16,
    },
    /// The end of the frame is in memory at this distance from rbp, and the caller's rbp at rbp: of functions that align
    /// their stack.
    Aligned {
        /// Distance from rbp of the word that has the end.
        end: i32,
    },
    /// The code that returns from a handler of a signal: the stack pointer is the address of a `ucontext_t`.
    Signal,
}

impl CallerRule {
    const STACK: u16 = 1;
    const BASE: u16 = 2;
    const SIGNAL: u16 = 3;
    const END: u16 = 4;
    const ALIGNED: u16 = 5;

    /// Returns the word of the table: the first number, the second from bit 32 on, and a kind from bit 48 on.
    #[must_use]
    pub fn encoded(self) -> u64 {
        let numbers = |end: i32, saved_rbp: i16| {
            u64::from(end.cast_unsigned()) | u64::from(saved_rbp.cast_unsigned()) << 32
        };
        match self {
            Self::NoCode => 0,
            Self::End => u64::from(Self::END) << 48,
            Self::Stack { end, saved_rbp } => {
                numbers(end, saved_rbp) | u64::from(Self::STACK) << 48
            }
            Self::Base { end, saved_rbp } => numbers(end, saved_rbp) | u64::from(Self::BASE) << 48,
            Self::Aligned { end } => numbers(end, 0) | u64::from(Self::ALIGNED) << 48,
            Self::Signal => u64::from(Self::SIGNAL) << 48,
        }
    }
}

/// The rules of a process by address, as the code reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerTable {
    /// Words of [`StackTables::RULE_TABLE`]. A rule has the same number in all rows that were made.
    pub rules: Vec<u64>,
    /// Words of [`StackTables::ROWS`]. A row is valid up to the address of the next one.
    pub rows: Vec<u64>,
    numbers: HashMap<CallerRule, u16>,
    /// True if there were more rules than have numbers: stacks end where those would be valid.
    pub lacks_rules: bool,
}

impl CallerTable {
    /// The number of the rule that ends stacks.
    const END: u16 = 0;

    /// Makes the rows of spans, and of other rules for all other addresses: `others` are in order, each valid up to the next
    /// one, the first at address 0. Of spans that overlap, the one that begins later is valid from there on, and of those
    /// that begin at one address the last.
    pub fn set(&mut self, others: &[(Addr, CallerRule)], mut spans: Vec<(Span, CallerRule)>) {
        spans.sort_by_key(|(span, _)| span.start);
        self.rows.clear();
        let end = self.number(CallerRule::End);
        debug_assert_eq!(end, Some(Self::END), "the first rule has the first number");
        self.number(CallerRule::NoCode);
        let (mut others, mut other) = (others.iter().peekable(), CallerRule::NoCode);
        let mut covered = Addr(0);
        let mut spans = spans.into_iter().peekable();
        loop {
            let next = spans.peek().map(|(span, _)| span.start);
            // Up to the next span, the others are valid.
            while let Some((start, rule)) = others.peek()
                && next.is_none_or(|next| *start < next)
            {
                other = *rule;
                if *start >= covered {
                    self.push(*start, other);
                }
                others.next();
            }
            let Some((span, rule)) = spans.next() else {
                return;
            };
            self.push(span.start, rule);
            covered = span.end;
            // The others that begin within the span.
            while let Some((start, rule)) = others.peek()
                && *start <= covered
            {
                other = *rule;
                others.next();
            }
            if spans.peek().is_none_or(|(next, _)| next.start > covered) {
                self.push(covered, other);
            }
        }
    }

    /// Keeps so many of the rows: from the last of these on, stacks end.
    pub fn cut(&mut self, most: usize) {
        self.rows.truncate(most);
        if let Some(last) = self.rows.last_mut() {
            *last = *last >> 16 << 16 | u64::from(Self::END);
        }
    }

    /// Returns the number of a rule, which is new or has one; `None` if there are too many.
    fn number(&mut self, rule: CallerRule) -> Option<u16> {
        if let Some(number) = self.numbers.get(&rule) {
            return Some(*number);
        }
        let Ok(number) = u16::try_from(self.rules.len()) else {
            self.lacks_rules = true;
            return None;
        };
        self.rules.push(rule.encoded());
        self.numbers.insert(rule, number);
        Some(number)
    }

    fn push(&mut self, start: Addr, rule: CallerRule) {
        // Of too many rules, the rest ends stacks.
        let number = self.number(rule).unwrap_or(Self::END);
        let row = |number: u16| start.0 << 16 | u64::from(number);
        let is_same = |last: &u64| last & 0xffff == u64::from(number);
        match self.rows.last_mut() {
            // The later of two that begin at one address.
            Some(last) if *last >> 16 == start.0 => *last = row(number),
            Some(last) if is_same(last) => {}
            _ => self.rows.push(row(number)),
        }
    }
}

/// The code, which is at any address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackReader {
    /// Its bytes.
    pub code: Vec<u8>,
    /// The tables that it reads and fills.
    pub tables: StackTables,
}

impl StackReader {
    /// Bytes from the code that reads numbers in memory to this code.
    pub const OFFSET: u64 = StackTables::CODE_OFFSET;
    /// Bytes that are reserved for it.
    pub const BYTES: u64 = 1024;
    /// Kind of a request for a stack.
    pub const STACK: u32 = 0;
    /// Kind of a request for the number of an address, which has one frame.
    pub const NAME: u32 = 1;

    /// Assembles the code; failed reads are counted `row` bytes after the counter.
    pub(crate) fn new(tables: StackTables, row: u64, gate: ReadGate) -> Self {
        let assembled = code::assemble(tables, row, gate);
        debug_assert!(assembled.is_ok(), "{assembled:?}");
        Self {
            // Code that is not there is no listing: it is refused.
            code: assembled.unwrap_or_default(),
            tables,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, end: u64) -> Span {
        Span {
            start: Addr(start),
            end: Addr(end),
        }
    }

    fn stack(end: i32) -> CallerRule {
        CallerRule::Stack { end, saved_rbp: 0 }
    }

    /// The rules at each of the first addresses, as the code finds them.
    fn rules(table: &CallerTable, addresses: u64) -> Vec<u64> {
        assert!(table.rows.is_sorted_by(|one, next| one < next));
        let rule = |at: u64| {
            let after = table.rows.partition_point(|row| *row <= at << 16 | 0xffff);
            table.rules[(table.rows[after - 1] & 0xffff) as usize]
        };
        (0..addresses).map(rule).collect()
    }

    #[test]
    fn each_address_has_the_rule_of_its_span_or_that_of_others() {
        let [data, free] = [CallerRule::NoCode, CallerRule::End];
        let others = [
            (Addr(0), data),
            (Addr(4), free),
            (Addr(9), data),
            (Addr(12), free),
        ];
        // In no order; two are next to each other, one is in the middle of another, and one has the start of another.
        let spans = vec![
            (span(10, 14), stack(8)),
            (span(5, 7), stack(16)),
            (span(7, 8), stack(24)),
            (span(15, 20), stack(8)),
            (span(17, 18), CallerRule::Signal),
            (span(22, 24), stack(8)),
            (span(22, 24), stack(32)),
        ];
        let mut table = CallerTable::default();
        table.set(&others, spans);
        let [d, f, a, b, c, s, e] = [
            data,
            free,
            stack(8),
            stack(16),
            stack(24),
            CallerRule::Signal,
            stack(32),
        ]
        .map(CallerRule::encoded);
        let expected = [
            d, d, d, d, f, b, b, c, f, d, a, a, a, a, f, a, a, s, f, f, f, f, e, e, f, f,
        ];
        assert_eq!(rules(&table, 26), expected);
    }

    #[test]
    fn rules_have_one_number_each_and_those_of_one_word_are_alike() {
        let spans = (0..200_000_u64).map(|at| {
            let rule = stack(i32::try_from(8 * (at % 70_000)).unwrap());
            (span(at * 4, at * 4 + 4), rule)
        });
        let others = [(Addr(0), CallerRule::NoCode)];
        let mut table = CallerTable::default();
        table.set(&others, spans.collect());
        assert_eq!(table.rules.len() as u64, StackTables::RULES);
        // What has no number any more ends stacks.
        let last = rules(&table, 4 * 70_000)[4 * 69_999];
        assert_eq!(last, CallerRule::End.encoded());
        assert!(table.lacks_rules);
        assert_eq!(rules(&table, 1), [stack(0).encoded()]);
        // Rules keep their numbers.
        let numbered = table.rules.clone();
        let signal = (span(8, 12), CallerRule::Signal);
        table.set(&others, vec![(span(4, 8), stack(8)), signal]);
        assert_eq!(table.rules, numbered);
        let [none, end] = [CallerRule::NoCode, CallerRule::End].map(CallerRule::encoded);
        let four = [none, stack(8).encoded(), end, none];
        let expected: Vec<u64> = four.into_iter().flat_map(|rule| [rule; 4]).collect();
        assert_eq!(rules(&table, 16), expected);
        table.cut(2);
        let expected: Vec<u64> = [[none; 4], [end; 4]].concat();
        assert_eq!(rules(&table, 8), expected);
        let negative = CallerRule::Base {
            end: -8,
            saved_rbp: -16,
        };
        assert_eq!(negative.encoded(), 0x0002_fff0_ffff_fff8);
    }
}
