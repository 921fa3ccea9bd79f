//! Suggestions for words of other languages, and for misspelled words.

use super::input::shown;
use super::token::{Kind, Token};
use crate::Fault;
use crate::fault::nearest;
use crate::program::Hook;

/// Returns the fault of a token that begins no probe or declaration.
pub(super) fn no_item(token: &Token<'_>, assigned: bool) -> Fault {
    let fault = Fault::new(
        token.span,
        format!(
            "A probe or a declaration is expected here, not `{}`.",
            shown(token)
        ),
    );
    match token.text {
        "kprobe" | "fentry" | "k" => fault
            .help("Write `entry { … }`: the function is chosen where the instrument is placed."),
        "kretprobe" | "fexit" | "kr" => fault
            .help("Write `return { … }`: the function is chosen where the instrument is placed."),
        "BEGIN" | "END" | "interval" | "profile" => {
            fault.help("Probes stand at code only; the session says when they come and go.")
        }
        "{" => fault.help("Write the hook first: `hit { … }`, `entry { … }`, `return { … }`."),
        _ if token.kind == Kind::Variable && assigned => {
            fault.help("Values are stored in probes: `entry { @name = … }`.")
        }
        _ if token.kind == Kind::Variable => {
            fault.help("Write its scope first: `global @name;`, `cpu @name;` or `thread @name;`.")
        }
        text => {
            let known = Hook::ALL.iter().map(|hook| hook.word());
            let others = ["instrument", "shared", "global", "cpu", "thread", "call"];
            match nearest(text, known.chain(others)) {
                Some(near) => fault.replacement(near).help(format!("Did you mean `{near}`?")),
                None => fault.help(
                    "Write `hit`, `pre`, `post`, `entry`, `return`, `leave`, `taken` or `untaken` for a probe, \
                     `global`, `cpu`, `thread` or `call` for a variable.",
                ),
            }
        }
    }
}

/// Returns the fault of a token that begins no statement.
pub(super) fn no_statement(token: &Token<'_>) -> Fault {
    let fault = Fault::new(
        token.span,
        format!("A statement is expected here, not `{}`.", shown(token)),
    );
    match token.text {
        "if" | "else" => fault.help(
            "Write a predicate before the braces, `entry / condition / { … }`, or `condition ? a : b`.",
        ),
        "for" | "while" => {
            fault.help("There are no loops, so that what a probe costs has a bound: `unroll(4) { … }` repeats statements.")
        }
        "print" => fault.help("Write `printf(\"%d\", value)` or `sample(value)`."),
        "return" => fault.help("A probe runs to its end; a predicate says when it does nothing."),
        "count" | "sum" | "min" | "max" | "avg" | "hist" | "lhist" | "values" => {
            fault.help(format!("Write `@name = {}(…)`.", token.text))
        }
        text => match nearest(text, ["sample", "printf"]) {
            Some(near) => fault.help(format!("Did you mean `{near}`?")),
            None => fault.help("Write `sample(value)`, `@name = value` or `@name = count()`."),
        },
    }
}
