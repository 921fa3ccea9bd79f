//! Tracepoints of the kernel, by the functions that their probes are called from
//! (`DEFINE_TRACE_FN` of include/linux/tracepoint.h).

/// Prefix of these functions.
const PREFIX: &str = "__traceiter_";

/// Returns the function that the probes of a tracepoint are called from; `name` may be a pattern.
pub(crate) fn function(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// A tracepoint, and the module that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracepoint<'n> {
    pub(crate) name: &'n str,
    pub(crate) module: Option<&'n str>,
}

/// Returns the tracepoint whose probes are called from a function.
pub(crate) fn of_function(function: &str) -> Option<Tracepoint<'_>> {
    let (function, _) = gilk_engine::code::name_and_address(function);
    let (module, function) = match function.split_once(':') {
        Some((module, function)) => (Some(module), function),
        None => (None, function),
    };
    let name = function.strip_prefix(PREFIX)?;
    Some(Tracepoint { name, module })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracepoint_is_known_by_its_function() {
        let of = |function| of_function(function).map(|found| (found.module, found.name));
        let called = function("sched_switch");
        assert_eq!(of(&called), Some((None, "sched_switch")));
        assert_eq!(
            of("xfs:__traceiter_xfs_read@0xffffffffc0000000"),
            Some((Some("xfs"), "xfs_read"))
        );
        assert_eq!(of("vfs_read"), None);
        assert_eq!(of("xfs:xfs_read"), None);
    }
}
