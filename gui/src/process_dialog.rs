//! State of the dialog that lists the processes of this machine.

use ilk_driver::process::ListedProcess;

use crate::error::Error;

/// The open list of processes.
#[derive(Debug, Default)]
pub struct ProcessDialog {
    /// The chosen process is the target of runs in the code cache.
    pub in_cache: bool,
    /// The typed filter.
    pub filter: String,
    /// True once the filter has had the focus.
    pub focused: bool,
    /// The processes, or the reason why there are none; `None` while they are read.
    pub listed: Option<Result<Vec<ListedProcess>, String>>,
}

impl ProcessDialog {
    /// Shows processes that were read.
    pub(crate) fn answer(&mut self, listed: Result<Vec<ListedProcess>, Error>) {
        self.listed = Some(listed.map_err(|error| error.to_string()));
    }

    /// The processes that match the filter; the newest first.
    #[must_use]
    pub fn matching(&self) -> Vec<&ListedProcess> {
        let listed = self.listed.iter().flatten().flatten();
        let mut matching: Vec<&ListedProcess> = listed
            .filter(|process| process.matches(&self.filter))
            .collect();
        matching.sort_by_key(|process| process.age);
        matching
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_newest_matching_process_is_first() {
        let process = |pid: u32, command: &str| ListedProcess {
            pid,
            owner: "web".to_owned(),
            command: command.to_owned(),
            threads: 1,
            age: Duration::from_secs(u64::from(1000 - pid)),
        };
        let mut dialog = ProcessDialog::default();
        assert!(dialog.matching().is_empty());
        dialog.answer(Ok(vec![
            process(7, "server --old"),
            process(8, "cat"),
            process(9, "server --new"),
        ]));
        let pids = |dialog: &ProcessDialog| {
            let matching = dialog.matching();
            matching.iter().map(|one| one.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(&dialog), [9, 8, 7]);
        dialog.filter = "web SERVER".to_owned();
        assert_eq!(pids(&dialog), [9, 7]);
        dialog.filter = "8".to_owned();
        assert_eq!(pids(&dialog), [8]);
    }
}
