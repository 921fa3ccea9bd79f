//! The program that a session runs: started on the session's clock and killed at its end; its
//! output goes to the client.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::outbox::Outbox;
use super::sys;
use crate::protocol::{Message, Workload, WorkloadEvent};

/// Limit on the bytes of a line; a longer line is split.
const LINE: u64 = 4096;

/// A started workload.
pub(super) struct RunningWorkload {
    group: u32,
    ended: Arc<AtomicBool>,
    waiter: JoinHandle<()>,
}

impl RunningWorkload {
    /// Starts the program and reports its start or its failure.
    pub(super) fn start(workload: &Workload, outbox: &Arc<Outbox>) -> Option<Self> {
        let failed = |what: String| outbox.post(&Message::Workload(WorkloadEvent::Failed(what)));
        let mut command = Command::new(&workload.program);
        command
            .args(&workload.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let tsc = sys::tsc();
        let child = match command.spawn() {
            Ok(child) => child,
            Err(e) => {
                failed(format!(
                    "{} could not be started on the target: {e}.",
                    workload.program
                ));
                return None;
            }
        };
        let group = child.id();
        outbox.post(&Message::Workload(WorkloadEvent::Started {
            tsc,
            pid: group,
        }));
        let ended = Arc::new(AtomicBool::new(false));
        let (own_outbox, flag) = (Arc::clone(outbox), Arc::clone(&ended));
        match std::thread::Builder::new()
            .name(String::from("workload"))
            .spawn(move || wait(child, &own_outbox, &flag))
        {
            Ok(waiter) => Some(Self {
                group,
                ended,
                waiter,
            }),
            Err(e) => {
                sys::kill_group(group);
                failed(format!(
                    "{} was killed, because the agent could not read its output: {e}.",
                    workload.program
                ));
                None
            }
        }
    }

    /// Returns the number of its process.
    pub(super) const fn pid(&self) -> u32 {
        self.group
    }

    /// Kills the program and its process group if it still runs, and waits until its output is
    /// queued.
    pub(super) fn end(self) {
        if !self.ended.load(Ordering::Acquire) {
            sys::kill_group(self.group);
        }
        let _panicked = self.waiter.join();
    }
}

fn wait(mut child: Child, outbox: &Arc<Outbox>, ended: &AtomicBool) {
    let listen = |source: Option<Box<dyn Read + Send>>| {
        let outbox = Arc::clone(outbox);
        source.map(|source| std::thread::spawn(move || send_lines(source, &outbox)))
    };
    let out = listen(
        child
            .stdout
            .take()
            .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    );
    let err = listen(
        child
            .stderr
            .take()
            .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    );
    let status = child.wait();
    let tsc = sys::tsc();
    ended.store(true, Ordering::Release);
    for listener in [out, err].into_iter().flatten() {
        let _panicked = listener.join();
    }
    let event = match status {
        Ok(status) => WorkloadEvent::Ended {
            tsc,
            status: status.to_string(),
            success: status.success(),
        },
        Err(e) => WorkloadEvent::Failed(format!("Waiting for the workload's end failed: {e}.")),
    };
    outbox.post(&Message::Workload(event));
}

fn send_lines(source: impl Read, outbox: &Outbox) {
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    loop {
        line.clear();
        match source.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                // If the client is slow, the workload blocks on its pipe (back-pressure).
                if outbox
                    .send(&Message::Workload(WorkloadEvent::Line(text)))
                    .is_err()
                {
                    return;
                }
            }
        }
    }
}
