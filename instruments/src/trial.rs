//! Tries instruments out on hits that are written down, as the reference and the library's tests have
//! them:
//!
//! ```text
//! entry tid=7 arg2=4096 [0x1000]=5 comm="sh" -> sample 4096, @n = 1, @h[4096..8191] = 1
//! ```
//!
//! Samples have to be exactly those that are named. What a hit has to know and the line does not say is
//! a failure, too.

use std::collections::HashMap;

use crate::interpret::{self, Machine};
use crate::program::{
    Action, ActionKind, AggregateId, Checked, ExprKind, Gpr, Half, Hook, Input, Key, Probe, Scope,
    Summary, UserRead, VariableId, Width,
};
use crate::types::tests::types;
use crate::{Context, Source};
use gilk_samples::texts::Texts;
use gilk_samples::totals::Totals;

/// Checks a source for a function of the little kernel.
pub(crate) fn check(text: &str, function: &str) -> Result<Checked, String> {
    let types = types();
    let context = Context {
        types: Some(&types),
        function: Some(function),
        of_process: false,
    };
    Source::parse(text)
        .and_then(|source| source.check(&context))
        .map_err(|faults| faults.to_string())
}

/// A machine that knows what its line says.
struct Tried<'p> {
    program: &'p Checked,
    inputs: HashMap<String, u64>,
    memory: HashMap<u64, u8>,
    variables: HashMap<(VariableId, u64), u64>,
    /// Words by aggregate and processor.
    words: HashMap<(AggregateId, u64), Vec<u64>>,
    samples: Vec<u64>,
    lines: Vec<String>,
    faults: u64,
}

impl Tried<'_> {
    fn known(&self, name: &str) -> u64 {
        *self
            .inputs
            .get(name)
            .unwrap_or_else(|| panic!("the line does not say {name}"))
    }

    fn or(&self, name: &str, otherwise: u64) -> u64 {
        self.inputs.get(name).copied().unwrap_or(otherwise)
    }

    fn instance(&self, variable: VariableId) -> (VariableId, u64) {
        let of = match self.program.variables[variable].scope {
            Scope::Global => 0,
            Scope::Cpu => self.or("cpu", 0),
            Scope::Thread => self.or("tid", 1),
            Scope::Call => self.or("call", 0),
        };
        (variable, of)
    }
}

impl Machine for Tried<'_> {
    fn input(&mut self, input: Input) -> u64 {
        const REGISTERS: [&str; 16] = [
            "ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8", "r9", "r10", "r11", "r12", "r13",
            "r14", "r15",
        ];
        match input {
            Input::Argument(number) => self.known(&format!("arg{number}")),
            Input::Returned => self.known("retval"),
            Input::Register(register) => {
                let at = Gpr::ALL.iter().position(|known| *known == register);
                self.known(REGISTERS[at.unwrap()])
            }
            Input::Task => self.known("curtask"),
            Input::Pid => self.known("pid"),
            Input::Tid => self.or("tid", 1),
            Input::Comm(Half::First) => self.known("comm"),
            Input::Comm(Half::Second) => self.known("comm+8"),
            Input::Cpu => self.or("cpu", 0),
            Input::Tsc => self.known("tsc"),
            Input::Nsecs => self.known("nsecs"),
            Input::Block => self.known("block"),
            Input::Identifier => self.known("id"),
            Input::Event(event) => self.known(event.word()),
            Input::KernelStack(Input::STACK_DEPTH) => self.known("kstack"),
            Input::KernelStack(depth) => self.known(&format!("kstack({depth})")),
            Input::UserStack(Input::STACK_DEPTH) => self.known("ustack"),
            Input::UserStack(depth) => self.known(&format!("ustack({depth})")),
        }
    }

    fn load(&mut self, address: u64, width: Width) -> Option<u64> {
        (0..u64::from(width.bytes())).try_fold(0, |value, byte| {
            let there = *self.memory.get(&address.wrapping_add(byte))?;
            Some(value | u64::from(there) << (8 * byte))
        })
    }

    fn user(&mut self, read: UserRead, address: u64) -> Option<u64> {
        match read {
            UserRead::Bytes(width) => self.load(address, width),
            UserRead::Name => Some(self.known(&format!("usym({address:#x})"))),
            UserRead::Process => Some(self.input(Input::Pid)),
            UserRead::Comm(half) => Some(self.input(Input::Comm(half))),
            UserRead::Text(half) => {
                let letters = (0..16).map(|at| self.memory.get(&address.wrapping_add(at)).copied());
                let mut text = [0; 16];
                for (place, letter) in text.iter_mut().zip(letters) {
                    match letter? {
                        0 => break,
                        letter => *place = letter,
                    }
                }
                if text[15] != 0 {
                    text[15] = Key::CUT;
                }
                let from = if half == Half::First { 0 } else { 8 };
                Some(u64::from_le_bytes(text[from..from + 8].try_into().unwrap()))
            }
        }
    }

    fn read(&mut self, variable: VariableId) -> u64 {
        self.variables
            .get(&self.instance(variable))
            .copied()
            .unwrap_or(0)
    }

    fn write(&mut self, variable: VariableId, value: u64) {
        self.variables.insert(self.instance(variable), value);
    }

    fn update(&mut self, id: AggregateId, values: &[u64]) {
        let aggregate = &self.program.aggregates[id];
        let words = self
            .words
            .entry((id, self.inputs.get("cpu").copied().unwrap_or(0)))
            .or_insert_with(|| vec![0; aggregate.words() as usize]);
        aggregate.update(words, values);
    }

    fn sample(&mut self, words: &[u64]) {
        match (&self.program.texts, words) {
            (Some(Texts::Lines(formats)), [format, words @ ..]) => {
                let format = &formats[usize::try_from(*format).unwrap()];
                self.lines.push(format.line(words, &Totals::default()));
            }
            (_, [value]) => self.samples.push(*value),
            other => panic!("{other:?} is no sample"),
        }
    }

    fn fault(&mut self) {
        self.faults += 1;
    }
}

fn number(text: &str) -> u64 {
    match text.strip_prefix('-') {
        Some(rest) => crate::source::token::number(rest).unwrap().wrapping_neg(),
        None => {
            crate::source::token::number(text).unwrap_or_else(|_| panic!("{text} is no number"))
        }
    }
}

fn bytes(text: &str) -> Vec<u8> {
    match text.strip_prefix('"') {
        Some(text) => text.trim_end_matches('"').bytes().chain([0]).collect(),
        None => number(text).to_le_bytes().to_vec(),
    }
}

/// Runs the lines on a program; what is kept between hits is kept from line to line.
pub(crate) fn run(program: &Checked, lines: &str) {
    let mut tried = Tried {
        program,
        inputs: HashMap::new(),
        memory: HashMap::new(),
        variables: HashMap::new(),
        words: HashMap::new(),
        samples: Vec::new(),
        lines: Vec::new(),
        faults: 0,
    };
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let (given, expected) = line
            .split_once("->")
            .unwrap_or_else(|| panic!("no -> in {line}"));
        let mut given = given.split_whitespace();
        let (hook, function) = match given.next().unwrap().split_once(':') {
            Some((hook, function)) => (hook.to_owned(), Some(function.to_owned())),
            None => (line.split_whitespace().next().unwrap().to_owned(), None),
        };
        let hook = Hook::ALL
            .into_iter()
            .chain([Hook::Onward, Hook::Back])
            .find(|known| known.word() == hook)
            .unwrap_or_else(|| panic!("{hook} is no hook"));
        tried.inputs.clear();
        for pair in given {
            let (name, value) = pair.split_once('=').unwrap();
            if let Some(address) = name.strip_prefix('[') {
                let address = number(address.trim_end_matches(']'));
                for (place, byte) in (address..).zip(bytes(value)) {
                    tried.memory.insert(place, byte);
                }
            } else if name == "comm" {
                let mut text = bytes(value);
                text.resize(16, 0);
                let half =
                    |from: usize| u64::from_le_bytes(text[from..from + 8].try_into().unwrap());
                tried.inputs.insert("comm".to_owned(), half(0));
                tried.inputs.insert("comm+8".to_owned(), half(8));
            } else {
                tried.inputs.insert(name.to_owned(), number(value));
            }
        }
        tried.samples.clear();
        tried.lines.clear();
        tried.faults = 0;
        let mut ran = false;
        for probe in &program.probes {
            if probe.hook == hook && probe.function == function {
                ran |= interpret::run(program, probe, &mut tried) && !is_put(probe);
            }
        }
        expect(&mut tried, ran, expected, line);
    }
}

/// Returns whether the probe only sets variables to 0, as the checker's own probes do.
fn is_put(probe: &Probe) -> bool {
    let zero = |action: &Action| match &action.kind {
        ActionKind::Store(_, value) => value.kind == ExprKind::Constant(0),
        _ => false,
    };
    probe.predicate.is_none() && probe.actions.iter().all(zero)
}

fn expect(tried: &mut Tried<'_>, ran: bool, expected: &str, line: &str) {
    let (mut samples, mut lines) = (Vec::new(), Vec::new());
    let mut faults = 0;
    // A comma in brackets separates the parts of a key.
    let mut depth = 0_i32;
    let is_between = |letter: char| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        letter == ',' && depth == 0
    };
    for said in expected.split(is_between).map(str::trim) {
        if said == "nothing" {
            assert!(!ran, "{line}: something was done");
        } else if let Some(value) = said.strip_prefix("sample ") {
            samples.push(number(value));
        } else if let Some(line) = said.strip_prefix("line ") {
            lines.push(line.trim_matches('"').replace("\\n", "\n"));
        } else if let Some(count) = said.strip_prefix("faults ") {
            faults = number(count);
        } else if let Some((name, value)) = said.split_once(" = ") {
            assert_eq!(kept(tried, name), value, "{line}: {name}");
        } else {
            panic!("{line}: {said} says nothing");
        }
    }
    assert_eq!(tried.samples, samples, "{line}: samples");
    assert_eq!(tried.lines, lines, "{line}: lines");
    assert_eq!(tried.faults, faults, "{line}: faults");
}

/// Returns the value of a variable, an aggregate, or a part of one.
fn kept(tried: &mut Tried<'_>, name: &str) -> String {
    let (name, part) = match name.split_once('[') {
        Some((name, part)) => (name, Some(part.strip_suffix(']').unwrap())),
        None => (name, None),
    };
    let name = name.strip_prefix('@').unwrap();
    let program = tried.program;
    let mut variables = program.variables.iter();
    if let Some((id, variable)) = variables.find(|(_, known)| known.name == name) {
        let value = tried.read(id);
        return if variable.ty.signed() {
            value.cast_signed().to_string()
        } else {
            value.to_string()
        };
    }
    let mut aggregates = program.aggregates.iter();
    let (id, aggregate) = aggregates
        .find(|(_, known)| known.name == name)
        .unwrap_or_else(|| panic!("nothing is named @{name}"));
    let words = tried
        .words
        .iter()
        .filter(|((of, _), _)| *of == id)
        .map(|(_, words)| words.as_slice());
    let (total, part) = match (aggregate.read(words), part) {
        // `key`, `key; bucket`, or `other`.
        (Summary::Map(_, other), Some("other")) => return other.to_string(),
        (Summary::Map(rows, _), Some(part)) => {
            let (key, part) = match part.split_once("; ") {
                Some((key, part)) => (key, Some(part)),
                None => (part, None),
            };
            let row = rows.into_iter().find(|row| row.key() == key);
            (row.map_or(Summary::Nothing, |row| row.value), part)
        }
        total => total,
    };
    match total {
        Summary::Map(..) => panic!("{name} has keys"),
        Summary::Number(number) => number.to_string(),
        Summary::Nothing => "nothing".to_owned(),
        Summary::Mean(mean) => mean.to_string(),
        Summary::Buckets(buckets) => {
            let (from, to) = part.unwrap().split_once("..").unwrap();
            let bound = |text: &str| (!text.is_empty()).then(|| text.parse::<i128>().unwrap());
            let found = buckets
                .iter()
                .find(|bucket| bucket.from == bound(from) && bucket.to == bound(to));
            found
                .unwrap_or_else(|| panic!("no bucket {from}..{to}"))
                .count
                .to_string()
        }
        Summary::Values(values, other) => {
            let part = part.unwrap();
            let found = values.iter().find(|(value, _)| value.to_string() == part);
            match part {
                "other" => other.to_string(),
                _ => found.map_or(0, |(_, count)| *count).to_string(),
            }
        }
    }
}
