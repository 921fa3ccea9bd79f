//! Every test here needs the lab; `cargo xtask test` knows them by this module's name.

mod conservation;
mod contended;
mod everywhere;
mod executed;
mod faults;
mod full_disk;
mod grace;
mod guarded;
mod hostile;
mod instruments;
mod losses;
mod memory;
mod modules;
mod natives;
mod once;
mod paths;
mod programs;
mod pulsar;
mod restoration;
mod selectors;
mod soak;
mod tactics;
mod together;
mod truth;
mod unwinding;
mod ways;
