//! Times of a processor, as `cargo xtask bench native --model --keep` writes them.
//!
//! AMD EPYC, family 25 model 17 stepping 1; Linux 6.18.44, in a virtual machine.

use super::Times;

/// Times where the processor mostly waits for something else, so that the rest executes meanwhile.
pub const WAITING: Times = Times {
    jump: 0.0,
    instruction: 0.02,
    clock: 1.16,
    exchange: 0.67,
    locked: 1.94,
    access: 0.04,
    scan: 0.74,
};
/// Times in a loop of one block, where nothing hides the work.
pub const IN_LOOP: Times = Times {
    jump: 0.08,
    instruction: 0.04,
    clock: 5.15,
    exchange: 0.0,
    locked: 1.19,
    access: 0.05,
    scan: 6.74,
};

/// A jump between the original code and a patch in a function with many sites, where processors have a jump to predict
/// every few instructions: half of the row "every block of ten, in place".
pub const CLOSE_JUMP: f64 = 0.37;
/// A call that a patch executes, eight calls deep: a push and a jump leave the processor's stack of return addresses
/// one short, so that every outer return mispredicts. The row "a call displaced" less "jump back to the call".
pub const MOVED: f64 = 41.36;
/// A call by the function tracer, which saves all registers that a callee may change: the row "counter that is called"
/// less "counter".
pub const TRACER: f64 = 1.35;
/// An `int3` that a kernel handles, which user mode cannot measure: the geometric mean of the rows "a system call that
/// the kernel refuses", which takes less, and "int3 and SIGTRAP", which takes more.
pub const TRAP: f64 = 556.87;
