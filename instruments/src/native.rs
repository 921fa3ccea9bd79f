//! Instrument functions that a person compiled: an object file, and in its section `.gilk` one line for each
//! of them, `name(parameters) samples unit: what it is for`, or `name replaces: what it is for`
//! (`instruments/native/gilk.h`).

use std::sync::Arc;

use gilk_samples::Meaning;
use object::{Architecture, Object as _, ObjectKind, ObjectSection as _, ObjectSymbol as _};
use winnow::ascii::{digit1, space0, space1};
use winnow::combinator::{alt, delimited, eof, opt, preceded, separated, terminated};
use winnow::error::ContextError;
use winnow::prelude::*;
use winnow::token::{rest, take_while};

use crate::program::{Gpr, Input};
use crate::{Definition, Error, Program, Result};

/// The section that lists an object's instruments.
const LIST: &str = ".gilk";

/// A function of an object file, as its list declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Native {
    /// The object file's name, for people.
    pub file: Arc<str>,
    /// The bytes of the object file.
    pub object: Arc<[u8]>,
    /// The function's symbol.
    pub function: String,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// True if the returned value is sampled.
    pub samples: bool,
    /// True if it takes the place of the function at whose entry it is placed, with that one's arguments and result, in
    /// a process.
    pub replaces: bool,
}

/// A parameter of a native function, of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Something of the machine at the hook.
    Input(Input),
    /// Offset of the instrument's counter from the start of the CPU's own memory (`gs:`).
    Counter,
}

impl Native {
    /// Compiler flags for C code that can run in the kernel, as `gilk.h` lists them.
    pub const C_FLAGS: [&str; 10] = [
        "-c",
        "-O2",
        "-mcmodel=kernel",
        "-mno-red-zone",
        "-mgeneral-regs-only",
        "-fno-pic",
        "-fno-jump-tables",
        "-fno-stack-protector",
        "-fno-asynchronous-unwind-tables",
        "-fcf-protection=none",
    ];

    /// The registers and the like that it is given, in order.
    pub fn inputs(&self) -> impl Iterator<Item = Input> {
        self.parameters
            .iter()
            .filter_map(|parameter| match parameter {
                Parameter::Input(input) => Some(*input),
                Parameter::Counter => None,
            })
    }

    /// The end of the name by which a replacement calls the function that it replaces: `f_original` in `f`.
    pub const ORIGINAL: &str = "_original";

    /// Returns whether the function increments a counter.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.parameters.contains(&Parameter::Counter)
    }
}

impl Definition {
    /// The instruments of an object file. `file` is its name for people; nothing is read but `bytes`.
    ///
    /// # Errors
    /// [`Error::Native`] if it is no relocatable object for x86-64, lists no instruments, or lists one that
    /// is wrong or is not in it.
    pub fn natives(file: &str, bytes: &[u8]) -> Result<Vec<Self>> {
        let wrong = |reason: String| Error::Native {
            file: file.to_owned(),
            reason,
        };
        let read = object::File::parse(bytes).map_err(|error| wrong(error.to_string()))?;
        if read.architecture() != Architecture::X86_64 || read.kind() != ObjectKind::Relocatable {
            return Err(wrong(
                "it is not what a compiler makes of one file for x86-64 (cc -c)".into(),
            ));
        }
        let list = read.section_by_name(LIST).ok_or_else(|| {
            wrong(format!(
                "it has no section {LIST}, where its instruments are listed"
            ))
        })?;
        let list = list.data().map_err(|error| wrong(error.to_string()))?;
        let list = std::str::from_utf8(list)
            .map_err(|error| wrong(format!("its section {LIST} is not text: {error}")))?;
        let (file, object): (Arc<str>, Arc<[u8]>) = (file.into(), bytes.into());
        let mut definitions = Vec::new();
        for line in list.split('\0').filter(|line| !line.is_empty()) {
            let declared = declaration.parse(line).map_err(|_| {
                wrong(format!(
                    "{line:?} is not like \"name(arg0, counter) samples bytes: what it is for\" or \"name replaces: what \
                     it is for\""
                ))
            })?;
            let function = declared.name.replace('-', "_");
            let defined = |symbol: &object::Symbol<'_, '_>| !symbol.is_undefined();
            if read.symbol_by_name(&function).filter(defined).is_none() {
                return Err(wrong(format!(
                    "it lists {} and has no function {function}",
                    declared.name
                )));
            }
            definitions.push(Self {
                name: declared.name.to_owned(),
                summary: declared.summary.to_owned(),
                meaning: if declared.unit.is_some() {
                    Meaning::Value
                } else {
                    Meaning::Count
                },
                unit: declared.unit.unwrap_or_default().to_owned(),
                program: Program::Native(Arc::new(Native {
                    file: Arc::clone(&file),
                    object: Arc::clone(&object),
                    function,
                    parameters: declared.parameters,
                    samples: declared.unit.is_some(),
                    replaces: declared.replaces,
                })),
            });
        }
        if definitions.is_empty() {
            return Err(wrong(format!("its section {LIST} lists nothing")));
        }
        Ok(definitions)
    }
}

/// A line of the list.
struct Declared<'l> {
    name: &'l str,
    parameters: Vec<Parameter>,
    /// Unit of the samples, if it samples.
    unit: Option<&'l str>,
    replaces: bool,
    summary: &'l str,
}

type Listed<T> = winnow::Result<T, ContextError>;

fn declaration<'l>(line: &mut &'l str) -> Listed<Declared<'l>> {
    let name = take_while(1.., |c: char| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
    })
    .parse_next(line)?;
    let replaces = opt((space1, "replaces")).parse_next(line)?.is_some();
    let (parameters, unit) = match replaces {
        true => (Vec::new(), None),
        false => called(line)?,
    };
    let summary = alt((
        preceded((space0, ':', space0), rest),
        terminated("", (space0, eof)),
    ));
    let summary = terminated(summary, eof).parse_next(line)?;
    Ok(Declared {
        name,
        parameters,
        unit,
        replaces,
        summary: summary.trim_end(),
    })
}

/// The parameters of a function, and the unit of its samples, if it samples.
fn called<'l>(line: &mut &'l str) -> Listed<(Vec<Parameter>, Option<&'l str>)> {
    let comma = (space0, ',', space0);
    let parameters = delimited(
        ('(', space0),
        separated(0..=6, parameter, comma),
        (space0, ')'),
    )
    .parse_next(line)?;
    let unit = preceded(
        space1,
        take_while(1.., |c: char| !c.is_whitespace() && c != ':'),
    );
    let unit = opt(preceded((space1, "samples"), opt(unit))).parse_next(line)?;
    Ok((parameters, unit.map(Option::unwrap_or_default)))
}

fn parameter(line: &mut &str) -> Listed<Parameter> {
    let argument = preceded("arg", digit1).try_map(|number: &str| match number.parse::<u8>() {
        Ok(number @ ..=5) => Ok(Input::Argument(number)),
        _ => Err(Unfit),
    });
    let register = delimited(
        "reg(",
        take_while(1.., |c: char| c.is_ascii_alphanumeric()),
        ')',
    );
    let register = register.try_map(|name: &str| match Gpr::named(name) {
        Some(gpr) if gpr != Gpr::Rsp => Ok(Input::Register(gpr)),
        _ => Err(Unfit),
    });
    alt((
        "counter".value(Parameter::Counter),
        "id".value(Parameter::Input(Input::Identifier)),
        "block".value(Parameter::Input(Input::Block)),
        "retval".value(Parameter::Input(Input::Returned)),
        alt((argument, register)).map(Parameter::Input),
    ))
    .parse_next(line)
}

/// A number or a name that no register has.
#[derive(Debug, thiserror::Error)]
#[error("no register has it")]
struct Unfit;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_how_to_compile() {
        let header = include_str!("../native/gilk.h");
        let command = header.split_once("\tcc ").unwrap().1;
        let command = command.split_once(" *\n").unwrap().0;
        let words = command.split_whitespace();
        let flags: Vec<&str> = words.filter(|word| word.starts_with('-')).collect();
        assert_eq!(flags, Native::C_FLAGS);
    }

    #[test]
    fn a_line_says_what_a_function_is_called_with() {
        let declared = declaration
            .parse("page-of(arg0, reg(bx), counter ,id) samples pages: The page it is in.")
            .unwrap();
        assert_eq!(declared.name, "page-of");
        let inputs = [
            Input::Argument(0),
            Input::Register(Gpr::Rbx),
            Input::Identifier,
        ];
        let [first, second, last] = inputs.map(Parameter::Input);
        assert_eq!(
            declared.parameters,
            [first, second, Parameter::Counter, last]
        );
        assert_eq!(declared.unit, Some("pages"));
        assert_eq!(declared.summary, "The page it is in.");
        let bare = declaration.parse("hits(counter)").unwrap();
        assert_eq!((bare.unit, bare.summary), (None, ""));
        let plain = declaration.parse("hits() samples").unwrap();
        assert_eq!(plain.unit, Some(""));
        assert!(!plain.replaces);
        let replacing = declaration.parse("no-memory replaces: Returns 0.").unwrap();
        assert!(replacing.replaces && replacing.parameters.is_empty());
        assert_eq!((replacing.unit, replacing.summary), (None, "Returns 0."));
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for wrong in [
            "",
            "Name()",
            "name",
            "name(arg6)",
            "name(reg(sp))",
            "name(reg(xx))",
            "name(arg0 arg1)",
            "name(id, id, id, id, id, id, id)",
            "name() samples pages more",
            "name() replaces: words",
            "name replaces samples pages",
            "name replacesall",
        ] {
            assert!(declaration.parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused_by_its_name() {
        let error = Definition::natives("mine.o", b"\x7fELF").unwrap_err();
        assert!(error.to_string().contains("mine.o"), "{error}");
    }
}
