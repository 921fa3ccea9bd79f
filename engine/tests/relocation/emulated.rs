//! Static keys and static calls, done elsewhere, against what the kernel would have written at the
//! site for the same state of the key or of the trampoline.

use gilk_engine::code::{Decided, Decision, Transfer};
use gilk_engine::isa::relocate::emulate;
use gilk_engine::layout::Abi;
use gilk_engine::{Addr, Rule, Span};
use proptest::prelude::*;

use super::native::{Machine, ORIGINAL, PATCH, Random, SCRATCH, STACK, STATUS, State};

/// Address of the `struct static_key`.
const KEY: u64 = SCRATCH + 0x8000;
/// Address of the trampoline.
const TRAMPOLINE: u64 = ORIGINAL + 0x800;

fn start(machine: &Machine, random: &mut Random) -> State {
    let mut state = State {
        flags: random.next() & STATUS,
        ..State::default()
    };
    state.registers = state.registers.map(|_| random.next());
    state.registers[4] = machine.address(STACK);
    state
}

fn jump(machine: &Machine, opcode: &[u8], at: u64, target: u64) -> Vec<u8> {
    let end = machine.address(at) + opcode.len() as u64 + 4;
    let displacement = i32::try_from(target.wrapping_sub(end) as i64).unwrap();
    [opcode, &displacement.to_le_bytes()].concat()
}

/// Runs the site as the kernel writes it, and what stands for it; both states at the end, with what
/// lies on and below the stack.
fn both(
    machine: &mut Machine,
    site: &Decided,
    written: &[u8],
    state: &State,
) -> [(State, Vec<u8>); 2] {
    let moved = emulate(site, Addr(machine.address(PATCH)), &Abi::KERNEL).unwrap();
    machine.write(ORIGINAL, written);
    machine.write_exit_jump(ORIGINAL + site.span.len(), 0);
    machine.write(PATCH, &moved.bytes);
    if moved.falls_through {
        machine.write_exit_jump(PATCH + moved.bytes.len() as u64, 0);
    }
    let top = machine.exit(3);
    [ORIGINAL, PATCH].map(|place| {
        let stack = STACK as usize - 64..STACK as usize + 64;
        machine.memory()[stack.clone()].fill(0x5a);
        machine.set_word(STACK, top);
        let after = machine.run(place, state);
        (after, machine.memory()[stack].to_vec())
    })
}

/// Returns the bytes that `__sc_insn` writes: for a function, for one that returns 0, for none.
fn written(machine: &Machine, transfer: Transfer, function: Function) -> Vec<u8> {
    let to = |opcode: &[u8], target| jump(machine, opcode, ORIGINAL, target);
    let (function, return_0) = match function {
        Function::Some => (Some(machine.exit(2)), false),
        Function::Return0 => (Some(machine.address(TRAMPOLINE + 0x100)), true),
        Function::None => (None, false),
    };
    match (transfer, function) {
        (Transfer::Call, Some(_)) if return_0 => vec![0x2e, 0x2e, 0x2e, 0x31, 0xc0],
        (Transfer::Call, Some(function)) => to(&[0xe8], function),
        (Transfer::Call, None) => vec![0x0f, 0x1f, 0x44, 0, 0],
        (Transfer::Jump, Some(function)) => to(&[0xe9], function),
        (Transfer::Jump, None) => vec![0xc3, 0xcc, 0xcc, 0xcc, 0xcc],
        (Transfer::Conditional(condition), Some(function)) => {
            to(&[0x0f, 0x80 | condition], function)
        }
        // To the return thunk.
        (Transfer::Conditional(condition), None) => to(
            &[0x0f, 0x80 | condition],
            machine.address(TRAMPOLINE + 0x102),
        ),
    }
}

#[derive(Clone, Copy, Debug)]
enum Function {
    Some,
    Return0,
    None,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the count: 0, 1, many, and the -1 of a key that is being turned on.
    #[test]
    fn a_static_key_goes_where_the_kernel_would_send_it(
        count in prop_oneof![Just(0), Just(1), Just(-1), any::<i32>()],
        inverted: bool,
        short: bool,
        seed: u64,
    ) {
        let mut machine = Machine::new();
        let mut random = Random(seed);
        let state = start(&machine, &mut random);
        // What lies around the count is no part of it.
        machine.set_word(KEY - 8, random.next());
        machine.set_word(KEY, u64::from(count.cast_unsigned()) | random.next() << 32);
        let target = ORIGINAL + 0x40;
        machine.write_exit_jump(target, 1);
        let site = Decided {
            span: Span::new(Addr(machine.address(ORIGINAL)), if short { 2 } else { 5 }),
            by: Decision::StaticKey {
                key: Addr(machine.address(KEY)),
                inverted,
                target: Addr(machine.address(target)),
            },
        };
        let enabled = count != 0;
        let written = match (enabled ^ inverted, short) {
            (true, true) => vec![0xeb, 0x3e],
            (true, false) => jump(&machine, &[0xe9], ORIGINAL, machine.address(target)),
            (false, true) => vec![0x66, 0x90],
            (false, false) => vec![0x0f, 0x1f, 0x44, 0, 0],
        };
        let [mut original, mut moved] = both(&mut machine, &site, &written, &state);
        prop_assert_eq!(original.0.exit, u64::from(enabled ^ inverted));
        // Nothing reads the status flags after a static key.
        original.0.flags &= !STATUS;
        moved.0.flags &= !STATUS;
        prop_assert_eq!(original, moved);
        prop_assert_eq!(machine.word(KEY) as i32, count);
    }

    #[test]
    fn a_static_call_goes_where_the_kernel_would_send_it(
        transfer in prop_oneof![Just(Transfer::Call), Just(Transfer::Jump), (0..16u8).prop_map(Transfer::Conditional)],
        function in prop_oneof![Just(Function::Some), Just(Function::Return0), Just(Function::None)],
        seed: u64,
    ) {
        let mut machine = Machine::new();
        let state = start(&machine, &mut Random(seed));
        let return_0 = TRAMPOLINE + 0x100;
        machine.write(return_0, &[0x31, 0xc0, 0xc3]);
        // The trampoline, as the kernel keeps it: a jump, or a return.
        let trampoline = match function {
            Function::Some => jump(&machine, &[0xe9], TRAMPOLINE, machine.exit(2)),
            Function::Return0 => jump(&machine, &[0xe9], TRAMPOLINE, machine.address(return_0)),
            Function::None => vec![0xc3, 0xcc, 0xcc, 0xcc, 0xcc],
        };
        machine.write(TRAMPOLINE, &trampoline);
        let long = matches!(transfer, Transfer::Conditional(_));
        let site = Decided {
            span: Span::new(Addr(machine.address(ORIGINAL)), if long { 6 } else { 5 }),
            by: Decision::StaticCall { trampoline: Addr(machine.address(TRAMPOLINE)), transfer },
        };
        let written = written(&machine, transfer, function);
        let [original, moved] = both(&mut machine, &site, &written, &state);
        let (before, after) = (original.0, moved.0);
        prop_assert_eq!(before, after);
        // A call that is a nop, or an xor, leaves nothing below the stack; one that is made does.
        let compared = if matches!(function, Function::Some) { 0 } else { 64 };
        prop_assert_eq!(&original.1[compared..], &moved.1[compared..]);
    }
}

#[test]
fn a_key_or_trampoline_out_of_reach_is_refused() {
    let address = Addr(0xffff_ffff_8100_0000);
    let far = Addr(0xffff_8880_0000_0000);
    let span = Span::new(address, 5);
    let key = |key, target| Decision::StaticKey {
        key,
        inverted: false,
        target,
    };
    let call = |transfer| Decision::StaticCall {
        trampoline: far,
        transfer,
    };
    for by in [
        key(far, address),
        key(address, far),
        call(Transfer::Call),
        call(Transfer::Jump),
        call(Transfer::Conditional(4)),
    ] {
        let refusal = emulate(&Decided { span, by }, address.add(0x100), &Abi::KERNEL).unwrap_err();
        assert_eq!((refusal.rule, refusal.at), (Rule::OutOfReach, address));
    }
}
