//! The time of a hit, estimated from its patch.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::{Piece, PieceKind};
use crate::ids::part;
use crate::nanoseconds::{IN_LOOP, MOVED, TRACER, TRAP, WAITING};
use crate::placement::Splice;

/// Work of a hit on its usual way (nothing lost, no retry), beyond that of the original code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitWork {
    /// Jumps that are always taken: to the patch and back.
    pub jumps: u32,
    /// Reads of a clock or of another counter of the processor, which other instructions wait for.
    pub clocks: u32,
    /// Compare-and-exchange instructions of this CPU alone.
    pub exchanges: u32,
    /// Instructions that are atomic for all CPUs.
    pub locked: u32,
    /// Calls that push their return address, so that every outer return mispredicts.
    pub moved_calls: u32,
    /// Calls by the function tracer.
    pub tracers: u32,
    /// `int3`s that the kernel handles instead of a splice.
    pub traps: u32,
    /// Searches for the highest bit.
    pub scans: u32,
    /// Other instructions with an operand in memory.
    pub accesses: u32,
    /// All other instructions.
    pub instructions: u32,
    /// True if the original code is a loop of one block, where nothing hides the work.
    pub in_loop: bool,
}

impl HitWork {
    /// Counts the work of a patch of these pieces, which a splice of this form branches to.
    #[must_use]
    pub fn of(splice: Splice, code: &[u8], pieces: impl IntoIterator<Item = Piece>) -> Self {
        let mut work = Self::default();
        match splice {
            Splice::Jump => work.jumps = 1,
            Splice::Short(_) => work.jumps = 2,
            // Instead of the original call.
            Splice::Call => {}
            Splice::Tracer => work.tracers = 1,
            Splice::Trap => work.traps = 1,
        }
        for piece in pieces.into_iter().filter(|piece| piece.executed > 0) {
            let bytes = piece.range.start as usize..piece.range.end as usize;
            let decoder = Decoder::new(64, part(code, bytes), DecoderOptions::NONE);
            let executed = decoder.into_iter().take(piece.executed as usize);
            match piece.kind {
                PieceKind::Relocated => work.relocated(executed),
                _ => executed.for_each(|instruction| work.add(&instruction)),
            }
        }
        work
    }

    /// The estimated time in nanoseconds on the processor that [`nanoseconds`](crate::nanoseconds) was fitted on.
    #[must_use]
    pub fn nanoseconds(&self) -> f64 {
        self.terms()
            .into_iter()
            .map(|(count, time)| f64::from(count) * time)
            .sum()
    }

    /// The same work of a hit in a loop of one block, or elsewhere.
    #[must_use]
    pub const fn placed(self, in_loop: bool) -> Self {
        Self { in_loop, ..self }
    }

    /// Each count, and the time of one.
    #[must_use]
    pub const fn terms(&self) -> [(u32, f64); 10] {
        let times = if self.in_loop { IN_LOOP } else { WAITING };
        [
            (self.jumps, times.jump),
            (self.instructions, times.instruction),
            (self.clocks, times.clock),
            (self.exchanges, times.exchange),
            (self.locked, times.locked),
            (self.accesses, times.access),
            (self.scans, times.scan),
            (self.moved_calls, MOVED),
            (self.tracers, TRACER),
            (self.traps, TRAP),
        ]
    }

    fn add(&mut self, instruction: &Instruction) {
        let counted = match instruction.code() {
            Code::Rdtsc | Code::Rdtscp | Code::Rdpmc => &mut self.clocks,
            Code::Bsr_r64_rm64 => &mut self.scans,
            _ if instruction.has_lock_prefix() => &mut self.locked,
            Code::Cmpxchg_rm64_r64 => &mut self.exchanges,
            _ if instruction.flow_control() == FlowControl::UnconditionalBranch => &mut self.jumps,
            _ if instruction.op_kinds().any(|kind| kind == OpKind::Memory) => &mut self.accesses,
            _ => &mut self.instructions,
        };
        *counted += 1;
    }

    /// Adds what copies have that the original code has not: a pushed return address before a jump.
    fn relocated(&mut self, copies: impl Iterator<Item = Instruction>) {
        let mut is_pushed = false;
        for copy in copies {
            let jumps = matches!(
                copy.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
            );
            self.moved_calls += u32::from(is_pushed && jumps);
            // The upper half of the address may be written between.
            let is_half = is_pushed && copy.code() == Code::Mov_rm32_imm32;
            is_pushed = is_half || copy.code() == Code::Pushq_imm32;
        }
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::code_asm::{CodeAssembler, al, dword_ptr, eax, qword_ptr, rax, rcx, rdx, rsp};

    use super::*;

    type Writer = fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>;

    /// The work of a patch that a jump branches to: of each stretch its code, and the number of instructions that execute.
    fn work(stretches: &[(PieceKind, u32, Writer)]) -> HitWork {
        let mut code = Vec::new();
        let mut pieces = Vec::new();
        for &(kind, executed, write) in stretches {
            let mut a = CodeAssembler::new(64).unwrap();
            write(&mut a).unwrap();
            let start = code.len() as u32;
            code.extend(a.assemble(0x1000).unwrap());
            pieces.push(Piece {
                kind,
                range: start..code.len() as u32,
                executed,
            });
        }
        HitWork::of(Splice::Jump, &code, pieces)
    }

    #[test]
    fn work_is_counted_by_kind_and_the_original_instructions_are_not() {
        let counted = work(&[
            (PieceKind::Save, 3, |a| {
                a.push(rdx)?;
                a.lahf()?;
                a.seto(al)
            }),
            (PieceKind::Restore, 11, |a| {
                a.rdtsc()?;
                a.bsr(rcx, rax)?;
                a.cmpxchg(qword_ptr(0x100).gs(), rcx)?;
                a.lock().cmpxchg(qword_ptr(rdx), rcx)?;
                a.inc(qword_ptr(0x200).gs())?;
                a.add(rcx, rax)?;
                a.xor(eax, eax)?;
                a.add(al, 0x7f)?;
                a.sahf()?;
                a.pop(rdx)?;
                a.nop()
            }),
            (PieceKind::Relocated, 3, |a| {
                a.mov(rax, qword_ptr(rcx))?;
                a.push(0x12345)?;
                a.jmp(0x2000)
            }),
            (PieceKind::Terminating, 1, |a| a.jmp(0x2000)),
            // A rare path.
            (PieceKind::Save, 0, |a| a.inc(qword_ptr(0x300).gs())),
        ]);
        let expected = HitWork {
            jumps: 2,
            clocks: 1,
            exchanges: 1,
            locked: 1,
            moved_calls: 1,
            tracers: 0,
            traps: 0,
            scans: 1,
            accesses: 1,
            instructions: 9,
            in_loop: false,
        };
        assert_eq!(counted, expected);
        for (in_loop, times) in [(false, WAITING), (true, IN_LOOP)] {
            let ns = counted.placed(in_loop).nanoseconds();
            let counted = MOVED + times.clock + times.locked + times.scan;
            assert!(ns > counted && ns < counted + 10.0, "{ns}");
        }
    }

    #[test]
    fn a_push_of_the_original_code_is_no_moved_call() {
        let pushed = work(&[(PieceKind::Relocated, 2, |a| {
            a.push(0x12345)?;
            a.call(0x2000)
        })]);
        assert_eq!(pushed.moved_calls, 0);
        let halves = work(&[(PieceKind::Relocated, 3, |a| {
            a.push(0x12345)?;
            a.mov(dword_ptr(rsp + 4), 7)?;
            a.jmp(rax)
        })]);
        assert_eq!(halves.moved_calls, 1);
    }
}
