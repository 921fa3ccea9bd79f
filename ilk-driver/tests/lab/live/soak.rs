//! Batches are installed and removed for a long time, under load, concurrently with every other
//! writer of text.
//!
//! Each run lasts some seconds. `GILK_SOAK_CYCLES=1000` extends it; with `GILK_SINGLESTEP=1` the
//! emulator may preempt a thread between any two instructions.

use std::time::Duration;

use crate::guest::{Guest, assert_passed};
use crate::support::{number_in, prepared};

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn batches_and_all_other_writers_of_text_coexist() {
    let cycles = number_in("GILK_SOAK_CYCLES");
    let step = number_in("GILK_SINGLESTEP").is_some();
    let seconds = if cycles.is_some() { 100_000 } else { 8 };
    let cycles = cycles.unwrap_or(1000);
    let script = format!(
        "SOAK_CYCLES={cycles} SOAK_SECONDS={seconds} SOAK_CHURN={} SOAK_KILL=10 /lab/assay soak",
        u8::from(!step)
    );
    let guest = Guest::new(&prepared());
    let console = guest.run(&script, Duration::from_secs(300 + cycles * 20), |options| {
        if step {
            options.arguments.push("-singlestep".into());
            options.boot_limit = Duration::from_secs(1800);
        }
    });
    assert_passed(&console);
}
