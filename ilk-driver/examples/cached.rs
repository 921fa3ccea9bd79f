//! Counts every block that a running process executes in ten seconds, in the code cache:
//! `cargo run --example cached -- PID FILE`. `ilk stats FILE` shows the counts.

use std::path::Path;
use std::time::Duration;

use ilk_driver::client::StopFlag;
use ilk_driver::process::{CachedRun, CloneThreads, ProcessChoices, ProcessTarget};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(pid), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: cached PID FILE".into());
    };
    let mut process = ProcessTarget::open_for_cache(pid.parse()?)?;
    let (events, _received) = crossbeam_channel::unbounded();
    let summary = process.run_in_cache(CachedRun {
        session: None,
        threads: &CloneThreads::All,
        choices: ProcessChoices::default(),
        length: Duration::from_secs(10),
        recording: Path::new(&file),
        events: &events,
        stop: &StopFlag::new(),
    })?;
    println!("{} blocks were executed.", summary.instruments.len());
    Ok(())
}
