//! A writer of type data in the form of a kernel's (BTF; include/uapi/linux/btf.h), which instruments are checked with.

use std::collections::HashMap;

/// The number of a type; 0 is `void`.
pub(super) type TypeId = u32;

/// The most members, parameters or names of an enumeration.
const MOST: usize = 0xffff;

/// A member of a structure or union.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) of: TypeId,
    /// Bits from the start.
    pub(super) bit: u64,
    /// Bits of a bit field; 0 of another member.
    pub(super) bits: u64,
}

/// A type, with the numbers of those that it is made of.
#[derive(Clone, Debug)]
pub(super) enum TypeKind {
    Integer {
        bytes: u32,
        signed: bool,
    },
    Pointer(TypeId),
    Array {
        of: TypeId,
        count: u32,
    },
    Compound {
        is_union: bool,
        bytes: u32,
        members: Vec<Member>,
    },
    Enumeration {
        bytes: u32,
        values: Vec<(String, i128)>,
    },
    /// A structure or union of which only the name is known.
    Forward {
        is_union: bool,
    },
    Alias(TypeId),
    /// `const` and its kin.
    Qualified(TypeId),
    Function(TypeId),
    Prototype {
        returns: TypeId,
        parameters: Vec<(String, TypeId)>,
    },
    /// A floating-point number, or a type that cannot be expressed, by its name.
    Other,
}

/// Type data in the making.
#[derive(Debug, Default)]
pub(super) struct TypeWriter {
    types: Vec<(String, TypeKind)>,
}

impl TypeWriter {
    /// Returns the number of a type that is set later.
    pub(super) fn reserve(&mut self) -> TypeId {
        self.add("a type that was not read", TypeKind::Other)
    }

    /// Adds a type, and returns its number.
    pub(super) fn add(&mut self, name: &str, kind: TypeKind) -> TypeId {
        self.types.push((name.to_owned(), kind));
        u32::try_from(self.types.len()).unwrap_or(u32::MAX)
    }

    /// Sets a type that was reserved.
    pub(super) fn set(&mut self, id: TypeId, name: String, kind: TypeKind) {
        let index = usize::try_from(id).unwrap_or(0).wrapping_sub(1);
        let slot = self.types.get_mut(index);
        debug_assert!(slot.is_some(), "only reserved types are set");
        if let Some(slot) = slot {
            *slot = (name, kind);
        }
    }

    /// Names a type that has no name.
    pub(super) fn name(&mut self, id: TypeId, name: &str) {
        let index = usize::try_from(id).unwrap_or(0).wrapping_sub(1);
        if let Some((known, _)) = self.types.get_mut(index)
            && known.is_empty()
        {
            name.clone_into(known);
        }
    }

    /// The number of types.
    pub(super) fn len(&self) -> usize {
        self.types.len()
    }

    /// Encodes the type data.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut strings = Strings::default();
        let mut types = Vec::new();
        for (name, kind) in &self.types {
            let (name, kind) = within_limits(name, kind);
            entry(&name, &kind, &mut types, &mut strings);
        }
        let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let mut all = vec![0x9f, 0xeb, 1, 0];
        let parts = [
            24,
            0,
            number(4 * types.len()),
            number(4 * types.len()),
            number(strings.bytes.len()),
        ];
        all.extend(parts.into_iter().flat_map(u32::to_le_bytes));
        all.extend(types.into_iter().flat_map(u32::to_le_bytes));
        all.extend(strings.bytes);
        all
    }
}

/// Returns a type as it can be encoded: with a reason for a name if it cannot.
fn within_limits(name: &str, kind: &TypeKind) -> (String, TypeKind) {
    let refused = |why: &str| (format!("{name}, {why}"), TypeKind::Other);
    match kind {
        TypeKind::Compound { members, .. } => {
            let has_bits = members.iter().any(|member| member.bits > 0);
            let last = members.iter().map(|member| member.bit).max().unwrap_or(0);
            let most = if has_bits { 0xff_ffff } else { 0xffff_ffff };
            if members.len() > MOST || last > most {
                return refused("which is too large");
            }
        }
        TypeKind::Enumeration { values, .. } if values.len() > MOST => {
            return refused("which has too many names");
        }
        TypeKind::Prototype { parameters, .. } if parameters.len() > MOST => {
            return refused("which has too many parameters");
        }
        _ => {}
    }
    (name.to_owned(), kind.clone())
}

/// Appends the words of a type.
fn entry(name: &str, kind: &TypeKind, words: &mut Vec<u32>, strings: &mut Strings) {
    let name = strings.offset(name);
    let count = |length: usize| u32::try_from(length).unwrap_or(0);
    let info = |kind: u32, flag: bool, length: u32| u32::from(flag) << 31 | kind << 24 | length;
    let mut head = |info: u32, value: u32| words.extend([name, info, value]);
    match kind {
        TypeKind::Integer { bytes, signed } => {
            head(info(1, false, 0), *bytes);
            words.push(u32::from(*signed) << 24 | (bytes * 8) & 0xff);
        }
        TypeKind::Pointer(of) => head(info(2, false, 0), *of),
        TypeKind::Array { of, count } => {
            head(info(3, false, 0), 0);
            words.extend([*of, 0, *count]);
        }
        TypeKind::Compound {
            is_union,
            bytes,
            members,
        } => {
            let has_bits = members.iter().any(|member| member.bits > 0);
            let kind = if *is_union { 5 } else { 4 };
            head(info(kind, has_bits, count(members.len())), *bytes);
            for member in members {
                let low = |number: u64| u32::try_from(number).unwrap_or(0);
                let bits = if has_bits { low(member.bits) << 24 } else { 0 };
                let name = strings.offset(&member.name);
                words.extend([name, member.of, low(member.bit) | bits]);
            }
        }
        TypeKind::Enumeration { bytes, values } => {
            let signed = values.iter().any(|(_, value)| *value < 0);
            head(info(19, signed, count(values.len())), *bytes);
            for (name, value) in values {
                // The low 64 bits, in two's complement.
                let [a, b, c, d, e, f, g, h, ..] = value.to_le_bytes();
                let low = u32::from_le_bytes([a, b, c, d]);
                let high = u32::from_le_bytes([e, f, g, h]);
                words.extend([strings.offset(name), low, high]);
            }
        }
        TypeKind::Forward { is_union } => head(info(7, *is_union, 0), 0),
        TypeKind::Alias(of) => head(info(8, false, 0), *of),
        TypeKind::Qualified(of) => head(info(10, false, 0), *of),
        TypeKind::Function(prototype) => head(info(12, false, 1), *prototype),
        TypeKind::Prototype {
            returns,
            parameters,
        } => {
            head(info(13, false, count(parameters.len())), *returns);
            for (name, of) in parameters {
                words.extend([strings.offset(name), *of]);
            }
        }
        TypeKind::Other => head(info(16, false, 0), 0),
    }
}

/// Texts, each once.
#[derive(Debug)]
struct Strings {
    bytes: Vec<u8>,
    known: HashMap<String, u32>,
}

impl Default for Strings {
    fn default() -> Self {
        Self {
            bytes: vec![0],
            known: HashMap::from([(String::new(), 0)]),
        }
    }
}

impl Strings {
    fn offset(&mut self, text: &str) -> u32 {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let offset = u32::try_from(self.bytes.len()).unwrap_or(0);
        self.bytes
            .extend(text.bytes().filter(|byte| *byte != 0).chain([0]));
        self.known.insert(text.to_owned(), offset);
        offset
    }
}
