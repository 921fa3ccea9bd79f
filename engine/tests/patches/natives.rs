//! Calls of native functions: they get their parameters, and all registers that they change are restored.

use gilk_engine::patch::{Called, HookProgram};
use gilk_instruments::program::{Gpr, Input};
use gilk_instruments::{Native, Parameter};
use iced_x86::code_asm::{CodeAssembler, registers::*};

use super::*;

/// Address of the function, after the patch.
const FUNCTION: u64 = PATCH + 0x4000;

/// Returns the function's result for its parameters.
fn mixed(parameters: [u64; 6]) -> u64 {
    parameters
        .iter()
        .fold(7, |sum, one| sum.wrapping_mul(31).wrapping_add(*one))
}

/// A function that mixes its parameters, and leaves something else in all that it may change.
fn write_function(machine: &mut Machine) {
    let mut a = CodeAssembler::new(64).unwrap();
    a.mov(eax, 7).unwrap();
    for register in [rdi, rsi, rdx, rcx, r8, r9] {
        a.imul_3(rax, rax, 31).unwrap();
        a.add(rax, register).unwrap();
    }
    for register in [rdi, rsi, rdx, rcx, r8, r9, r10, r11] {
        a.mov(register, 0x5a5a_5a5a_5a5a_5a5a_u64).unwrap();
    }
    a.xor(r11, -1).unwrap();
    a.ret().unwrap();
    machine.write(FUNCTION, &a.assemble(machine.address(FUNCTION)).unwrap());
}

fn parameter(number: u8) -> Parameter {
    match number {
        0..=5 => Parameter::Input(Input::Argument(number)),
        6..=9 => Parameter::Input(Input::Register(
            [Gpr::Rbx, Gpr::R10, Gpr::R15, Gpr::Rax][usize::from(number) - 6],
        )),
        10 => Parameter::Input(Input::Identifier),
        11 => Parameter::Input(Input::Block),
        _ => Parameter::Counter,
    }
}

proptest! {
    /// Any parameters in any order, between instruments that count and sample, whatever is live.
    #[test]
    fn a_native_function_gets_its_parameters_and_changes_nothing(
        parameters in prop::array::uniform6(0u8..13),
        samples: bool,
        live in any::<u16>(),
        flags: bool,
        seed: u64,
    ) {
        let native = Native {
            file: "own.o".into(),
            object: [].into(),
            function: "mixed".into(),
            parameters: parameters.map(parameter).into(),
            samples,
            replaces: false,
        };
        let mut machine = ready(40, 4);
        write_function(&mut machine);
        let layout = layout(&machine, machine.address(GS + 0x1000));
        let entry = Addr(machine.address(FUNCTION));
        let instruments = [
            hooked(0, HookType::Pre, Kind::Count.program()),
            hooked(1, HookType::Pre, HookProgram::Native(Called { native: &native, entry })),
            hooked(2, HookType::Pre, Kind::Argument(1).program()),
        ];
        let live = Live { registers: RegisterSet(live), flags };
        patch(&mut machine, &NOP, &[(Point::Entry, &instruments)], live, &layout);
        let before = random_state(&machine, &mut Random(seed));
        let after = machine.run(PATCH, &before);
        prop_assert_eq!(after.exit, 0);
        untouched(live, &before, &after);
        prop_assert_eq!(machine.word(GS + COUNTERS), 1);
        let given = parameters.map(|number| match number {
            0..=5 => argument(&before, number),
            6..=9 => before.registers[[3, 10, 15, 0][usize::from(number) - 6]],
            10 => instruments[1].id.pack(),
            11 => instruments[1].id.block.into(),
            _ => layout.counter(instruments[1].counter.unwrap()).unwrap().0,
        });
        let mut serial = 40;
        if samples {
            let [mark, value, _, id] = slot(&mut machine, serial);
            prop_assert_eq!((mark, value, id), (head(serial), mixed(given), instruments[1].id.pack()));
            serial += 1;
        }
        let [mark, value, _, id] = slot(&mut machine, serial);
        prop_assert_eq!((mark, value, id), (head(serial), argument(&before, 1), instruments[2].id.pack()));
        prop_assert_eq!(machine.word(GS + HEAD), head(serial + 1));
    }
}
