//! Constants are folded as they would be computed.

use super::show;
use crate::check::build;
use crate::program::{AggregateId, Input, UserRead, VariableId, Width};
use crate::{Context, Source};

/// Inputs with fixed values; nothing else.
struct Fixed;

/// The value of each argument.
const ARGUMENTS: [u64; 4] = [7, u64::MAX - 4, 0x8000_0000_0000_0000, 0xffff_fff0];

impl crate::interpret::Machine for Fixed {
    fn input(&mut self, input: Input) -> u64 {
        match input {
            Input::Argument(number) => ARGUMENTS[usize::from(number)],
            other => panic!("{other:?}"),
        }
    }
    fn load(&mut self, _: u64, _: Width) -> Option<u64> {
        None
    }
    fn user(&mut self, _: UserRead, _: u64) -> Option<u64> {
        None
    }
    fn read(&mut self, _: VariableId) -> u64 {
        0
    }
    fn write(&mut self, _: VariableId, _: u64) {}
    fn update(&mut self, _: AggregateId, _: &[u64]) {}
    fn sample(&mut self, _: &[u64]) {}
    fn fault(&mut self) {}
}

fn expression() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        (0..4u8).prop_map(|number| format!("arg{number}")),
        (0..70u64).prop_map(|number| number.to_string()),
        Just("0xffff_ffff_ffff_ffff".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        let sign = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=",
            "&&", "||",
        ]);
        let cast = prop::sample::select(vec!["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]);
        let before = prop::sample::select(vec!["-", "~", "!"]);
        prop_oneof![
            (inner.clone(), sign, inner.clone())
                .prop_map(|(a, sign, b)| format!("({a} {sign} {b})")),
            (before, inner.clone()).prop_map(|(sign, a)| format!("{sign}({a})")),
            (cast, inner.clone()).prop_map(|(cast, a)| format!("({cast}){a}")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    /// A folded constant is the value that the program would have computed.
    #[test]
    fn constants_come_out_as_if_they_ran(text in expression()) {
        let check = |text: &str| {
            let source = Source::parse(&format!("hit {{ sample({text}) }}")).unwrap();
            let program = source.check(&Context::default()).ok()?;
            program.probes[0].actions[0].kind.value().cloned()
        };
        let fixed = ARGUMENTS.iter().enumerate().fold(text.clone(), |text, (number, value)| {
            text.replace(&format!("arg{number}"), &format!("(u64){value:#x}"))
        });
        // Some are refused: a division by a constant zero, a comparison of an unsigned number with a negative one.
        if let (Some(open), Some(folded)) = (check(&text), check(&fixed)) {
            let bits = build::as_constant(&folded);
            proptest::prop_assert_eq!(
                Some(crate::interpret::evaluate(&open, &mut Fixed)),
                bits,
                "{} and {}", show(&open), show(&folded)
            );
            proptest::prop_assert_eq!(open.ty, folded.ty);
        }
    }
}
