//! Facts about functions of programs by their names.

use std::borrow::Cow;

use crate::code::{KnownNames, Symbols};

/// The names that mean something to control flow.
pub(super) const KNOWN: KnownNames = KnownNames {
    is_return_thunk,
    is_indirect_thunk,
    never_returns,
};

/// Returns the name of a function with a symbol. A version is not part of it: the name@address of sessions is another. One
/// that chooses an implementation is not what its callers mean by the name.
pub(super) fn shown(symbol: &str, resolver: bool) -> Cow<'_, str> {
    let name = symbol.split('@').next().unwrap_or(symbol);
    match resolver {
        true => Cow::Owned(format!("{name}.resolver")),
        false => Cow::Borrowed(name),
    }
}

/// Orders the names of one address by how unlikely people are to write them; `lesser` ones are weak or local.
pub(super) fn strangeness(name: &str, lesser: bool) -> impl Ord + use<> {
    let underscores = name.len() - name.trim_start_matches('_').len();
    let compiler_made = name.contains('.');
    (
        compiler_made,
        underscores,
        lesser,
        name.len(),
        name.to_owned(),
    )
}

/// Returns whether a function of this name is a part that the compiler split off another.
pub(super) fn is_part(name: &str) -> bool {
    name.contains(".cold")
}

/// Returns whether it is a return thunk (`-mfunction-return=thunk-extern`): a jump to it is a return.
fn is_return_thunk(name: &str) -> bool {
    name == "__x86_return_thunk"
}

/// Returns whether it is a thunk of an indirect branch (`-mindirect-branch=thunk`, `-mretpoline`): a jump
/// to it is a jump through a register.
fn is_indirect_thunk(name: &str) -> bool {
    name.starts_with("__x86_indirect_thunk") || name.starts_with("__llvm_retpoline_")
}

/// Returns whether a call of the function never comes back. Of functions that objects define for
/// themselves only names that the C and C++ languages reserve.
fn never_returns(name: &str) -> bool {
    let name = name.strip_suffix(".plt").unwrap_or(name);
    matches!(
        name,
        "abort"
            | "exit"
            | "_exit"
            | "_Exit"
            | "quick_exit"
            | "pthread_exit"
            | "longjmp"
            | "_longjmp"
            | "siglongjmp"
            | "__longjmp_chk"
            | "__stack_chk_fail"
            | "__fortify_fail"
            | "__chk_fail"
            | "__assert_fail"
            | "__assert_perror_fail"
            | "__libc_fatal"
            | "__cxa_throw"
            | "__cxa_rethrow"
            | "__cxa_bad_cast"
            | "__cxa_bad_typeid"
            | "__cxa_throw_bad_array_new_length"
            | "__cxa_pure_virtual"
            | "__cxa_call_unexpected"
            | "__cxa_call_terminate"
            | "__clang_call_terminate"
            | "_Unwind_Resume"
            | "_ZSt9terminatev"
    ) || name.starts_with("_ZSt") && name.contains("__throw_")
}

/// Returns whether callers of the imported function rely on the calling convention: not those of hooks that
/// compilers call with all registers in use.
pub(super) fn is_plain_import(stub: &str) -> bool {
    is_plain_export(stub.strip_suffix(".plt").unwrap_or(stub))
}

/// Returns whether an exported function of this name keeps the calling convention as C does.
pub(super) fn is_plain_export(name: &str) -> bool {
    !(matches!(
        name,
        "mcount" | "_mcount" | "__mcount" | "__fentry__" | "__morestack" | "__tls_get_addr"
    ) || name.starts_with("__x86_")
        || name.starts_with("__llvm_retpoline_")
        || name.starts_with("_dl_"))
}

/// Returns whether the object has code of a language with calling conventions of its own: OCaml's
/// functions keep no registers, Haskell's are not called at all.
pub(super) fn keeps_own_conventions(symbols: &Symbols) -> bool {
    let names = symbols.entries().iter().map(|symbol| symbols.name(symbol));
    let is_of_runtime = |name: &str| {
        matches!(
            name,
            "caml_start_program" | "caml_startup" | "stg_upd_frame_info" | "hs_main"
        ) || name == "runtime.rt0_go"
    };
    names.into_iter().any(is_of_runtime)
}
