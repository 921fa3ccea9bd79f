//! The kernel's type data as bytes (BTF; `Documentation/bpf/btf.rst` and `include/uapi/linux/btf.h`).
//! Every offset is looked at before it is followed: damaged data has fewer types, never wrong memory.

use std::sync::Arc;

/// Number of a type; 0 is `void`.
pub(crate) type Id = u32;

const MAGIC: u16 = 0xeb9f;

/// The kind of a type, with no names followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Void,
    Integer {
        bytes: u32,
        signed: bool,
        bits: u8,
    },
    Pointer(Id),
    Array {
        of: Id,
        count: u32,
    },
    Struct {
        bytes: u32,
    },
    Union {
        bytes: u32,
    },
    Enum {
        bytes: u32,
        signed: bool,
    },
    /// A structure of which only the name is known.
    Forward,
    /// `typedef`, `const`, `volatile`, `restrict`, a tag: the same as another.
    Alias(Id),
    Function(Id),
    Prototype {
        returns: Id,
    },
    /// Something that values do not have: a variable, a section, a floating-point number.
    Other,
}

/// A field of a structure or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member<'a> {
    /// Empty for a structure or union whose fields are the outer one's.
    pub(crate) name: &'a str,
    pub(crate) of: Id,
    /// Bits from the start of the structure.
    pub(crate) bit: u32,
    /// Bits of a bit field; 0 for another field.
    pub(crate) bits: u32,
}

/// A header of a type, and where it stands.
#[derive(Clone, Copy)]
struct Entry {
    name: u32,
    info: u32,
    /// Size, or another type.
    value: u32,
    /// Offset of the data after it.
    at: usize,
}

impl Entry {
    fn kind(self) -> u32 {
        (self.info >> 24) & 0x1f
    }

    fn flag(self) -> bool {
        self.info >> 31 != 0
    }

    fn count(self) -> u32 {
        self.info & 0xffff
    }

    /// Bytes that follow it, or `None` for a kind that is not known: how long it is is not known then.
    fn trailing(self) -> Option<usize> {
        let each = match self.kind() {
            1 | 14 | 17 => return Some(4),
            3 => return Some(12),
            2 | 7..=12 | 16 | 18 => return Some(0),
            4 | 5 | 15 | 19 => 12,
            6 | 13 => 8,
            _ => return None,
        };
        Some(each * self.count() as usize)
    }
}

/// Type data, indexed.
#[derive(Clone)]
pub(crate) struct Btf {
    bytes: Arc<[u8]>,
    /// Offset of each type; the first is number 1.
    entries: Vec<u32>,
    strings: std::ops::Range<usize>,
    big: bool,
}

impl Btf {
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes
    }

    /// Indexes type data.
    ///
    /// # Errors
    /// A clause that says what is wrong with the data.
    pub(crate) fn new(bytes: Arc<[u8]>) -> Result<Self, String> {
        let magic = bytes.first_chunk::<2>().copied().unwrap_or_default();
        let big = u16::from_be_bytes(magic) == MAGIC;
        if !big && u16::from_le_bytes(magic) != MAGIC {
            return Err("it does not begin with BTF's magic number".to_owned());
        }
        let mut btf = Self {
            bytes,
            entries: Vec::new(),
            strings: 0..0,
            big,
        };
        let field = |at| btf.word(at).map(|word| word as usize);
        let header = [4, 8, 12, 16, 20].map(field);
        let [
            Some(header),
            Some(types),
            Some(types_len),
            Some(strings),
            Some(strings_len),
        ] = header
        else {
            return Err("it ends within its header".to_owned());
        };
        let part = |from: usize, len: usize| {
            let from = header.checked_add(from)?;
            let to = from.checked_add(len)?;
            (to <= btf.bytes.len()).then_some(from..to)
        };
        let (Some(types), Some(strings)) = (part(types, types_len), part(strings, strings_len))
        else {
            return Err("its parts lie outside it".to_owned());
        };
        let mut at = types.start;
        let mut entries = Vec::with_capacity(types.len() / 20);
        while at < types.end {
            let next = btf
                .entry_at(at)
                .and_then(|entry| entry.at.checked_add(entry.trailing()?))
                .filter(|&next| next <= types.end);
            let (Some(next), Ok(place)) = (next, u32::try_from(at)) else {
                return Err(format!(
                    "type {} is of a kind that is not known, or ends outside the data",
                    entries.len() + 1
                ));
            };
            entries.push(place);
            at = next;
        }
        btf.entries = entries;
        btf.strings = strings;
        Ok(btf)
    }

    fn word(&self, at: usize) -> Option<u32> {
        let four = *self.bytes.get(at..)?.first_chunk::<4>()?;
        Some(if self.big {
            u32::from_be_bytes(four)
        } else {
            u32::from_le_bytes(four)
        })
    }

    fn entry_at(&self, at: usize) -> Option<Entry> {
        Some(Entry {
            name: self.word(at)?,
            info: self.word(at + 4)?,
            value: self.word(at + 8)?,
            at: at + 12,
        })
    }

    fn entry(&self, id: Id) -> Option<Entry> {
        let index = usize::try_from(id.checked_sub(1)?).ok()?;
        self.entry_at(*self.entries.get(index)? as usize)
    }

    /// A word of the data after an entry, which [`Self::new`] found within the data.
    fn trailing(&self, entry: &Entry, offset: usize) -> u32 {
        let word = self.word(entry.at + offset);
        debug_assert!(word.is_some(), "a type's data ends outside the types");
        word.unwrap_or(0)
    }

    /// Returns a text; empty for an offset outside the texts, which the data may have.
    fn string(&self, offset: u32) -> &str {
        self.bytes
            .get(self.strings.clone())
            .and_then(|strings| strings.get(offset as usize..))
            .and_then(|rest| rest.split(|&byte| byte == 0).next())
            .and_then(|text| std::str::from_utf8(text).ok())
            .unwrap_or_default()
    }

    /// Numbers of all types but `void`.
    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        1..=u32::try_from(self.entries.len()).unwrap_or(0)
    }

    /// The type's name; empty for none.
    pub(crate) fn name(&self, id: Id) -> &str {
        self.entry(id).map_or("", |entry| self.string(entry.name))
    }

    /// Returns the kind of a type.
    pub(crate) fn shape(&self, id: Id) -> Shape {
        let Some(entry) = self.entry(id) else {
            return if id == 0 { Shape::Void } else { Shape::Other };
        };
        let bytes = entry.value;
        match entry.kind() {
            1 => {
                let encoding = self.trailing(&entry, 0);
                Shape::Integer {
                    bytes,
                    signed: (encoding >> 24) & 1 != 0,
                    bits: (encoding & 0xff) as u8,
                }
            }
            2 => Shape::Pointer(entry.value),
            3 => Shape::Array {
                of: self.trailing(&entry, 0),
                count: self.trailing(&entry, 8),
            },
            4 => Shape::Struct { bytes },
            5 => Shape::Union { bytes },
            6 | 19 => Shape::Enum {
                bytes,
                signed: entry.flag(),
            },
            7 => Shape::Forward,
            8..=11 | 18 => Shape::Alias(entry.value),
            12 => Shape::Function(entry.value),
            13 => Shape::Prototype {
                returns: entry.value,
            },
            _ => Shape::Other,
        }
    }

    /// The fields of a structure or union.
    pub(crate) fn members(&self, id: Id) -> impl Iterator<Item = Member<'_>> {
        let entry = self.entry(id).filter(|entry| matches!(entry.kind(), 4 | 5));
        self.following(entry, 12).filter_map(move |(entry, at)| {
            let offset = self.word(at + 8)?;
            let (bit, bits) = if entry.flag() {
                (offset & 0xff_ffff, offset >> 24)
            } else {
                (offset, 0)
            };
            Some(Member {
                name: self.string(self.word(at)?),
                of: self.word(at + 4)?,
                bit,
                bits,
            })
        })
    }

    /// Names and types of a prototype's parameters. One of type `void` without a name stands for `...`.
    pub(crate) fn parameters(&self, id: Id) -> impl Iterator<Item = (&str, Id)> {
        let entry = self.entry(id).filter(|entry| entry.kind() == 13);
        self.following(entry, 8)
            .filter_map(|(_, at)| Some((self.string(self.word(at)?), self.word(at + 4)?)))
    }

    /// Names and values of an enumeration.
    pub(crate) fn constants(&self, id: Id) -> impl Iterator<Item = (&str, i128)> {
        let entry = self
            .entry(id)
            .filter(|entry| matches!(entry.kind(), 6 | 19));
        let each = match entry.map(Entry::kind) {
            Some(19) => 12,
            _ => 8,
        };
        self.following(entry, each).filter_map(move |(entry, at)| {
            let low = self.word(at + 4)?;
            let bits = if each == 12 {
                u64::from(self.word(at + 8)?) << 32 | u64::from(low)
            } else if entry.flag() {
                i64::from(low.cast_signed()).cast_unsigned()
            } else {
                u64::from(low)
            };
            let value = if entry.flag() {
                i128::from(bits.cast_signed())
            } else {
                i128::from(bits)
            };
            Some((self.string(self.word(at)?), value))
        })
    }

    fn following(
        &self,
        entry: Option<Entry>,
        each: usize,
    ) -> impl Iterator<Item = (Entry, usize)> + use<> {
        entry.into_iter().flat_map(move |entry| {
            (0..entry.count() as usize).map(move |index| (entry, entry.at + index * each))
        })
    }
}
