//! The program that a session runs: started on the session's clock, heard, and ended with it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::outbox::Outbox;
use super::sys;
use crate::protocol::{Message, Workload, WorkloadEvent};

/// Bytes of a line that are sent on; the rest of a longer line makes lines of its own.
const LINE: u64 = 4096;

/// A workload that was started.
pub(super) struct Running {
    group: u32,
    ended: Arc<AtomicBool>,
    waiter: JoinHandle<()>,
}

impl Running {
    /// Starts it and tells so, or tells why not.
    pub(super) fn start(workload: &Workload, outbox: &Arc<Outbox>) -> Option<Self> {
        let failed = |what: String| outbox.tell(&Message::Workload(WorkloadEvent::Failed(what)));
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
        outbox.tell(&Message::Workload(WorkloadEvent::Started {
            tsc,
            pid: group,
        }));
        let ended = Arc::new(AtomicBool::new(false));
        let (own, flag) = (Arc::clone(outbox), Arc::clone(&ended));
        match std::thread::Builder::new()
            .name(String::from("workload"))
            .spawn(move || wait(child, &own, &flag))
        {
            Ok(waiter) => Some(Self {
                group,
                ended,
                waiter,
            }),
            Err(e) => {
                sys::kill_group(group);
                failed(format!(
                    "{} was ended, because the agent could not listen to it: {e}.",
                    workload.program
                ));
                None
            }
        }
    }

    /// Ends it if it still runs, with everything it started, and waits until all it said is queued.
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
        source.map(|source| std::thread::spawn(move || tell_lines(source, &outbox)))
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
        Err(e) => {
            WorkloadEvent::Failed(format!("The workload's end could not be waited for: {e}."))
        }
    };
    outbox.tell(&Message::Workload(event));
}

fn tell_lines(source: impl Read, outbox: &Outbox) {
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    loop {
        line.clear();
        match source.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                // A workload that talks more than the client reads is made to wait in its pipe.
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
