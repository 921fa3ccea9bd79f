//! Names: words of the language, arguments, and what the kernel's types name.

use super::value::{Ty, Value, View};
use super::{Checker, HookScope, build};
use crate::Fault;
use crate::fault::nearest;
use crate::program::{
    self, Event, Expr, ExprKind, Gpr, Hook, Input, Span, Type, UserRead, Variable, Width,
};
use crate::source::ast;
use crate::source::words::{self, WordKind};

/// Arguments that are in registers.
const REGISTERS: u8 = 6;
/// One more than the largest number of an argument.
const ARGUMENTS: u8 = 32;
/// Further events of `perf list`, with `_` for `-`; not every processor counts them.
const OTHER_EVENTS: [&str; 4] = [
    "bus_cycles",
    "stalled_cycles",
    "stalled_cycles_backend",
    "stalled_cycles_frontend",
];

impl Checker<'_> {
    /// Returns the number of the running process, or half of the name of the running thread: words of a kernel, which a
    /// process requests from it.
    pub(super) fn of_running(&self, input: Input, span: Span) -> Expr {
        let read = match input {
            Input::Pid => Some(UserRead::Process),
            Input::Comm(half) => Some(UserRead::Comm(half)),
            _ => None,
        };
        match read.filter(|_| self.context.of_process) {
            Some(read) => build::user(read, build::constant(0, Type::U64, span), span),
            None => build::input(input, span),
        }
    }

    pub(super) fn name(
        &self,
        name: &str,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        let number = |input| Ok(Value::Number(build::input(input, span), None));
        match name {
            "pid" => return Ok(Value::Number(self.of_running(Input::Pid, span), None)),
            "tid" => return number(Input::Tid),
            "cpu" => return number(Input::Cpu),
            "tsc" => return number(Input::Tsc),
            "nsecs" => return number(Input::Nsecs),
            "block" => return number(Input::Block),
            "id" => return number(Input::Identifier),
            "kstack" => return number(Input::KernelStack(Input::STACK_DEPTH)),
            "ustack" => return number(Input::UserStack(Input::STACK_DEPTH)),
            "comm" => return Ok(Value::Comm(span)),
            "retval" => return self.returned(scope, span),
            "curtask" => {
                let task = self
                    .context
                    .types
                    .and_then(|types| types.structure("task_struct"));
                let ty = task.map(|id| Ty::Pointer(Box::new(Ty::Known(id))));
                return Ok(Value::Number(build::input(Input::Task, span), ty));
            }
            _ => {}
        }
        if let Some(event) = Event::named(name) {
            return number(Input::Event(event));
        }
        if let Some(digits) = name.strip_prefix("arg")
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_ascii_digit())
        {
            return self.argument(digits.parse().unwrap_or(u8::MAX), scope, span);
        }
        if let Ok(signature) = &scope.signature
            && let Some(parameter) = signature.parameters.iter().find(|known| known.name == name)
        {
            return match parameter.number {
                Some(number) => self.argument(number, scope, span),
                None => {
                    let why = parameter.absent;
                    let why = why.unwrap_or("is passed as a whole structure, not as one number");
                    Err(Fault::new(span, format!("{name} {why}.")))
                }
            };
        }
        if let Some(value) = self.context.types.and_then(|types| types.constant(name)) {
            let (bits, ty) = match i64::try_from(value) {
                Ok(value) => (value.cast_unsigned(), Type::I64),
                Err(_) => (u64::try_from(value).unwrap_or(0), Type::U64),
            };
            return Ok(Value::Number(build::constant(bits, ty, span), None));
        }
        Err(self.unknown(name, scope, span))
    }

    fn unknown(&self, name: &str, scope: &HookScope<'_>, span: Span) -> Fault {
        let fault = Fault::new(span, format!("There is no value named {name}."));
        if self.variables.contains_key(name) || self.aggregates.contains_key(name) {
            return fault.help(format!("Write `@{name}`."));
        }
        if OTHER_EVENTS.contains(&name) || matches!(name, "pmc" | "rdpmc") {
            let events = Event::ALL.map(Event::word).join(", ");
            return fault.help(format!(
                "The processor's counters that can be read are {events}."
            ));
        }
        let instead = match name {
            "current" | "task" => Some("`curtask`"),
            "args" => Some("`arg0`, or the argument's own name"),
            "rdtsc" | "ticks" => Some("`tsc`"),
            "cpu_cycles" => Some("`cycles`"),
            "branch_instructions" => Some("`branches`"),
            "time" | "ktime" | "now" | "elapsed" => Some("`nsecs`"),
            "tgid" => Some("`pid`"),
            "ret" | "result" | "retvalue" => Some("`retval`"),
            "smp_processor_id" | "cpuid" => Some("`cpu`"),
            "NULL" | "false" => Some("`0`"),
            "true" => Some("`1`"),
            "ax" | "rax" | "bx" | "rbx" | "cx" | "rcx" | "dx" | "rdx" | "si" | "rsi" | "di"
            | "rdi" | "sp" | "rsp" | "bp" | "rbp" => {
                Some("`reg(\"ax\")`, with the register's name")
            }
            _ => None,
        };
        if let Some(instead) = instead {
            return fault.help(format!("Write {instead}."));
        }
        let parameters = scope.signature.iter().flat_map(|known| &known.parameters);
        let words = words::WORDS
            .iter()
            .filter(|word| matches!(word.kind, WordKind::Input))
            .map(|word| word.word)
            .chain(["arg0", "arg1"])
            .chain(parameters.map(|parameter| parameter.name));
        if let Some(near) = nearest(name, words) {
            return fault.did_you_mean(near);
        }
        match &scope.signature {
            Err(reason) => fault.help(format!("{reason} Arguments are `arg0`, `arg1` and so on.")),
            Ok(signature) => {
                let names: Vec<&str> = signature.parameters.iter().map(|word| word.name).collect();
                fault.help(match names.as_slice() {
                    [] => "The function takes no arguments.".to_owned(),
                    names => format!("The function's arguments are {}.", names.join(", ")),
                })
            }
        }
    }

    fn argument(&self, number: u8, scope: &HookScope<'_>, span: Span) -> Result<Value, Fault> {
        if scope.hook.is_exit() {
            return Err(Fault::new(
                span,
                "Where the function returns it may have overwritten its arguments.",
            )
            .help("Keep it: `thread @a; entry { @a = arg0 } return { sample(@a) }`."));
        }
        if number >= ARGUMENTS {
            return Err(Fault::new(
                span,
                format!("Arguments are numbered from 0 to {}.", ARGUMENTS - 1),
            ));
        }
        if number >= REGISTERS && scope.hook != Hook::Entry {
            return Err(Fault::new(
                span,
                "Arguments from arg6 on are on the stack, and where is known at the entry only.",
            )
            .help("Keep it: `thread @a; entry { @a = arg6 }`."));
        }
        let plain = if number >= REGISTERS && self.context.of_process {
            // Above the return address, the sixth first (System V ABI, 3.2.3).
            let stack = build::input(Input::Register(Gpr::Rsp), span);
            let bytes = 8 * u64::from(number - REGISTERS + 1);
            let address = build::further(stack, bytes, span);
            build::load((self.space(), address), Width::B8, false, span)
        } else {
            build::input(Input::Argument(number), span)
        };
        let Ok(signature) = &scope.signature else {
            return Ok(Value::Number(plain, None));
        };
        let fields = signature
            .parameters
            .iter()
            .find(|parameter| parameter.number == Some(number));
        // A structure as a whole takes several numbers, and is known by none of them.
        let whole = signature
            .parameters
            .iter()
            .all(|field| field.number.is_some());
        match fields {
            Some(parameter) => Ok(self.arrived(plain, Ty::Known(parameter.of))),
            None if whole && usize::from(number) >= signature.parameters.len() => {
                let names: Vec<&str> = signature
                    .parameters
                    .iter()
                    .map(|field| field.name)
                    .collect();
                let fault = Fault::new(
                    span,
                    match names.len() {
                        0 => "The function takes no arguments.".to_owned(),
                        1 => format!("The function takes one argument: {}.", names.join(", ")),
                        count => format!(
                            "The function takes {count} arguments: {}.",
                            names.join(", ")
                        ),
                    },
                );
                Err(fault.help(format!(
                    "Write `reg(\"{}\")` for whatever is in the register.",
                    ["di", "si", "dx", "cx", "r8", "r9"]
                        .get(usize::from(number))
                        .unwrap_or(&"sp")
                )))
            }
            None => Ok(Value::Number(plain, None)),
        }
    }

    fn returned(&self, scope: &HookScope<'_>, span: Span) -> Result<Value, Fault> {
        if !scope.hook.is_exit() {
            return Err(Fault::new(
                span,
                format!("What the function returns is not known at its {}.", match scope.hook {
                    Hook::Entry => "entry",
                    _ => "blocks",
                }),
            )
            .help("Write it in a probe `return { … }`; `reg(\"ax\")` is what the register holds here."));
        }
        let plain = build::input(Input::Returned, span);
        let Ok(signature) = &scope.signature else {
            return Ok(Value::Number(plain, None));
        };
        let ty = Ty::Known(signature.returns);
        if self.view(&ty) == View::Void {
            return Err(Fault::new(span, "The function returns nothing."));
        }
        Ok(self.arrived(plain, ty))
    }

    /// `kstack(5)`, `ustack(5)`
    pub(super) fn stack(
        &mut self,
        word: &str,
        arguments: &[ast::ExprNode],
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        let usage = || {
            let most = Input::STACK_DEPTH;
            Fault::new(span, format!("`{word}` takes the most frames of a stack.")).help(format!(
                "Write `{word}`, or `{word}(5)` for 5 frames; {most} is the most."
            ))
        };
        let [depth] = arguments else {
            return Err(usage());
        };
        let depth = self.numeric(depth, scope)?;
        let depth = build::as_constant(&depth).and_then(|depth| u8::try_from(depth).ok());
        match depth {
            Some(depth @ 1..=Input::STACK_DEPTH) => {
                let input = match word {
                    "ustack" => Input::UserStack(depth),
                    _ => Input::KernelStack(depth),
                };
                Ok(Value::Number(build::input(input, span), None))
            }
            _ => Err(usage()),
        }
    }

    /// `reg("ax")`
    pub(super) fn register(&self, name: &str, span: Span) -> Result<Expr, Fault> {
        let (plain, half) = match name.strip_prefix('e') {
            Some(rest) => (rest, true),
            None => match name.strip_suffix('d').filter(|rest| rest.starts_with('r')) {
                Some(rest) => (rest, true),
                None => (name, false),
            },
        };
        // `erax` is none.
        let found = Gpr::named(plain).filter(|_| !half || Gpr::NAMES.contains(&plain));
        match found {
            Some(register) => {
                let whole = build::input(Input::Register(register), span);
                Ok(if half {
                    build::extend(whole, Width::B4, false, span)
                } else {
                    whole
                })
            }
            None => {
                let fault = Fault::new(span, format!("There is no register {name:?} to be read."));
                Err(match nearest(name, Gpr::NAMES) {
                    Some(near) => fault.help(format!("Did you mean `reg(\"{near}\")`?")),
                    None => fault
                        .help("The registers are ax, bx, cx, dx, si, di, bp, sp and r8 to r15."),
                })
            }
        }
    }

    /// Refuses a call's variable where it is not known which call this is.
    pub(super) fn of_call(
        &self,
        variable: &Variable,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<(), Fault> {
        if variable.scope != program::Scope::Call || scope.hook.of_function() {
            return Ok(());
        }
        Err(Fault::new(
            span,
            format!(
                "@{} belongs to one call, which is known at its entry and exits only.",
                variable.name
            ),
        )
        .help(format!("Declare it `thread @{};`.", variable.name)))
    }

    pub(super) fn variable(
        &self,
        name: &str,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        if let Some((id, variable)) = self.variables.get(name) {
            self.of_call(variable, scope, span)?;
            return Ok(Value::Number(
                Expr {
                    kind: ExprKind::Variable(*id),
                    ty: variable.ty,
                    span,
                },
                None,
            ));
        }
        if self.aggregates.contains_key(name) {
            return Err(Fault::new(
                span,
                format!("@{name} is added up, and not read by the program."),
            )
            .help(
                "Screens and files show it; a variable can be read: `global @name; … @name += 1`.",
            ));
        }
        Err(self.undeclared(name, span))
    }

    /// Refuses the key `tid` of a variable that threads do not have one each of.
    pub(super) fn of_thread(&self, name: &str, span: Span) -> Result<(), Fault> {
        match self.variables.get(name) {
            Some((_, variable)) if variable.scope != program::Scope::Thread => {
                let what = format!("@{name} is declared for something else than threads.");
                Err(Fault::new(span, what)
                    .help(format!("Declare `thread @{name};`, or write `@{name}`.")))
            }
            Some(_) => Ok(()),
            // An aggregate, or nothing: the message for its name alone says which.
            None => Ok(()),
        }
    }

    pub(super) fn undeclared(&self, name: &str, span: Span) -> Fault {
        let fault = Fault::new(span, format!("@{name} is not declared."));
        match nearest(name, self.variables.keys().map(String::as_str)) {
            Some(near) => fault.did_you_mean(format!("@{near}")),
            None => fault.help(format!(
                "Write `thread @{name};`, `call @{name};`, `cpu @{name};` or `global @{name};` before the probes."
            )),
        }
    }
}
