//! Folded stacks and flame graphs, written when all calls are known.

use std::io::{self, Write};

use super::calls::{Calls, ROOT};
use super::flame;
use super::items::Item;
use super::sink::Sink;
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
        if let Item::Sample(cpu, sample) = item {
            self.calls.add(*cpu, sample);
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.format {
            StackFormat::Folded => self.folded()?,
            StackFormat::Flame => flame::draw(&mut self.out, &self.calls, &self.clock)?,
        }
        self.out.flush()
    }

    fn remark(&self) -> Option<String> {
        self.calls.remark()
    }
}
