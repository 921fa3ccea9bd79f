//! A CPU's words, ring and timers in the memory of a [`Machine`], and patches put there.

use gilk_engine::layout::{
    CounterBank, CounterSlot, Inputs, Owner, RingOwner, Rings, RuntimeLayout, SegmentOffset,
};
use gilk_engine::liveness::Live;
use gilk_engine::patch::{Assembler, Code, HookProgram, Hooked, Hooks, PieceKind};
use gilk_engine::placement::{Site, Splice};
use gilk_engine::{Addr, HookType, InstrumentId, Span};

pub(crate) use super::text::Text;

use super::native::{GS, Machine, ORIGINAL, PATCH, Random, STACK, STATUS, State, TABLES};

pub(crate) const CPU: u64 = 5;
pub(crate) const SLOTS_LOG2: u32 = 3;
pub(crate) const STRIDE_LOG2: u32 = SLOTS_LOG2 + 5;
pub(crate) const TIMERS_LOG2: u32 = 4;
pub(crate) const TIMER_TABLE: u64 = TABLES + 0x8000;
pub(crate) const TASK: u64 = 0xffff_8881_0204_5640;
/// Offsets of the words from the base of gs; one is negative, as a displacement may be.
pub(crate) const HEAD: u64 = 0x100;
pub(crate) const LIMIT: u64 = 0x108;
pub(crate) const LOST_FULL: u64 = 0x110;
pub(crate) const CURRENT: u64 = (-0x20i64).cast_unsigned();
pub(crate) const COUNTERS: u64 = 0x200;

/// A five-byte nop: instructions that touch nothing, so that all differences are the instruments'.
pub(crate) const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

pub(crate) fn layout(machine: &Machine, far: u64) -> RuntimeLayout {
    let arena = Addr(machine.address(PATCH));
    RuntimeLayout {
        arena: Span::new(arena, 0x1_0000),
        unwinds: true,
        faults: 1 << 16,
        rings: Rings {
            per: RingOwner::Cpu,
            base: Addr(machine.address(TABLES)),
            stride_log2: STRIDE_LOG2,
            slots_log2: SLOTS_LOG2,
            head: SegmentOffset(HEAD),
            limit: SegmentOffset(LIMIT),
            lost_full: SegmentOffset(LOST_FULL),
        },
        owner: Owner::kernel(SegmentOffset(CURRENT)),
        inputs: Inputs::supposed(SegmentOffset(CURRENT)),
        counters: vec![
            CounterBank {
                base: SegmentOffset(COUNTERS),
                slots: 5,
            },
            CounterBank {
                base: SegmentOffset(far.wrapping_sub(machine.address(GS))),
                slots: 4,
            },
        ],
        timers: Addr(machine.address(TIMER_TABLE)),
        timers_log2: TIMERS_LOG2,
        shared: RuntimeLayout::supposed_shared(2),
        ..RuntimeLayout::supposed(arena)
    }
}

pub(crate) fn ready(serial: u64, room: u64) -> Machine {
    let mut machine = Machine::new();
    machine.set_word(GS + HEAD, head(serial));
    machine.set_word(GS + LIMIT, head(serial + room));
    machine.set_word(GS.wrapping_add(CURRENT), TASK);
    machine
}

/// An instrument with a counter of its own.
pub(crate) fn hooked(order: u8, hook: HookType, program: HookProgram<'_>) -> Hooked<'_> {
    let id = InstrumentId::new(0xabcde, hook, 0x2_5a5a, order).unwrap();
    Hooked {
        id,
        program,
        counter: Some(CounterSlot {
            bank: 0,
            slot: u32::from(order) % 4,
        }),
    }
}

/// Assembles a patch over `original`, all of which is displaced, and writes both.
pub(crate) fn patch(
    machine: &mut Machine,
    original: &[u8],
    hooks: &Hooks<'_>,
    live: Live,
    layout: &RuntimeLayout,
) -> Code {
    let at = Addr(machine.address(ORIGINAL));
    let site = Site {
        splice: Splice::Jump,
        displaced: Span::new(at, original.len() as u64),
        overwritten: 1,
        filled: 0,
        continuations: Box::default(),
    };
    let text = Text {
        at,
        bytes: original,
        decided: Vec::new(),
    };
    layout.check().unwrap();
    let code = Assembler::new(&text, layout)
        .assemble(Addr(machine.address(PATCH)), &site, hooks, &|_| live)
        .unwrap();
    machine.write(ORIGINAL, original);
    machine.write_exit_jump(ORIGINAL + original.len() as u64, 0);
    machine.write(PATCH, &code.bytes);
    pieces_are_whole(&code);
    code
}

/// Pieces cover the code without gaps, and counts are those of a decoder: up to code that
/// only branches of the copies reach, and nothing from there on.
pub(crate) fn pieces_are_whole(code: &Code) {
    let mut end = 0;
    let mut usual = true;
    for piece in &code.pieces {
        assert_eq!(piece.range.start, end);
        end = piece.range.end;
        usual &= piece.executed > 0;
        let bytes = &code.bytes[piece.range.start as usize..piece.range.end as usize];
        let count = iced_x86::Decoder::with_ip(64, bytes, 0, 0)
            .into_iter()
            .count();
        match piece.kind {
            _ if !usual => assert_eq!(piece.executed, 0, "{piece:?}"),
            PieceKind::Instrument(_) | PieceKind::Save | PieceKind::Restore => {
                assert_eq!(piece.executed as usize, count, "{piece:?}");
            }
            _ => {}
        }
    }
    assert_eq!(end as usize, code.bytes.len());
}

/// The head at which a serial number is reserved.
pub(crate) fn head(serial: u64) -> u64 {
    serial << (32 - SLOTS_LOG2) | CPU
}

/// Mark, value, time, identifier.
pub(crate) fn slot(machine: &mut Machine, serial: u64) -> [u64; 4] {
    let at = TABLES + (CPU << STRIDE_LOG2) + serial % (1 << SLOTS_LOG2) * 32;
    [0, 8, 16, 24].map(|part| machine.word(at + part))
}

pub(crate) fn random_state(machine: &Machine, random: &mut Random) -> State {
    let mut state = State {
        flags: random.next() & STATUS,
        ..State::default()
    };
    for register in &mut state.registers {
        *register = random.next();
    }
    state.registers[4] = machine.address(STACK);
    state
}

/// Checks that live state is the same before and after a run, and the stack from rsp on too.
pub(crate) fn untouched(live: Live, before: &State, after: &State) {
    for number in 0..16 {
        if live.registers.0 >> number & 1 == 1 || number == 4 {
            assert_eq!(
                after.registers[number], before.registers[number],
                "register {number}, live {live:?}"
            );
        }
    }
    if live.flags {
        assert_eq!(
            after.flags & STATUS,
            before.flags & STATUS,
            "flags, live {live:?}"
        );
    }
}
