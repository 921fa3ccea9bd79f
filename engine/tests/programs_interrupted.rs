//! Programs that are interrupted by themselves, in the same thread, at every instruction: nothing that one adds is
//! lost to the other without being counted. Interrupts are traps after single instructions.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "programs/model.rs"]
#[allow(dead_code, reason = "only its layout and homes are used here")]
mod model;
#[path = "relocation/native.rs"]
mod native;
#[path = "patches/support.rs"]
#[allow(
    dead_code,
    reason = "each test file that includes this uses a part of it"
)]
mod support;
#[path = "support/text.rs"]
mod text;

use std::cell::Cell;
use std::sync::{Arc, Once};

use gilk_engine::HookType;
use gilk_engine::layout::CounterSlot;
use gilk_engine::liveness::Live;
use gilk_engine::patch::{Home, HookProgram, Probed, TIMER_BYTES};
use gilk_engine::placement::Point;
use gilk_instruments::program::{AggregateId, AggregateKind, Hook};
use iced_x86::code_asm::{CodeAssembler, qword_ptr, rsp};
use model::SERIAL;
use native::{GS, Machine, PATCH};
use support::{COUNTERS, HEAD, LOST_FULL, TIMER_TABLE, TIMERS_LOG2, ready, slot};

/// Address of the code that runs the patch step by step.
const STEPPED: u64 = 0x4_0000;
const TRAP: i64 = 1 << 8;

/// State of the handler on this thread.
#[derive(Clone, Copy, Default)]
struct Stepping {
    /// The patch, as a function that changes nothing its caller could see.
    patch: u64,
    bytes: u64,
    /// Instructions of the patch that were come to.
    steps: usize,
    /// Before which of them it is interrupted.
    interrupt: Option<usize>,
}

thread_local! {
    static STEPPING: Cell<Stepping> = const { Cell::new(Stepping { patch: 0, bytes: 0, steps: 0, interrupt: None }) };
}

#[allow(unsafe_code, reason = "runs generated code")]
fn call(code: u64) {
    // SAFETY: the code saves all it uses (everything is live) and returns to its caller; it writes only words,
    // rings and tables of the machine, and its own stack.
    unsafe {
        let code: extern "C" fn() = std::mem::transmute(code as *const ());
        code();
    }
}

/// A trap after an instruction of the patch, or of what has called it.
extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    #[allow(
        unsafe_code,
        reason = "what the kernel hands to a handler is a pointer"
    )]
    // SAFETY: with SA_SIGINFO it points to the context of the thread that trapped, which is not shared.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    let mut stepping = STEPPING.get();
    let at = (registers[libc::REG_RIP as usize].cast_unsigned()).wrapping_sub(stepping.patch);
    if at >= stepping.bytes {
        registers[libc::REG_EFL as usize] &= !TRAP;
        return;
    }
    if stepping.interrupt == Some(stepping.steps) {
        call(stepping.patch);
    }
    stepping.steps += 1;
    STEPPING.set(stepping);
}

fn take_traps() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        #[allow(unsafe_code, reason = "handlers of signals are set in no other way")]
        // SAFETY: the action is plain data, all of which is set or zero.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_trap as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            let set = libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut());
            assert_eq!(set, 0);
        }
    });
}

/// A machine with a program in its patch.
struct Placed {
    machine: Machine,
    probed: Probed,
}

impl Placed {
    fn new(statements: &str) -> Self {
        let text = format!("instrument mine \"x.\"; {statements}");
        let source = gilk_instruments::Source::parse(&text).unwrap();
        let checked = source.check(&gilk_instruments::Context::default()).unwrap();
        // Probes that empty a call's variables stand around the one that is written.
        let mut probes = checked.probes.iter();
        let own = probes.rposition(|probe| matches!(probe.hook, Hook::Hit | Hook::Entry));
        let probed = Probed {
            homes: Arc::new(model::homes(&checked)),
            index: own.unwrap() as u32,
            checked: Arc::new(checked),
        };
        let mut machine = ready(SERIAL, 4);
        let layout = model::layout(&mut machine, 1);
        let program = HookProgram::Probe(&probed);
        let instruments = [support::hooked(1, HookType::Pre, program)];
        let nop_and_return = [0x0f, 0x1f, 0x44, 0, 0, 0xc3];
        let hooks = [(Point::Entry, &instruments[..])];
        let code = support::patch(&mut machine, &nop_and_return, &hooks, Live::ALL, &layout);

        let mut stepped = CodeAssembler::new(64).unwrap();
        stepped.pushfq().unwrap();
        stepped.or(qword_ptr(rsp), TRAP as i32).unwrap();
        stepped.popfq().unwrap();
        stepped.call(machine.address(PATCH)).unwrap();
        stepped.ret().unwrap();
        let stepped = stepped.assemble(machine.address(STEPPED)).unwrap();
        machine.write(STEPPED, &stepped);
        STEPPING.set(Stepping {
            patch: machine.address(PATCH),
            bytes: code.bytes.len() as u64,
            ..Stepping::default()
        });
        native::set_gs(machine.address(GS));
        Self { machine, probed }
    }

    /// Runs it, with a nested run before the instruction after so many steps. Returns the number of steps.
    fn run(&self, interrupt: Option<usize>) -> usize {
        let stepping = Stepping {
            steps: 0,
            interrupt,
            ..STEPPING.get()
        };
        STEPPING.set(stepping);
        call(self.machine.address(STEPPED));
        STEPPING.get().steps
    }

    fn counter(&mut self, slot: u32) -> u64 {
        self.machine.word(GS + COUNTERS + 8 * u64::from(slot))
    }

    /// Returns the sum of the table's values, and the number of entries with an owner.
    fn table(&mut self) -> (u64, usize) {
        let (mut sum, mut owned) = (0u64, 0);
        for entry in 0..1u64 << TIMERS_LOG2 {
            let [owner, value] = [0, 8].map(|word| {
                let at = TIMER_TABLE + entry * TIMER_BYTES + word;
                self.machine.word(at)
            });
            assert!(owner != 0 || value == 0, "a free entry keeps nothing");
            sum = sum.wrapping_add(value);
            owned += usize::from(owner != 0);
        }
        (sum, owned)
    }
}

/// Returns the total of a program's first variable or aggregate, and the count of losses.
fn added(statements: &str, interrupt: Option<usize>) -> (u64, u64, usize) {
    let mut placed = Placed::new(statements);
    let steps = placed.run(interrupt);
    let homes = placed.probed.homes.clone();
    let word = match homes.variables.values().first() {
        Some(Home::Cpu(slot) | Home::Shared(slot)) => *slot,
        Some(Home::Thread(_) | Home::Call(_)) => {
            let (sum, owned) = placed.table();
            assert!(owned <= 2, "{owned} entries have an owner");
            let lost = placed.counter(homes.no_room.unwrap().slot);
            return (sum, lost, steps);
        }
        None => {
            let first = homes.aggregates[AggregateId(0)];
            let kind = placed.probed.checked.aggregates[AggregateId(0)].kind;
            // The number of values comes before their sum.
            let before = u32::from(kind == AggregateKind::Sum);
            CounterSlot {
                slot: first.slot + before,
                ..first
            }
        }
    };
    (placed.counter(word.slot), 0, steps)
}

#[test]
fn whatever_is_added_is_there_or_counted_as_lost() {
    take_traps();
    let mut lost_at_all = 0;
    for (statements, each) in [
        ("thread @n; hit { @n++ }", 1),
        ("thread @n; hit { @n += 7 }", 7),
        ("thread @n; hit / @n < 100 / { @n += 7 }", 7),
        ("call @n; entry { @n += 3 }", 3),
        ("cpu @n; hit { @n += 5 }", 5),
        ("global @n; hit { @n += 5 }", 5),
        ("hit { @n = count() }", 1),
        ("hit { @n = sum(9) }", 9),
    ] {
        let (alone, _, steps) = added(statements, None);
        assert_eq!(alone, each, "{statements}");
        assert!(steps > 2, "{statements}: {steps} steps");
        for step in 0..steps {
            let (sum, lost, stepped) = added(statements, Some(step));
            assert!(lost <= 1, "{statements}: {lost} lost");
            assert_eq!(
                sum + lost * each,
                2 * each,
                "{statements}: interrupted before step {step} of {stepped}, {lost} lost"
            );
            lost_at_all += lost;
        }
    }
    assert!(lost_at_all > 0, "an entry is busy for some steps");
}

#[test]
fn every_sample_is_there_whatever_comes_between() {
    take_traps();
    let steps = Placed::new("hit { sample(77) }").run(None);
    for step in 0..steps {
        let mut placed = Placed::new("hit { sample(77) }");
        placed.run(Some(step));
        let lost = placed.machine.word(GS + LOST_FULL);
        let reserved = [0, 1].map(|serial| slot(&mut placed.machine, SERIAL + serial));
        assert_eq!(
            (lost, placed.machine.word(GS + HEAD)),
            (0, support::head(SERIAL + 2))
        );
        for (number, [mark, value, ..]) in (0..).zip(reserved) {
            let head = support::head(SERIAL + number);
            assert_eq!((mark, value), (head, 77), "before step {step}");
        }
        let [first, second] = reserved.map(|[_, _, time, _]| time);
        assert!(first < second, "before step {step}: out of order");
    }
}
