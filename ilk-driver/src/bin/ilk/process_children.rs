//! The choice of what becomes of the children that an instrumented process forks, and the report of it.

use std::fmt::Write as _;

use clap::ValueEnum;
use gilk_samples::chart::scale;
use ilk_driver::process::ForkedChildren;

/// The fate of forked children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Children {
    /// They keep the instruments, and count with their parent.
    #[default]
    Shared,
    /// Everything is removed from each before it executes an instruction.
    Clean,
}

/// Describes the forked children of a process, a line each.
pub(crate) fn text(children: &ForkedChildren) -> String {
    let mut out = String::new();
    let clean = scale::grouped(children.clean);
    // Writing to a String cannot fail.
    let _infallible = match children.clean {
        1 => writeln!(out, "1 forked child was left without instruments."),
        _ => writeln!(
            out,
            "{clean} forked children were left without instruments."
        ),
    };
    for pid in &children.unmet {
        let _infallible = writeln!(
            out,
            "Process {pid} was forked in another way than by the C library, and counted with its parent."
        );
    }
    if children.was_late {
        let _infallible = writeln!(
            out,
            "A forked child has waited too long; it, and others, may have counted with their parent."
        );
    }
    for why in &children.failed {
        let _infallible = writeln!(out, "A forked child counted with its parent: {why}");
    }
    for why in &children.remains {
        let _infallible = writeln!(out, "The patches remain in a forked child, unused: {why}.");
    }
    out
}
