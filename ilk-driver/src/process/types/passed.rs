//! The arguments in which the parameters of a function arrive: by their locations in the debug information, where a
//! register is one, and else by the order of the calling convention (System V ABI, 3.2.3), which code without
//! optimisation and exported functions follow.

use gimli::{AttributeValue, Operation};

use super::dwarf::{DebugEntries, Entry, Key};

/// Arguments by the numbers that DWARF has for their registers: rdi, rsi, rdx, rcx, r8, r9 (System V ABI, 3.6.2).
const REGISTERS: [u16; 6] = [5, 4, 1, 2, 8, 9];
/// The number of rsp.
const STACK: u16 = 7;
/// The numbers of registers of vectors and of the x87.
const FLOATING: std::ops::Range<u16> = 17..49;
/// The most typedefs and structures in each other.
const DEEP: usize = 16;
/// The largest structure that is passed in registers, in bytes.
const WHOLE: u64 = 16;

/// The argument of a parameter by its number, or the end of a sentence with the reason why it has none.
pub(super) type Passed = Result<u8, String>;

/// The kinds of words that a value is passed in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Class {
    /// In registers, each of general ones or of those of vectors.
    Registers(Vec<bool>),
    /// On the stack, so many words.
    Memory(u64),
    /// Not known.
    Unknown,
}

/// The convention, as far as parameters were seen.
#[derive(Clone, Copy, Debug)]
struct Convention {
    general: u8,
    vectors: u8,
    /// The number of the next argument on the stack; `None` after one whose size is not known.
    stack: Option<u8>,
    is_known: bool,
}

/// Returns the arguments of the parameters of a function. `concrete` has the code, of which `entry` is the first
/// address, and may be an instance of another entry, which has all parameters.
pub(super) fn arguments(
    debug: &DebugEntries,
    concrete: Key,
    entry: u64,
) -> (Vec<Key>, Vec<Passed>) {
    let parameters = |of: Key| {
        let all = debug.children(of).into_iter();
        all.filter(|(_, child)| child.tag() == gimli::DW_TAG_formal_parameter)
            .map(|(key, _)| key)
            .collect::<Vec<Key>>()
    };
    let present = parameters(concrete);
    // An instance of a function that is inlined elsewhere may lack parameters.
    let mut declared = concrete;
    for _ in 0..DEEP {
        let entry = debug.entry(declared);
        let origin = entry.and_then(|entry| entry.attr_value(gimli::DW_AT_abstract_origin));
        match origin.map(|origin| debug.target(declared.0, &origin)) {
            Some(Ok(origin)) => declared = origin,
            _ => break,
        }
    }
    let is_instance = declared != concrete;
    let all = match is_instance {
        true => parameters(declared),
        false => present.clone(),
    };
    let of_instance = |parameter: &Key| {
        let mut instances = present.iter().copied();
        instances.find(|key| {
            let entry = debug.entry(*key);
            entry.and_then(|entry| debug.origin(key.0, &entry)) == Some(*parameter)
        })
    };
    let mut convention = Convention {
        general: 0,
        vectors: 0,
        stack: Some(6),
        is_known: true,
    };
    let passed = all.iter().map(|parameter| {
        let by_order = convention.next(debug, *parameter);
        let instance = match is_instance {
            true => of_instance(parameter),
            false => Some(*parameter),
        };
        match instance {
            Some(instance) => located(debug, (concrete, instance), entry, by_order),
            None => Err("is optimised away".to_owned()),
        }
    });
    let passed: Vec<Passed> = passed.collect();
    (all, passed)
}

/// Returns the argument of a parameter by its location, or `by_order`.
fn located(
    debug: &DebugEntries,
    (function, parameter): (Key, Key),
    entry: u64,
    by_order: Passed,
) -> Passed {
    let Some((unit, die)) = debug.unit(parameter.0).zip(debug.entry(parameter)) else {
        return Err("has debug information that is damaged".to_owned());
    };
    let expression = match die.attr_value(gimli::DW_AT_location) {
        None if die.attr_value(gimli::DW_AT_const_value).is_some() => {
            return Err("is a constant there, which the compiler has propagated".to_owned());
        }
        None => return Err("is optimised away".to_owned()),
        Some(AttributeValue::Exprloc(expression)) => expression,
        Some(list) => {
            let found = || -> gimli::Result<Option<_>> {
                let Some(mut locations) = debug.dwarf.attr_locations(unit, list)? else {
                    return Ok(None);
                };
                while let Some(location) = locations.next()? {
                    if (location.range.begin..location.range.end).contains(&entry) {
                        return Ok(Some(location.data));
                    }
                }
                Ok(None)
            };
            match found() {
                Ok(Some(expression)) => expression,
                Ok(None) => {
                    let why = "has no location at the function's entry: its list of locations does not cover it";
                    return Err(why.to_owned());
                }
                Err(error) => return Err(format!("has locations that are damaged ({error})")),
            }
        }
    };
    let mut operations = expression.operations(unit.encoding());
    let mut all = Vec::new();
    loop {
        match operations.next() {
            Ok(Some(operation)) => all.push(operation),
            Ok(None) => break,
            Err(error) => return Err(format!("has a location that is damaged ({error})")),
        }
    }
    let on_stack = |bytes: i64| {
        let word = u8::try_from(bytes / 8).ok().filter(|_| bytes % 8 == 0);
        let number = word.and_then(|word| word.checked_add(6));
        number.ok_or_else(|| format!("is {bytes} bytes above the return address"))
    };
    match all.as_slice() {
        [Operation::Register { register }] => {
            let number = REGISTERS.iter().position(|known| *known == register.0);
            match number.and_then(|number| u8::try_from(number).ok()) {
                Some(number) => Ok(number),
                None if FLOATING.contains(&register.0) => {
                    Err("is in a register of floating-point numbers".to_owned())
                }
                None => Err("is in a register that passes no arguments".to_owned()),
            }
        }
        [Operation::FrameOffset { offset }] if counts_from_caller(debug, function) => {
            match *offset >= 0 {
                true => on_stack(*offset),
                // Where the function will store it.
                false => by_order,
            }
        }
        // Relative to a register that the function sets up first.
        [Operation::FrameOffset { .. }] => by_order,
        [
            Operation::RegisterOffset {
                register, offset, ..
            },
        ] if register.0 == STACK && *offset >= 8 => on_stack(offset - 8),
        [] => Err("is optimised away".to_owned()),
        all if all.iter().any(|one| matches!(one, Operation::Piece { .. })) => {
            Err("is passed in several parts".to_owned())
        }
        _ => Err("has a location that is no argument of the calling convention".to_owned()),
    }
}

/// Returns whether the frame base of a function is the address above its return address.
fn counts_from_caller(debug: &DebugEntries, function: Key) -> bool {
    let base = debug.attribute(function, gimli::DW_AT_frame_base);
    let Some((unit, AttributeValue::Exprloc(base))) = base else {
        return false;
    };
    debug.unit(unit).is_some_and(|unit| {
        let first = base.operations(unit.encoding()).next();
        matches!(first, Ok(Some(Operation::CallFrameCFA)))
    })
}

impl Convention {
    /// Returns the argument of the next parameter by the order.
    fn next(&mut self, debug: &DebugEntries, parameter: Key) -> Passed {
        let follows = || Err("follows a parameter whose passing is not known".to_owned());
        if !self.is_known {
            return follows();
        }
        let of = debug.type_of(parameter).and_then(Result::ok);
        match of.map_or(Class::Unknown, |of| class(debug, of, DEEP)) {
            Class::Unknown => {
                self.is_known = false;
                Err("has a type whose passing is not known".to_owned())
            }
            Class::Registers(words) => {
                let vectors = words.iter().filter(|is_vector| **is_vector).count();
                let general = words.len() - vectors;
                let taken = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
                let (general, vectors) = (taken(general), taken(vectors));
                if self.general.saturating_add(general) > 6
                    || self.vectors.saturating_add(vectors) > 8
                {
                    return self.on_stack(words.len() as u64, vectors > 0);
                }
                let first = self.general;
                self.general += general;
                self.vectors += vectors;
                match (general, vectors) {
                    (1, 0) => Ok(first),
                    (0, 1) => Err("is in a register of floating-point numbers".to_owned()),
                    _ => Err("is passed as a whole structure, not as one number".to_owned()),
                }
            }
            Class::Memory(words) => self.on_stack(words, true),
        }
    }

    fn on_stack(&mut self, words: u64, is_whole: bool) -> Passed {
        let Some(first) = self.stack else {
            return Err("follows a parameter on the stack whose size is not known".to_owned());
        };
        let words_taken = u8::try_from(words).ok();
        // More than a word may be aligned to 16 bytes.
        self.stack = words_taken
            .filter(|words| *words == 1)
            .and_then(|words| first.checked_add(words));
        match (is_whole, words) {
            (false, 1) => Ok(first),
            _ => Err("is on the stack as a whole, not as one number".to_owned()),
        }
    }
}

/// Returns how a value of a type is passed.
fn class(debug: &DebugEntries, of: Key, deep: usize) -> Class {
    let mut words = Vec::new();
    match place(debug, (of, 0), deep, &mut words) {
        Some(bytes) if bytes > WHOLE => Class::Memory(bytes.div_ceil(8)),
        Some(0) | None => Class::Unknown,
        Some(_) => Class::Registers(words),
    }
}

/// Marks the words that a type at an offset has, and returns its bytes; `None` if it is not known how it is passed. A word
/// is one of vectors if all in it are floating-point numbers.
fn place(
    debug: &DebugEntries,
    (of, offset): (Key, u64),
    deep: usize,
    words: &mut Vec<bool>,
) -> Option<u64> {
    let deep = deep.checked_sub(1)?;
    let entry: Entry = debug.entry(of)?;
    let bytes = entry.attr_value(gimli::DW_AT_byte_size);
    let bytes = bytes.and_then(|value| value.udata_value());
    let inner = |words: &mut Vec<bool>| {
        let to = debug.type_of(of)?.ok()?;
        place(debug, (to, offset), deep, words)
    };
    let mut scalar = |bytes: u64, is_vector: bool| {
        if !offset.is_multiple_of(bytes.clamp(1, 8)) {
            return None;
        }
        for word in offset / 8..(offset + bytes).div_ceil(8) {
            let word = usize::try_from(word).ok()?;
            if word >= 2 {
                break;
            }
            let fresh = words.len() <= word;
            while words.len() <= word {
                words.push(true);
            }
            let slot = words.get_mut(word)?;
            *slot = is_vector && (fresh || *slot);
        }
        Some(bytes)
    };
    match entry.tag() {
        gimli::DW_TAG_base_type => match entry.attr_value(gimli::DW_AT_encoding) {
            // The x87's are in memory, and complex ones differ.
            Some(AttributeValue::Encoding(gimli::DW_ATE_float)) => match bytes? {
                bytes @ (4 | 8) => scalar(bytes, true),
                _ => None,
            },
            Some(AttributeValue::Encoding(
                gimli::DW_ATE_complex_float | gimli::DW_ATE_decimal_float,
            )) => None,
            _ => scalar(bytes?, false),
        },
        gimli::DW_TAG_pointer_type
        | gimli::DW_TAG_reference_type
        | gimli::DW_TAG_rvalue_reference_type => scalar(8, false),
        gimli::DW_TAG_enumeration_type => scalar(bytes?, false),
        gimli::DW_TAG_typedef
        | gimli::DW_TAG_const_type
        | gimli::DW_TAG_volatile_type
        | gimli::DW_TAG_restrict_type
        | gimli::DW_TAG_atomic_type => inner(words),
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
            // One of C++ that a constructor copies is passed by its address.
            let by_reference = entry.attr_value(gimli::DW_AT_calling_convention);
            if matches!(
                by_reference,
                Some(AttributeValue::CallingConvention(
                    gimli::DW_CC_pass_by_reference
                ))
            ) {
                return None;
            }
            let bytes = bytes?;
            if bytes > WHOLE {
                return Some(bytes);
            }
            for (member, position) in debug.places(of)? {
                let to = debug.type_of(member)?.ok()?;
                match position {
                    (bit, 0) => place(debug, (to, offset + bit / 8), deep, words)?,
                    // A bit field is of general registers.
                    (bit, bits) => {
                        let mut marks = |word: u64| {
                            let word = usize::try_from(word).unwrap_or(2);
                            while words.len() <= word.min(1) {
                                words.push(true);
                            }
                            if let Some(slot) = words.get_mut(word) {
                                *slot = false;
                            }
                        };
                        marks(offset / 8 + bit / 64);
                        marks(offset / 8 + (bit + bits - 1) / 64);
                        bits
                    }
                };
            }
            Some(bytes)
        }
        gimli::DW_TAG_array_type => {
            let to = debug.type_of(of)?.ok()?;
            let counts = debug.counts(of).into_iter().map(u64::from);
            let count = counts.fold(1, u64::saturating_mul);
            let mut at = offset;
            for _ in 0..count.min(WHOLE) {
                at += place(debug, (to, at), deep, words)?;
            }
            Some(at - offset)
        }
        _ => None,
    }
}
