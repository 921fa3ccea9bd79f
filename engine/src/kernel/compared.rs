//! The kernels with which this version's lists of functions by name were compared: those that handle faults
//! ([`super::faulting`]), and assembly that switches stacks, `gs` or page tables ([`super::names`]).

/// Their series, by major and minor number.
const COMPARED: [(u32, u32); 4] = [(6, 1), (6, 12), (7, 2), (7, 3)];

/// Functions that compilers call from nearly every function, those that handle faults too, in kernels with KCSAN, KMSAN or
/// KCOV. No such kernel was compared; what KASAN and lockdep execute there is listed.
const UNCOMPARED: [&str; 3] = [
    "__msan_get_context_state",
    "__sanitizer_cov_trace_pc",
    "__tsan_read8",
];

/// Returns whether the lists were compared with a kernel of this release's series (`uname -r`) and instrumentation, by the
/// names of its symbols. On other kernels reads of memory, and splices in functions that may be assembly, are refused by
/// the rule `unknown-kernel`.
#[must_use]
pub fn lists_were_compared<'n>(release: &str, symbols: impl IntoIterator<Item = &'n str>) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let series = number().zip(number());
    series.is_some_and(|series| COMPARED.contains(&series))
        && !symbols.into_iter().any(|name| UNCOMPARED.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernels_that_were_compared_are_checked() {
        for release in [
            "6.1.0-56-cloud-amd64",
            "6.12.117+deb12-rt-amd64",
            "7.3.4",
            "6.12",
        ] {
            assert!(lists_were_compared(release, ["vfs_read"]), "{release}");
        }
        for release in [
            "6.10.0",
            "6.19.14+deb13-amd64",
            "7.30.1",
            "16.1.0",
            "6",
            "",
            "x.1",
        ] {
            assert!(!lists_were_compared(release, []), "{release}");
        }
        let coverage = ["vfs_read", "__sanitizer_cov_trace_pc"];
        assert!(!lists_were_compared("6.12.0", coverage));
    }
}
