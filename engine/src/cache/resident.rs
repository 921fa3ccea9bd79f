//! The resident code, at the start of each arena: what branches to when a landing is not the target.

use iced_x86::Register;

use super::CacheLayout;
use super::emit::{CodeBuffer, KEPT, RCX, RDX};
use super::targets::MULTIPLIER;
use crate::Addr;

/// Place of `rsi` during a search.
const RSI: i32 = -168;
/// Byte of the agent's word that is 0 while the agent executes: its bit 6 is `FUTEX_OWNER_DIED`, and no thread has a
/// number of more than 22 bits.
const LOST: u64 = 3;

/// The resident code of an arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Its address.
    pub start: Addr,
    /// Instructions, and padding between the two stops.
    pub bytes: Vec<u8>,
    /// Reached from landings whose target is another: `rdx` is the landing's address and 1, `rcx` that address less
    /// the target.
    pub differs: Addr,
    /// Searches the table of all targets for `rcx`.
    pub search: Addr,
    /// The second store of that search.
    pub second_spill: Addr,
    /// Has the agent translate `rcx`, or the original code execute it: an entry of the tables in place of a target that
    /// was dropped.
    pub dropped: Addr,
    /// Has the agent, or the original code, execute the instruction at `rcx`.
    pub step: Addr,
    /// The address of a stopped thread whose target is in no table.
    pub missed: Addr,
    /// The address of a stopped thread whose next instruction is not translated.
    pub stepped: Addr,
}

/// The places of a thread that the resident code has stopped, in bytes from its stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedPlaces {
    /// The original address that it continues at.
    pub target: i32,
    /// The value that its `rcx` has in the original code.
    pub rcx: i32,
    /// The value that its `rdx` has in the original code.
    pub rdx: i32,
}

impl Resident {
    /// Places of the registers of a stopped thread.
    pub const STOPPED: StoppedPlaces = StoppedPlaces {
        target: KEPT,
        rcx: RCX,
        rdx: RDX,
    };

    /// Makes the resident code for an address.
    #[must_use]
    pub fn new(start: Addr, layout: &CacheLayout) -> Self {
        let mut code = CodeBuffer::new(start, 64);
        let differs = code.here();
        // rcx = landing - target, rdx = landing + 1: rdx - rcx - 1 is the target.
        code.push(&[0x48, 0xf7, 0xd1]); // not rcx
        code.push(&[0x48, 0x8d, 0x0c, 0x11]); // lea rcx, [rcx+rdx]
        let search = code.here();
        code.spill(Register::RAX, KEPT);
        let second_spill = code.here();
        code.spill(Register::RSI, RSI);
        code.push(&[0x9f, 0x0f, 0x90, 0xc0]); // lahf; seto al
        // Pairs have two words: the index counts words, and is even.
        let mask = (2_i32 << layout.targets_log2) - 2;
        code.with(&[0x48, 0x69, 0xd1], MULTIPLIER); // imul rdx, rcx, MULTIPLIER
        code.push(&[0x48, 0xc1, 0xea, 31]); // shr rdx, 31
        let next = code.here();
        code.with(&[0x81, 0xe2], mask); // and edx, mask
        code.low(&[0x48, 0x8b, 0x34, 0xd5], layout.targets); // mov rsi, [targets + rdx*8]
        code.push(&[0x48, 0x39, 0xce]); // cmp rsi, rcx
        code.push(&[0x74, 10]); // je found
        code.push(&[0x48, 0x85, 0xf6]); // test rsi, rsi
        code.push(&[0x74, 50]); // je missed
        code.push(&[0x83, 0xc2, 2]); // add edx, 2
        let distance = code.here().add(2).to(next);
        code.push(&[
            0xeb,
            i8::try_from(distance).unwrap_or(-128).to_le_bytes()[0],
        ]); // jmp next
        // found:
        code.low(&[0x48, 0x8b, 0x34, 0xd5], layout.targets.add(8)); // mov rsi, [targets + 8 + rdx*8]
        code.push(&[0x0f, 0xb7, 0xd1]); // movzx edx, cx
        code.low(&[0x48, 0x89, 0x34, 0xd5], layout.recent); // mov [recent + rdx*8], rsi
        restore(&mut code);
        code.low(&[0xff, 0x24, 0xd5], layout.recent); // jmp [recent + rdx*8]
        // missed:
        restore(&mut code);
        let dropped = code.here();
        let missed = stop(&mut code, layout);
        code.align(16);
        let step = code.here();
        let stepped = stop(&mut code, layout);
        code.align(16);
        Self {
            start,
            bytes: code.bytes,
            differs,
            search,
            second_spill,
            dropped,
            step,
            missed,
            stepped,
        }
    }

    /// Returns whether the code at an address is a store that may fault, for lack of stack, before anything else is
    /// done: `rcx` is the original address that the thread continues at, `rcx` and `rdx` of the original code are at
    /// [their places](Self::STOPPED), and all other registers are those of the original code.
    #[must_use]
    pub fn has_target(&self, at: Addr) -> bool {
        [self.search, self.second_spill, self.dropped, self.step].contains(&at)
    }

    /// The end of its bytes.
    #[must_use]
    pub fn end(&self) -> Addr {
        self.start.add(self.bytes.len() as u64)
    }
}

/// Restores the flags, `rsi` and `rax`.
fn restore(code: &mut CodeBuffer) {
    code.push(&[0x04, 0x7f, 0x9e]); // add al, 0x7f; sahf
    code.reload(Register::RSI, RSI);
    code.reload(Register::RAX, KEPT);
}

/// Stops the thread at an `int3`, whose address is returned, while there is an agent; else continues in the original
/// code at `rcx`.
fn stop(code: &mut CodeBuffer, layout: &CacheLayout) -> Addr {
    code.spill(Register::RCX, KEPT);
    code.low(&[0x0f, 0xb6, 0x0c, 0x25], layout.agent.add(LOST)); // movzx ecx, byte [agent+3]
    code.push(&[0xe3, 23]); // jrcxz: to the int3
    code.reload(Register::RCX, RCX);
    code.reload(Register::RDX, RDX);
    code.with(&[0xff, 0xa4, 0x24], KEPT); // jmp [rsp-160]
    let stopped = code.here();
    code.push(&[0xcc]);
    stopped
}
