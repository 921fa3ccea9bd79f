//! The choice of what becomes of the children that an instrumented process forks, and the report of it.

use std::fmt::Write as _;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use anyhow::anyhow;
use clap::ValueEnum;
use crossbeam_channel::Receiver;
use gilk_samples::chart::scale;
use ilk_driver::client::TargetInfo;
use ilk_driver::process::{Attached, FollowedProcess, ForkWatch, ForkedChildren};

use crate::process::Measurement;
use crate::process_count::Counted;
use crate::process_results::ProcessPlan;

/// The fate of forked children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Children {
    /// They keep the instruments, and count with their parent.
    #[default]
    Shared,
    /// Everything is removed from each before it executes an instruction.
    Clean,
    /// They keep the instruments, and have counts and samples of their own.
    Own,
}

impl Children {
    /// Has the children of a process wait until their fate is decided, which for clean ones is at once.
    pub(crate) fn watch(self, pid: u32) -> ilk_driver::Result<Option<ForkWatch>> {
        if self == Self::Shared {
            return Ok(None);
        }
        let mut forks = ForkWatch::attach(pid)?;
        if self == Self::Clean {
            forks.leave_children_clean();
        }
        Ok(Some(forks))
    }
}

/// Describes the forked children of a process, a line each.
pub(crate) fn text(children: &ForkedChildren) -> String {
    let mut out = String::new();
    let clean = scale::grouped(children.clean);
    // Writing to a String cannot fail.
    let _infallible = match children.clean {
        0 if !children.own.is_empty() => Ok(()),
        1 => writeln!(out, "1 forked child was left without instruments."),
        _ => writeln!(
            out,
            "{clean} forked children were left without instruments."
        ),
    };
    match children.own.len() {
        0 => {}
        1 => out.push_str("1 forked child has counts of its own.\n"),
        many => {
            let _infallible = writeln!(out, "{many} forked children have counts of their own.");
        }
    }
    for pid in &children.unmet {
        let _infallible = writeln!(
            out,
            "Process {pid} was forked in another way than by the C library, and counted with its parent."
        );
    }
    if children.was_late {
        let _infallible = writeln!(
            out,
            "A forked child has waited too long; it, and others, may have counted with their parent."
        );
    }
    for why in &children.failed {
        let _infallible = writeln!(out, "A forked child counted with its parent: {why}");
    }
    for why in &children.remains {
        let _infallible = writeln!(out, "The patches remain in a forked child, unused: {why}.");
    }
    out
}

/// A forked child with counts of its own, and the file of its recording.
pub(crate) struct OwnChild {
    pub(crate) pid: u32,
    pub(crate) counted: Counted,
    pub(crate) recording: PathBuf,
}

impl Measurement {
    /// Counts in a process, and in the children that it forks until its end, each in a thread of its own. The recordings of
    /// children stand in the folder of the process's.
    pub(crate) fn count_with_children(
        &self,
        process: FollowedProcess<'_, ProcessPlan>,
        (plan, info): (&ProcessPlan, &TargetInfo),
        (output, is_over): (Option<&Path>, &dyn Fn() -> bool),
        children: &Receiver<Attached>,
    ) -> anyhow::Result<(Counted, Vec<OwnChild>)> {
        let is_left = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let counting = scope.spawn(|| {
                let mut counting = Vec::new();
                // The sender ends with the watch of the process.
                for (number, attached) in (1..).zip(children.iter()) {
                    let number: u32 = number;
                    let is_left = &is_left;
                    let counted = scope.spawn(move || {
                        self.count_child(attached, (plan, info), (output, number), is_left)
                    });
                    counting.push(counted);
                }
                counting
            });
            let counted = self.count(process, plan, info, (output, is_over));
            is_left.store(true, Ordering::Release);
            let failed = |_| anyhow!("a thread has failed, which is a bug in gilk");
            let counting = counting.join().map_err(failed)?;
            let children = counting.into_iter().map(ScopedJoinHandle::join);
            // All end before a failure is reported.
            let children: Vec<_> = children.collect();
            let children = children.into_iter().map(|child| child.map_err(failed)?);
            Ok((counted?, children.collect::<anyhow::Result<_>>()?))
        })
    }

    /// Counts in a forked child until it ends, or its parent is left.
    fn count_child(
        &self,
        attached: Attached,
        (plan, info): (&ProcessPlan, &TargetInfo),
        (output, number): (Option<&Path>, u32),
        is_left: &AtomicBool,
    ) -> anyhow::Result<OwnChild> {
        let pid = attached.pid();
        let process = FollowedProcess::alone(attached);
        let recording = output.map_or_else(PathBuf::new, |output| {
            let stem = output.file_stem().unwrap_or_default().display();
            output.with_file_name(format!("{stem}-{number}.arrow"))
        });
        let output = output.map(|_| recording.as_path());
        let is_over = || is_left.load(Ordering::Acquire);
        let counted = self.count(process, plan, info, (output, &is_over))?;
        Ok(OwnChild {
            pid,
            counted,
            recording,
        })
    }
}
