//! `ilk doctor`: what of this machine GILK needs, and the commands that mend the rest.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ilk_driver::doctor::{Finding, Judgement, Machine, examine};

/// Examine this machine and print, for each fault, the command that mends it.
///
/// It reads files and changes nothing. Its exit status is 0 if the agent can work here now, and 1 if a fault is left.
#[derive(Args)]
pub(crate) struct Doctor {
    /// Examine the machine whose /proc, /sys, /etc and /lib are below this folder.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let machine = match self.root {
            Some(root) if !root.is_dir() => {
                anyhow::bail!(
                    "{} is not a folder with the files of a machine",
                    root.display()
                )
            }
            Some(root) => Machine::at(root),
            None => Machine::this(),
        };
        let findings = examine(&machine);
        let mut out = std::io::stdout().lock();
        for finding in &findings {
            write!(out, "{}", block(finding))?;
        }
        let faults = findings
            .iter()
            .filter(|finding| finding.judgement.is_fault())
            .count();
        Ok(match faults {
            0 => {
                writeln!(
                    out,
                    "\nGILK can work here: `ilk count 'vfs_*' -c 'ls /'` is a first question."
                )?;
                ExitCode::SUCCESS
            }
            1 => {
                writeln!(out, "\n1 fault. Mend it, and run `ilk doctor` again.")?;
                ExitCode::FAILURE
            }
            many => {
                writeln!(
                    out,
                    "\n{many} faults. Mend the first, and run `ilk doctor` again: it may mend others."
                )?;
                ExitCode::FAILURE
            }
        })
    }
}

/// Returns a line for the state, and one for each command.
fn block(finding: &Finding) -> String {
    let mark = match finding.judgement {
        Judgement::Fine(_) => "ok",
        Judgement::Warning { .. } => "warning",
        Judgement::Fault { .. } => "FAULT",
    };
    let mut text = format!(
        "{mark:<8}{:<14}{}\n",
        finding.subject,
        finding.judgement.text()
    );
    for command in finding.judgement.mend() {
        let prompt = if command.starts_with('#') { "" } else { "$ " };
        text.push_str(&format!("{:24}{prompt}{command}\n", ""));
    }
    text
}
