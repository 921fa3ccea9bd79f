//! `ilk status` and `ilk stop`: the state of an agent, and the end of a session without a client.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::Args;
use gilk_samples::chart::scale;
use ilk_driver::client::{self, Status};
use ilk_driver::process::Instrumented;

use crate::target::TargetArgs;

/// Show the processes of this machine that are instrumented, then the client of an agent and the functions that are
/// spliced, without disturbing any session.
#[derive(Args)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    target: TargetArgs,
}

/// End a session whose client was lost and which continues for its grace. Its recording can then
/// not be resumed.
#[derive(Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    target: TargetArgs,
}

impl StatusCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        for process in Instrumented::all()? {
            writeln!(std::io::stdout(), "{}", process_line(&process))?;
        }
        let status = client::status(&self.target.socket_alone()?)?;
        write!(std::io::stdout(), "{}", text(&status))?;
        Ok(())
    }
}

impl Stop {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        client::end(&self.target.socket_alone()?)?;
        writeln!(
            std::io::stdout(),
            "The session is ended, and every splice is removed."
        )?;
        Ok(())
    }
}

fn process_line(process: &Instrumented) -> String {
    let Instrumented { pid, name, .. } = process;
    let splices = match process.splices {
        Some(splices) => scale::counted(splices as u64, "splice"),
        None => String::from("splices that this user may not read"),
    };
    let client = process.client.pid;
    let by = if process.is_counting {
        format!("by process {client}")
    } else {
        format!("left by process {client}, which was killed (`ilk process --clean -p {pid}`)")
    };
    format!("process {pid} ({name}): {splices}, {by}")
}

fn text(status: &Status) -> String {
    let mut out = format!("{}, Linux {}: ", status.host, status.release);
    let user = status.holder.as_ref().map(|holder| {
        let by = match (holder.user, holder.process) {
            (Some(user), Some(process)) => format!("user {user}, process {process}"),
            _ => String::from("a client at its port"),
        };
        format!("used by {by} for {} s", holder.seconds)
    });
    out.push_str(match &user {
        Some(user) => user,
        None => "no client",
    });
    if let Some(seconds) = status.parked {
        // Writing to a String cannot fail.
        let _infallible = write!(
            out,
            "; a session whose client was lost continues for {seconds} s (`ilk resume`, `ilk stop`)"
        );
    }
    if status.is_out {
        out.push_str("; a live patch changes the kernel, and the session continues after that");
    }
    let _infallible = match status.splices {
        0 => writeln!(out, "; nothing is spliced."),
        1 => writeln!(out, "; 1 splice is in place:"),
        splices => writeln!(out, "; {splices} splices are in place:"),
    };
    for function in &status.functions {
        let _infallible = writeln!(out, "{:>8}  {}", function.splices, function.name);
    }
    out
}

#[cfg(test)]
mod tests {
    use ilk_driver::client::{Holder, SplicedFunction};

    use super::*;

    #[test]
    fn holder_grace_and_splices_are_named() {
        let mut status = Status {
            host: "here".into(),
            release: "6.1".into(),
            ..Status::default()
        };
        assert_eq!(
            text(&status),
            "here, Linux 6.1: no client; nothing is spliced.\n"
        );
        status.holder = Some(Holder {
            user: Some(1000),
            process: Some(77),
            seconds: 3,
        });
        status.splices = 2;
        status.functions = vec![SplicedFunction {
            name: "vfs_read".into(),
            splices: 2,
        }];
        let used = text(&status);
        assert!(
            used.contains("used by user 1000, process 77 for 3 s; 2 splices are in place:\n"),
            "{used}"
        );
        assert!(used.ends_with("       2  vfs_read\n"), "{used}");
        status.holder = None;
        status.parked = Some(9);
        assert!(text(&status).contains("continues for 9 s"));
        status.is_out = true;
        assert!(text(&status).contains("the session continues after that; 2 splices"));
    }
}
