//! A lab whose executed kernel instructions are logged, window by window.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gilk_engine::Addr;
use gilk_engine::session::Session;
use ilk_driver::client::{Connection, Event, StopFlag};
use ilk_driver::lab::{Accelerator, Options};
use tempfile::TempDir;

use super::trace::{Monitor, WINDOW_BYTES, executed};
use crate::support::{Shared, prepared, shared_of};

/// The lab, with its monitor and its log.
pub(super) struct Traced {
    pub(super) shared: Arc<Shared>,
    directory: TempDir,
}

impl Traced {
    pub(super) fn boot(change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("monitor");
        let prepared = prepared().with(|options| {
            // The clock counts instructions, so a slow log takes no time in the kernel.
            options.accelerator = Some(Accelerator::CountInstructions);
            options.arguments = vec![
                "-monitor".into(),
                format!("unix:{},server=on,wait=off", socket.display()),
                // The kernel and its modules, without user space.
                "-dfilter".into(),
                "0xffffffff80000000..0xfffffffffffffffe".into(),
            ];
            change(options);
        });
        Self {
            shared: shared_of(&prepared),
            directory,
        }
    }

    /// Connects to its agent.
    pub(super) fn connect(&self) -> Connection {
        self.shared.turn().connect()
    }

    /// Begins a session that lasts as long as the lab, without waiting for its end.
    pub(super) fn begin(&self, session: Session) {
        let mut connection = self.connect();
        let image = self.shared.image.clone();
        let recording = self.directory.path().join("recording.arrow");
        let (events, heard) = crossbeam_channel::unbounded();
        let runner = std::thread::spawn(move || {
            let library = gilk_instruments::Library::builtin().unwrap();
            let layout = &connection.info().layout;
            let plan = gilk_engine::plan::plan(&image, &session, &library, layout).unwrap();
            let verified = gilk_engine::verify::verify(&image, plan).unwrap();
            // A session that began ends with the lab.
            connection.run(&verified, &session, &recording, &events, &StopFlag::new())
        });
        let has_started = heard
            .iter()
            .any(|event| matches!(event, Event::Workload(_) | Event::Started(_)));
        if !has_started {
            let end = runner.join().expect("the session is planned and verified");
            let console = self.shared.lab.console().unwrap();
            panic!("the session did not begin: {end:?}\n{console}");
        }
    }

    /// Switches the processor to single instructions.
    pub(super) fn windows(&self) -> Windows<'_> {
        let mut monitor = Monitor::connect(&self.directory.path().join("monitor"));
        // The second name is that of QEMU before 8.1.
        monitor.one_of(&["one-insn-per-tb on", "singlestep on"]);
        Windows {
            traced: self,
            monitor,
            number: 0,
        }
    }
}

/// The executed instructions, in windows.
pub(super) struct Windows<'a> {
    traced: &'a Traced,
    monitor: Monitor,
    /// Number of windows so far.
    pub(super) number: u32,
}

impl Windows<'_> {
    /// Returns the instructions of the next window, in order.
    pub(super) fn next(&mut self) -> Vec<Addr> {
        let lab = &self.traced.shared.lab;
        let name = format!("window-{}", self.number);
        let log = self.traced.directory.path().join(name);
        self.number += 1;
        self.monitor.command(&format!("logfile {}", log.display()));
        self.monitor.command("log exec,nochain");
        let window = Instant::now();
        while std::fs::metadata(&log).map_or(0, |found| found.len()) < WINDOW_BYTES {
            assert!(
                window.elapsed() < Duration::from_secs(60) && lab.end().is_none(),
                "the workload does nothing: {:?}\n{}",
                lab.end(),
                lab.console().unwrap()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        self.monitor.command("log none");
        let text = std::fs::read(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        let pcs = executed(&text);
        assert!(
            pcs.len() > 10_000,
            "the log cannot be read: {} of {} bytes",
            pcs.len(),
            text.len()
        );
        pcs
    }
}
