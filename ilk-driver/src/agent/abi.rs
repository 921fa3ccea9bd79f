//! The interface of module and agent: `kmod/ilk_abi.h` in Rust. A test compiles the header and
//! compares every size, offset and number.

use std::mem::size_of;

/// Version of the mirrored header.
pub const ABI_VERSION: u32 = 15;
/// Limit on the pokes in one batch.
pub const MAX_POKES: u32 = 1 << 20;
/// Limit on the bytes of one poke.
pub const POKE_MAX: usize = 8;

/// Flag: several instructions of text are overwritten or restored.
pub const POKE_MULTI: u8 = 1;
/// Flag: the poke restores original bytes.
pub const POKE_REMOVE: u8 = 2;

/// `jmp rel32`, or its first bytes.
pub const KIND_JUMP: u8 = 0;
/// `jmp rel8` to a bounce.
pub const KIND_SHORT: u8 = 1;
/// `jmp rel32` in bytes that no thread executes.
pub const KIND_BOUNCE: u8 = 2;
/// A permanent `int3`.
pub const KIND_TRAP: u8 = 3;
/// A call by the function tracer.
pub const KIND_TRACER: u8 = 4;
/// `call rel32` over a `call rel32`: the patch has the return address on the stack.
pub const KIND_CALL: u8 = 5;

/// `struct ilk_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IlkInfo {
    /// In: the caller's version; out: the module's.
    pub abi: u32,
    /// Size of this struct in the module.
    pub size: u32,
    /// Number of rings.
    pub cpus: u32,
    /// Slots of a ring, as a power of two.
    pub slots_log2: u32,
    /// Distance between rings, as a power of two.
    pub stride_log2: u32,
    /// TSC ticks a millisecond, by the kernel's calibration.
    pub tsc_khz: u32,
    /// Address of the arena.
    pub arena: u64,
    /// Its bytes.
    pub arena_size: u64,
    /// Address of CPU 0's ring.
    pub ring_base: u64,
    /// `gs:` offset of the head.
    pub gs_head: u64,
    /// `gs:` offset of the limit.
    pub gs_limit: u64,
    /// `gs:` offset of the hits that found the ring full.
    pub gs_lost_full: u64,
    /// `gs:` offset of the running task.
    pub gs_current: u64,
    /// Address of the table of timers.
    pub timers: u64,
    /// Entries of that table, as a power of two.
    pub timers_log2: u32,
    /// Number of banks of counters.
    pub counter_banks: u32,
    /// 1 if the kernel's unwinder accepts rows for the arena.
    pub unwinds: u32,
    /// Offset in a task of the thread's number.
    pub task_pid: u32,
    /// Offset in a task of the process's number.
    pub task_tgid: u32,
    /// Offset in a task of its name.
    pub task_comm: u32,
    /// `gs:` offset of the CPU's number.
    pub gs_cpu: u64,
    /// Address of the word that makes scaled TSC ticks nanoseconds of the kernel's monotonic clock.
    pub nsecs: u64,
    /// Nanoseconds of that clock per TSC tick, times 2^32; 0 if unknown.
    pub nsecs_factor: u64,
    /// Limit on the instructions in the arena that may fault.
    pub faults: u32,
    /// Number of modules unloaded since this one was loaded.
    pub modules: u32,
    /// Address of the code that reads stacks; 0 if there is none.
    pub stacks: u64,
    /// Address of the function that reads the running process; 0 if there is none.
    pub users: u64,
    /// The kernel release that the module was built for, terminated by zero.
    pub release: [u8; 64],
}

/// `struct ilk_arena_write`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkArenaWrite {
    /// Offset in the arena.
    pub offset: u64,
    /// Pointer to the bytes.
    pub data: u64,
    /// Pointer to the [`IlkRow`]s.
    pub rows: u64,
    /// Pointer to the [`IlkFault`]s.
    pub faults: u64,
    /// Number of bytes.
    pub len: u32,
    /// Number of rows.
    pub row_count: u32,
    /// Number of faults.
    pub fault_count: u32,
    /// Zero.
    pub reserved: u32,
}

/// `struct ilk_fault`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkFault {
    /// Offset of the instruction in the write.
    pub offset: u32,
    /// Offset at which execution continues; 0 with `original`.
    pub fixup: u32,
    /// Address of the instruction in the kernel's text whose exception table entry is copied; or 0.
    pub original: u64,
}

/// `struct ilk_row`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkRow {
    /// Address of the instruction in the kernel's text that the code represents to the unwinder.
    pub original: u64,
    /// Offset in the write.
    pub offset: u32,
    /// Bytes pushed by the code.
    pub pushed: u32,
}

/// `struct ilk_poke`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkPoke {
    /// First byte.
    pub addr: u64,
    /// Patch for threads that reach the splice while bytes change.
    pub detour: u64,
    /// The splice's branch target.
    pub target: u64,
    /// The splice that keeps threads out of the bytes of a bounce, or 0.
    pub host: u64,
    /// Displaced bytes that are `int3` while the splice is installed: bit `n` for byte `n` after it.
    pub filled: u64,
    /// One of the `KIND_`s.
    pub kind: u8,
    /// Number of bytes used in `expect` and `write`.
    pub len: u8,
    /// [`POKE_MULTI`], [`POKE_REMOVE`].
    pub flags: u8,
    /// Topological rank: lower ranks are installed first.
    pub rank: u8,
    /// Zero.
    pub reserved: u32,
    /// The bytes required before the write.
    pub expect: [u8; POKE_MAX],
    /// The bytes to write.
    pub write: [u8; POKE_MAX],
}

/// `struct ilk_batch`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkBatch {
    /// Pointer to the pokes.
    pub pokes: u64,
    /// Number of pokes.
    pub count: u32,
    /// Out: index of the refused poke.
    pub failed: u32,
    /// Out: reason of the refusal; 0 for success.
    pub reason: u32,
    /// In: zero; out: number of waits for all threads.
    pub waits: u32,
    /// In: [`IlkInfo::modules`] when the modules' text was read.
    pub modules: u32,
    /// In: zero; out: pokes left out because their module may have been unloaded.
    pub gone: u32,
    /// Out: time of the first write.
    pub tsc_begin: u64,
    /// Out: time when every CPU sees the last write.
    pub tsc_end: u64,
}

/// `struct ilk_bank`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkBank {
    /// In: the bank's number.
    pub bank: u32,
    /// Out: number of counters in it.
    pub slots: u32,
    /// Out: `gs:` offset of its first counter.
    pub gs: u64,
    /// Out: address of CPU 0's first counter.
    pub shared: u64,
}

/// `struct ilk_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkCounters {
    /// The bank's number.
    pub bank: u32,
    /// Index of the first counter.
    pub first: u32,
    /// Number of counters.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
    /// Pointer to `u64[cpus][count]`.
    pub out: u64,
}

/// `struct ilk_cpu_state`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IlkCpuState {
    /// Serial number of the next sample.
    pub head: u64,
    /// Hits lost because the ring was full.
    pub lost_full: u64,
    /// Hits lost because the ring was off.
    pub lost_off: u64,
}

/// `struct ilk_losses`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkLosses {
    /// Pointer to `struct ilk_cpu_state[cpus]`.
    pub out: u64,
    /// Number of CPUs.
    pub cpus: u32,
    /// Zero.
    pub reserved: u32,
}

/// `struct ilk_consume`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkConsume {
    /// Serial number up to which all samples were read.
    pub tail: u64,
    /// The ring's CPU.
    pub cpu: u32,
    /// Zero.
    pub reserved: u32,
}

/// Flag: a full ring overwrites its oldest samples instead of losing new ones.
pub const RINGS_OVERWRITE: u32 = 1;
/// Flag: hits are only counted as lost.
pub const RINGS_OFF: u32 = 2;

/// `struct ilk_rings`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkRings {
    /// [`RINGS_OVERWRITE`], [`RINGS_OFF`].
    pub flags: u32,
    /// Number of samples in a ring that wakes the reader.
    pub watermark: u32,
    /// Zero.
    pub reserved: u64,
}

/// Cause of an end, when the module removed every splice by itself: a live patch is loaded, or is in transition.
pub const END_LIVE_PATCH: u32 = 1;
/// The machine went to sleep, or hibernated.
pub const END_SLEEP: u32 = 2;
/// The machine restarts.
pub const END_RESTART: u32 = 3;

/// `struct ilk_state`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkState {
    /// In: 1 begins a session, 0 does not.
    pub begin: u32,
    /// Out: one of the `END_`s, or 0.
    pub ended: u32,
    /// Out: 1 if the kernel does not trust the TSC.
    pub tsc_unstable: u32,
    /// Zero.
    pub reserved: u32,
    /// Out: the time of that end, after the last splice was removed; or 0.
    pub tsc: u64,
}

/// Stacks whose frames are kept.
pub const STACKS: u32 = 4096;
/// Limit on the frames of a stack.
pub const STACK_DEPTH: usize = 126;

/// `struct ilk_stack`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IlkStack {
    /// Its number.
    pub id: u64,
    /// Number of its frames.
    pub count: u32,
    /// 1 if the addresses are of a process.
    pub user: u16,
    /// Zero.
    pub reserved: u16,
    /// The process; 0 if there is none.
    pub pid: u64,
    /// Their addresses, the hook's first.
    pub frames: [u64; STACK_DEPTH],
}

/// `struct ilk_stacks`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IlkStacks {
    /// Pointer to [`IlkStack`]s.
    pub out: u64,
    /// Out: hits whose stack is not in the table.
    pub lost: u64,
    /// Index of the first stack.
    pub first: u32,
    /// In: room; out: the number of stacks read.
    pub count: u32,
    /// In: 1 empties the table.
    pub begin: u32,
    /// Zero.
    pub reserved: u32,
}

/// Limit on the tracepoints that are on at a time.
pub const MAX_TRACEPOINTS: u32 = 64;

/// `struct ilk_tracepoint`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IlkTracepoint {
    /// The name without its subsystem; ends with 0.
    pub name: [u8; 64],
}

/// Second byte of all request numbers.
pub const IOC_TYPE: u8 = b'i';

/// `_IOC` of include/uapi/asm-generic/ioctl.h, for [`IOC_TYPE`].
const fn number(read: bool, write: bool, nr: u32, size: usize) -> u32 {
    ((read as u32) << 31)
        | ((write as u32) << 30)
        | ((size as u32) << 16)
        | ((IOC_TYPE as u32) << 8)
        | nr
}

/// Describes the module and checks versions; must be the first request.
pub const IOC_INFO: u32 = number(true, true, 0, size_of::<IlkInfo>());
/// Writes code.
pub const IOC_ARENA: u32 = number(false, true, 1, size_of::<IlkArenaWrite>());
/// Applies a batch of pokes.
pub const IOC_BATCH: u32 = number(true, true, 2, size_of::<IlkBatch>());
/// Reads counters.
pub const IOC_COUNTERS: u32 = number(true, true, 3, size_of::<IlkCounters>());
/// Reads heads and losses.
pub const IOC_LOSSES: u32 = number(true, true, 4, size_of::<IlkLosses>());
/// Frees consumed slots.
pub const IOC_CONSUME: u32 = number(false, true, 5, size_of::<IlkConsume>());
/// Removes every splice and zeroes the tables.
pub const IOC_RESET: u32 = number(false, false, 6, 0);
/// Describes a bank of counters.
pub const IOC_BANK: u32 = number(true, true, 7, size_of::<IlkBank>());
/// Configures the rings.
pub const IOC_RINGS: u32 = number(false, true, 8, size_of::<IlkRings>());
/// Begins a session, or reports whether the module has ended it.
pub const IOC_STATE: u32 = number(true, true, 9, size_of::<IlkState>());

/// Switches a tracepoint on.
pub const IOC_TRACEPOINT: u32 = number(false, true, 10, size_of::<IlkTracepoint>());
/// Switches all of them off.
pub const IOC_TRACEPOINTS_OFF: u32 = number(false, false, 11, 0);
/// Begins or reads the table of stacks.
pub const IOC_STACKS: u32 = number(true, true, 12, size_of::<IlkStacks>());

/// Returns the reason of a batch's refusal (`enum ilk_reason`), as the end of a sentence.
#[must_use]
pub fn reason(code: u32) -> &'static str {
    match code {
        0 => "there is no error",
        1 => "a field is out of range",
        2 => "the address is not text of the kernel or of a loaded module",
        3 => "the kernel forbids probes there (kprobe blacklist)",
        4 => "the bytes contain a jump label, which the kernel rewrites itself",
        5 => "the bytes contain a static call, which the kernel rewrites itself",
        6 => "the bytes contain an alternative, which the kernel rewrites itself",
        7 => "the bytes belong to the function tracer",
        8 => "a kprobe is armed there",
        9 => {
            "the bytes there differ from those that the plan was made for; read the image again \
             and repeat the plan"
        }
        10 => "it overlaps another poke or an installed splice",
        11 => "the kernel is out of memory for it",
        12 => "no splice of this session is installed there",
        13 => "its patch was not loaded into the arena, or it does not branch there",
        14 => "the bounce or splice that it depends on is not installed before it",
        15 => "another splice still depends on it",
        16 => {
            "the kernel's function tracer refuses it: the function has no tracer call, or a live \
             patch or another program already changes that function"
        }
        17 => "the module was configured to fail there (its parameter fail_step, for tests)",
        18 => "the session is over, and the module has removed every splice",
        _ => "the module returned a reason that this agent does not know",
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::mem::offset_of;
    use std::process::Command;

    use super::*;

    /// Compiles a C program with the header; its output must equal `expected`.
    #[test]
    fn the_c_header_has_the_same_layout() {
        let mut expected = String::new();
        let mut c = String::from(
            "#include <stdio.h>\n#include <stddef.h>\n#include \"ilk_abi.h\"\nint main(void) {\n",
        );
        let mut same = |name: &str, expression: &str, value: u64| {
            writeln!(expected, "{name} {value}").unwrap();
            writeln!(
                c,
                "printf(\"{name} %llu\\n\", (unsigned long long)({expression}));"
            )
            .unwrap();
        };
        macro_rules! layout {
            ($rust:ty, $c:literal, $($field:ident),+) => {
                same($c, concat!("sizeof(struct ", $c, ")"), size_of::<$rust>() as u64);
                $(same(
                    concat!($c, ".", stringify!($field)),
                    concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
                    offset_of!($rust, $field) as u64,
                );)+
            };
        }
        macro_rules! value {
            ($($rust:ident $c:literal),+) => { $(same($c, $c, u64::from($rust as u32));)+ };
        }
        layout!(
            IlkInfo,
            "ilk_info",
            abi,
            size,
            cpus,
            slots_log2,
            stride_log2,
            tsc_khz,
            arena,
            arena_size,
            ring_base,
            gs_head,
            gs_limit,
            gs_lost_full,
            gs_current,
            timers,
            timers_log2,
            counter_banks,
            unwinds,
            task_pid,
            task_tgid,
            task_comm,
            gs_cpu,
            nsecs,
            nsecs_factor,
            faults,
            modules,
            stacks,
            users,
            release
        );
        layout!(
            IlkArenaWrite,
            "ilk_arena_write",
            offset,
            data,
            rows,
            faults,
            len,
            row_count,
            fault_count,
            reserved
        );
        layout!(IlkFault, "ilk_fault", offset, fixup, original);
        layout!(IlkRow, "ilk_row", original, offset, pushed);
        layout!(
            IlkPoke, "ilk_poke", addr, detour, target, host, filled, kind, len, flags, rank,
            reserved, expect, write
        );
        layout!(IlkBank, "ilk_bank", bank, slots, gs, shared);
        layout!(
            IlkBatch,
            "ilk_batch",
            pokes,
            count,
            failed,
            reason,
            waits,
            modules,
            gone,
            tsc_begin,
            tsc_end
        );
        layout!(
            IlkCounters,
            "ilk_counters",
            bank,
            first,
            count,
            reserved,
            out
        );
        layout!(IlkCpuState, "ilk_cpu_state", head, lost_full, lost_off);
        layout!(IlkRings, "ilk_rings", flags, watermark, reserved);
        layout!(
            IlkState,
            "ilk_state",
            begin,
            ended,
            tsc_unstable,
            reserved,
            tsc
        );
        layout!(IlkTracepoint, "ilk_tracepoint", name);
        layout!(
            IlkStack,
            "ilk_stack",
            id,
            count,
            user,
            reserved,
            pid,
            frames
        );
        layout!(
            IlkStacks,
            "ilk_stacks",
            out,
            lost,
            first,
            count,
            begin,
            reserved
        );
        layout!(IlkLosses, "ilk_losses", out, cpus, reserved);
        layout!(IlkConsume, "ilk_consume", tail, cpu, reserved);
        same(
            "slot",
            "sizeof(struct ilk_slot)",
            gilk_samples::record::SLOT_BYTES as u64,
        );
        value!(
            ABI_VERSION "ILK_ABI_VERSION", MAX_POKES "ILK_MAX_POKES", POKE_MAX "ILK_POKE_MAX",
            KIND_JUMP "ILK_JUMP", KIND_SHORT "ILK_SHORT", KIND_BOUNCE "ILK_BOUNCE", KIND_TRAP "ILK_TRAP",
            KIND_TRACER "ILK_TRACER", KIND_CALL "ILK_CALL", IOC_BANK "ILK_IOC_BANK", POKE_MULTI "ILK_POKE_MULTI", POKE_REMOVE "ILK_POKE_REMOVE",
            IOC_INFO "ILK_IOC_INFO", IOC_ARENA "ILK_IOC_ARENA", IOC_BATCH "ILK_IOC_BATCH", IOC_COUNTERS "ILK_IOC_COUNTERS",
            IOC_LOSSES "ILK_IOC_LOSSES", IOC_CONSUME "ILK_IOC_CONSUME", IOC_RESET "ILK_IOC_RESET",
            IOC_RINGS "ILK_IOC_RINGS", IOC_TRACEPOINT "ILK_IOC_TRACEPOINT", IOC_TRACEPOINTS_OFF "ILK_IOC_TRACEPOINTS_OFF",
            STACKS "ILK_STACKS", STACK_DEPTH "ILK_STACK_DEPTH", IOC_STACKS "ILK_IOC_STACKS",
            MAX_TRACEPOINTS "ILK_MAX_TRACEPOINTS", IOC_STATE "ILK_IOC_STATE", END_LIVE_PATCH "ILK_END_LIVE_PATCH",
            END_SLEEP "ILK_END_SLEEP", END_RESTART "ILK_END_RESTART", RINGS_OVERWRITE "ILK_RINGS_OVERWRITE", RINGS_OFF "ILK_RINGS_OFF"
        );
        same("last reason", "ILK_OVER", 18);
        c.push_str("return 0; }\n");

        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("abi.c");
        let program = folder.path().join("abi");
        std::fs::write(&source, c).unwrap();
        let kmod = concat!(env!("CARGO_MANIFEST_DIR"), "/kmod");
        let built = Command::new("gcc")
            .args(["-Wall", "-Werror", "-I", kmod, "-o"])
            .arg(&program)
            .arg(&source)
            .status();
        assert!(
            built
                .expect("gcc is needed to build the module and this test")
                .success()
        );
        let output = Command::new(&program).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }

    #[test]
    fn every_reason_of_the_header_has_a_text() {
        let unknown = reason(u32::MAX);
        assert!((0..=18).all(|code| reason(code) != unknown));
        assert_eq!(reason(19), unknown);
    }
}
