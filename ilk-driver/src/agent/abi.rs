//! What the module and the agent say to each other: `kmod/ilk_abi.h` in Rust. A test compiles the
//! header and compares every size, offset and number.

use std::mem::size_of;

/// The version of the header this mirrors.
pub const ABI_VERSION: u32 = 7;
/// Pokes in one batch.
pub const MAX_POKES: u32 = 1 << 20;
/// Room for the bytes of one poke.
pub const POKE_MAX: usize = 8;

/// More than one instruction of text is overwritten or restored.
pub const POKE_MULTI: u8 = 1;
/// Puts original bytes back.
pub const POKE_REMOVE: u8 = 2;

/// `jmp rel32`, or its first bytes.
pub const KIND_JUMP: u8 = 0;
/// `jmp rel8` to a bounce.
pub const KIND_SHORT: u8 = 1;
/// `jmp rel32` in bytes that nobody runs.
pub const KIND_BOUNCE: u8 = 2;
/// An `int3` that stays.
pub const KIND_TRAP: u8 = 3;
/// The function tracer leads from its site.
pub const KIND_TRACER: u8 = 4;

/// `struct ilk_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// In: the caller's version; out: the module's.
    pub abi: u32,
    /// Bytes of this struct, by the module.
    pub size: u32,
    /// Rings there are.
    pub cpus: u32,
    /// Slots of a ring, as a power of two.
    pub slots_log2: u32,
    /// From one ring to the next, as a power of two.
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
    /// `gs:` offset of the timer stops without a start.
    pub gs_lost_unmatched: u64,
    /// `gs:` offset of the running task.
    pub gs_current: u64,
    /// Address of the table of timers.
    pub timers: u64,
    /// Its entries, as a power of two.
    pub timers_log2: u32,
    /// Banks of counters.
    pub counter_banks: u32,
    /// 1 if stacks are unwound through the arena.
    pub unwinds: u32,
    /// Bytes from a task to the number of its thread.
    pub task_pid: u32,
    /// Bytes from a task to the number of its process.
    pub task_tgid: u32,
    /// Bytes from a task to its name.
    pub task_comm: u32,
    /// `gs:` offset of the number of the CPU.
    pub gs_cpu: u64,
    /// Instructions of the arena that may fault, at most.
    pub faults: u32,
    /// Modules that have been unloaded since this one was loaded.
    pub modules: u32,
    /// The release the module was built for, ended by a zero.
    pub release: [u8; 64],
}

/// `struct ilk_arena_write`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaWrite {
    /// From the arena's start.
    pub offset: u64,
    /// Pointer to the bytes.
    pub data: u64,
    /// Pointer to the [`Row`]s.
    pub rows: u64,
    /// Pointer to the [`Fault`]s.
    pub faults: u64,
    /// How many bytes.
    pub len: u32,
    /// How many rows.
    pub row_count: u32,
    /// How many faults.
    pub fault_count: u32,
    /// Zero.
    pub reserved: u32,
}

/// `struct ilk_fault`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fault {
    /// The instruction, from the start of the write.
    pub offset: u32,
    /// Where to go on; 0 with `original`.
    pub fixup: u32,
    /// The instruction of the kernel's text whose entry in the exception table it has one like; or 0.
    pub original: u64,
}

/// `struct ilk_row`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// The instruction of the kernel's text that the code stands for.
    pub original: u64,
    /// From the start of the write.
    pub offset: u32,
    /// Bytes that the code has pushed.
    pub pushed: u32,
}

/// `struct ilk_poke`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Poke {
    /// First byte.
    pub addr: u64,
    /// Where a thread goes that comes by while bytes change.
    pub detour: u64,
    /// Where it leads then.
    pub target: u64,
    /// What keeps threads away from the bytes of a bounce, or 0.
    pub host: u64,
    /// One of the `KIND_`s.
    pub kind: u8,
    /// Bytes that count.
    pub len: u8,
    /// [`POKE_MULTI`], [`POKE_REMOVE`].
    pub flags: u8,
    /// Those of a lower rank come first.
    pub rank: u8,
    /// Zero.
    pub reserved: u32,
    /// What must stand there.
    pub expect: [u8; POKE_MAX],
    /// What is to stand there.
    pub write: [u8; POKE_MAX],
}

/// `struct ilk_batch`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch {
    /// Pointer to the pokes.
    pub pokes: u64,
    /// How many.
    pub count: u32,
    /// Out: index of the poke refused.
    pub failed: u32,
    /// Out: why, 0 for done.
    pub reason: u32,
    /// In: zero; out: how often it waited for all threads.
    pub waits: u32,
    /// In: [`Info::modules`] when modules' text was looked at.
    pub modules: u32,
    /// In: zero; out: pokes left out, whose module may be gone.
    pub gone: u32,
    /// Out: when the first byte was written.
    pub tsc_begin: u64,
    /// Out: when every CPU sees the last.
    pub tsc_end: u64,
}

/// `struct ilk_bank`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Bank {
    /// In: which.
    pub bank: u32,
    /// Out: counters in it.
    pub slots: u32,
    /// Out: `gs:` offset of the first.
    pub gs: u64,
    /// Out: address of the first of CPU 0.
    pub shared: u64,
}

/// `struct ilk_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Which bank.
    pub bank: u32,
    /// First counter.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
    /// Pointer to `u64[cpus][count]`.
    pub out: u64,
}

/// `struct ilk_cpu_state`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuState {
    /// Serial number of the next sample.
    pub head: u64,
    /// Hits not sampled: ring full.
    pub lost_full: u64,
    /// Timer stops not sampled: no start found.
    pub lost_unmatched: u64,
    /// Hits not sampled: ring off.
    pub lost_off: u64,
}

/// `struct ilk_losses`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Pointer to `struct ilk_cpu_state[cpus]`.
    pub out: u64,
    /// How many.
    pub cpus: u32,
    /// Zero.
    pub reserved: u32,
}

/// `struct ilk_consume`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Consume {
    /// Every sample before this serial number was read.
    pub tail: u64,
    /// Of this CPU.
    pub cpu: u32,
    /// Zero.
    pub reserved: u32,
}

/// When a ring is full the oldest samples are lost, else new ones.
pub const RINGS_OVERWRITE: u32 = 1;
/// Hits are counted as lost, and nothing else.
pub const RINGS_OFF: u32 = 2;

/// `struct ilk_rings`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Rings {
    /// [`RINGS_OVERWRITE`], [`RINGS_OFF`].
    pub flags: u32,
    /// Samples of one ring to wake the reader for.
    pub watermark: u32,
    /// Zero.
    pub reserved: u64,
}

/// What the numbers of all requests have in their second byte.
pub const IOC_TYPE: u8 = b'i';

/// `_IOC` of include/uapi/asm-generic/ioctl.h, for [`IOC_TYPE`].
const fn number(read: bool, write: bool, nr: u32, size: usize) -> u32 {
    ((read as u32) << 31)
        | ((write as u32) << 30)
        | ((size as u32) << 16)
        | ((IOC_TYPE as u32) << 8)
        | nr
}

/// Describes the module, and greets it: nothing else works before.
pub const IOC_INFO: u32 = number(true, true, 0, size_of::<Info>());
/// Writes code.
pub const IOC_ARENA: u32 = number(false, true, 1, size_of::<ArenaWrite>());
/// Does a batch of pokes.
pub const IOC_BATCH: u32 = number(true, true, 2, size_of::<Batch>());
/// Reads counters.
pub const IOC_COUNTERS: u32 = number(true, true, 3, size_of::<Counters>());
/// Reads heads and losses.
pub const IOC_LOSSES: u32 = number(true, true, 4, size_of::<Losses>());
/// Gives slots back.
pub const IOC_CONSUME: u32 = number(false, true, 5, size_of::<Consume>());
/// Takes every splice out and zeroes the tables.
pub const IOC_RESET: u32 = number(false, false, 6, 0);
/// Describes a bank of counters.
pub const IOC_BANK: u32 = number(true, true, 7, size_of::<Bank>());
/// Says how rings take samples.
pub const IOC_RINGS: u32 = number(false, true, 10, size_of::<Rings>());

/// Why a batch was refused (`enum ilk_reason`), as a sentence's end.
#[must_use]
pub fn reason(code: u32) -> &'static str {
    match code {
        0 => "nothing was wrong",
        1 => "a field is out of range",
        2 => "the address is not text of the kernel, nor of a module that is loaded",
        3 => "the kernel forbids probes there (kprobe blacklist)",
        4 => "the bytes hold a jump label, which the kernel rewrites itself",
        5 => "the bytes hold a static call, which the kernel rewrites itself",
        6 => "the bytes hold an alternative, which the kernel rewrites itself",
        7 => "the bytes are the function tracer's",
        8 => "a kprobe is armed there",
        9 => {
            "other bytes stand there than the plan was made for; read the image again and plan anew"
        }
        10 => "it overlaps another poke or a splice in place",
        11 => "the kernel has no memory left for it",
        12 => "no splice of this session is in place there",
        13 => "its code patch was not loaded into the arena, or it does not lead there",
        14 => "the bounce or the splice that it needs is not in place before it",
        15 => "another splice still needs it",
        16 => {
            "the kernel's function tracer refuses it: it has no site there, or a live patch or \
             another program changes that function already"
        }
        17 => "the module was told to fail there (its parameter fail_step, for tests)",
        _ => "the module gave a reason this agent does not know",
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::mem::offset_of;
    use std::process::Command;

    use super::*;

    /// Compiles a C program with the header that prints the same list as `expected`.
    #[test]
    fn the_header_says_the_same() {
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
            Info,
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
            gs_lost_unmatched,
            gs_current,
            timers,
            timers_log2,
            counter_banks,
            unwinds,
            task_pid,
            task_tgid,
            task_comm,
            gs_cpu,
            faults,
            modules,
            release
        );
        layout!(
            ArenaWrite,
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
        layout!(Fault, "ilk_fault", offset, fixup, original);
        layout!(Row, "ilk_row", original, offset, pushed);
        layout!(
            Poke, "ilk_poke", addr, detour, target, host, kind, len, flags, rank, reserved, expect,
            write
        );
        layout!(Bank, "ilk_bank", bank, slots, gs, shared);
        layout!(
            Batch,
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
        layout!(Counters, "ilk_counters", bank, first, count, reserved, out);
        layout!(
            CpuState,
            "ilk_cpu_state",
            head,
            lost_full,
            lost_unmatched,
            lost_off
        );
        layout!(Rings, "ilk_rings", flags, watermark, reserved);
        layout!(Losses, "ilk_losses", out, cpus, reserved);
        layout!(Consume, "ilk_consume", tail, cpu, reserved);
        same(
            "slot",
            "sizeof(struct ilk_slot)",
            gilk_samples::record::SLOT_BYTES as u64,
        );
        value!(
            ABI_VERSION "ILK_ABI_VERSION", MAX_POKES "ILK_MAX_POKES", POKE_MAX "ILK_POKE_MAX",
            KIND_JUMP "ILK_JUMP", KIND_SHORT "ILK_SHORT", KIND_BOUNCE "ILK_BOUNCE", KIND_TRAP "ILK_TRAP",
            KIND_TRACER "ILK_TRACER", IOC_BANK "ILK_IOC_BANK", POKE_MULTI "ILK_POKE_MULTI", POKE_REMOVE "ILK_POKE_REMOVE",
            IOC_INFO "ILK_IOC_INFO", IOC_ARENA "ILK_IOC_ARENA", IOC_BATCH "ILK_IOC_BATCH", IOC_COUNTERS "ILK_IOC_COUNTERS",
            IOC_LOSSES "ILK_IOC_LOSSES", IOC_CONSUME "ILK_IOC_CONSUME", IOC_RESET "ILK_IOC_RESET",
            IOC_RINGS "ILK_IOC_RINGS", RINGS_OVERWRITE "ILK_RINGS_OVERWRITE", RINGS_OFF "ILK_RINGS_OFF"
        );
        same("last reason", "ILK_INJECTED", 17);
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
        let told = Command::new(&program).output().unwrap();
        assert_eq!(String::from_utf8(told.stdout).unwrap(), expected);
    }

    #[test]
    fn every_reason_of_the_header_has_words() {
        let unknown = reason(u32::MAX);
        assert!((0..=17).all(|code| reason(code) != unknown));
        assert_eq!(reason(18), unknown);
    }
}
