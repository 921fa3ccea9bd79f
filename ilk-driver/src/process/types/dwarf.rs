//! Types and functions of debug information (DWARF 2 to 5), read as far as they are named.

use std::collections::{BTreeMap, HashMap};

use gimli::{
    AttributeValue, DebugInfoOffset, DwAt, DwTag, Dwarf, Reader as _, Unit, UnitOffset, UnitType,
};

use super::btf::{Member, TypeId, TypeKind, TypeWriter};
use crate::sources::Reader;

pub(super) type Entry = gimli::DebuggingInformationEntry<Reader>;

/// The most types that are read: a script names fewer.
const MOST_TYPES: usize = 1 << 20;
/// The most steps from one entry to another that says more of the same thing.
const DEEP: usize = 16;

/// An entry: the number of its unit, and its offset there.
pub(super) type Key = (usize, UnitOffset<usize>);

/// Kinds of types that a name is looked up among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Named {
    Struct,
    Union,
    Enumeration,
}

/// The debug information of one object.
pub(super) struct DebugEntries {
    pub(super) dwarf: Dwarf<Reader>,
    /// Those of `.debug_info`, then those of `.debug_types`, then those of the supplementary file.
    units: Vec<Unit<Reader>>,
    /// The numbers of the first of the second and of the third kind.
    further: [usize; 2],
    /// Types in units of their own, by their signatures.
    signatures: HashMap<u64, Key>,
    /// Numbers of the types that were named.
    ids: HashMap<Key, TypeId>,
    /// Types that were named and are to be read.
    worklist: Vec<(Key, TypeId)>,
    /// Structures and unions of which only the name is known where they are used.
    forwards: Vec<(Named, String, TypeId)>,
    /// Names of structures without one, by that of a `typedef`.
    aliases: Vec<(TypeId, String)>,
    definitions: Option<HashMap<(Named, String), Key>>,
}

impl DebugEntries {
    /// Reads the headers of the units.
    pub(super) fn read(dwarf: Dwarf<Reader>) -> gimli::Result<Self> {
        let mut units = units_of(&dwarf)?;
        let of_types = units.len();
        let mut headers = dwarf.type_units();
        while let Some(header) = headers.next()? {
            units.push(dwarf.unit(header)?);
        }
        let supplementary = units.len();
        if let Some(supplement) = dwarf.sup() {
            units.extend(units_of(supplement)?);
        }
        let signatures = units.iter().enumerate().filter_map(|(number, unit)| {
            let UnitType::Type {
                type_signature,
                type_offset,
            } = unit.header.type_()
            else {
                return None;
            };
            Some((type_signature.0, (number, type_offset)))
        });
        let signatures = signatures.collect();
        Ok(Self {
            dwarf,
            units,
            further: [of_types, supplementary],
            signatures,
            ids: HashMap::new(),
            worklist: Vec::new(),
            forwards: Vec::new(),
            aliases: Vec::new(),
            definitions: None,
        })
    }

    pub(super) fn unit(&self, number: usize) -> Option<&Unit<Reader>> {
        self.units.get(number)
    }

    pub(super) fn entry(&self, (unit, offset): Key) -> Option<Entry> {
        self.unit(unit)?.entry(offset).ok()
    }

    /// The file that a unit is in.
    fn file_of(&self, unit: usize) -> &Dwarf<Reader> {
        let [_, supplementary] = self.further;
        let supplement = self.dwarf.sup().filter(|_| unit >= supplementary);
        supplement.unwrap_or(&self.dwarf)
    }

    /// Returns the functions that begin at addresses of the link.
    pub(super) fn functions(&self, starts: &[u64]) -> gimli::Result<BTreeMap<u64, Key>> {
        let mut found = BTreeMap::new();
        let [of_types, _] = self.further;
        for (number, unit) in self.units.iter().enumerate().take(of_types) {
            let mut ranges = self.dwarf.unit_ranges(unit)?;
            let mut has_some = false;
            while let Some(range) = ranges.next()? {
                has_some |= starts
                    .iter()
                    .any(|at| (range.begin..range.end).contains(at));
            }
            // An assembler names functions, and knows nothing of their arguments.
            let of_assembler = |unit: &Unit<Reader>| {
                let entry = unit.entry(UnitOffset(unit.header.header_size())).ok();
                let language = entry.and_then(|entry| entry.attr_value(gimli::DW_AT_language));
                language == Some(AttributeValue::Language(gimli::DW_LANG_Mips_Assembler))
            };
            if !has_some || of_assembler(unit) {
                continue;
            }
            let mut entries = unit.entries();
            while let Some(entry) = entries.next_dfs()? {
                if entry.tag() != gimli::DW_TAG_subprogram {
                    continue;
                }
                let first = self.dwarf.die_ranges(unit, entry)?.next()?;
                if let Some(first) = first
                    && starts.contains(&first.begin)
                {
                    found.entry(first.begin).or_insert((number, entry.offset()));
                }
            }
        }
        Ok(found)
    }

    /// Returns the entry that an attribute refers to, or why it is not read.
    pub(super) fn target(
        &self,
        unit: usize,
        value: &AttributeValue<Reader>,
    ) -> Result<Key, &'static str> {
        match *value {
            AttributeValue::UnitRef(offset) => Ok((unit, offset)),
            AttributeValue::DebugInfoRef(at) => {
                let [_, supplementary] = self.further;
                let of_supplement = unit >= supplementary;
                let at = self.at(at, of_supplement);
                at.ok_or("a type outside the debug information")
            }
            AttributeValue::DebugInfoRefSup(at) => {
                let at = self.at(at, true);
                at.ok_or("a type outside the supplementary file")
            }
            AttributeValue::DebugTypesRef(signature) => {
                let of = self.signatures.get(&signature.0).copied();
                of.ok_or("a type in a unit of its own, which is missing")
            }
            _ => Err("a type whose reference has a form that is not known"),
        }
    }

    /// The entry at an offset in the units of `.debug_info`, or of the supplementary file.
    fn at(&self, at: DebugInfoOffset<usize>, of_supplement: bool) -> Option<Key> {
        let [of_types, supplementary] = self.further;
        let (first, units) = match of_supplement {
            true => (supplementary, self.units.get(supplementary..)?),
            false => (0, self.units.get(..of_types)?),
        };
        let start = |unit: &Unit<Reader>| {
            let start = unit.header.debug_info_offset();
            start.map_or(usize::MAX, |start| start.0)
        };
        let after = units.partition_point(|unit| start(unit) <= at.0);
        let number = after.checked_sub(1)?;
        let offset = at.0.checked_sub(start(units.get(number)?))?;
        Some((first + number, UnitOffset(offset)))
    }

    /// Returns an attribute of an entry, or of those that it is an instance of or a definition for.
    pub(super) fn attribute(
        &self,
        key: Key,
        name: DwAt,
    ) -> Option<(usize, AttributeValue<Reader>)> {
        let mut key = key;
        for _ in 0..DEEP {
            let entry = self.entry(key)?;
            if let Some(value) = entry.attr_value(name) {
                return Some((key.0, value));
            }
            key = self.origin(key.0, &entry)?;
        }
        None
    }

    /// Returns the entry that one is an instance of or a definition for.
    pub(super) fn origin(&self, unit: usize, entry: &Entry) -> Option<Key> {
        let names = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification];
        let value = names.into_iter().find_map(|name| entry.attr_value(name))?;
        self.target(unit, &value).ok()
    }

    /// The name of an entry; empty if it has none.
    pub(super) fn name(&self, key: Key) -> String {
        let text = || {
            let (unit, value) = self.attribute(key, gimli::DW_AT_name)?;
            let file = self.file_of(unit);
            let text = file.attr_string(self.unit(unit)?, value).ok()?;
            Some(text.to_string_lossy().ok()?.into_owned())
        };
        text().unwrap_or_default()
    }

    /// Returns the entries directly within one.
    pub(super) fn children(&self, (unit, offset): Key) -> Vec<(Key, Entry)> {
        let read = || -> Option<Vec<(Key, Entry)>> {
            let mut tree = self.unit(unit)?.entries_tree(Some(offset)).ok()?;
            let mut children = tree.root().ok()?.children();
            let mut all = Vec::new();
            while let Some(child) = children.next().ok()? {
                let entry = child.entry().clone();
                all.push(((unit, entry.offset()), entry));
            }
            Some(all)
        };
        read().unwrap_or_default()
    }

    /// Returns the entry of the type of one, if it has a type.
    pub(super) fn type_of(&self, key: Key) -> Option<Result<Key, &'static str>> {
        let (unit, value) = self.attribute(key, gimli::DW_AT_type)?;
        Some(self.target(unit, &value))
    }

    /// Returns the number of the type of an entry, which is read later.
    pub(super) fn type_id(&mut self, key: Key, types: &mut TypeWriter) -> TypeId {
        match self.type_of(key) {
            None => 0,
            Some(Ok(of)) => self.id(of, types),
            Some(Err(why)) => types.add(why, TypeKind::Other),
        }
    }

    /// Returns the number of a type, which is read later.
    pub(super) fn id(&mut self, key: Key, types: &mut TypeWriter) -> TypeId {
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        let id = types.reserve();
        self.ids.insert(key, id);
        if types.len() < MOST_TYPES {
            self.worklist.push((key, id));
        }
        id
    }

    /// Names a type, if it has no name, when it is read.
    pub(super) fn name_type(&mut self, id: TypeId, name: &str) {
        self.aliases.push((id, name.to_owned()));
    }

    /// Reads all types that were named, and those that they are made of.
    pub(super) fn read_named(&mut self, types: &mut TypeWriter) {
        loop {
            while let Some((key, id)) = self.worklist.pop() {
                let (name, kind) = self.read_type(key, id, types);
                types.set(id, name, kind);
            }
            for (id, name) in std::mem::take(&mut self.aliases) {
                types.name(id, &name);
            }
            let forwards = std::mem::take(&mut self.forwards);
            for (kind, name, id) in forwards {
                // The users of the declaration see what the definition is.
                if let Some(definition) = self.definition(kind, &name) {
                    let of = self.id(definition, types);
                    types.set(id, String::new(), TypeKind::Qualified(of));
                }
            }
            if self.worklist.is_empty() {
                return;
            }
        }
    }

    /// Returns the definition of a type.
    pub(super) fn definition(&mut self, kind: Named, name: &str) -> Option<Key> {
        if self.definitions.is_none() {
            let mut all = HashMap::new();
            for number in 0..self.units.len() {
                let root = self.unit(number).map(|unit| unit.header.root_offset());
                if let Some(root) = root {
                    self.index((number, root), DEEP, &mut all);
                }
            }
            self.definitions = Some(all);
        }
        let all = self.definitions.as_ref()?;
        all.get(&(kind, name.to_owned())).copied()
    }

    /// Collects the definitions within a unit, a namespace or a class.
    fn index(&self, scope: Key, deep: usize, all: &mut HashMap<(Named, String), Key>) {
        let Some(deep) = deep.checked_sub(1) else {
            return;
        };
        for (key, entry) in self.children(scope) {
            let kind = named(entry.tag());
            let is_definition = entry.attr_value(gimli::DW_AT_declaration).is_none();
            if let Some(kind) = kind
                && is_definition
            {
                let name = self.name(key);
                if !name.is_empty() {
                    all.entry((kind, name)).or_insert(key);
                }
            }
            if entry.tag() == gimli::DW_TAG_typedef
                && let Some(Ok(of)) = self.type_of(key)
                && let Some(kind) = self.entry(of).and_then(|of| named(of.tag()))
                && self.name(of).is_empty()
            {
                all.entry((kind, self.name(key))).or_insert(of);
            }
            let is_scope = matches!(
                entry.tag(),
                gimli::DW_TAG_namespace | gimli::DW_TAG_class_type | gimli::DW_TAG_structure_type
            );
            if is_scope && entry.has_children() {
                self.index(key, deep, all);
            }
        }
    }

    fn read_type(&mut self, key: Key, id: TypeId, types: &mut TypeWriter) -> (String, TypeKind) {
        let Some(entry) = self.entry(key) else {
            let why = "a type whose debug information is damaged".to_owned();
            return (why, TypeKind::Other);
        };
        // Its definition is in a unit of its own.
        let signature = entry.attr_value(gimli::DW_AT_signature);
        if let Some(of) = signature.and_then(|of| self.target(key.0, &of).ok()) {
            return (String::new(), TypeKind::Qualified(self.id(of, types)));
        }
        let name = self.name(key);
        let number = |name: DwAt| entry.attr_value(name).and_then(|value| value.udata_value());
        let bytes = number(gimli::DW_AT_byte_size);
        let bytes = u32::try_from(bytes.unwrap_or(0)).unwrap_or(0);
        let kind = match entry.tag() {
            gimli::DW_TAG_base_type => match entry.attr_value(gimli::DW_AT_encoding) {
                Some(AttributeValue::Encoding(encoding)) => match encoding {
                    gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => TypeKind::Integer {
                        bytes,
                        signed: true,
                    },
                    gimli::DW_ATE_unsigned
                    | gimli::DW_ATE_unsigned_char
                    | gimli::DW_ATE_boolean
                    | gimli::DW_ATE_UTF
                    | gimli::DW_ATE_address => TypeKind::Integer {
                        bytes,
                        signed: false,
                    },
                    _ => TypeKind::Other,
                },
                _ => TypeKind::Other,
            },
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => TypeKind::Pointer(self.type_id(key, types)),
            gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type => TypeKind::Qualified(self.type_id(key, types)),
            gimli::DW_TAG_typedef => {
                let of = self.type_id(key, types);
                self.aliases.push((of, name.clone()));
                TypeKind::Alias(of)
            }
            gimli::DW_TAG_unspecified_type => TypeKind::Alias(0),
            gimli::DW_TAG_array_type => return self.array(key, types),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let is_union = entry.tag() == gimli::DW_TAG_union_type;
                if entry.attr_value(gimli::DW_AT_declaration).is_some() {
                    let kind = if is_union {
                        Named::Union
                    } else {
                        Named::Struct
                    };
                    self.forwards.push((kind, name.clone(), id));
                    TypeKind::Forward { is_union }
                } else {
                    TypeKind::Compound {
                        is_union,
                        bytes,
                        members: self.members(key, types),
                    }
                }
            }
            gimli::DW_TAG_enumeration_type => TypeKind::Enumeration {
                bytes,
                values: self.values(key),
            },
            gimli::DW_TAG_subroutine_type => TypeKind::Prototype {
                returns: 0,
                parameters: Vec::new(),
            },
            tag => {
                let tag = tag.static_string().unwrap_or("not known");
                return (format!("a type of the kind {tag}"), TypeKind::Other);
            }
        };
        (name, kind)
    }

    fn array(&mut self, key: Key, types: &mut TypeWriter) -> (String, TypeKind) {
        let counts = self.counts(key);
        let mut of = self.type_id(key, types);
        let (first, further) = counts.split_first().unwrap_or((&0, &[]));
        for &count in further.iter().rev() {
            of = types.add("", TypeKind::Array { of, count });
        }
        (String::new(), TypeKind::Array { of, count: *first })
    }

    fn members(&mut self, key: Key, types: &mut TypeWriter) -> Vec<Member> {
        let mut members = Vec::new();
        for (child, entry) in self.parts(key) {
            let Some((bit, bits)) = self.position(child, &entry) else {
                continue;
            };
            // The fields of a base class are those of the class.
            let name = match entry.tag() {
                gimli::DW_TAG_inheritance => String::new(),
                _ => self.name(child),
            };
            let of = self.type_id(child, types);
            members.push(Member {
                name,
                of,
                bit,
                bits,
            });
        }
        members
    }

    /// Returns the members and base classes of a structure or union.
    fn parts(&self, key: Key) -> Vec<(Key, Entry)> {
        let mut all = self.children(key);
        all.retain(|(_, entry)| {
            let is_part = matches!(
                entry.tag(),
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance
            );
            // A static member of C++ is not in the structure.
            let is_static = entry.attr_value(gimli::DW_AT_external).is_some()
                || entry.attr_value(gimli::DW_AT_declaration).is_some();
            is_part && !is_static
        });
        all
    }

    /// Returns the members and base classes of a structure or union with their first bits and, of bit fields, their bits;
    /// `None` if one has no fixed place.
    pub(super) fn places(&self, key: Key) -> Option<Vec<(Key, (u64, u64))>> {
        let parts = self.parts(key).into_iter();
        let places = parts.map(|(key, entry)| Some((key, self.position(key, &entry)?)));
        places.collect()
    }

    /// Returns the number of elements of an array, of each of its dimensions.
    pub(super) fn counts(&self, key: Key) -> Vec<u32> {
        let children = self.children(key).into_iter();
        children
            .filter(|(_, child)| child.tag() == gimli::DW_TAG_subrange_type)
            .map(|(_, child)| {
                let number = |name| child.attr_value(name).and_then(|value| value.udata_value());
                let count = number(gimli::DW_AT_count);
                // One without a bound is of any length; some compilers write -1 for that.
                let bound = number(gimli::DW_AT_upper_bound);
                let count = count.or_else(|| bound?.checked_add(1)).unwrap_or(0);
                u32::try_from(count).unwrap_or(0)
            })
            .collect()
    }

    /// Returns the first bit of a member, and its bits if it is a bit field; `None` if it has no fixed place.
    fn position(&self, key: Key, entry: &Entry) -> Option<(u64, u64)> {
        let number = |name: DwAt| entry.attr_value(name).and_then(|value| value.udata_value());
        let bits = number(gimli::DW_AT_bit_size).unwrap_or(0);
        if let Some(bit) = number(gimli::DW_AT_data_bit_offset) {
            return Some((bit, bits));
        }
        let byte = match entry.attr_value(gimli::DW_AT_data_member_location) {
            None => 0,
            Some(AttributeValue::Exprloc(expression)) => {
                let unit = self.unit(key.0)?;
                match expression.operations(unit.encoding()).next().ok()?? {
                    gimli::Operation::PlusConstant { value } => value,
                    _ => return None,
                }
            }
            Some(value) => value.udata_value()?,
        };
        // DWARF 2 and 3 count from the highest bit of the storage.
        match number(gimli::DW_AT_bit_offset) {
            Some(from_top) => {
                let storage = number(gimli::DW_AT_byte_size).or_else(|| self.size(key, DEEP))?;
                let low = (8 * storage).checked_sub(from_top)?.checked_sub(bits)?;
                Some((8 * byte + low, bits))
            }
            None => Some((8 * byte, bits)),
        }
    }

    /// Returns the bytes of the type of an entry.
    fn size(&self, key: Key, deep: usize) -> Option<u64> {
        let of = self.type_of(key)?.ok()?;
        let entry = self.entry(of)?;
        let bytes = entry.attr_value(gimli::DW_AT_byte_size);
        let bytes = bytes.and_then(|value| value.udata_value());
        bytes.or_else(|| self.size(of, deep.checked_sub(1)?))
    }

    fn values(&self, key: Key) -> Vec<(String, i128)> {
        let children = self.children(key).into_iter();
        children
            .filter(|(_, child)| child.tag() == gimli::DW_TAG_enumerator)
            .filter_map(|(key, child)| {
                let value = child.attr_value(gimli::DW_AT_const_value)?;
                // Numbers with a sign have a form of their own.
                let value = match value {
                    AttributeValue::Sdata(value) => i128::from(value),
                    value => i128::from(value.udata_value()?),
                };
                Some((self.name(key), value))
            })
            .collect()
    }
}

/// Reads the headers of the units in `.debug_info`.
fn units_of(dwarf: &Dwarf<Reader>) -> gimli::Result<Vec<Unit<Reader>>> {
    let mut headers = dwarf.units();
    let mut units = Vec::new();
    while let Some(header) = headers.next()? {
        units.push(dwarf.unit(header)?);
    }
    Ok(units)
}

/// Returns the kind of a type that has a name of its own kind.
fn named(tag: DwTag) -> Option<Named> {
    match tag {
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => Some(Named::Struct),
        gimli::DW_TAG_union_type => Some(Named::Union),
        gimli::DW_TAG_enumeration_type => Some(Named::Enumeration),
        _ => None,
    }
}
