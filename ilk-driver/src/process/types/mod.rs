//! Types of the objects of a process, by their debug information (DWARF), in the form that instruments are checked with:
//! names and types of the parameters of functions, and the fields of structures.
//!
//! Only what is wanted is read, and what that is made of. What cannot be expressed becomes a type whose name is the
//! reason, which the language refuses by that name.

mod btf;
mod dwarf;
mod passed;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use gilk_engine::Addr;
use gilk_instruments::{FunctionDescription, Types};

use self::btf::{TypeKind, TypeWriter};
use self::dwarf::{DebugEntries, Key, Named};
use super::objects::{Object, file_of, slide};
use super::proc;
use super::subject::Subject;
use crate::script::{Designations, TypesWanted};
use crate::sources::{OpenedDebug, Watch};
use crate::{Error, Result};

impl Subject {
    /// Reads the types that are wanted from the debug information of the objects, for all instruments that are planned in
    /// its image from now on. Returns the reasons why objects have none, for people.
    ///
    /// # Errors
    /// [`Error::Process`] if a file cannot be read any more.
    pub fn read_types(&self, wanted: &TypesWanted, watch: &Watch<'_>) -> Result<Vec<String>> {
        let designations = Designations::new(&self.image);
        let mut types = TypeWriter::default();
        let mut described: HashMap<Box<str>, FunctionDescription> = HashMap::new();
        let mut notes = Vec::new();
        let mut names: BTreeSet<&str> = wanted.names.iter().map(String::as_str).collect();
        for object in &self.objects {
            let functions = wanted.functions.iter().map(|id| &self.image[*id]);
            let functions: BTreeMap<Addr, String> = functions
                .filter(|function| object.span.contains(function.span.start))
                .map(|function| (function.span.start, designations.of(function).to_string()))
                .collect();
            if functions.is_empty() && names.is_empty() {
                continue;
            }
            let missing = match self.of_object(object, &functions, &names, &mut types, watch) {
                Ok(Some(found)) => {
                    described.extend(found.described);
                    names.retain(|name| !found.names.contains(*name));
                    continue;
                }
                Ok(None) => format!("{} has no debug information", object.name()),
                Err(error @ Error::Sources { .. }) => {
                    notes.push(error.to_string());
                    format!("The debug information of {} is not read", object.name())
                }
                Err(error) => return Err(error),
            };
            for name in functions.into_values() {
                let why = format!("{missing}, which names of arguments need.");
                described.insert(name.into(), Err(why));
            }
        }
        let read = Types::read(types.bytes()).map_err(|error| Error::Plan {
            reason: format!("the types of the process are wrong: {error}"),
        })?;
        let is_first = self.image.set_types(read.with_descriptions(described));
        debug_assert!(is_first, "types are read before they are used");
        Ok(notes)
    }

    fn of_object(
        &self,
        object: &Object,
        functions: &BTreeMap<Addr, String>,
        names: &BTreeSet<&str>,
        types: &mut TypeWriter,
        watch: &Watch<'_>,
    ) -> Result<Option<Found>> {
        let pid = self.pid;
        let file = file_of(pid, object)?;
        let path = Path::new(&object.path);
        let slide = slide(pid, &file, object)?;
        let root = proc(pid, "root");
        let opened = OpenedDebug::of_object((path, &file), &root, slide, watch)?;
        let Some(OpenedDebug {
            path, dwarf, slide, ..
        }) = opened
        else {
            return Ok(None);
        };
        let link = |(at, name): (&Addr, &String)| (at.0.wrapping_add(slide), name.clone());
        let functions: Vec<(u64, String)> = functions.iter().map(link).collect();
        let found = read(dwarf, &functions, names, types);
        found.map(Some).map_err(|error| Error::Sources {
            path,
            reason: format!("Its debug information is damaged: {error}."),
        })
    }
}

/// The result of reading one object.
struct Found {
    described: Vec<(Box<str>, FunctionDescription)>,
    names: BTreeSet<String>,
}

/// Reads functions, by the addresses of the link, and types of debug information.
fn read(
    dwarf: gimli::Dwarf<crate::sources::Reader>,
    functions: &[(u64, String)],
    names: &BTreeSet<&str>,
    types: &mut TypeWriter,
) -> gimli::Result<Found> {
    let mut debug = DebugEntries::read(dwarf)?;
    let mut found = Found {
        described: Vec::new(),
        names: BTreeSet::new(),
    };
    // A cast is to the first type of its name.
    for name in names {
        for kind in [Named::Struct, Named::Union, Named::Enumeration] {
            if let Some(key) = debug.definition(kind, name) {
                let id = debug.id(key, types);
                debug.name_type(id, name);
                found.names.insert((*name).to_owned());
            }
        }
    }
    let starts: Vec<u64> = functions.iter().map(|(at, _)| *at).collect();
    let entries = debug.functions(&starts)?;
    for (at, name) in functions {
        let description = match entries.get(at) {
            Some(&key) => Ok(function(&mut debug, (key, *at), name, types)),
            None => Err(format!("The debug information does not have {name}.")),
        };
        found.described.push((name.as_str().into(), description));
    }
    debug.read_named(types);
    Ok(found)
}

/// Adds a function with its types, and returns the arguments of its parameters.
fn function(
    debug: &mut DebugEntries,
    (key, at): (Key, u64),
    name: &str,
    types: &mut TypeWriter,
) -> Vec<passed::Passed> {
    let (parameters, passed) = passed::arguments(debug, key, at);
    let parameters = parameters
        .into_iter()
        .map(|parameter| {
            let of = match debug.type_id(parameter, types) {
                0 => types.add("a type that is missing", TypeKind::Other),
                of => of,
            };
            (debug.name(parameter), of)
        })
        .collect();
    let returns = debug.type_id(key, types);
    let prototype = TypeKind::Prototype {
        returns,
        parameters,
    };
    let prototype = types.add("", prototype);
    types.add(name, TypeKind::Function(prototype));
    passed
}
