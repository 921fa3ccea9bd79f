//! The program that a session runs: started on the session's clock and killed at its end; its
//! output goes to the client.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
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
    state: Arc<State>,
    waiter: JoinHandle<()>,
}

/// The state of a program, which two threads know.
#[derive(Default)]
struct State {
    /// It has ended.
    ended: AtomicBool,
    /// The session's end has killed it.
    killed: AtomicBool,
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
        let state = Arc::new(State::default());
        let (own_outbox, own_state) = (Arc::clone(outbox), Arc::clone(&state));
        match std::thread::Builder::new()
            .name(String::from("workload"))
            .spawn(move || wait(child, &own_outbox, &own_state))
        {
            Ok(waiter) => Some(Self {
                group,
                state,
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
    /// queued. An end of this kind is not reported: it is that of the session.
    pub(super) fn end(self) {
        if !self.state.ended.load(Ordering::Acquire) {
            self.state.killed.store(true, Ordering::Release);
            sys::kill_group(self.group);
        }
        let _panicked = self.waiter.join();
    }
}

fn wait(mut child: Child, outbox: &Arc<Outbox>, state: &State) {
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
    state.ended.store(true, Ordering::Release);
    for listener in [out, err].into_iter().flatten() {
        let _panicked = listener.join();
    }
    let event = match status {
        Ok(status)
            if state.killed.load(Ordering::Acquire) && status.signal() == Some(libc::SIGKILL) =>
        {
            return;
        }
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::agent::stream::Stream;
    use crate::protocol::Decoder;

    /// Runs a program until it ends, or the session does, and returns its events.
    fn events(arguments: &[&str], ends_by_itself: bool) -> Vec<WorkloadEvent> {
        let (agent, mut client) = UnixStream::pair().unwrap();
        let stream = Arc::new(Stream::socket(agent).unwrap());
        let (outbox, _writer) = Outbox::start(stream).unwrap();
        let workload = Workload {
            program: "sh".into(),
            arguments: arguments.iter().map(|&word| word.into()).collect(),
            at: 0.0,
        };
        let running = RunningWorkload::start(&workload, &outbox).unwrap();
        while ends_by_itself && !running.state.ended.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        running.end();
        outbox.post(&Message::Accepted);
        let (mut events, mut decoder, mut buffer) = (Vec::new(), Decoder::frames_only(), [0; 4096]);
        loop {
            let count = client.read(&mut buffer).unwrap();
            decoder.push(&buffer[..count]);
            while let Some(message) = decoder.take::<Message>().unwrap() {
                match message {
                    Message::Workload(event) => events.push(event),
                    Message::Accepted => {
                        outbox.close();
                        return events;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn an_end_is_reported_unless_it_is_that_of_the_session() {
        let killed = events(&["-c", "sleep 60"], false);
        assert!(matches!(killed[..], [WorkloadEvent::Started { .. }]));
        let ended = events(&["-c", "exit 3"], true);
        assert!(matches!(
            &ended[..],
            [WorkloadEvent::Started { .. }, WorkloadEvent::Ended { status, success: false, .. }]
                if status == "exit status: 3"
        ));
        let itself = events(&["-c", "kill -9 $$"], true);
        assert!(matches!(
            &itself[..],
            [WorkloadEvent::Started { .. }, WorkloadEvent::Ended { status, .. }]
                if status.starts_with("signal: 9")
        ));
    }
}
