//! Register allocation for the instruments of one hook: working registers, and the saved ones among them.

use gilk_instruments::Native;
use gilk_instruments::program::Probe;
use iced_x86::Register;

use super::compile::Demand;
use super::group::Groups;
use super::{HookProgram, Hooked};
use crate::ids::to_u32;
use crate::isa::abi::{CALLER_SAVED, input_register};
use crate::layout::RuntimeLayout;
use crate::liveness::{Live, RegisterSet};

/// Order of preference: what the calling convention lets callees change, then the rest; never rsp, nor
/// rbp, which stacks are unwound by.
const PREFERRED: [Register; 14] = [
    Register::RCX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::RAX,
    Register::RDX,
    Register::RBX,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Storage of the flags while the instruments of one hook execute. Both ways save them by `lahf` and `seto al`, and
/// restore them by `add al, 0x7f` and `sahf`: `popf` takes some 20 cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SavedFlags {
    /// Nowhere: they are dead.
    Dead,
    /// In rax, which no instrument uses.
    Rax,
    /// On the stack, after the registers.
    Pushed,
}

/// Registers that the instruments of one hook use, and those saved around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    /// Registers to work in besides rax and rdx: `work[0]` first.
    pub(super) work: Vec<Register>,
    /// Registers to push, in order.
    pub(super) saved: Vec<Register>,
    /// Storage of the flags.
    pub(super) flags: SavedFlags,
    /// Bytes that are pushed before all saves.
    entered: u32,
    /// Bytes below the stack pointer to step over before all pushes: the red zone, if there are any pushes.
    pub(super) red_zone: u8,
}

impl Registers {
    /// The most registers to work in: all but rax, rdx and rcx.
    pub(super) const MOST_WORK: usize = PREFERRED.len() - 3;

    /// Chooses for `hooked`, all at one hook where `live` is live and `entered` bytes are pushed.
    pub(super) fn choose(
        hooked: &[Hooked<'_>],
        live: Live,
        layout: &RuntimeLayout,
        entered: u32,
    ) -> Self {
        let needs = hooked.iter().map(|hooked| needs(hooked, layout));
        let mut needs = needs.fold(Demand::default(), Demand::with);
        if Groups::of(hooked, layout).any() {
            // The time stays in rdx for all samples of a group.
            needs = needs.with(Demand::fixed(3));
        }
        let read = hooked.iter().fold(RegisterSet::EMPTY, |read, hooked| {
            read.union(match hooked.program {
                HookProgram::Probe(probed) => probed.reads(),
                HookProgram::Native(called) => given(called.native),
                HookProgram::Replaced(_) => RegisterSet::EMPTY,
            })
        });

        // Dead registers first; a register that is sampled is left alone where it can be.
        let cost =
            |register: &Register| (read.contains(*register), live.registers.contains(*register));
        let mut candidates = PREFERRED;
        candidates.sort_by_key(cost);
        // The clock and the reservation want rax and rdx for themselves.
        let mut used: Vec<Register> = if needs.fixed {
            vec![Register::RAX, Register::RDX]
        } else {
            Vec::new()
        };
        // The flags pass through rax. A branch changes none.
        let changes = |one: &Hooked<'_>| !matches!(one.program, HookProgram::Replaced(_));
        let flags = live.flags && hooked.iter().any(changes);
        used.extend((flags && !needs.fixed).then_some(Register::RAX));
        // A shift by a register wants rcx.
        used.extend(needs.counts.then_some(Register::RCX));
        let work: Vec<Register> = candidates
            .into_iter()
            .filter(|register| !used.contains(register))
            .take(needs.registers)
            .collect();
        used.extend(&work);
        let calls = |hooked: &Hooked<'_>| matches!(hooked.program, HookProgram::Native(_));
        let calls = hooked.iter().any(calls);
        if calls {
            let changed = CALLER_SAVED.into_iter();
            let further: Vec<Register> = changed.filter(|one| !used.contains(one)).collect();
            used.extend(further);
        }
        // A sampled register is saved even if it is dead: the next instrument may sample it.
        let kept = live.registers.union(read);
        let saved: Vec<Register> = used
            .into_iter()
            .filter(|&register| kept.contains(register))
            .collect();
        let flags = match flags {
            false => SavedFlags::Dead,
            true if needs.fixed || calls => SavedFlags::Pushed,
            true => SavedFlags::Rax,
        };
        let reads = hooked.iter().any(|hooked| match hooked.program {
            HookProgram::Probe(probed) => probed.probe().is_some_and(Probe::reads_process),
            HookProgram::Native(_) | HookProgram::Replaced(_) => false,
        });
        let pushes = flags == SavedFlags::Pushed || calls || reads || !saved.is_empty();
        Self {
            work,
            red_zone: if pushes { layout.abi.red_zone } else { 0 },
            saved,
            flags,
            entered,
        }
    }

    /// The register to work in of that number. Beyond the number that was required it is none, which cannot be
    /// encoded: an instruction that uses it refuses the patch.
    pub(super) fn work(&self, number: usize) -> Register {
        self.work.get(number).copied().unwrap_or(Register::None)
    }

    /// Returns the bytes from the stack pointer after all saves to that of the code at the hook.
    pub(super) fn pushed(&self) -> i64 {
        let saved = (self.saved.len() + self.flags.words()) * 8 + usize::from(self.red_zone);
        i64::from(self.entered) + i64::from(to_u32(saved))
    }

    /// Returns the offset of the saved value of `register` from the stack pointer after all saves.
    pub(super) fn slot(&self, register: Register) -> Option<i64> {
        let index = self.saved.iter().position(|&saved| saved == register)?;
        let above = self.saved.len() - 1 - index + self.flags.words();
        i64::try_from(above * 8).ok()
    }
}

impl SavedFlags {
    /// Words on the stack.
    fn words(self) -> usize {
        usize::from(self == Self::Pushed)
    }
}

fn needs(hooked: &Hooked<'_>, layout: &RuntimeLayout) -> Demand {
    match hooked.program {
        HookProgram::Probe(probed) => Demand::of_probe(probed, hooked.counter, layout),
        // The returned value is kept while a slot is reserved.
        HookProgram::Native(called) if called.native.samples => Demand::fixed(3),
        HookProgram::Native(_) | HookProgram::Replaced(_) => Demand::default(),
    }
}

/// Registers that a native function is given.
pub(crate) fn given(native: &Native) -> RegisterSet {
    native.inputs().filter_map(input_register).collect()
}
