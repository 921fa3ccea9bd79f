//! The kernel's symbols and its image, read when a client needs them and kept between clients.
//!
//! Symbols are read again when the list of modules' sections has changed. An image is built again
//! when the symbols were, or when a byte of text or of a table differs from the kernel's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gilk_engine::kernel::{LiveParts, ModuleParts, wanted_and_notifiers};
use gilk_engine::{Addr, Image, Span};

use super::kernel::{self, Memory};
use super::modules;
use crate::protocol::{CHUNK, Refusal, RefusalKind};

/// The kernel's lists at one time.
pub(super) struct Lists {
    /// `/proc/kallsyms`.
    pub(super) kallsyms: String,
    /// The kprobe blacklist and the notifiers of traps, and a note for the user if the former cannot be read.
    pub(super) blacklist: (String, String),
    /// The sections of modules, and a note for the user if they cannot be read.
    pub(super) sections: (String, String),
    /// The memory that planning needs, of the kernel and of its modules, or why it is unknown.
    spans: Result<[Vec<Span>; 2], Refusal>,
}

impl Lists {
    fn read(sections: (String, String)) -> Result<Self, Refusal> {
        let kallsyms = text(kernel::kallsyms()?);
        let (blacklist, note) = kernel::blacklist();
        let mut blacklist = text(blacklist);
        let spans = wanted(&kallsyms, &sections.0).map(|(spans, notifiers)| {
            blacklist.push_str(&notifiers);
            spans
        });
        Ok(Self {
            blacklist: (blacklist, note),
            sections,
            spans,
            kallsyms,
        })
    }

    /// Checks that memory is text, a table or types of the kernel or of a module.
    ///
    /// # Errors
    /// A refusal for other memory.
    pub(super) fn check(&self, address: u64, length: u64) -> Result<(), Refusal> {
        let spans = self.spans.as_ref().map_err(Clone::clone)?;
        // `Request::check` excludes an overflow.
        let end = address.saturating_add(length);
        let within = |span: &Span| span.start.0 <= address && end <= span.end.0;
        if spans.iter().flatten().any(within) {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalKind::Request,
            format!(
                "The agent does not read the {length} bytes at {address:#x}: they are not text, \
                 tables or types of the kernel or its modules as they are loaded now."
            ),
        ))
    }
}

/// Returns the memory that planning needs, of the kernel and of its modules, and the lines of notifiers of traps.
fn wanted(kallsyms: &str, sections: &str) -> Result<([Vec<Span>; 2], String), Refusal> {
    let memory = Memory::open()?;
    let read = |at: Addr, buffer: &mut [u8]| memory.read(at.0, buffer).is_ok();
    let (core, notifiers) =
        wanted_and_notifiers(kallsyms, read).map_err(|error| unusable(&error))?;
    let modules = ModuleParts::wanted(sections).map_err(|error| unusable(&error))?;
    Ok(([core, modules], notifiers))
}

/// The kernel as it was read last.
#[derive(Default)]
pub(super) struct KernelCache(Mutex<Cached>);

#[derive(Default)]
struct Cached {
    lists: Option<Arc<Lists>>,
    image: Option<CachedImage>,
}

struct CachedImage {
    lists: Arc<Lists>,
    image: Arc<Image>,
}

impl KernelCache {
    /// Returns the lists, read again if modules were loaded or unloaded.
    pub(super) fn lists(&self) -> Result<Arc<Lists>, Refusal> {
        self.lock().lists()
    }

    /// Returns the lists as they were read last.
    pub(super) fn last_lists(&self) -> Result<Arc<Lists>, Refusal> {
        let mut cached = self.lock();
        match &cached.lists {
            Some(lists) => Ok(Arc::clone(lists)),
            None => cached.lists(),
        }
    }

    /// Returns the image of the kernel as it is now. The module's device must be open, so that
    /// it notices modules that are unloaded from now on.
    pub(super) fn image(&self) -> Result<Arc<Image>, Refusal> {
        let mut cached = self.lock();
        let lists = cached.lists()?;
        let memory = Memory::open()?;
        let spans = lists.spans.as_ref().map_err(Clone::clone)?;
        if let Some(known) = &cached.image
            && Arc::ptr_eq(&known.lists, &lists)
            && is_current(&known.image, &memory, spans.iter().flatten())?
        {
            return Ok(Arc::clone(&known.image));
        }
        // An outdated image is dropped before the next one takes memory.
        let outdated = cached.image.take();
        let types = outdated.and_then(|outdated| outdated.image.indexed_types());
        let read = |spans: &Vec<Span>| {
            let read = |span: &Span| {
                let length = usize::try_from(span.len()).map_err(|e| unusable(&e))?;
                let mut bytes = vec![0; length];
                memory.read(span.start.0, &mut bytes)?;
                Ok((span.start, bytes))
            };
            spans.iter().map(read).collect::<Result<Vec<_>, Refusal>>()
        };
        let [core, modules] = spans;
        let parts = LiveParts {
            release: kernel::release(),
            kallsyms: lists.kallsyms.clone(),
            blacklist: lists.blacklist.0.clone(),
            memory: read(core)?,
        };
        let modules = ModuleParts {
            sections: lists.sections.0.clone(),
            memory: read(modules)?,
        };
        let image = Image::with_modules(&parts, &modules).map_err(|error| unusable(&error))?;
        if let Some(types) = types {
            image.reuse_types(types);
        }
        let image = Arc::new(image);
        cached.image = Some(CachedImage {
            lists,
            image: Arc::clone(&image),
        });
        Ok(image)
    }

    fn lock(&self) -> MutexGuard<'_, Cached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cached {
    fn lists(&mut self) -> Result<Arc<Lists>, Refusal> {
        let (sections, note) = modules::sections();
        let sections = (text(sections), note);
        if let Some(lists) = &self.lists
            && lists.sections == sections
        {
            return Ok(Arc::clone(lists));
        }
        let lists = Arc::new(Lists::read(sections)?);
        self.lists = Some(Arc::clone(&lists));
        Ok(lists)
    }
}

/// Returns whether the kernel's memory is as in the image.
fn is_current<'s>(
    image: &Image,
    memory: &Memory,
    spans: impl Iterator<Item = &'s Span>,
) -> Result<bool, Refusal> {
    let mut buffer = vec![0; CHUNK];
    for span in spans {
        let mut at = span.start;
        while at < span.end {
            let length = CHUNK.min(usize::try_from(at.to(span.end)).unwrap_or(CHUNK));
            let now = buffer.get_mut(..length).unwrap_or_default();
            memory.read(at.0, now)?;
            if image.bytes(Span::new(at, length as u64)) != Some(now) {
                return Ok(false);
            }
            at = at.add(length as u64);
        }
    }
    Ok(true)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn unusable(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Read, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_tables_and_types_are_read() {
        let span = |start, length| Span::new(Addr(start), length);
        let lists = Lists {
            kallsyms: String::new(),
            blacklist: Default::default(),
            sections: Default::default(),
            spans: Ok([
                vec![span(0x1000, 0x100), span(0x3000, 0x10)],
                vec![span(0x9000, 8)],
            ]),
        };
        for (address, length) in [(0x1000, 0x100), (0x10ff, 1), (0x3008, 8), (0x9000, 0)] {
            lists.check(address, length).unwrap();
        }
        for (address, length) in [
            (0xfff, 2),
            (0x10ff, 2),
            (0x2000, 1),
            (0x3000, 0x11),
            (0x1000, 0x2010),
            (u64::MAX, 1),
        ] {
            let refused = lists.check(address, length).unwrap_err();
            assert_eq!(refused.kind, RefusalKind::Request);
            assert!(refused.text.contains("not text, tables or types"));
        }
    }
}
