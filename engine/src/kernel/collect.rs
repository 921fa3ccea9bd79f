//! Collects the sites of an image from the kernel's tables, its blacklist and its text.

use std::collections::HashSet;

use super::bounds::Bounds;
use super::functions::Extent;
use super::tables::{self, BugLayout, ExceptionEntry, JumpEntry, StaticCallEntry};
use super::{names, notifiers};
use crate::code::{Fixed, Memory, Symbols, Texts, Why};
use crate::{Addr, Error, Result, Span};

/// The entries of the tables about text that boot does not free.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) jumps: Vec<JumpEntry>,
    pub(crate) static_calls: Vec<StaticCallEntry>,
    pub(crate) exceptions: Vec<ExceptionEntry>,
    pub(crate) sites: Vec<Fixed>,
}

fn one(at: Addr, len: u64, why: Why) -> Fixed {
    Fixed::new(Span::new(at, len), why)
}

impl Tables {
    /// Adds the entries of another part.
    pub(crate) fn extend(&mut self, other: Self) {
        self.jumps.extend(other.jumps);
        self.exceptions.extend(other.exceptions);
        self.sites.extend(other.sites);
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// [`Error::Image`] if a table was not read, or is not of the layout known: most of its
    /// addresses must be those of instructions of the kind it lists.
    pub(crate) fn read(bounds: &Bounds, bug_layout: BugLayout, memory: &Memory) -> Result<Self> {
        let table = |name: &str, span: Span| {
            if span.is_empty() {
                return Ok(&[][..]);
            }
            memory.bytes(span).ok_or_else(|| Error::Image {
                reason: format!("the {name} at {} was not read from the target", span.start),
            })
        };
        let mut read = Self::default();
        let live = |at: Addr| memory.bytes_from(at, 6).unwrap_or_default();

        let mut check = Check::new("jump table");
        for entry in
            tables::jump_labels(bounds.jump_table, table("jump table", bounds.jump_table)?)?
        {
            if bounds.text.contains(entry.code) {
                // The kernel picks the short form where the target is near (arch/x86/kernel/jump_label.c).
                let len = match live(entry.code) {
                    [0xeb, ..] | [0x66, 0x90, ..] => Some(2),
                    [0xe9, ..] | [0x0f, 0x1f, 0x44, 0, 0, ..] => Some(5),
                    _ => None,
                };
                check.count(len.is_some());
                let site = one(entry.code, len.unwrap_or(5), Why::StaticKey);
                read.sites.push(Fixed {
                    target: Some(entry.target),
                    ..site
                });
                read.jumps.push(entry);
            }
        }
        check.finish()?;

        let mut check = Check::new("table of static calls");
        for entry in tables::static_calls(
            bounds.static_calls,
            table("table of static calls", bounds.static_calls)?,
        )? {
            let at = entry.code;
            if bounds.text.contains(at) {
                // Every form that __static_call_transform() writes (arch/x86/kernel/static_call.c):
                // since 6.19 a WARN's ud1, since 7.3 the unlock of a spin lock.
                let len = match live(at) {
                    [0xe8 | 0xe9 | 0xc3, ..]
                    | [0x0f, 0x1f, 0x44, 0, 0, ..]
                    | [0x66, 0x66, 0x48, 0x31, 0xc0, ..] => Some(5),
                    [0x2e, 0x2e, 0x2e, 0x31, 0xc0, ..] | [0x3e | 0x2e, 0x0f, 0x1f, ..] => Some(5),
                    [0x67, 0x48, 0x0f, 0xb9, 0x3a, ..] | [0x3e, 0x3e, 0xc6, 0x07, 0, ..] => Some(5),
                    [0x0f, 0x80..=0x8f, ..] => Some(6),
                    _ => None,
                };
                check.count(len.is_some());
                read.sites.push(one(at, len.unwrap_or(6), Why::StaticCall));
                read.static_calls.push(entry);
            }
        }
        check.finish()?;

        for entry in tables::exceptions(
            bounds.exceptions,
            table("exception table", bounds.exceptions)?,
        )? {
            if bounds.text.contains(entry.instruction) {
                let handler = entry.handler;
                let site = one(entry.instruction, 1, Why::Exception { handler });
                read.sites.push(Fixed {
                    target: Some(entry.fixup),
                    ..site
                });
                read.exceptions.push(entry);
            }
        }

        let mut check = Check::new("bug table");
        for entry in tables::bugs(bounds.bugs, table("bug table", bounds.bugs)?, bug_layout)? {
            // One that is called is a static call, in the table of those.
            if bounds.text.contains(entry.at) && !entry.called {
                check.count(matches!(live(entry.at), [0x0f, 0x0b | 0xb9, ..]));
                read.sites
                    .push(one(entry.at, 2, Why::Bug { warn: entry.warn }));
            }
        }
        check.finish()?;
        Ok(read)
    }
}

/// Counts how many addresses of a table are those of instructions of its kind.
struct Check {
    name: &'static str,
    right: usize,
    wrong: usize,
}

impl Check {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            right: 0,
            wrong: 0,
        }
    }

    fn count(&mut self, right: bool) {
        if right {
            self.right += 1;
        } else {
            self.wrong += 1;
        }
    }

    /// A few may be wrong: the kernel could have been in the middle of a change when it was read.
    fn finish(self) -> Result<()> {
        if self.wrong > 8 + self.right / 64 {
            return Err(Error::Image {
                reason: format!(
                    "{} of {} addresses in its {} are not those of instructions that the table lists; this kernel's layout of the table is not known",
                    self.wrong,
                    self.wrong + self.right,
                    self.name
                ),
            });
        }
        Ok(())
    }
}

/// Text in which no splice may stand.
#[derive(Debug, Default)]
pub(crate) struct Forbidden {
    pub(crate) spans: Vec<Span>,
    /// Those of the notifiers of traps that are called before the driver's.
    pub(crate) notifiers: Vec<Span>,
}

/// Text in which no splice may stand: by the kernel's blacklist, by section, by name, and notifiers of traps.
///
/// # Errors
/// [`Error::Image`] if the blacklist is empty, as an unprivileged reader's is, or damaged.
pub(crate) fn blacklist(
    text: &str,
    bounds: &Bounds,
    symbols: &Symbols,
    extents: &[Extent],
) -> Result<Forbidden> {
    let mut spans = bounds.forbidden.clone();
    let before = spans.len();
    let mut called_first = Vec::new();
    let mut listed = HashSet::new();
    for (number, line) in text.lines().enumerate() {
        let notifier = line.strip_prefix(notifiers::LINE);
        let line = notifier.unwrap_or(line);
        listed.extend(line.split_ascii_whitespace().nth(1));
        let parsed = line
            .split_ascii_whitespace()
            .next()
            .and_then(|range| range.split_once('-'))
            .and_then(|(start, end)| {
                let address = |text: &str| {
                    u64::from_str_radix(text.trim_start_matches("0x"), 16)
                        .ok()
                        .map(Addr)
                };
                Some(Span {
                    start: address(start)?,
                    end: address(end)?,
                })
            });
        let Some(span) = parsed else {
            let reason = format!(
                "line {} of the kprobe blacklist is {line:?}, and not a range of addresses and a name",
                number + 1
            );
            return Err(Error::Image { reason });
        };
        if span.start == Addr(0) {
            return Err(Error::Image {
                reason: "the addresses in the kprobe blacklist are zero; read it as root, with kernel.kptr_restrict not 2".to_owned(),
            });
        }
        if notifier.is_some() {
            called_first.push(span);
        } else {
            spans.push(span);
        }
    }
    if spans.len() == before {
        return Err(Error::Image {
            reason: "the kprobe blacklist is empty; mount debugfs and read kprobes/blacklist in it as root".to_owned(),
        });
    }
    // What the compiler split off a function has its name and a dot, and is not on the list.
    let is_part = |name: &str| {
        let whole = name.split_once('.').map(|(whole, _)| whole);
        whole.is_some_and(|whole| listed.contains(whole))
    };
    let by_name = |extent: &&Extent| {
        let mut names = symbols
            .at(extent.span.start)
            .map(|symbol| symbols.name(symbol));
        names.any(|name| names::is_forbidden(name) || is_part(name))
    };
    spans.extend(extents.iter().filter(by_name).map(|extent| extent.span));
    spans.extend(&called_first);
    spans.retain(|span| !span.is_empty());
    Ok(Forbidden {
        spans,
        notifiers: called_first,
    })
}

/// Trampolines of static calls: the first instruction of each is the kernel's to rewrite.
pub(crate) fn trampolines<'a>(
    bounds: &'a Bounds,
    extents: &'a [Extent],
) -> impl Iterator<Item = Fixed> + 'a {
    extents
        .iter()
        .filter(|extent| {
            bounds
                .trampolines
                .is_some_and(|text| text.contains(extent.span.start))
        })
        .map(|extent| one(extent.span.start, extent.span.len().min(5), Why::StaticCall))
}

/// The function tracer's site of a function: at its entry, or after the `endbr64` there, a nop of
/// five bytes or a call to a trampoline (arch/x86/kernel/ftrace.c). The kernel's own list of them is
/// gone after boot, so they are known by their bytes; `taken` says whether the bytes are another
/// site's, which look alike.
pub(crate) fn ftrace(
    entry: Addr,
    bytes: &[u8],
    texts: &Texts,
    symbols: &Symbols,
    taken: impl Fn(Addr) -> bool,
) -> Option<Fixed> {
    // `endbr64`, and the bytes that the kernel writes over it where no indirect branch may land (6.2 and later).
    let (skipped, rest) = match bytes {
        [0xf3, 0x0f, 0x1e, 0xfa, rest @ ..]
        | [0x66, 0x0f, 0x1f, 0x00, rest @ ..]
        | [0x0f, 0x1f, 0x40, 0xd6, rest @ ..] => (4, rest),
        _ => (0, bytes),
    };
    let at = entry.add(skipped);
    let traced = match *rest {
        [0x0f, 0x1f, 0x44, 0, 0, ..] => true,
        [0xe8, a, b, c, d, ..] => {
            let target = at
                .add(5)
                .add(i64::from(i32::from_le_bytes([a, b, c, d])).cast_unsigned());
            let by_name = |name: &str| name == "__fentry__" || name.starts_with("ftrace_");
            !texts.contains(target)
                || symbols
                    .at(target)
                    .any(|symbol| by_name(symbols.name(symbol)))
        }
        _ => false,
    };
    (traced && !taken(at)).then(|| one(at, 5, Why::Tracer))
}
