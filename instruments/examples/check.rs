//! Checks an instrument without a kernel, and prints the cost of its probes:
//!
//! ```sh
//! cargo run -p gilk-instruments --example check -- instruments/library/elapsed.gilk
//! ```
//!
//! A source that names arguments or fields needs the kernel's types, and is reported as wrong here.

use std::process::ExitCode;

use gilk_instruments::{Context, Definition};

fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: check FILE");
        return ExitCode::FAILURE;
    };
    match check(&file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn check(file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let definition = Definition::from_source(file, &std::fs::read_to_string(file)?)?;
    println!("{}: {}", definition.name, definition.summary);
    println!("is placed {}", definition.stand());
    let Some(source) = definition.source() else {
        return Ok(());
    };
    let program = source.check(&Context::default())?;
    for probe in &program.probes {
        println!("{}: {}", probe.hook, program.cost(probe));
    }
    Ok(())
}
