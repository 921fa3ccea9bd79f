//! The extent of tests: some have fewer cases than in long runs, which set variables of the environment.

use proptest::prelude::ProptestConfig;

/// Configures a random test whose cases are long: it has few, or as many as `PROPTEST_CASES` says.
pub(crate) fn few_cases(few: u32) -> ProptestConfig {
    let standard = ProptestConfig::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => standard,
        None => ProptestConfig {
            cases: few,
            ..standard
        },
    }
}

/// Returns a number that long runs set, or that of all others.
pub(crate) fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}
