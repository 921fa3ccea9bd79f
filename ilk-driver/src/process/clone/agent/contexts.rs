//! Threads in the cache and their original contexts.

use std::io;

use gilk_engine::Addr;
use gilk_engine::cache::RowState;
use gilk_engine::cache::resident::Resident;

use super::super::super::ptrace::{self, Registers, Tid};
use super::super::super::refused;
use super::super::trace::{self, Change};
use super::CacheAgent;
use crate::Result;

/// All signals that may be blocked while a thread is stepped. The kernel resets the handler of a blocked SIGTRAP.
const ALL_BUT_TRAP: u64 = !(1 << (libc::SIGTRAP - 1));
/// Steps of a thread to the next place with an original context: a search of a full table is the longest.
const MOST_STEPS: u32 = 1 << 21;

impl CacheAgent<'_> {
    /// Gives a stopped thread its original context.
    pub(super) fn leave_cache(&mut self, tid: Tid) -> Result<()> {
        let failed = self.failed(tid);
        let mut before = None;
        let mut left = None;
        let mut context = || -> io::Result<bool> {
            let mut blocked = None;
            let (mut done, mut is_stopped) = (false, false);
            for _ in 0..MOST_STEPS {
                let registers = ptrace::registers(tid)?;
                if let Some(original) = self.original(registers)? {
                    left = Some((registers, original));
                    self.cut(tid, &registers, &original, false)?;
                    if original.rip != registers.rip
                        || original.rcx != registers.rcx
                        || original.gs_base != registers.gs_base
                    {
                        ptrace::set_registers(tid, &original)?;
                    }
                    done = true;
                    break;
                }
                if blocked.is_none() {
                    before = trace::signal_info(tid).ok();
                    blocked = Some(ptrace::blocked(tid)?);
                    ptrace::set_blocked(tid, ALL_BUT_TRAP)?;
                }
                let row = self.cache.row(Addr(registers.rip));
                if row.is_some_and(|row| row.state == RowState::Instruments) {
                    self.finish_instruments(tid, Addr(registers.rip))?;
                    continue;
                }
                if let Some(end) = self.cache.end_of_read(Addr(registers.rip))
                    && registers.rip != end.0
                {
                    self.execute_to(tid, end)?;
                    continue;
                }
                trace::step(tid, 0)?;
                match trace::wait_for(tid)? {
                    Change::Ended(_) => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                    // It cannot be blocked.
                    Change::Signal(libc::SIGSTOP) => is_stopped = true,
                    Change::Signal(_) | Change::Event(..) => {}
                }
            }
            if is_stopped {
                ptrace::send(tid, libc::SIGSTOP)?;
            }
            if let Some(blocked) = blocked {
                ptrace::set_blocked(tid, blocked)?;
            }
            self.disarm(tid)?;
            Ok(done)
        };
        let done = context();
        if let Some((registers, original)) = left {
            self.leaves_after_instruments(tid, &registers);
            self.leaves_before_way(tid, Addr(registers.rip), &original);
            self.ends_at_return(tid, &original);
        }
        if let Some(before) = before {
            self.before_steps.entry(tid).or_insert(before);
        }
        match done.map_err(failed)? {
            true => Ok(()),
            false => Err(refused(
                self.pid,
                format!("its thread {tid} does not leave the code cache"),
            )),
        }
    }

    /// The original context of registers; `None` in the middle of a sequence.
    fn original(&self, registers: Registers) -> io::Result<Option<Registers>> {
        let mut original = self.in_cache(registers)?;
        if let (Some(original), Some(accesses)) = (&mut original, &self.cache.accesses) {
            accesses.outside(original);
        }
        Ok(original)
    }

    /// The original context of registers, but for the base of `gs`; `None` in the middle of a sequence.
    pub(super) fn in_cache(&self, registers: Registers) -> io::Result<Option<Registers>> {
        let at = Addr(registers.rip);
        if !self.cache.contains(at) {
            return Ok(Some(registers));
        }
        if self.cache.stop(at).is_some() {
            return self.at_stop(registers).map(Some);
        }
        if self.cache.is_resident(at) {
            return match self.cache.has_target(at) {
                true => self.before_target(registers, registers.rcx).map(Some),
                false => Ok(None),
            };
        }
        let Some(row) = self.cache.row(at) else {
            return Ok(None);
        };
        Ok(match row.state {
            RowState::Recording(pointer) => {
                Some(self.recorded(registers, row.original, pointer)?)
            }
            RowState::Saving { pushed, rax } => {
                let rsp = registers.rsp.wrapping_add(pushed.into());
                let kept = rax.map(|place| self.word(rsp.wrapping_sub(place.into())));
                Some(Registers {
                    rip: row.original.0,
                    rsp,
                    rax: kept.transpose()?.unwrap_or(registers.rax),
                    ..registers
                })
            }
            RowState::Exact => Some(Registers {
                rip: row.original.0,
                ..registers
            }),
            RowState::Returned => Some(Registers {
                rip: row.original.0,
                rcx: row.original.0,
                ..registers
            }),
            RowState::Evaluated => Some(Registers {
                rip: row.original.0,
                rcx: self.word(registers.rsp.wrapping_sub(160))?,
                ..registers
            }),
            RowState::Busy | RowState::Instruments => None,
        })
    }

    /// The original context of a thread that the resident code has stopped.
    pub(super) fn at_stop(&self, registers: Registers) -> io::Result<Registers> {
        let at = i64::from(Resident::STOPPED.target).cast_unsigned();
        let target = self.word(registers.rsp.wrapping_add(at))?;
        self.before_target(registers, target)
    }

    /// The original context of a thread that continues at a target, and whose `rcx` and `rdx` are kept.
    fn before_target(&self, registers: Registers, target: u64) -> io::Result<Registers> {
        let kept = |place: i32| {
            let place = i64::from(place).cast_unsigned();
            self.word(registers.rsp.wrapping_add(place))
        };
        Ok(Registers {
            rip: target,
            rcx: kept(Resident::STOPPED.rcx)?,
            rdx: kept(Resident::STOPPED.rdx)?,
            ..registers
        })
    }
}
