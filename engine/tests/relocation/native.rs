//! Runs machine code in this process: every general register, the flags and memory are chosen
//! before and looked at afterwards.
//!
//! All of it lives in one mapping in the low 2 GiB, where, as in the kernel's top 2 GiB, addresses
//! are sign-extended 32-bit numbers and everything is within reach of everything.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test file that includes this uses a part of it"
)]

#[path = "../support/host.rs"]
mod host;
#[path = "random.rs"]
mod random;

use iced_x86::code_asm::{
    AsmRegisterXmm, AsmRegisterYmm, CodeAssembler, qword_ptr, registers::*, xmmword_ptr,
    ymmword_ptr,
};

pub(crate) use host::set_gs;
pub(crate) use random::Random;

use host::Mapping;

const XMM: [AsmRegisterXmm; 16] = [
    xmm0, xmm1, xmm2, xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12, xmm13, xmm14,
    xmm15,
];
const YMM: [AsmRegisterYmm; 16] = [
    ymm0, ymm1, ymm2, ymm3, ymm4, ymm5, ymm6, ymm7, ymm8, ymm9, ymm10, ymm11, ymm12, ymm13, ymm14,
    ymm15,
];

/// Address of original code.
pub(crate) const ORIGINAL: u64 = 0x1_0000;
/// Address of patches.
pub(crate) const PATCH: u64 = 0x2_0000;
/// Memory that code may read and write: 64 KiB, with 64 KiB more on either side.
pub(crate) const SCRATCH: u64 = 0x5_0000;
/// Size of the memory at [`SCRATCH`] that tests may change.
pub(crate) const SCRATCH_BYTES: usize = 0x1_0000;
/// The stack pointer at entry; 4 KiB below and 4 KiB above are looked at.
pub(crate) const STACK: u64 = 0x8_0000;
/// Per-CPU words.
pub(crate) const GS: u64 = 0x9_0000;
/// Rings and tables.
pub(crate) const TABLES: u64 = 0xa_0000;
/// Bytes of the mapping.
pub(crate) const BYTES: usize = 0x10_0000;

const EXITS: u64 = 0x1000;
const STATE: u64 = 0x4000;
const VECTORS: u64 = 0x4200;
/// Bytes of a stub that leaves: far more than it needs.
const EXIT_BYTES: u64 = 64;

/// The status flags, all that instructions compute.
pub(crate) const STATUS: u64 = 0x8d5;

/// Returns where thread-local words of this thread are.
fn fs() -> u64 {
    let mut base = 0u64;
    #[allow(unsafe_code, reason = "reads the base of thread-local words")]
    // SAFETY: the kernel writes eight bytes to the address of a local variable.
    let read = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_FS, &raw mut base) };
    assert_eq!(read, 0);
    base
}

const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;

/// Machine state before or after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// By number: rax 0, rcx 1, rdx 2, rbx 3, rsp 4 …
    pub(crate) registers: [u64; 16],
    /// The whole of rflags; only the status flags are set at the start.
    pub(crate) flags: u64,
    /// By which exit the code left.
    pub(crate) exit: u64,
    /// xmm0 to xmm15, or ymm0 to ymm15 where there is AVX.
    pub(crate) vectors: [[u64; 4]; 16],
}

/// A mapping with code, data and stack.
pub(crate) struct Machine {
    mapping: Mapping,
    base: u64,
    /// True if the words at [`GS`] are reached by fs, and gs has no base. No signal may be handled meanwhile:
    /// a handler written in Rust has no thread-local data then.
    pub(crate) by_fs: bool,
}

impl Machine {
    /// Maps the memory and writes the stubs that enter and leave.
    pub(crate) fn new() -> Self {
        let mapping = Mapping::low(BYTES);
        let mut machine = Self {
            base: mapping.start(),
            mapping,
            by_fs: false,
        };
        machine.write_stubs();
        machine
    }

    /// The address of a byte of the mapping.
    pub(crate) const fn address(&self, offset: u64) -> u64 {
        self.base + offset
    }

    /// All of the memory.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        self.mapping.bytes()
    }

    /// Puts bytes at an offset.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.mapping.write(offset, bytes);
    }

    /// The 64-bit word at an offset.
    pub(crate) fn word(&mut self, offset: u64) -> u64 {
        self.mapping.word(offset)
    }

    /// Sets the 64-bit word at an offset.
    pub(crate) fn set_word(&mut self, offset: u64, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }

    /// The address of the stub by which code leaves with that number.
    pub(crate) const fn exit(&self, number: u64) -> u64 {
        assert!(number < 64);
        self.base + EXITS + number * EXIT_BYTES
    }

    /// Writes code that ends the original: a jump to the exit.
    pub(crate) fn write_exit_jump(&mut self, offset: u64, exit: u64) {
        let displacement = self.exit(exit) as i64 - (self.base + offset + 5) as i64;
        self.write(offset, &[0xe9]);
        self.write(
            offset + 1,
            &i32::try_from(displacement).unwrap().to_le_bytes(),
        );
    }

    /// Runs the code at an offset until it comes to an exit.
    pub(crate) fn run(&mut self, entry: u64, state: &State) -> State {
        for (number, &value) in state.registers.iter().enumerate() {
            self.set_word(STATE + 8 * number as u64, value);
        }
        for (number, &word) in state.vectors.as_flattened().iter().enumerate() {
            self.set_word(VECTORS + 8 * number as u64, word);
        }
        self.set_word(STATE + 128, state.flags & STATUS | 0x202);
        let entry = self.base + entry;
        self.set_word(STATE + 144, entry);
        let words = self.base + GS;
        self.set_word(STATE + 160, u64::from(self.by_fs));
        self.set_word(STATE + 168, words);
        self.set_word(STATE + 176, fs());
        #[allow(unsafe_code, reason = "runs the code under test")]
        // SAFETY: the stub at offset 0 follows the C calling convention: it saves what the code under
        // test may change and comes back by an exit with all of it restored. What the code itself may do
        // is the test's affair: it runs only instructions chosen for staying inside the mapping.
        unsafe {
            set_gs(if self.by_fs { 0 } else { words });
            let enter: extern "C" fn() = std::mem::transmute(self.base as *const ());
            enter();
        }
        let mut after = State::default();
        for number in 0..16 {
            after.registers[number] = self.word(STATE + 8 * number as u64);
        }
        for number in 0..64 {
            after.vectors.as_flattened_mut()[number] = self.word(VECTORS + 8 * number as u64);
        }
        after.flags = self.word(STATE + 128);
        after.exit = self.word(STATE + 136);
        after
    }

    /// Loads or stores all vector registers; changes no flag.
    fn move_vectors(&self, a: &mut CodeAssembler, store: bool) {
        let avx = std::arch::is_x86_feature_detected!("avx");
        for number in 0..16 {
            let (small, large) = (XMM[number], YMM[number]);
            let at = self.base + VECTORS + 32 * number as u64;
            match (avx, store) {
                (false, false) => a.movdqu(small, xmmword_ptr(at)),
                (false, true) => a.movdqu(xmmword_ptr(at), small),
                (true, false) => a.vmovdqu(large, ymmword_ptr(at)),
                (true, true) => a.vmovdqu(ymmword_ptr(at), large),
            }
            .unwrap();
        }
        if avx && store {
            a.vzeroupper().unwrap();
        }
    }

    /// Sets the base of fs to a word of the state, if code runs by fs; changes registers and flags.
    fn switch_fs(&self, a: &mut CodeAssembler, word: u64) {
        let at = |offset: u64| qword_ptr(self.base + STATE + offset);
        let mut kept = a.create_label();
        a.cmp(at(160), 0).unwrap();
        a.je(kept).unwrap();
        a.mov(eax, libc::SYS_arch_prctl as i32).unwrap();
        a.mov(edi, ARCH_SET_FS as i32).unwrap();
        a.mov(rsi, at(word)).unwrap();
        a.syscall().unwrap();
        a.set_label(&mut kept).unwrap();
        a.nop().unwrap();
    }

    fn write_stubs(&mut self) {
        let base = self.base;
        let at = |offset: u64| qword_ptr(base + STATE + offset);
        let registers = [
            rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
        ];
        let kept = [rbx, rbp, r12, r13, r14, r15];
        let mut enter = CodeAssembler::new(64).unwrap();
        for register in kept {
            enter.push(register).unwrap();
        }
        enter.mov(at(152), rsp).unwrap();
        self.switch_fs(&mut enter, 168);
        self.move_vectors(&mut enter, false);
        enter.push(at(128)).unwrap();
        enter.popfq().unwrap();
        for (number, register) in registers.into_iter().enumerate() {
            enter.mov(register, at(8 * number as u64)).unwrap();
        }
        enter.jmp(at(144)).unwrap();
        let code = enter.assemble(self.base).unwrap();
        self.write(0, &code);

        for number in 0..64u64 {
            let mut exit = CodeAssembler::new(64).unwrap();
            // None of these instructions changes a flag.
            exit.mov(at(136), number as i32).unwrap();
            exit.jmp(self.base + 0x800).unwrap();
            let code = exit.assemble(self.exit(number)).unwrap();
            assert!(code.len() as u64 <= EXIT_BYTES);
            self.write(EXITS + number * EXIT_BYTES, &code);
        }

        let mut leave = CodeAssembler::new(64).unwrap();
        for (number, register) in registers.into_iter().enumerate() {
            leave.mov(at(8 * number as u64), register).unwrap();
        }
        self.move_vectors(&mut leave, true);
        leave.mov(rsp, at(152)).unwrap();
        leave.pushfq().unwrap();
        leave.pop(at(128)).unwrap();
        leave.cld().unwrap();
        self.switch_fs(&mut leave, 176);
        for register in kept.into_iter().rev() {
            leave.pop(register).unwrap();
        }
        leave.ret().unwrap();
        let code = leave.assemble(self.base + 0x800).unwrap();
        self.write(0x800, &code);
    }
}
