//! From an offset within a structure to the field that lies there: what a disassembly wants to know.

use super::{Id, Shape, Types};

/// How deep fields lie in fields, and how many are looked at for one place.
const DEEP: u32 = 12;
const BUDGET: u32 = 20_000;
/// How many fields of a union are named for one place.
const NAMED: usize = 2;

/// A structure or union that a pointer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pointee(Id);

/// What lies at a place within a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// As C writes it behind the structure's name: `dentry->d_name.len`. Where fields of a union lie
    /// at one place, all of them, with "or".
    pub text: String,
    /// What the field leads to, if it is a pointer and no other field is meant.
    pub leads: Option<Pointee>,
}

/// A field that may be meant.
struct Found {
    path: String,
    of: Id,
    /// Whether the access is as large as the field.
    whole: bool,
}

/// What is looked for.
#[derive(Clone, Copy)]
enum Wanted {
    /// An access of so many bytes.
    Bytes(u64),
    /// The address alone: the outermost field that begins there.
    Address,
}

impl Types {
    /// What the first six arguments of a function lead to, by register: pointers to structures and
    /// unions whose fields are known. Nothing where the types do not tell what the function takes.
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
                *slot = self.leads(parameter.of);
            }
        }
        passed
    }

    /// What the value that a function returns leads to.
    #[must_use]
    pub fn returned(&self, function: &str) -> Option<Pointee> {
        self.leads(self.signature(function).ok()?.returns)
    }

    /// What an access of `bytes` bytes, `offset` bytes into a structure, reads or writes: a field, or a part of
    /// one. `None` if it is none of one field: outside, over several, or in bit fields.
    #[must_use]
    pub fn accessed(&self, of: Pointee, offset: u64, bytes: u64) -> Option<Reached> {
        self.reached(of, offset, Wanted::Bytes(bytes))
    }

    /// The field that begins `offset` bytes into a structure, of several within each other the outermost.
    #[must_use]
    pub fn begins(&self, of: Pointee, offset: u64) -> Option<Reached> {
        self.reached(of, offset, Wanted::Address)
    }

    /// What a value of a type leads to.
    fn leads(&self, of: Id) -> Option<Pointee> {
        let (_, Shape::Pointer(to)) = self.shape(of) else {
            return None;
        };
        let (id, shape) = self.shape(to);
        matches!(shape, Shape::Struct { bytes } | Shape::Union { bytes } if bytes > 0)
            .then_some(Pointee(id))
    }

    fn reached(&self, of: Pointee, offset: u64, wanted: Wanted) -> Option<Reached> {
        let mut found = Vec::new();
        let mut budget = BUDGET;
        self.search(of.0, offset, wanted, "", DEEP, &mut budget, &mut found)?;
        if found.iter().any(|one| one.whole) {
            found.retain(|one| one.whole);
        }
        if found.is_empty() || found.len() > NAMED {
            return None;
        }
        let name = self.btf.name(of.0);
        let texts: Vec<String> = found
            .iter()
            .map(|one| {
                let part = if one.whole { "" } else { "part of " };
                format!("{part}{name}->{}", one.path)
            })
            .collect();
        let leads = match found.as_slice() {
            [one] if one.whole => self.leads(one.of),
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
        found: &mut Vec<Found>,
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
                            found.push(Found {
                                path: within,
                                of: member.of,
                                whole: true,
                            });
                        }
                        continue;
                    }
                    self.search(member.of, inner, wanted, &within, deep, budget, found)?;
                }
            }
            Shape::Array { of, .. } => {
                let each = self.size(of).filter(|&each| each > 0)?;
                let within = format!("{path}[{}]", offset / each);
                if matches!(wanted, Wanted::Address) && offset.is_multiple_of(each) {
                    found.push(Found {
                        path: within,
                        of,
                        whole: true,
                    });
                } else {
                    self.search(of, offset % each, wanted, &within, deep, budget, found)?;
                }
            }
            _ if matches!(wanted, Wanted::Address) => {}
            _ => found.push(Found {
                path: path.to_owned(),
                of: id,
                whole: offset == 0 && bytes == size,
            }),
        }
        Some(())
    }
}
