//! State of a session that runs on several machines.

use std::path::PathBuf;

use gilk_samples::clocks::{Alignment, Reading};
use gilk_samples::joined::{Joint, Turn};
use gilk_samples::metadata::{Clock, Metadata};
use ilk_driver::client::Summary;

use crate::Result;
use crate::run::SharedStatus;

/// A session that runs on several machines, or the last one.
#[derive(Debug)]
pub struct Together {
    /// The machines, in the order of their lanes; the target is the first.
    pub members: Vec<Member>,
    /// The folder with a recording of each machine.
    pub folder: PathBuf,
    /// True once its lanes are on the timeline.
    pub(super) shown: bool,
    pub(super) over: bool,
}

/// A machine's part in the session.
#[derive(Debug)]
pub struct Member {
    /// Number of its thread.
    pub number: u64,
    /// Name in its recording and its lanes.
    pub name: String,
    /// Status shared with its thread.
    pub status: SharedStatus,
    /// The result of the run, once it has ended.
    pub ended: Option<std::result::Result<Box<Summary>, String>>,
    pub(super) metadata: Metadata,
    /// Its clock and the first reading, once it has started.
    pub(super) begun: Option<(Clock, Reading)>,
}

impl Member {
    /// Returns the alignment of its clock during the run. Only the first reading is used, so that
    /// time never runs backwards.
    pub(super) fn alignment(&self) -> Alignment {
        let reading = self.begun.map(|(_, reading)| reading);
        Alignment::new(reading, self.metadata.clock)
    }

    /// Returns the current error bound of its times, in nanoseconds.
    pub(super) fn error_ns(&self, seconds: f64) -> Option<u64> {
        let (clock, _) = self.begun?;
        self.alignment().error_ns(clock.tsc(seconds))
    }
}

impl Together {
    /// Returns whether the session still runs on a machine.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        !self.over
    }

    /// Returns the part of the machine with that number.
    #[must_use]
    pub fn member(&self, number: u64) -> Option<&Member> {
        self.members.iter().find(|member| member.number == number)
    }

    pub(super) fn member_mut(&mut self, number: u64) -> Option<&mut Member> {
        self.members
            .iter_mut()
            .find(|member| member.number == number)
    }

    /// Returns the joint metadata, with clocks as known.
    pub(super) fn metadata(&self) -> Result<Metadata> {
        let mut joint = Joint::default();
        for member in &self.members {
            let turn = turn(&mut joint, &member.metadata, member.alignment())?;
            let error = member.error_ns(0.0);
            joint.describe(&member.name, &member.metadata, &turn, error);
        }
        Ok(joint.finish())
    }
}

pub(super) fn turn(joint: &mut Joint, own: &Metadata, alignment: Alignment) -> Result<Turn> {
    Ok(joint.turn(own, own.cpus, alignment)?)
}
