//! From an offset within a structure to the field that lies there: what a disassembly wants to know.

use super::{Id, Shape, Types};

/// Limits of the nesting of fields, and of the fields visited for one offset.
const DEEP: u32 = 12;
const BUDGET: u32 = 20_000;
/// Limit of a union's fields that are named for one offset.
const NAMED: usize = 2;

/// A structure or union that a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pointee(Id);

/// The field at an offset within a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Path as C writes it after the structure's name: `dentry->d_name.len`. If fields of a union are at one
    /// offset, all of them, with "or".
    pub text: String,
    /// Type that the field points to, if it is a pointer and no other field is at the offset.
    pub leads: Option<Pointee>,
}

/// A field that may be meant.
struct Found {
    path: String,
    of: Id,
    /// True if the access is as large as the field.
    whole: bool,
}

/// The access that is looked up.
#[derive(Clone, Copy)]
enum Wanted {
    /// An access of so many bytes.
    Bytes(u64),
    /// The address alone: the outermost field that begins there.
    Address,
}

impl Types {
    /// Returns the structures and unions with known fields that the first six arguments of a function point to,
    /// by register. Empty if the types do not have its parameters.
    #[must_use]
    pub fn passed(&self, function: &str) -> [Option<Pointee>; 6] {
        let mut passed = [None; 6];
        for parameter in self
            .signature(function)
            .map(|known| known.parameters)
            .unwrap_or_default()
        {
            let slot = parameter
                .number
                .and_then(|number| passed.get_mut(usize::from(number)));
            if let Some(slot) = slot {
                *slot = self.pointee(parameter.of);
            }
        }
        passed
    }

    /// Returns the type that a function's result points to.
    #[must_use]
    pub fn returned(&self, function: &str) -> Option<Pointee> {
        self.pointee(self.signature(function).ok()?.returns)
    }

    /// Returns the field, or the part of one, that an access of `bytes` bytes at `offset` in a structure reads or
    /// writes. `None` if that is not one field: outside, across several, or in bit fields.
    #[must_use]
    pub fn accessed(&self, of: Pointee, offset: u64, bytes: u64) -> Option<Reached> {
        self.reached(of, offset, Wanted::Bytes(bytes))
    }

    /// The field that begins `offset` bytes into a structure, of several within each other the outermost.
    #[must_use]
    pub fn begins(&self, of: Pointee, offset: u64) -> Option<Reached> {
        self.reached(of, offset, Wanted::Address)
    }

    /// Returns the type that a value of a type points to.
    fn pointee(&self, of: Id) -> Option<Pointee> {
        let (_, Shape::Pointer(to)) = self.shape(of) else {
            return None;
        };
        let (id, shape) = self.shape(to);
        matches!(shape, Shape::Struct { bytes } | Shape::Union { bytes } if bytes > 0)
            .then_some(Pointee(id))
    }

    fn reached(&self, of: Pointee, offset: u64, wanted: Wanted) -> Option<Reached> {
        let mut fields = Vec::new();
        let mut budget = BUDGET;
        self.search(of.0, offset, wanted, "", DEEP, &mut budget, &mut fields)?;
        if fields.iter().any(|one| one.whole) {
            fields.retain(|one| one.whole);
        }
        if fields.is_empty() || fields.len() > NAMED {
            return None;
        }
        let name = self.btf.name(of.0);
        let texts: Vec<String> = fields
            .iter()
            .map(|one| {
                let part = if one.whole { "" } else { "part of " };
                format!("{part}{name}->{}", one.path)
            })
            .collect();
        let leads = match fields.as_slice() {
            [one] if one.whole => self.pointee(one.of),
            _ => None,
        };
        Some(Reached {
            text: texts.join(" or "),
            leads,
        })
    }

    /// Adds every field that may be meant. `None` if too many were looked at, or bit fields are.
    #[allow(
        clippy::too_many_arguments,
        reason = "one walk, whose state is on the stack"
    )]
    fn search(
        &self,
        of: Id,
        offset: u64,
        wanted: Wanted,
        path: &str,
        deep: u32,
        budget: &mut u32,
        fields: &mut Vec<Found>,
    ) -> Option<()> {
        *budget = budget.checked_sub(1)?;
        let deep = deep.checked_sub(1)?;
        let (id, shape) = self.shape(of);
        let bytes = match wanted {
            Wanted::Bytes(bytes) => bytes,
            Wanted::Address => 1,
        };
        let size = self.size(id)?;
        if offset.checked_add(bytes)? > size {
            return Some(());
        }
        match shape {
            Shape::Struct { .. } | Shape::Union { .. } => {
                for member in self.btf.members(id) {
                    *budget = budget.checked_sub(1)?;
                    let bit = u64::from(member.bit);
                    if member.bits > 0 {
                        let end = bit + u64::from(member.bits);
                        if bit < (offset + bytes) * 8 && end > offset * 8 {
                            return None;
                        }
                        continue;
                    }
                    let Some(inner) = offset.checked_sub(bit / 8) else {
                        continue;
                    };
                    let within = match (path, member.name) {
                        (outer, "") => outer.to_owned(),
                        ("", name) => name.to_owned(),
                        (outer, name) => format!("{outer}.{name}"),
                    };
                    if matches!(wanted, Wanted::Address) && inner == 0 && !member.name.is_empty() {
                        if self.size(member.of).is_some_and(|size| size > 0) {
                            fields.push(Found {
                                path: within,
                                of: member.of,
                                whole: true,
                            });
                        }
                        continue;
                    }
                    self.search(member.of, inner, wanted, &within, deep, budget, fields)?;
                }
            }
            Shape::Array { of, .. } => {
                let each = self.size(of).filter(|&each| each > 0)?;
                let within = format!("{path}[{}]", offset / each);
                if matches!(wanted, Wanted::Address) && offset.is_multiple_of(each) {
                    fields.push(Found {
                        path: within,
                        of,
                        whole: true,
                    });
                } else {
                    self.search(of, offset % each, wanted, &within, deep, budget, fields)?;
                }
            }
            _ if matches!(wanted, Wanted::Address) => {}
            _ => fields.push(Found {
                path: path.to_owned(),
                of: id,
                whole: offset == 0 && bytes == size,
            }),
        }
        Some(())
    }
}
