//! The module's device `/dev/ilk`, a method per request.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gilk_engine::layout::{
    Abi, CounterBank, Events, Guard, Inputs, KernelInputs, MonotonicClock, Owner, RingOwner, Rings,
    RuntimeLayout, SegmentOffset,
};
use gilk_engine::{Addr, Span};

use super::{abi, kernel, sys};
use crate::mapping::{Mapping, MappingAccess};
use crate::protocol::{Refusal, RefusalKind};
use crate::writes::{ArenaWrite, Poke, Recovery, Row, SpliceKind, Wait};

/// The device's path, at one address: the [filter](super::filter) of system calls compares it.
pub(super) static PATH: &CStr = c"/dev/ilk";

/// The open device: closing it removes every splice.
pub(super) struct Device {
    // Declared before the file, so that it is unmapped first: a mapping keeps the file, and so the
    // splices, alive.
    rings: Mapping,
    file: File,
    info: abi::IlkInfo,
    /// `gs:` offset of each bank, and its number of counters.
    banks: Vec<(u64, u32)>,
    /// Address of CPU 0's first counter of each bank.
    shared: Vec<u64>,
    /// Number of unloaded modules when the kernel was read.
    modules: AtomicU32,
}

/// A per-CPU word, combined over all CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CounterValue {
    pub(super) sum: u64,
    pub(super) largest: u64,
}

/// The times of an applied batch, in TSC ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchTimes {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Pokes left out because they are in text of modules, of which one has been unloaded since it
    /// was read.
    pub(super) gone: u32,
}

impl Device {
    /// Opens the device and checks the module's version.
    pub(super) fn open() -> Result<Self, Refusal> {
        let file = sys::open_to_change(PATH).map_err(|e| no_device(&e))?;
        let mut info = abi::IlkInfo {
            abi: abi::ABI_VERSION,
            size: 0,
            cpus: 0,
            slots_log2: 0,
            stride_log2: 0,
            tsc_khz: 0,
            arena: 0,
            arena_size: 0,
            ring_base: 0,
            gs_head: 0,
            gs_limit: 0,
            gs_lost_full: 0,
            gs_current: 0,
            timers: 0,
            timers_log2: 0,
            counter_banks: 0,
            unwinds: 0,
            task_pid: 0,
            task_tgid: 0,
            task_comm: 0,
            gs_cpu: 0,
            nsecs: 0,
            nsecs_factor: 0,
            faults: 0,
            modules: 0,
            stacks: 0,
            users: 0,
            release: [0; 64],
        };
        // SAFETY: the request reads and writes `info`, and its number states the size.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        let result = unsafe { ioctl(&file, abi::IOC_INFO, &raw mut info) };
        if result.is_err() && info.abi != abi::ABI_VERSION {
            return Err(module(&format!(
                "The module ilk on {} speaks version {} and this agent version {}; build both \
                 from the same source",
                kernel::host(),
                info.abi,
                abi::ABI_VERSION
            )));
        }
        result.map_err(|e| {
            module(&format!(
                "The module ilk on {} does not answer ({e}); load it again",
                kernel::host()
            ))
        })?;
        if info.size as usize != size_of::<abi::IlkInfo>()
            || info.cpus == 0
            || info.slots_log2 > info.stride_log2
        {
            return Err(module(&format!(
                "The module ilk on {} has an invalid description of itself; build it from this source",
                kernel::host()
            )));
        }
        let length = (info.cpus as usize)
            .checked_shl(info.stride_log2)
            .unwrap_or(0);
        let rings = Mapping::new(&file, 0, length, MappingAccess::Read).map_err(|e| {
            module(&format!(
                "The module's rings ({length} bytes) cannot be mapped \
                 ({e}); load it with a lower slots_log2"
            ))
        })?;
        let banks = (0..info.counter_banks)
            .map(|bank| describe_bank(&file, bank))
            .collect::<io::Result<Vec<abi::IlkBank>>>()
            .map_err(|e| {
                module(&format!(
                    "The module ilk on {} does not report its counters ({e}); load it again",
                    kernel::host()
                ))
            })?;
        Ok(Self {
            rings,
            file,
            modules: AtomicU32::new(info.modules),
            info,
            banks: banks.iter().map(|bank| (bank.gs, bank.slots)).collect(),
            shared: banks.iter().map(|bank| bank.shared).collect(),
        })
    }

    /// Notes how many modules are unloaded, before the kernel is read again.
    pub(super) fn note_modules(&self) -> io::Result<()> {
        let mut info = self.info;
        // SAFETY: the request reads and writes `info`, and its number states the size.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe { ioctl(&self.file, abi::IOC_INFO, &raw mut info) }?;
        self.modules.store(info.modules, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn cpus(&self) -> u32 {
        self.info.cpus
    }

    /// Returns the TSC ticks per second by the kernel's calibration; 0 if it has none.
    pub(super) fn tsc_hz(&self) -> u64 {
        u64::from(self.info.tsc_khz) * 1000
    }

    /// Returns the mapped rings, and the distance between rings as a power of two.
    pub(super) fn rings(&self) -> (&Mapping, u32) {
        (&self.rings, self.info.stride_log2)
    }

    pub(super) fn slots_log2(&self) -> u32 {
        self.info.slots_log2
    }

    /// Returns the layout for generated code, with these counters of events.
    pub(super) fn layout(&self, events: Events) -> RuntimeLayout {
        let info = &self.info;
        let banks = self.banks.iter();
        let current = SegmentOffset(info.gs_current);
        RuntimeLayout {
            arena: Span::new(Addr(info.arena), info.arena_size),
            further_arenas: Vec::new(),
            stack_tables: None,
            replacements: Vec::new(),
            unwinds: info.unwinds != 0,
            faults: info.faults,
            abi: Abi::KERNEL,
            rings: Rings {
                per: RingOwner::Cpu,
                base: Addr(info.ring_base),
                stride_log2: info.stride_log2,
                slots_log2: info.slots_log2,
                head: SegmentOffset(info.gs_head),
                limit: SegmentOffset(info.gs_limit),
                lost_full: SegmentOffset(info.gs_lost_full),
            },
            counters: banks
                .map(|&(base, slots)| CounterBank {
                    base: SegmentOffset(base),
                    slots,
                })
                .collect(),
            timers: Addr(info.timers),
            timers_log2: info.timers_log2,
            owner: Owner::kernel(current),
            inputs: Inputs::kernel(KernelInputs {
                current,
                cpu: SegmentOffset(info.gs_cpu),
                thread: info.task_pid,
                process: info.task_tgid,
                comm: info.task_comm,
            }),
            guard: Guard::KERNEL,
            clock: (info.nsecs_factor != 0).then_some(MonotonicClock {
                factor: info.nsecs_factor,
                offset: Addr(info.nsecs),
            }),
            shared: self.shared.iter().copied().map(Addr).collect(),
            events,
            stacks: (info.stacks != 0).then_some(Addr(info.stacks)),
            users: (info.users != 0).then_some(Addr(info.users)),
        }
    }

    /// Copies code into the arena, with its unwind rows and its instructions that may fault.
    pub(super) fn write_arena(&self, write: &ArenaWrite) -> Result<(), Refusal> {
        let (offset, code) = (write.offset, &write.code);
        let rows: Vec<_> = write.rows.iter().map(raw_row).collect();
        let faults: Vec<_> = write.faults.iter().map(raw_fault).collect();
        let fits = offset
            .checked_add(code.len() as u64)
            .is_some_and(|end| end <= self.info.arena_size);
        let len = u32::try_from(code.len())
            .ok()
            .filter(|_| fits)
            .ok_or_else(|| {
                let all = self.info.arena_size;
                Refusal::new(
                    RefusalKind::Batch,
                    format!(
                        "The patch at {offset:#x} does not fit the \
                         arena of {all} bytes; remove some instruments."
                    ),
                )
            })?;
        let mut request = abi::IlkArenaWrite {
            offset,
            data: code.as_ptr() as u64,
            rows: rows.as_ptr() as u64,
            faults: faults.as_ptr() as u64,
            len,
            row_count: u32::try_from(rows.len()).unwrap_or(u32::MAX),
            fault_count: u32::try_from(faults.len()).unwrap_or(u32::MAX),
            reserved: 0,
        };
        // SAFETY: each pointer is valid for reads of its count of elements until the call returns.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        let result = unsafe { ioctl(&self.file, abi::IOC_ARENA, &raw mut request) };
        result.map_err(|e| {
            Refusal::new(
                RefusalKind::Batch,
                format!(
                    "The patch at {offset:#x} of \
                     the arena could not be written ({e}); end the session and start it again."
                ),
            )
        })
    }

    /// Applies all of the pokes or none. Takes up to some hundred milliseconds.
    pub(super) fn batch(&self, pokes: &[Poke]) -> Result<BatchTimes, Refusal> {
        let raw: Vec<abi::IlkPoke> = pokes.iter().map(raw_poke).collect();
        let count = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        let mut request = abi::IlkBatch {
            pokes: raw.as_ptr() as u64,
            count,
            modules: self.modules.load(Ordering::Relaxed),
            ..abi::IlkBatch::default()
        };
        // SAFETY: `pokes` is valid for reads of `count` pokes until the call returns.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        let result = unsafe { ioctl(&self.file, abi::IOC_BATCH, &raw mut request) };
        let refused = |what: String| Refusal::new(RefusalKind::Batch, what);
        if request.reason != 0 {
            let at = pokes
                .get(request.failed as usize)
                .map_or(0, |poke| poke.address);
            return Err(refused(format!(
                "The module refused the splice at {at:#018x}: {}.",
                abi::reason(request.reason)
            )));
        }
        result.map_err(|e| {
            refused(format!(
                "The module could not apply a batch of {count} splices \
                 ({e}); look at the target's dmesg."
            ))
        })?;
        Ok(BatchTimes {
            begin: request.tsc_begin,
            end: request.tsc_end,
            gone: request.gone,
        })
    }

    /// Returns counters `first..first + count` of a bank, each combined over all CPUs.
    pub(super) fn counters(
        &self,
        bank: u32,
        first: u32,
        count: u32,
    ) -> io::Result<Vec<CounterValue>> {
        let mut out = vec![0_u64; (count as usize).saturating_mul(self.info.cpus as usize)];
        let mut request = abi::IlkCounters {
            bank,
            first,
            count,
            reserved: 0,
            out: out.as_mut_ptr() as u64,
        };
        // SAFETY: `out` is valid for writes of `count` words per CPU, which the module writes.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe { ioctl(&self.file, abi::IOC_COUNTERS, &raw mut request) }?;
        let mut values = vec![CounterValue::default(); count as usize];
        for row in out.chunks(count.max(1) as usize) {
            for (value, word) in values.iter_mut().zip(row) {
                value.sum = value.sum.wrapping_add(*word);
                value.largest = value.largest.max(*word);
            }
        }
        Ok(values)
    }

    /// Returns the head and losses of every CPU.
    pub(super) fn states(&self) -> io::Result<Vec<abi::IlkCpuState>> {
        let mut out = vec![abi::IlkCpuState::default(); self.info.cpus as usize];
        let mut request = abi::IlkLosses {
            out: out.as_mut_ptr() as u64,
            cpus: self.info.cpus,
            reserved: 0,
        };
        // SAFETY: `out` is valid for writes of a state per CPU, which the module writes.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe { ioctl(&self.file, abi::IOC_LOSSES, &raw mut request) }?;
        Ok(out)
    }

    /// Frees the slots of every sample before serial number `tail`.
    pub(super) fn consume(&self, cpu: u32, tail: u64) -> io::Result<()> {
        let mut request = abi::IlkConsume {
            tail,
            cpu,
            reserved: 0,
        };
        // SAFETY: the request holds numbers only.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe {
            ioctl(&self.file, abi::IOC_CONSUME, &raw mut request)
        }
    }

    /// Configures the rings. `overwrite` may change only while no splice is installed.
    pub(super) fn set_rings(&self, overwrite: bool, on: bool, watermark: u32) -> io::Result<()> {
        let overwrite = if overwrite { abi::RINGS_OVERWRITE } else { 0 };
        let off = if on { 0 } else { abi::RINGS_OFF };
        let mut request = abi::IlkRings {
            flags: overwrite | off,
            watermark,
            reserved: 0,
        };
        // SAFETY: the request holds numbers only.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe {
            ioctl(&self.file, abi::IOC_RINGS, &raw mut request)
        }
    }

    /// Begins a session, or looks at its state.
    pub(super) fn state(&self, begin: bool) -> io::Result<abi::IlkState> {
        let mut state = abi::IlkState {
            begin: u32::from(begin),
            ..abi::IlkState::default()
        };
        // SAFETY: the request reads and writes `state`, and its number states the size.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe { ioctl(&self.file, abi::IOC_STATE, &raw mut state) }?;
        Ok(state)
    }

    /// Switches tracepoints of the kernel on.
    ///
    /// # Errors
    /// A refusal that names the first tracepoint that cannot be switched on; those before it are on.
    pub(super) fn tracepoints_on(&self, names: &[String]) -> Result<(), Refusal> {
        for name in names {
            let mut request = abi::IlkTracepoint { name: [0; 64] };
            let (place, end) = request.name.split_at_mut(name.len().min(63));
            let refuse = |what: &str| {
                Err(Refusal::new(
                    RefusalKind::Request,
                    format!("The tracepoint {name} of {} {what}.", kernel::host()),
                ))
            };
            if place.len() != name.len() {
                return refuse("has a name that is too long for the module");
            }
            place.copy_from_slice(name.as_bytes());
            end.fill(0);
            // SAFETY: the request is read, and its number states the size.
            #[allow(unsafe_code, reason = "ioctl(2)")]
            let result = unsafe { ioctl(&self.file, abi::IOC_TRACEPOINT, &raw mut request) };
            match result.map_err(|error| (error.raw_os_error(), error)) {
                Ok(()) => {}
                Err((Some(libc::ENOENT), _)) => {
                    return refuse("does not exist in the kernel itself");
                }
                Err((_, error)) => {
                    return refuse(&format!("cannot be switched on ({error})"));
                }
            }
        }
        Ok(())
    }

    /// Switches off the tracepoints that were switched on.
    pub(super) fn tracepoints_off(&self) -> io::Result<()> {
        // SAFETY: the request has no argument.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe {
            ioctl(
                &self.file,
                abi::IOC_TRACEPOINTS_OFF,
                std::ptr::null_mut::<u8>(),
            )
        }
    }

    /// Empties the table of stacks; a session that reads stacks begins with this.
    pub(super) fn begin_stacks(&self) -> io::Result<()> {
        let mut request = abi::IlkStacks {
            begin: 1,
            ..abi::IlkStacks::default()
        };
        // SAFETY: the request holds numbers only.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe {
            ioctl(&self.file, abi::IOC_STACKS, &raw mut request)
        }
    }

    /// Returns some of the stacks from the one of index `first` on, none if there are no more, and the number of hits
    /// whose stack is not in the table.
    pub(super) fn stacks(&self, first: u32) -> io::Result<(Vec<abi::IlkStack>, u64)> {
        const ROOM: usize = 64;
        let empty = abi::IlkStack {
            id: 0,
            count: 0,
            user: 0,
            reserved: 0,
            pid: 0,
            frames: [0; abi::STACK_DEPTH],
        };
        let mut out = vec![empty; ROOM];
        let mut request = abi::IlkStacks {
            out: out.as_mut_ptr() as u64,
            first,
            count: u32::try_from(ROOM).unwrap_or(0),
            ..abi::IlkStacks::default()
        };
        // SAFETY: `out` is valid for writes of `count` stacks, which the module writes.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe { ioctl(&self.file, abi::IOC_STACKS, &raw mut request) }?;
        out.truncate(request.count as usize);
        Ok((out, request.lost))
    }

    /// Removes every splice at once, without checking the bytes at its place.
    pub(super) fn reset(&self) -> io::Result<()> {
        // SAFETY: the request has no argument.
        #[allow(unsafe_code, reason = "ioctl(2)")]
        unsafe {
            ioctl(&self.file, abi::IOC_RESET, std::ptr::null_mut::<u8>())
        }
    }

    /// Waits until a ring reaches its watermark, or `wait` is over.
    pub(super) fn wait(&self, wait: Duration) -> io::Result<()> {
        sys::poll(self.file.as_fd(), sys::READABLE, wait).map(drop)
    }
}

/// Returns the location and size of a bank of counters.
fn describe_bank(file: &File, bank: u32) -> io::Result<abi::IlkBank> {
    let mut request = abi::IlkBank {
        bank,
        ..abi::IlkBank::default()
    };
    // SAFETY: the request holds numbers only.
    #[allow(unsafe_code, reason = "ioctl(2)")]
    unsafe { ioctl(file, abi::IOC_BANK, &raw mut request) }?;
    Ok(request)
}

/// # Safety
/// `argument` and every pointer in it must be valid for the module's `request`.
#[allow(unsafe_code, reason = "ioctl(2)")]
unsafe fn ioctl<T>(file: &File, request: u32, argument: *mut T) -> io::Result<()> {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::Ioctl::from(request), argument) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn raw_row(row: &Row) -> abi::IlkRow {
    abi::IlkRow {
        original: row.original,
        offset: row.offset,
        pushed: row.pushed,
    }
}

fn raw_fault(fault: &crate::writes::Fault) -> abi::IlkFault {
    let (fixup, original) = match fault.recovery {
        Recovery::At(fixup) => (fixup, 0),
        Recovery::Like(original) => (0, original),
    };
    abi::IlkFault {
        offset: fault.offset,
        fixup,
        original,
    }
}

fn raw_poke(poke: &Poke) -> abi::IlkPoke {
    let flags = match poke.wait {
        Wait::None => 0,
        Wait::BeforeInstall => abi::POKE_MULTI,
        Wait::AfterRemoval => abi::POKE_REMOVE,
    };
    let kind = match poke.kind {
        SpliceKind::Jump => abi::KIND_JUMP,
        SpliceKind::Short => abi::KIND_SHORT,
        SpliceKind::Bounce => abi::KIND_BOUNCE,
        SpliceKind::Trap => abi::KIND_TRAP,
        SpliceKind::Tracer => abi::KIND_TRACER,
        SpliceKind::Call => abi::KIND_CALL,
    };
    abi::IlkPoke {
        addr: poke.address,
        detour: poke.detour,
        target: poke.target,
        host: poke.host,
        filled: poke.filled,
        kind,
        len: poke.length,
        flags,
        rank: poke.rank,
        reserved: 0,
        expect: poke.expect,
        write: poke.write,
    }
}

fn module(what: &str) -> Refusal {
    Refusal::new(RefusalKind::Module, format!("{what}."))
}

fn no_device(error: &io::Error) -> Refusal {
    let (host, path) = (kernel::host(), PATH.to_string_lossy());
    module(&match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            format!(
                "The module ilk is not loaded on {host}: build it for that kernel and load it \
                 with `insmod ilk.ko`"
            )
        }
        Some(libc::EBUSY) => {
            format!("Another program on {host} holds {path}; end it, or the other agent")
        }
        Some(libc::EPERM | libc::EACCES) => {
            format!("The agent on {host} may not open {path}; run it as root")
        }
        _ => format!("{path} on {host} cannot be opened ({error}); look at the target's dmesg"),
    })
}
