//! The choice of what becomes of the children that an instrumented process forks, the measurement of those with counts of
//! their own, and the report of all.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use clap::ValueEnum;
use crossbeam_channel::Receiver;
use gilk_engine::Span;
use gilk_samples::chart::scale;
use serde::{Deserialize, Serialize};

use super::{Attached, ForkWatch, ForkedChildren};
use crate::{Error, Result};

/// The fate of forked children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Children {
    /// They keep the instruments, and count with their parent.
    #[default]
    Shared,
    /// Everything is removed from each before it executes an instruction.
    Clean,
    /// They keep the instruments, and have counts and samples of their own.
    Own,
}

impl Children {
    /// Has the children of a process wait until their fate is decided, which for clean ones is at once. Nothing is mapped at
    /// addresses that are `reserved`.
    ///
    /// # Errors
    /// As [`ForkWatch::attach`].
    pub fn watch(self, pid: u32, reserved: &[Span]) -> Result<Option<ForkWatch>> {
        if self == Self::Shared {
            return Ok(None);
        }
        let mut forks = ForkWatch::attach(pid, reserved)?;
        if self == Self::Clean {
            forks.leave_children_clean();
        }
        Ok(Some(forks))
    }

    /// Returns why a process with a part of the kernel cannot have such children, if so.
    #[must_use]
    pub fn refused_with_kernel(self) -> Option<&'static str> {
        (self == Self::Own)
            .then_some("A part of the kernel is of one process, and has no counts of its children")
    }
}

/// Measures in a process, and in the children that it forks until its end, each in a thread of its own, which is given its
/// number, from 1 on, and a function that returns whether the process is left.
///
/// # Errors
/// Those of the process and of the children, and [`Error::Target`] if a thread fails. All have ended then.
pub fn with_children<M, C: Send, E: Send + From<Error>>(
    children: &Receiver<Attached>,
    measure: impl FnOnce() -> std::result::Result<M, E>,
    measure_child: impl Fn(Attached, u32, &dyn Fn() -> bool) -> std::result::Result<C, E> + Sync,
) -> std::result::Result<(M, Vec<C>), E> {
    let is_left = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            let mut measuring = Vec::new();
            // The sender ends with the watch of the process.
            for (number, attached) in (1..).zip(children.iter()) {
                let (is_left, measure_child) = (&is_left, &measure_child);
                let measured = scope.spawn(move || {
                    measure_child(attached, number, &|| is_left.load(Ordering::Acquire))
                });
                measuring.push(measured);
            }
            measuring
        });
        let measured = measure();
        is_left.store(true, Ordering::Release);
        let failed = |_| Error::Target("A thread has failed, which is a bug in gilk.".to_owned());
        let measuring = measuring.join().map_err(failed)?;
        let children = measuring.into_iter().map(ScopedJoinHandle::join);
        // All end before a failure is reported.
        let children: Vec<_> = children.collect();
        let children = children.into_iter().map(|child| child.map_err(failed)?);
        Ok((measured?, children.collect::<std::result::Result<_, E>>()?))
    })
}

/// A line for each fate, and for each child that was not met.
impl fmt::Display for ForkedChildren {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.clean {
            0 if !self.own.is_empty() => {}
            1 => writeln!(out, "1 forked child was left without instruments.")?,
            clean => {
                let clean = scale::grouped(clean);
                writeln!(
                    out,
                    "{clean} forked children were left without instruments."
                )?;
            }
        }
        match self.own.len() {
            0 => {}
            1 => writeln!(out, "1 forked child has counts of its own.")?,
            many => writeln!(out, "{many} forked children have counts of their own.")?,
        }
        for pid in &self.unmet {
            writeln!(
                out,
                "Process {pid} was forked in another way than by the C library, and counted with its parent."
            )?;
        }
        if self.was_late {
            writeln!(
                out,
                "A forked child has waited too long; it, and others, may have counted with their parent."
            )?;
        }
        for why in &self.failed {
            writeln!(out, "A forked child counted with its parent: {why}")?;
        }
        for why in &self.remains {
            writeln!(out, "The patches remain in a forked child, unused: {why}.")?;
        }
        Ok(())
    }
}
