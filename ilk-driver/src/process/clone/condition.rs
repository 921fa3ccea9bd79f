//! The condition for which a call of a function is taken into the cache: an expression of the language of instruments,
//! computed from the registers and the memory of the thread that is stopped at the function's entry.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use gilk_engine::isa::ARGUMENTS;
use gilk_instruments::interpret::{Machine, evaluate};
use gilk_instruments::program::{
    AggregateId, Expr, Gpr, Half, Input, Key, UserRead, VariableId, Width,
};
use gilk_instruments::{Context, Faults, Source};

use super::super::objects::ObjectChoice;
use super::super::ptrace::{self, Registers, Tid};
use super::super::subject::Subject;
use super::super::{inner_number, proc, refused, text};
use crate::Result;
use crate::script::TypesWanted;

/// A condition at the entry of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition(Expr);

/// The result of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) holds: bool,
    /// Reads of memory that failed, and yielded 0.
    pub(super) failed_reads: u64,
}

impl Condition {
    /// Reads a condition of a function's calls. The debug information of the function's object is read if it names
    /// parameters or types.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the text is wrong, or uses what is not known at a stop, or the object cannot be read.
    pub(super) fn read(pid: u32, function: &str, text: &str) -> Result<Self> {
        let wrong = |faults: Faults| {
            let why = format!("the condition of calls of {function} is wrong:\n{faults}");
            refused(pid, why)
        };
        let source = parsed(text).map_err(wrong)?;
        let depends = source.depends_on_function() || !source.type_names().is_empty();
        let subject = match depends {
            true => Some(of_function(pid, function, &source)?),
            false => None,
        };
        let types = subject.as_ref().and_then(|subject| subject.image().types());
        let context = Context {
            types,
            function: Some(function),
            of_process: true,
        };
        let checked = source.check(&context).map_err(wrong)?;
        let [probe] = checked.probes.as_slice() else {
            let why = format!("{text:?} is more than one condition");
            return Err(refused(pid, why));
        };
        let Some(condition) = probe.predicate.clone() else {
            return Err(refused(pid, format!("{text:?} is always true")));
        };
        match condition.any(&mut |expr| !is_known(expr)) {
            true => {
                let why = format!(
                    "the condition {text:?} needs more than a thread has at the function's entry: arguments, registers, \
                     memory, pid, tid and comm"
                );
                Err(refused(pid, why))
            }
            false => Ok(Self(condition)),
        }
    }

    /// Computes it for a thread that is stopped at the entry.
    pub(super) fn judge(
        &self,
        (pid, tid): (u32, Tid),
        registers: &Registers,
        memory: &File,
    ) -> Judged {
        let mut thread = StoppedThread {
            pid,
            tid,
            registers: *registers,
            memory,
            failed_reads: 0,
        };
        let value = evaluate(&self.0, &mut thread);
        Judged {
            holds: value != 0,
            failed_reads: thread.failed_reads,
        }
    }
}

/// Parses a condition. Its text has lines of its own, so that faults show it as it was typed.
fn parsed(text: &str) -> std::result::Result<Source, Faults> {
    Source::parse(&format!(
        "instrument condition \"Chooses calls.\";\nentry / (\n{text}\n) / {{ @chosen = count() }}\n"
    ))
}

/// Checks the form of a condition; its names are checked with the process.
///
/// # Errors
/// The faults of the text.
pub fn check(text: &str) -> std::result::Result<(), Faults> {
    parsed(text).map(drop)
}

/// Reads the object of a function, and the types that a source names.
fn of_function(pid: u32, function: &str, source: &Source) -> Result<Subject> {
    let subject = Subject::read(pid, &ObjectChoice::of([function].into_iter()))?;
    let id = subject.image().function_named(function)?.id;
    let wanted = TypesWanted {
        functions: [id].into(),
        names: source.type_names().into_iter().map(str::to_owned).collect(),
    };
    // What the types are missing for is refused by the checker, with the reason.
    let _notes = subject.read_types(&wanted, &|_| true)?;
    Ok(subject)
}

/// Returns whether a node is known of a stopped thread.
fn is_known(expr: &Expr) -> bool {
    use gilk_instruments::program::ExprKind as Kind;
    match expr.kind {
        Kind::Input(input) => matches!(
            input,
            Input::Argument(0..6) | Input::Register(_) | Input::Tid
        ),
        Kind::User { read, .. } => read != UserRead::Name,
        Kind::Variable(_) | Kind::Load { .. } => false,
        _ => true,
    }
}

/// A thread at the entry of a function.
struct StoppedThread<'m> {
    pid: u32,
    tid: Tid,
    registers: Registers,
    memory: &'m File,
    failed_reads: u64,
}

impl StoppedThread<'_> {
    fn bytes<const BYTES: usize>(&self, address: u64) -> Option<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// The first sixteen bytes of a text, with zeroes after its end.
    fn text(&self, address: u64) -> Option<[u8; 16]> {
        let mut text = [0; 16];
        for (place, at) in text.iter_mut().zip(0..) {
            let [letter] = self.bytes(address.wrapping_add(at))?;
            if letter == 0 {
                return Some(text);
            }
            *place = letter;
        }
        text[15] = Key::CUT;
        Some(text)
    }

    fn register(&mut self, number: usize) -> u64 {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        let register = ptrace::numbered(&mut self.registers, number);
        debug_assert!(register.is_some(), "register {number}");
        register.copied().unwrap_or(0)
    }
}

/// Returns one half of sixteen bytes as a number.
fn half(of: Half, bytes: [u8; 16]) -> u64 {
    let whole = u128::from_le_bytes(bytes);
    // The lower half.
    #[allow(clippy::cast_possible_truncation, reason = "one half")]
    match of {
        Half::First => whole as u64,
        Half::Second => (whole >> 64) as u64,
    }
}

impl Machine for StoppedThread<'_> {
    fn input(&mut self, input: Input) -> u64 {
        match input {
            Input::Argument(number) => {
                let register = ARGUMENTS.get(usize::from(number));
                self.register(register.map_or(usize::MAX, |register| register.number()))
            }
            Input::Register(register) => {
                let number = Gpr::ALL.iter().position(|known| *known == register);
                self.register(number.unwrap_or(usize::MAX))
            }
            Input::Tid => self.tid.unsigned_abs().into(),
            other => {
                debug_assert!(false, "{other:?} is refused when a condition is read");
                0
            }
        }
    }

    fn load(&mut self, _: u64, _: Width) -> Option<u64> {
        debug_assert!(false, "kernel memory is refused when a condition is read");
        None
    }

    fn user(&mut self, read: UserRead, address: u64) -> Option<u64> {
        match read {
            UserRead::Bytes(width) => {
                let mut bytes = [0; 8];
                let wanted = bytes.get_mut(..usize::try_from(width.bytes()).ok()?)?;
                self.memory.read_exact_at(wanted, address).ok()?;
                Some(u64::from_le_bytes(bytes))
            }
            UserRead::Text(of) => Some(half(of, self.text(address)?)),
            UserRead::Process => inner_number(&text(self.pid, "status").ok()?).map(u64::from),
            UserRead::Comm(of) => {
                let name = fs::read(proc(self.pid, &format!("task/{}/comm", self.tid))).ok()?;
                let name = name.strip_suffix(b"\n").unwrap_or(&name);
                let mut bytes = [0; 16];
                for (byte, letter) in bytes.iter_mut().zip(name) {
                    *byte = *letter;
                }
                Some(half(of, bytes))
            }
            UserRead::Name => {
                debug_assert!(false, "names are refused when a condition is read");
                None
            }
        }
    }

    fn read(&mut self, variable: VariableId) -> u64 {
        debug_assert!(false, "{variable:?} is refused when a condition is read");
        0
    }

    fn write(&mut self, variable: VariableId, _: u64) {
        debug_assert!(false, "a condition stores into {variable:?}");
    }

    fn update(&mut self, aggregate: AggregateId, _: &[u64]) {
        debug_assert!(false, "a condition updates {aggregate:?}");
    }

    fn sample(&mut self, _: &[u64]) {
        debug_assert!(false, "a condition samples");
    }

    fn fault(&mut self) {
        self.failed_reads += 1;
    }
}
