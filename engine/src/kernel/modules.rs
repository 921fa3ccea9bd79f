//! Modules: the bounds of their text and tables, by the sections that the kernel lists.

use serde::{Deserialize, Serialize};

use super::bounds::Bounds;
use super::functions::{self, Extent};
use super::serialised_memory;
use super::tables::BugLayout;
use crate::code::{Memory, Symbols, Text};
use crate::{Addr, Error, Result, Span};

/// Data read from the modules of a running kernel. Their symbols are in kallsyms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleParts {
    /// A line for each section of each module: the module's name, the bytes it has in all
    /// (`/proc/modules`), the section's name, and its address in hexadecimal
    /// (`/sys/module/NAME/sections`).
    pub sections: String,
    /// Memory as (address, bytes), at least the spans that [`ModuleParts::wanted`] returns.
    #[serde(with = "serialised_memory")]
    pub memory: Vec<(Addr, Vec<u8>)>,
}

/// The name of the driver's module.
const OWN: &str = "ilk";

/// A section of a module, up to the next one.
#[derive(Clone, Debug)]
struct Section<'p> {
    module: &'p str,
    name: &'p str,
    span: Span,
}

/// Returns whether a section is text that stays as long as the module.
fn is_text(name: &str) -> bool {
    name.contains("text")
}

/// Returns whether a section is a table that an image needs, or data that may hold addresses of text.
fn is_table(name: &str) -> bool {
    matches!(
        name,
        "__jump_table" | ".static_call_sites" | "__ex_table" | "__bug_table" | ".rodata"
    )
}

impl ModuleParts {
    /// The memory to read, given what [`ModuleParts::sections`] is to hold; no span touches another.
    ///
    /// # Errors
    /// [`Error::Image`] for a line that is not of that form.
    pub fn wanted(sections: &str) -> Result<Vec<Span>> {
        let spans = parse(sections)?
            .into_iter()
            .filter(|section| is_text(section.name) || is_table(section.name))
            .map(|section| section.span);
        Ok(Span::merged(spans.collect()))
    }
}

/// Reads the list, by address. The kernel does not list the ends of sections: one ends at the next
/// section, or at the last possible end of its module; bytes between are zero.
fn parse(list: &str) -> Result<Vec<Section<'_>>> {
    let mut sections = Vec::new();
    for (number, line) in list.lines().enumerate() {
        let mut fields = line.split_ascii_whitespace();
        let mut section = || {
            let (module, size) = (fields.next()?, fields.next()?.parse::<u64>().ok()?);
            let name = fields.next()?;
            let digits = fields.next()?.trim_start_matches("0x");
            let start = Addr(u64::from_str_radix(digits, 16).ok()?);
            let span = Span::new(start, size.next_multiple_of(4096));
            Some(Section { module, name, span })
        };
        let Some(section) = section() else {
            let reason = format!(
                "line {} of the list of modules' sections is {line:?}, and not a module, its size, a section and an address",
                number + 1
            );
            return Err(Error::Image { reason });
        };
        // Sections that were freed after the module's start may be listed at zero, or at their former address,
        // which other data may have now.
        let freed = |name: &str| name.starts_with(".init") || matches!(name, ".symtab" | ".strtab");
        if section.span.start != Addr(0) && !freed(section.name) {
            sections.push(section);
        }
    }
    sections.sort_by_key(|section| section.span.start);
    let starts: Vec<Addr> = sections.iter().map(|section| section.span.start).collect();
    for section in &mut sections {
        let after = starts.partition_point(|&start| start <= section.span.start);
        if let Some(&next) = starts.get(after) {
            section.span.end = section.span.end.min(next);
        }
    }
    Ok(sections)
}

/// Ends sections where code begins that the kernel has generated: it lies between the text of modules where they
/// share large pages (`execmem_cache_alloc` in mm/execmem.c of Linux).
fn end_at_generated(sections: &mut [Section<'_>], symbols: &Symbols) {
    for section in sections {
        let mut inside = symbols.within(section.span);
        if let Some(first) = inside.find(|symbol| symbol.generated) {
            section.span.end = first.at;
        }
    }
}

/// A module with text.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) bounds: Bounds,
    pub(crate) texts: Vec<Span>,
}

impl Module {
    /// The modules of the list.
    ///
    /// # Errors
    /// [`Error::Image`] if the list is damaged.
    pub(crate) fn all(
        parts: &ModuleParts,
        symbols: &Symbols,
        memory: &Memory,
        kernel: Span,
        bug_layout: BugLayout,
    ) -> Result<Vec<Self>> {
        let mut sections = parse(&parts.sections)?;
        end_at_generated(&mut sections, symbols);
        let mut names: Vec<&str> = sections.iter().map(|section| section.module).collect();
        names.sort_unstable();
        names.dedup();
        let modules = names.into_iter().filter_map(|name| {
            let own: Vec<&Section<'_>> = sections
                .iter()
                .filter(|section| section.module == name)
                .collect();
            Self::of(name, &own, memory, kernel, bug_layout)
        });
        let mut modules: Vec<Self> = modules.collect();
        modules.sort_by_key(|module| module.bounds.text.start);
        Ok(modules)
    }

    /// `None` if it has no text, or its tables were not read.
    fn of(
        name: &str,
        sections: &[&Section<'_>],
        memory: &Memory,
        kernel: Span,
        bug_layout: BugLayout,
    ) -> Option<Self> {
        let texts: Vec<Span> = sections
            .iter()
            .filter(|section| is_text(section.name))
            .map(|section| section.span)
            .collect();
        let text = Span {
            start: texts.first()?.start,
            end: texts.last()?.end,
        };
        let found = |wanted: &str| sections.iter().find(|section| section.name == wanted);
        let table = |wanted: &str, entry: usize| match found(wanted) {
            Some(section) => filled(section.span, entry, memory),
            None => Some(Span::new(text.start, 0)),
        };
        let read_only: Vec<Span> = found(".rodata")
            .map(|section| section.span)
            .into_iter()
            .collect();
        if read_only
            .iter()
            .any(|span| memory.bytes_from(span.start, 1).is_none())
        {
            return None;
        }
        let forbidden = sections.iter().filter(|section| {
            matches!(
                section.name,
                ".noinstr.text" | ".kprobes.text" | ".entry.text"
            )
        });
        Some(Self {
            name: name.to_owned(),
            bounds: Bounds {
                text,
                kernel,
                read_only,
                jump_table: table("__jump_table", 16)?,
                static_calls: table(".static_call_sites", 8)?,
                exceptions: table("__ex_table", 12)?,
                bugs: table("__bug_table", bug_layout.len_bytes)?,
                forbidden: forbidden.map(|section| section.span).collect(),
                trampolines: found(".static_call.text").map(|section| section.span),
                types: None,
                notes: None,
            },
            texts,
        })
    }

    /// Its text, for the image.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Text> {
        self.texts.iter().map(|&span| Text {
            span,
            module: Some(self.name.clone()),
            own: self.name == OWN,
        })
    }

    /// Its functions, by address.
    pub(crate) fn extents(&self, symbols: &Symbols) -> Vec<Extent> {
        let texts = self.texts.iter();
        texts
            .flat_map(|&text| functions::module_extents(symbols, text))
            .collect()
    }
}

/// The whole entries of a table, without those at its end in which nothing stands; `None` if it was not read.
fn filled(table: Span, entry: usize, memory: &Memory) -> Option<Span> {
    let len = usize::try_from(table.len()).unwrap_or(usize::MAX);
    let bytes = memory.bytes_from(table.start, len)?;
    let used = bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    let whole = used
        .next_multiple_of(entry)
        .min(bytes.len() - bytes.len() % entry);
    Some(Span::new(table.start, whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "virtio 16384 .text 0xffffffffc0001000\n\
                        virtio 16384 .init.text 0x0000000000000000\n\
                        virtio 16384 __bug_table 0xffffffffc0002000\n\
                        virtio 16384 .init.rodata 0xffffffffc0002800\n\
                        net 4096 .text 0xffffffffc0002100\n";

    #[test]
    fn a_section_ends_where_the_next_begins_or_the_module_must_end() {
        let spans = ModuleParts::wanted(LIST).unwrap();
        let all = Span {
            start: Addr(0xffff_ffff_c000_1000),
            end: Addr(0xffff_ffff_c000_3100),
        };
        assert_eq!(spans, [all]);
        let error = ModuleParts::wanted("virtio .text\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn a_section_ends_where_generated_code_begins() {
        let kallsyms = "ffffffffc0001000 t probe\t[virtio]\n\
                        ffffffffc0001800 t ftrace_trampoline\t[__builtin__ftrace]\n";
        let symbols = crate::kernel::kallsyms::parse(kallsyms).unwrap();
        let mut sections = parse(LIST).unwrap();
        end_at_generated(&mut sections, &symbols);
        let ends: Vec<u64> = sections
            .iter()
            .map(|section| section.span.end.0 & 0xffff)
            .collect();
        assert_eq!(ends, [0x1800, 0x2100, 0x3100]);
    }

    #[test]
    fn a_table_ends_after_its_last_entry() {
        let mut bytes = vec![0; 64];
        bytes[23] = 1; // in the second entry of 16
        let at = Addr(0xffff_ffff_c000_0000);
        let memory = Memory::new([(at, bytes.as_slice())].into_iter());
        let filled = |at, len, entry| filled(Span::new(at, len), entry, &memory);
        assert_eq!(filled(at, 64, 16), Some(Span::new(at, 32)));
        assert_eq!(filled(at, 64, 12), Some(Span::new(at, 24)));
        assert_eq!(filled(at.add(24), 40, 12).unwrap().len(), 0);
        // It may list sites: a module without it has others than it seems.
        assert_eq!(filled(at.add(64), 16, 12), None);
    }
}
