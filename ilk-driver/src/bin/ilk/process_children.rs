//! Counts in a process, and in the children that it forks.

use std::path::{Path, PathBuf};

use crossbeam_channel::Receiver;
use ilk_driver::client::TargetInfo;
use ilk_driver::process::{Attached, FollowedProcess, with_children};

use crate::process::Measurement;
use crate::process_count::Counted;
use crate::process_results::ProcessPlan;

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
        with_children(
            children,
            || self.count(process, plan, info, (output, is_over)),
            |attached, number, is_left| {
                self.count_child(attached, (plan, info), (output, number), is_left)
            },
        )
    }

    /// Counts in a forked child until it ends, or its parent is left.
    fn count_child(
        &self,
        attached: Attached,
        (plan, info): (&ProcessPlan, &TargetInfo),
        (output, number): (Option<&Path>, u32),
        is_left: &dyn Fn() -> bool,
    ) -> anyhow::Result<OwnChild> {
        let pid = attached.pid();
        let process = FollowedProcess::alone(attached);
        let recording = output.map_or_else(PathBuf::new, |output| {
            let stem = output.file_stem().unwrap_or_default().display();
            output.with_file_name(format!("{stem}-{number}.arrow"))
        });
        let output = output.map(|_| recording.as_path());
        let counted = self.count(process, plan, info, (output, is_left))?;
        Ok(OwnChild {
            pid,
            counted,
            recording,
        })
    }
}
