//! The program that a session runs: started on the session's clock and killed at its end. The agent starts it where it
//! may, otherwise a client on the same machine, as its own user.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};

use crate::processor::tsc;
use crate::protocol::{Workload, WorkloadEvent};

/// Limit on the bytes of a line; a longer line is split.
const LINE: u64 = 4096;
/// Wait for a further line when the program has ended, and for all of them: a process that it has started may keep the
/// pipe open, or print there.
const REST: Duration = Duration::from_secs(1);
const ALL_OF_REST: Duration = Duration::from_secs(10);

/// The destination of events. A line may wait there until the receiver is ready; the program then blocks on its pipe.
pub(crate) trait Events: Send + Sync {
    /// Delivers an event; returns whether there is still a receiver.
    fn deliver(&self, event: WorkloadEvent) -> bool;
}

/// An outlet that closes with the session: what a process that outlives the program prints later goes nowhere.
struct Outlet {
    events: Arc<dyn Events>,
    is_open: Mutex<bool>,
}

impl Outlet {
    fn send(&self, event: WorkloadEvent) -> bool {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        *is_open && self.events.deliver(event)
    }

    /// Returns whether an event waits for its receiver.
    fn is_delivering(&self) -> bool {
        self.is_open.try_lock().is_err()
    }

    fn close(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// Returns what distinguishes the running kernel from all others; empty if that cannot be read.
pub(crate) fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

/// A started workload.
pub(crate) struct RunningWorkload {
    group: u32,
    state: Arc<State>,
    outlet: Arc<Outlet>,
    waiter: Option<JoinHandle<()>>,
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
    pub(crate) fn start(workload: &Workload, events: Arc<dyn Events>) -> Option<Self> {
        let outlet = Arc::new(Outlet {
            events,
            is_open: Mutex::new(true),
        });
        let failed = |what: String| outlet.send(WorkloadEvent::Failed(what));
        let mut command = Command::new(&workload.program);
        command
            .args(&workload.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let tsc = tsc();
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
        outlet.send(WorkloadEvent::Started { tsc, pid: group });
        let state = Arc::new(State::default());
        let (own_outlet, own_state) = (Arc::clone(&outlet), Arc::clone(&state));
        match std::thread::Builder::new()
            .name(String::from("workload"))
            .spawn(move || wait(child, &own_outlet, &own_state))
        {
            Ok(waiter) => Some(Self {
                group,
                state,
                outlet,
                waiter: Some(waiter),
            }),
            Err(e) => {
                kill_group(group);
                failed(format!(
                    "{} was killed, because its output could not be read: {e}.",
                    workload.program
                ));
                None
            }
        }
    }

    /// Returns the number of its process.
    pub(crate) const fn pid(&self) -> u32 {
        self.group
    }

    /// Kills the program and its process group if it still runs, and waits until its output is sent. An end of this kind
    /// is not reported: it is that of the session.
    pub(crate) fn end(mut self) {
        self.kill();
        if let Some(waiter) = self.waiter.take() {
            let _panicked = waiter.join();
        }
    }

    /// Kills the program and its process group if it still runs.
    fn kill(&self) {
        if !self.state.ended.load(Ordering::Acquire) {
            self.state.killed.store(true, Ordering::Release);
            kill_group(self.group);
        }
    }
}

impl Drop for RunningWorkload {
    fn drop(&mut self) {
        self.kill();
        self.outlet.close();
    }
}

/// Kills every process of a group.
fn kill_group(leader: u32) {
    let Ok(leader) = i32::try_from(leader) else {
        return;
    };
    if leader > 1 {
        // SAFETY: kill(2) takes numbers only; this process created the group for a workload.
        #[allow(unsafe_code, reason = "kill(2)")]
        let _gone_already = unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

fn wait(mut child: Child, outlet: &Arc<Outlet>, state: &State) {
    let (progress, delivered) = bounded(1);
    let listen = |source: Option<Box<dyn Read + Send>>| {
        let (outlet, progress) = (Arc::clone(outlet), progress.clone());
        source.map(|source| std::thread::spawn(move || send_lines(source, &outlet, &progress)))
    };
    let _of_output = listen(
        child
            .stdout
            .take()
            .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    );
    let _of_errors = listen(
        child
            .stderr
            .take()
            .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    );
    let status = child.wait();
    let tsc = tsc();
    state.ended.store(true, Ordering::Release);
    drop(progress);
    let until = Instant::now() + ALL_OF_REST;
    loop {
        match delivered.recv_timeout(REST) {
            // The receiver is slow.
            _ if outlet.is_delivering() => {}
            Ok(()) if Instant::now() < until => {}
            // Both have ended, or what is open is not the program's.
            _ => break,
        }
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
    outlet.send(event);
}

fn send_lines(source: impl Read, outlet: &Outlet, progress: &Sender<()>) {
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    loop {
        line.clear();
        match source.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if !outlet.send(WorkloadEvent::Line(text)) {
                    return;
                }
                // It is full if it says so already.
                let _full = progress.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;

    use super::*;

    struct Sent(Sender<WorkloadEvent>);

    impl Events for Sent {
        fn deliver(&self, event: WorkloadEvent) -> bool {
            self.0.send(event).is_ok()
        }
    }

    /// Runs a program until it ends, or the session does, and returns its events.
    fn events(arguments: &[&str], ends_by_itself: bool) -> Vec<WorkloadEvent> {
        let (sender, received) = unbounded();
        let workload = Workload {
            program: "sh".into(),
            arguments: arguments.iter().map(|&word| word.into()).collect(),
            at: 0.0,
        };
        let running = RunningWorkload::start(&workload, Arc::new(Sent(sender))).unwrap();
        while ends_by_itself && !running.state.ended.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        running.end();
        received.try_iter().collect()
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

    #[test]
    fn a_process_that_outlives_the_program_delays_the_end_by_a_second_at_most() {
        let begun = Instant::now();
        let ended = events(&["-c", "setsid sleep 60 & echo $!"], true);
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "it is not waited for"
        );
        let [
            WorkloadEvent::Started { .. },
            WorkloadEvent::Line(other),
            WorkloadEvent::Ended { success: true, .. },
        ] = &ended[..]
        else {
            panic!("{ended:?}");
        };
        let killed = Command::new("kill").arg(other).status();
        assert!(killed.unwrap().success(), "it has outlived the program");
    }
}
