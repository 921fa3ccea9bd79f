//! Bounds of the parts of a kernel, by the symbols of its linker script
//! (arch/x86/kernel/vmlinux.lds.S and include/asm-generic/vmlinux.lds.h of Linux).

use rustc_hash::FxHashMap;

use crate::code::Symbols;
use crate::{Addr, Error, Result, Span};

/// The parts an image needs.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Text that boot does not free.
    pub(crate) text: Span,
    /// The whole kernel, init text included. Modules and code generated at run time lie outside.
    pub(crate) kernel: Span,
    /// Read-only data, without the type information in it: one or two spans.
    pub(crate) read_only: Vec<Span>,
    pub(crate) jump_table: Span,
    pub(crate) static_calls: Span,
    pub(crate) exceptions: Span,
    pub(crate) bugs: Span,
    /// Text in which no probe may stand.
    pub(crate) forbidden: Vec<Span>,
    /// The trampolines of static calls.
    pub(crate) trampolines: Option<Span>,
    /// The kernel's type data (`CONFIG_DEBUG_INFO_BTF`), which an image can do without.
    pub(crate) types: Option<Span>,
    /// The kernel's notes, its build's identifier among them.
    pub(crate) notes: Option<Span>,
}

/// Sections of the text that Linux forbids probes in (`arch_populate_kprobe_blacklist` and
/// `populate_kprobe_blacklist` of kernel/kprobes.c), and some more: idle and interrupt-entry code,
/// where newer kernels forbid them; thunks, that every return and indirect branch goes through, also
/// those of the former sections. Not every kernel has all.
const FORBIDDEN: [(&str, &str); 6] = [
    ("__noinstr_text_start", "__noinstr_text_end"),
    ("__kprobes_text_start", "__kprobes_text_end"),
    ("__entry_text_start", "__entry_text_end"),
    ("__cpuidle_text_start", "__cpuidle_text_end"),
    ("__irqentry_text_start", "__irqentry_text_end"),
    ("__indirect_thunk_start", "__indirect_thunk_end"),
];

const TRAMPOLINES: (&str, &str) = ("__static_call_text_start", "__static_call_text_end");
const NOTES: (&str, &str) = ("__start_notes", "__stop_notes");
const TYPES: (&str, &str) = ("__start_BTF", "__stop_BTF");

impl Bounds {
    /// Finds the bounds among the symbols.
    ///
    /// # Errors
    /// [`Error::Image`] that names the symbol which is missing.
    pub(crate) fn of(symbols: &Symbols) -> Result<Self> {
        // All bounds begin with an underscore, as few other symbols do.
        let named: FxHashMap<&str, Addr> = symbols
            .entries()
            .iter()
            .filter(|symbol| !symbol.module)
            .map(|symbol| (symbols.name(symbol), symbol.at))
            .filter(|(name, _)| name.starts_with('_'))
            .collect();
        let span = |(start, end): (&str, &str)| {
            Some(Span {
                start: *named.get(start)?,
                end: *named.get(end)?,
            })
        };
        let part = |start: &str, end: &str| {
            let part_span = span((start, end)).ok_or_else(|| {
                let missing = if named.contains_key(start) {
                    end
                } else {
                    start
                };
                Error::Image {
                    reason: format!("kallsyms has no symbol {missing}"),
                }
            })?;
            if part_span.start > part_span.end {
                return Err(Error::Image {
                    reason: format!("in kallsyms, {start} lies after {end}"),
                });
            }
            Ok(part_span)
        };
        let all_read_only = part("__start_rodata", "__end_rodata")?;
        let read_only = match span(TYPES) {
            Some(types) if all_read_only.start <= types.start && types.end <= all_read_only.end => {
                vec![
                    Span {
                        start: all_read_only.start,
                        end: types.start,
                    },
                    Span {
                        start: types.end,
                        end: all_read_only.end,
                    },
                ]
            }
            _ => vec![all_read_only],
        };
        let text = part("_stext", "_etext")?;
        let bounds = Self {
            text,
            kernel: span(("_text", "_end"))
                .filter(|kernel| kernel.end >= text.end)
                .unwrap_or(text),
            read_only,
            jump_table: part("__start___jump_table", "__stop___jump_table")?,
            static_calls: part("__start_static_call_sites", "__stop_static_call_sites")?,
            exceptions: part("__start___ex_table", "__stop___ex_table")?,
            bugs: part("__start___bug_table", "__stop___bug_table")?,
            forbidden: FORBIDDEN
                .into_iter()
                .filter_map(span)
                .filter(|span| !span.is_empty())
                .collect(),
            trampolines: span(TRAMPOLINES).filter(|span| !span.is_empty()),
            types: span(TYPES).filter(|span| !span.is_empty()),
            notes: span(NOTES).filter(|span| !span.is_empty()),
        };
        if bounds.text.is_empty() {
            return Err(Error::Image {
                reason: "in kallsyms, _stext and _etext are at one address".to_owned(),
            });
        }
        Ok(bounds)
    }

    /// Everything an image cannot do without: sorted, none touching another.
    pub(crate) fn needed(&self) -> Vec<Span> {
        let tables = [
            self.text,
            self.jump_table,
            self.static_calls,
            self.exceptions,
            self.bugs,
        ];
        let mut spans: Vec<Span> = tables
            .into_iter()
            .chain(self.read_only.iter().copied())
            .collect();
        spans.retain(|span| !span.is_empty());
        Span::merged(spans)
    }

    /// Everything to read, type data included: sorted, none touching another.
    pub(crate) fn wanted(&self) -> Vec<Span> {
        let mut spans = self.needed();
        spans.extend(self.types);
        Span::merged(spans)
    }
}
