//! Functions of object files that replace functions of a process: read, linked for addresses there, and mapped.
//!
//! The code and the data of an object file are in memory of the process without a file, near the replaced functions, and
//! stay when the splices are removed: threads may execute them, and the process may hold pointers to them. A function
//! that is replaced is called by a *stub* of the object file, one jump, which is written with the splices and restored
//! with them: to the copy of the function's start in its patch, otherwise to the function.

mod link;
pub(super) mod linked;
pub(super) mod symbols;

use std::collections::BTreeMap;
use std::sync::Arc;

use gilk_engine::isa::jump;
use gilk_engine::session::Placement;
use gilk_engine::{Addr, Session, Span, VerifiedPlan};
use gilk_instruments::{Library, Native};

use self::link::LinkableFile;
use self::linked::{JUMP_BYTES, LinkedObject};
use self::symbols::ProcessSymbols;
use super::record::Written;
use super::reserved::Reserved;
use super::subject::Subject;
use super::{maps, refused};
use crate::{Error, Result};

/// Functions of one object file, each with those that it replaces.
type Wanted = Vec<(Arc<Native>, Vec<Addr>)>;
/// The functions of each object file, by its name and bytes.
type WantedFiles = BTreeMap<(Arc<str>, Arc<[u8]>), Wanted>;

impl Reserved {
    /// Links the object files of a session's replacements for addresses near the functions that they replace.
    ///
    /// # Errors
    /// [`Error::Engine`] if a placement names no function or no instrument; [`Error::Process`] if an object file cannot be
    /// linked, with what it lacks.
    pub fn with_replacements(
        mut self,
        subject: &Subject,
        session: &Session,
        library: &Library,
    ) -> Result<Self> {
        let pid = subject.pid;
        let wanted = wanted(subject, session, library)?;
        if wanted.is_empty() {
            return Ok(self);
        }
        let symbols = ProcessSymbols::read(pid, &subject.memory)?;
        let mut taken = maps::read(pid)?;
        for span in std::iter::once(self.words).chain(self.arenas.iter().copied()) {
            maps::insert(&mut taken, span);
        }
        for ((file, bytes), functions) in wanted {
            let failed = |why: String| refused(pid, format!("{file} cannot be used there: {why}"));
            let object = LinkableFile::read(&bytes, &functions).map_err(failed)?;
            let near = self.near(functions.iter().flat_map(|(_, replaced)| replaced));
            let span = maps::free_near(&taken, object.len_bytes(), near);
            let span = span.ok_or_else(|| {
                failed("the functions that it replaces are too far from each other; replace them by functions of two object files".to_owned())
            })?;
            maps::insert(&mut taken, span);
            let (linked, entries) = object.link(&file, span.start, &symbols).map_err(failed)?;
            self.layout.replacements.extend(entries);
            self.objects.push(linked);
        }
        Ok(self)
    }

    /// The span of functions, and of the arenas that have their patches.
    fn near<'a>(&self, functions: impl Iterator<Item = &'a Addr>) -> Span {
        let arenas: Vec<Span> = self.layout.arenas().collect();
        let spans = functions.flat_map(|&at| {
            let arena = arenas.get(self.layout.nearest_arena(at).0 as usize);
            arena
                .copied()
                .into_iter()
                .chain([Span::new(at, JUMP_BYTES)])
        });
        let hull = |one: Span, other: Span| Span {
            start: one.start.min(other.start),
            end: one.end.max(other.end),
        };
        spans.reduce(hull).unwrap_or_default()
    }

    /// A sentence about each object file whose functions stay in the process.
    #[must_use]
    pub fn staying(&self) -> Vec<String> {
        let sentence = |object: &LinkedObject| {
            let bytes: u64 = object.parts.iter().map(|part| part.span().len()).sum();
            let file = &object.file;
            format!(
                "The functions that {file} replaced are called again; it stays mapped, {bytes} bytes: the process may execute \
                 its functions and use its data still."
            )
        };
        self.objects.iter().map(sentence).collect()
    }

    /// The writes of the stubs, by which replacements of a plan call the functions that they replace.
    pub(super) fn stubs(&self, plan: &VerifiedPlan) -> Result<Vec<Written>> {
        let mut writes = Vec::new();
        for stub in self.objects.iter().flat_map(|object| &object.stubs) {
            let mut replaced = plan.replaced().iter().filter(|(id, _)| {
                let instrument = plan.plan().instrument(*id);
                let native = instrument.and_then(|one| one.definition.native());
                native.is_some_and(|native| *native == stub.replacement)
            });
            let (Some(&(_, copy)), None) = (replaced.next(), replaced.next()) else {
                return Err(Error::Plan {
                    reason: format!("{} is not in it once", stub.replacement.function),
                });
            };
            let [original, splice] = [stub.original, copy].map(|to| jump(stub.at, to));
            let (Some(original), Some(splice)) = (original, splice) else {
                return Err(Error::Plan {
                    reason: format!(
                        "{} is too far from what it replaces",
                        stub.replacement.function
                    ),
                });
            };
            writes.push(Written {
                at: stub.at,
                original: original.to_vec(),
                splice: splice.to_vec(),
            });
        }
        Ok(writes)
    }
}

/// Returns the placements of a session that replace functions, and by which.
pub fn replacements<'s>(
    session: &'s Session,
    library: &'s Library,
) -> impl Iterator<Item = (&'s Placement, &'s Arc<Native>)> {
    session.placements.iter().filter_map(|placement| {
        let name = &*placement.instrument;
        // The planner refuses names that neither has.
        let shared = !session.sources.contains_key(name);
        let definition = library.get(name).ok().filter(|_| shared)?;
        let native = definition.native().filter(|native| native.replaces)?;
        Some((placement, native))
    })
}

/// The replacements of a session, by object file.
fn wanted(subject: &Subject, session: &Session, library: &Library) -> Result<WantedFiles> {
    let mut wanted = WantedFiles::new();
    for (placement, native) in replacements(session, library) {
        let function = subject.image.function_named(&placement.function)?;
        let key = (Arc::clone(&native.file), Arc::clone(&native.object));
        let functions = wanted.entry(key).or_default();
        let entry = function.span.start;
        match functions.iter_mut().find(|(known, _)| known == native) {
            Some((_, replaced)) => replaced.push(entry),
            None => functions.push((Arc::clone(native), vec![entry])),
        }
    }
    Ok(wanted)
}
