//! Types of a kernel or of the objects of a process: what functions take and return, and where fields of structures are.

mod btf;
#[cfg(test)]
pub(crate) mod tests;
mod walk;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use btf::Btf;
pub(crate) use btf::{Id, Shape};
use rustc_hash::FxHashMap;
pub use walk::{Pointee, Reached};

use crate::{Error, Result};

/// Limit of the chain of type names, and of the nesting of nameless structures.
const DEEP: u32 = 32;

/// The types of one kernel, or of objects of a process.
#[derive(Clone)]
pub struct Types {
    btf: Btf,
    structs: FxHashMap<Box<str>, Id>,
    unions: FxHashMap<Box<str>, Id>,
    enumerations: FxHashMap<Box<str>, Id>,
    /// Prototypes by name of the function; `None` where functions of one name differ.
    functions: FxHashMap<Box<str>, Option<Id>>,
    /// Values of the names in enumerations, and their enumerations.
    constants: FxHashMap<Box<str>, (i128, Id)>,
    /// Functions of objects, by name.
    described: HashMap<Box<str>, FunctionDescription>,
}

/// The parameters of a function in order, each with the number of the argument that it arrives in, or the end of a
/// sentence that says why it cannot be read: "is optimised away". Or the sentence that says why they are not known.
pub type FunctionDescription = std::result::Result<Vec<std::result::Result<u8, String>>, String>;

impl fmt::Debug for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Types")
            .field("structs", &self.structs.len())
            .field("functions", &self.functions.len())
            .finish_non_exhaustive()
    }
}

/// A field: what it is and where in the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) of: Id,
    /// Bits from the start of the structure.
    pub(crate) bit: u32,
    /// Bits of a bit field; 0 for another field.
    pub(crate) bits: u32,
}

/// Name, type and place of an argument, by the kernel's type data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionParameter<'a> {
    pub(crate) name: &'a str,
    pub(crate) of: Id,
    /// The argument by number that it arrives in; `None` if it takes more than one, or none.
    pub(crate) number: Option<u8>,
    /// The end of a sentence that says why it has no number, if another reason is known.
    pub(crate) absent: Option<&'a str>,
}

/// The parameters and the result of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature<'a> {
    pub(crate) parameters: Vec<FunctionParameter<'a>>,
    pub(crate) returns: Id,
}

/// Size of a structure, and where its named fields begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructLayout {
    /// The size in bytes.
    pub bytes: u32,
    /// The name of each field, and the bytes before it.
    pub fields: Vec<(String, u32)>,
}

impl StructLayout {
    /// Returns the bytes before a field.
    #[must_use]
    pub fn offset(&self, field: &str) -> Option<u32> {
        let (_, offset) = self.fields.iter().find(|(name, _)| name == field)?;
        Some(*offset)
    }
}

impl Types {
    /// Reads the layouts of some structures, without an index of all types; `None` for one that is
    /// not there.
    ///
    /// # Errors
    /// [`Error::Types`] if the type data are damaged.
    pub fn layouts<const COUNT: usize>(
        bytes: &[u8],
        names: [&str; COUNT],
    ) -> Result<[Option<StructLayout>; COUNT]> {
        let btf = Btf::new(bytes.into()).map_err(|reason| Error::Types { reason })?;
        let mut ids = [const { None }; COUNT];
        for id in btf.ids() {
            let Shape::Struct { bytes } = btf.shape(id) else {
                continue;
            };
            let number = names.iter().position(|name| *name == btf.name(id));
            let Some(place) = number.and_then(|number| ids.get_mut(number)) else {
                continue;
            };
            let fields = btf.members(id);
            let fields = fields.map(|member| (member.name.to_owned(), member.bit / 8));
            place.get_or_insert(StructLayout {
                bytes,
                fields: fields.collect(),
            });
        }
        Ok(ids)
    }

    /// Reads a kernel's type data, as `/sys/kernel/btf/vmlinux` and the section `.BTF` have it.
    ///
    /// # Errors
    /// [`Error::Types`] if it is damaged.
    pub fn read(bytes: impl Into<Arc<[u8]>>) -> Result<Self> {
        let btf = Btf::new(bytes.into()).map_err(|reason| Error::Types { reason })?;
        let mut types = Self {
            structs: FxHashMap::default(),
            unions: FxHashMap::default(),
            enumerations: FxHashMap::default(),
            functions: FxHashMap::default(),
            constants: FxHashMap::default(),
            described: HashMap::new(),
            btf: btf.clone(),
        };
        for id in btf.ids() {
            let name = btf.name(id);
            match btf.shape(id) {
                Shape::Struct { .. } if !name.is_empty() => {
                    types.structs.entry(name.into()).or_insert(id);
                }
                Shape::Union { .. } if !name.is_empty() => {
                    types.unions.entry(name.into()).or_insert(id);
                }
                Shape::Enum { .. } => {
                    if !name.is_empty() {
                        types.enumerations.entry(name.into()).or_insert(id);
                    }
                    for (name, value) in btf.constants(id) {
                        types.constants.entry(name.into()).or_insert((value, id));
                    }
                }
                Shape::Function(prototype) => types.add_function(name, prototype),
                _ => {}
            }
        }
        Ok(types)
    }

    /// The type data that were read.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.btf.data()
    }

    /// Adds what is known of functions of objects beside their types, by their names in sessions.
    #[must_use]
    pub fn with_descriptions(mut self, described: HashMap<Box<str>, FunctionDescription>) -> Self {
        self.described = described;
        self
    }

    fn add_function(&mut self, name: &str, prototype: Id) {
        let same = |existing: Id| {
            existing == prototype
                || (self.btf.shape(existing) == self.btf.shape(prototype)
                    && self
                        .btf
                        .parameters(existing)
                        .eq(self.btf.parameters(prototype)))
        };
        match self.functions.get(name) {
            None => {
                self.functions.insert(name.into(), Some(prototype));
            }
            Some(Some(known)) if !same(*known) => {
                self.functions.insert(name.into(), None);
            }
            Some(_) => {}
        }
    }

    /// Names of the structures, for suggestions.
    pub(crate) fn struct_names(&self) -> impl Iterator<Item = &str> {
        self.structs.keys().map(AsRef::as_ref)
    }

    pub(crate) fn structure(&self, name: &str) -> Option<Id> {
        self.structs.get(name).copied()
    }

    pub(crate) fn union(&self, name: &str) -> Option<Id> {
        self.unions.get(name).copied()
    }

    /// Returns the names and the values of an enumeration.
    pub(crate) fn constants(&self, id: Id) -> impl Iterator<Item = (&str, i128)> {
        self.btf.constants(id)
    }

    /// The value of an enumeration's name.
    pub(crate) fn constant(&self, name: &str) -> Option<i128> {
        self.constants.get(name).map(|(value, _)| *value)
    }

    /// Returns an enumeration by its name, or, since many have none, by one of the names in it.
    pub(crate) fn enumeration(&self, name: &str) -> Option<Id> {
        let named = self.enumerations.get(name).copied();
        named.or_else(|| self.constants.get(name).map(|(_, id)| *id))
    }

    /// Names of the enumerations, for suggestions.
    pub(crate) fn enumeration_names(&self) -> impl Iterator<Item = &str> {
        self.enumerations.keys().map(AsRef::as_ref)
    }

    /// Returns a type with all other names of it resolved.
    pub(crate) fn shape(&self, id: Id) -> (Id, Shape) {
        let mut id = id;
        for _ in 0..DEEP {
            match self.btf.shape(id) {
                Shape::Alias(of) => id = of,
                shape => return (id, shape),
            }
        }
        (id, Shape::Other)
    }

    /// The size of a type in bytes, if values of it have one.
    pub(crate) fn size(&self, id: Id) -> Option<u64> {
        self.size_within(id, DEEP)
    }

    fn size_within(&self, id: Id, deep: u32) -> Option<u64> {
        match self.shape(id).1 {
            Shape::Integer { bytes, .. }
            | Shape::Struct { bytes }
            | Shape::Union { bytes }
            | Shape::Enum { bytes, .. } => Some(u64::from(bytes)),
            Shape::Pointer(_) => Some(8),
            Shape::Array { of, count } => self
                .size_within(of, deep.checked_sub(1)?)?
                .checked_mul(u64::from(count)),
            _ => None,
        }
    }

    /// A field by its name, those of nameless structures and unions within among them.
    pub(crate) fn field(&self, id: Id, name: &str) -> Option<Field> {
        let mut budget = 4096;
        self.field_within(id, name, 8, &mut budget)
    }

    fn field_within(&self, id: Id, name: &str, deep: u32, budget: &mut u32) -> Option<Field> {
        *budget = budget.checked_sub(1)?;
        let (id, _) = self.shape(id);
        self.btf.members(id).find_map(|member| {
            if member.name == name {
                return Some(Field {
                    of: member.of,
                    bit: member.bit,
                    bits: member.bits,
                });
            }
            if !member.name.is_empty() || deep == 0 {
                return None;
            }
            let inner = self.field_within(member.of, name, deep - 1, budget)?;
            Some(Field {
                bit: member.bit.checked_add(inner.bit)?,
                ..inner
            })
        })
    }

    /// Names of the fields, for suggestions.
    pub(crate) fn field_names(&self, id: Id) -> Vec<&str> {
        let mut names = Vec::new();
        let mut open = vec![self.shape(id).0];
        // Nameless structures lie in each other only so deep.
        for _ in 0..64 {
            let Some(id) = open.pop() else { break };
            for member in self.btf.members(id) {
                if member.name.is_empty() {
                    open.push(self.shape(member.of).0);
                } else {
                    names.push(member.name);
                }
            }
        }
        names
    }

    /// Returns the parameters and the result of a function.
    ///
    /// # Errors
    /// A sentence with the reason why they are not known.
    pub(crate) fn signature(&self, function: &str) -> std::result::Result<Signature<'_>, String> {
        let places = match self.described.get(function) {
            Some(Err(reason)) => return Err(reason.clone()),
            Some(Ok(places)) => Some(places),
            None => None,
        };
        let prototype = match self.functions.get(function) {
            Some(Some(prototype)) => *prototype,
            Some(None) => {
                return Err(format!(
                    "The kernel has several functions {function}, which take different arguments."
                ));
            }
            None if function.contains('@') => {
                // Its address is part of the name, since other functions have the same; the types have one at most.
                let (name, _) = function.split_once('@').unwrap_or((function, ""));
                return Err(format!(
                    "The kernel has several functions {name}, and its types do not distinguish their parameters."
                ));
            }
            None if function.contains('.') => {
                return Err(format!(
                    "The compiler changed the parameters of {function}, so the kernel's types do not have them."
                ));
            }
            None => {
                return Err(format!(
                    "The kernel's types do not have the parameters of {function}."
                ));
            }
        };
        let Shape::Prototype { returns } = self.btf.shape(prototype) else {
            return Err(format!("The kernel's types of {function} are damaged."));
        };
        let mut registers = 0u8;
        let mut stack = Some(6u8);
        let parameters = self
            .btf
            .parameters(prototype)
            .filter(|&(_, of)| of != 0)
            .enumerate()
            .map(|(index, (name, of))| {
                if let Some(place) = places.and_then(|places| places.get(index)) {
                    return FunctionParameter {
                        name,
                        of,
                        number: place.as_ref().ok().copied(),
                        absent: place.as_ref().err().map(String::as_str),
                    };
                }
                // The System V ABI, 3.2.3: structures of up to 16 bytes in registers, if they fit whole.
                let words = self
                    .size(of)
                    .and_then(|bytes| u8::try_from(bytes.div_ceil(8)).ok());
                let number = match words {
                    Some(words @ 1..=2) if registers + words <= 6 => {
                        let first = registers;
                        registers += words;
                        Some(first)
                    }
                    Some(words @ 1..) => {
                        let first = stack;
                        stack = stack.and_then(|first| first.checked_add(words));
                        first
                    }
                    _ => {
                        stack = None;
                        None
                    }
                };
                FunctionParameter {
                    name,
                    of,
                    number: number.filter(|_| words == Some(1)),
                    absent: None,
                }
            })
            .collect();
        Ok(Signature {
            parameters,
            returns,
        })
    }

    /// Returns whether a function of this name has parameters or a result by the kernel's types. None of assembly has: the
    /// assembler describes its functions with neither.
    #[must_use]
    pub fn has_prototype(&self, name: &str) -> bool {
        let Some(prototype) = self.functions.get(name) else {
            return false;
        };
        // Several functions of the name differ in them.
        prototype.is_none_or(|prototype| {
            let has_result =
                matches!(self.btf.shape(prototype), Shape::Prototype { returns } if returns != 0);
            has_result || self.btf.parameters(prototype).next().is_some()
        })
    }

    /// Returns the C declaration of a function; `None` if the kernel's types have none, or several.
    #[must_use]
    pub fn prototype(&self, function: &str) -> Option<String> {
        let signature = self.signature(function).ok()?;
        let joined = |of: &str, name: &str| match (name.is_empty(), of.ends_with('*')) {
            (true, _) => of.to_owned(),
            (false, true) => format!("{of}{name}"),
            (false, false) => format!("{of} {name}"),
        };
        let takes: Vec<String> = signature
            .parameters
            .iter()
            .map(|one| joined(&self.written(one.of), one.name))
            .collect();
        let takes = if takes.is_empty() {
            "void".to_owned()
        } else {
            takes.join(", ")
        };
        let returns = joined(&self.written(signature.returns), function);
        Some(format!("{returns}({takes})"))
    }

    /// A type as C writes it, for messages.
    pub(crate) fn written(&self, id: Id) -> String {
        self.written_within(id, DEEP)
    }

    fn written_within(&self, id: Id, deep: u32) -> String {
        let Some(deep) = deep.checked_sub(1) else {
            return "…".to_owned();
        };
        let name = self.btf.name(id);
        let shown = if name.is_empty() { "{…}" } else { name };
        match self.btf.shape(id) {
            Shape::Void => "void".to_owned(),
            Shape::Pointer(of) => {
                let of = self.written_within(of, deep);
                format!("{of}{}*", if of.ends_with('*') { "" } else { " " })
            }
            Shape::Array { of, count } => format!("{}[{count}]", self.written_within(of, deep)),
            Shape::Struct { .. } | Shape::Forward => format!("struct {shown}"),
            Shape::Union { .. } => format!("union {shown}"),
            Shape::Enum { .. } => format!("enum {shown}"),
            Shape::Alias(of) if name.is_empty() => self.written_within(of, deep),
            Shape::Prototype { .. } | Shape::Function(_) => "function".to_owned(),
            _ => shown.to_owned(),
        }
    }
}
