//! Attach points: `entry:vfs_*`, `block:kernel_clone:3`, `interval:1s`.

use gilk_instruments::program::Span;
use gilk_instruments::{Fault, nearest};

use super::pattern::matches;

/// The beginning or the end of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum FunctionEvent {
    Entry,
    Return,
    Leave,
}

impl FunctionEvent {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Return => "return",
            Self::Leave => "leave",
        }
    }
}

/// Selected blocks of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    All,
    One(u32),
}

/// A hook of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockEvent {
    Pre,
    Post,
    Taken,
    Untaken,
}

/// The code or the time that an attach point names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PointKind {
    Function(FunctionEvent, String),
    /// A block by an address in it, relative to the function's start.
    Offset(BlockEvent, String, u64),
    Block(BlockEvent, String, Blocks),
    Edge(String, u32, u32),
    Line(String, u32),
    /// A tracepoint of the kernel, by its name without the subsystem.
    Tracepoint(String),
    /// A static probe of a process.
    Static(StaticPattern),
    Begin,
    End,
    /// Seconds.
    Interval(f64),
}

impl PointKind {
    /// Returns the name or the pattern of its functions, tracepoints, or static probes of a named object.
    pub(super) fn pattern(&self) -> Option<&str> {
        match self {
            Self::Function(_, pattern)
            | Self::Offset(_, pattern, _)
            | Self::Block(_, pattern, _)
            | Self::Edge(pattern, ..)
            | Self::Tracepoint(pattern) => Some(pattern),
            Self::Static(pattern) => pattern.of_object.as_deref(),
            Self::Line(..) | Self::Begin | Self::End | Self::Interval(_) => None,
        }
    }
}

/// Patterns of static probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StaticPattern {
    /// The whole, if it begins with an object: `libpython3.11.so.1.0:python:gc__start`.
    pub(super) of_object: Option<String>,
    pub(super) provider: String,
    pub(super) name: String,
}

impl StaticPattern {
    /// Returns whether it names a probe.
    pub(super) fn has(&self, provider: &str, name: &str) -> bool {
        matches(&self.provider, provider) && matches(&self.name, name)
    }

    /// Returns the pattern of the object's name, if there is one.
    pub(super) fn object(&self) -> Option<&str> {
        let (object, _) = self.of_object.as_deref()?.split_once(':')?;
        Some(object)
    }
}

impl std::fmt::Display for StaticPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.of_object {
            Some(whole) => write!(f, "usdt:{whole}"),
            None => write!(f, "usdt:{}:{}", self.provider, self.name),
        }
    }
}

/// An attach point, and its span in the script.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) kind: PointKind,
    pub(super) span: Span,
}

/// The words that begin an attach point, each with an example.
pub const KINDS: [(&str, &str); 13] = [
    ("entry", "entry:vfs_read"),
    ("return", "return:tcp_*"),
    ("leave", "leave:vfs_read"),
    ("pre", "pre:copy_process+0x71"),
    ("post", "post:copy_process+0x71"),
    ("block", "block:kernel_clone:*"),
    ("taken", "taken:kernel_clone:3"),
    ("untaken", "untaken:kernel_clone:3"),
    ("edge", "edge:kernel_clone:3:5"),
    ("tracepoint", "tracepoint:sched:sched_switch"),
    ("usdt", "usdt:python:gc__start"),
    ("interval", "interval:1s"),
    ("begin", "begin"),
];

/// Shortest interval, in seconds.
const SHORTEST: f64 = 0.05;
/// Longest interval, in seconds.
const LONGEST: f64 = 3600.0;

/// Parses one attach point.
pub(super) fn point(text: &str, span: Span) -> Result<Point, Fault> {
    let kind = kind(text, span)?;
    Ok(Point { kind, span })
}

fn kind(text: &str, span: Span) -> Result<PointKind, Fault> {
    let wrong = |what: String, help: String| Err(Fault::new(span, what).help(help));
    let (word, rest) = match text.split_once(':') {
        Some((word, rest)) => (word, Some(rest)),
        None => (text, None),
    };
    match (word, rest) {
        ("begin", None) => return Ok(PointKind::Begin),
        ("end", None) => return Ok(PointKind::End),
        ("BEGIN" | "END", None) => {
            let word = word.to_lowercase();
            return wrong(
                format!("`{text}` is written in lower case here."),
                format!("Write `{word} {{ … }}`."),
            );
        }
        _ => {}
    }
    if let Some((file, line)) = text.rsplit_once(':')
        && (file.contains('/') || file.ends_with(".c") || file.ends_with(".h"))
    {
        return match line.parse() {
            Ok(line) if line > 0 => Ok(PointKind::Line(file.to_owned(), line)),
            _ => wrong(
                format!("`{line}` is no line of {file}."),
                format!("Write `{file}:450`."),
            ),
        };
    }
    let Some(rest) = rest else {
        return match KINDS.iter().find(|(kind, _)| *kind == word) {
            Some((_, example)) => wrong(
                format!("`{word}` names no code."),
                format!("Write the function: `{example}`."),
            ),
            None => unknown(text, text, span),
        };
    };
    let function = |name: &str| -> Result<String, Fault> {
        let good = |c: char| c.is_ascii_alphanumeric() || "_.*?@:$-+".contains(c);
        if name.is_empty() {
            return Err(
                Fault::new(span, format!("`{text}` names no function.")).help(format!(
                    "Write `{word}:vfs_read`, or `{word}:vfs_*` for several."
                )),
            );
        }
        if let Some(strange) = name.chars().find(|c| !good(*c)) {
            return Err(
                Fault::new(span, format!("`{strange}` is in no function's name."))
                    .help("`*` stands for any letters, `?` for one."),
            );
        }
        Ok(name.to_owned())
    };
    let number = |text: &str| -> Result<u32, Fault> {
        text.parse().map_err(|_| {
            Fault::new(span, format!("`{text}` is no number of a block."))
                .help(format!("Blocks are numbered from 0: `{word}:kernel_clone:3`; `ilk cfg kernel_clone` shows them."))
        })
    };
    let blocks = |event: BlockEvent| -> Result<PointKind, Fault> {
        let Some((name, block)) = rest.rsplit_once(':') else {
            return Err(
                Fault::new(span, format!("`{text}` names no block.")).help(format!(
                    "Write `{word}:{rest}:3`, or `{word}:{rest}:*` for all."
                )),
            );
        };
        let block = match block {
            "*" => Blocks::All,
            block => Blocks::One(number(block)?),
        };
        Ok(PointKind::Block(event, function(name)?, block))
    };
    let offset = |event: BlockEvent| -> Result<PointKind, Fault> {
        // Names of libraries have a `+`: libstdc++.so.6.
        let split = rest.rsplit_once('+');
        let split = split.filter(|(_, offset)| !offset.starts_with(['+', '.']));
        let (name, at) = match split {
            Some((name, offset)) => {
                let digits = offset.strip_prefix("0x");
                let parsed = match digits {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => offset.parse(),
                };
                let at = parsed.map_err(|_| {
                    Fault::new(span, format!("`{offset}` is no offset."))
                        .help(format!("Write `{word}:{name}+0x71`."))
                })?;
                (name, at)
            }
            None => (rest, 0),
        };
        Ok(PointKind::Offset(event, function(name)?, at))
    };
    match word {
        "entry" => Ok(PointKind::Function(FunctionEvent::Entry, function(rest)?)),
        "return" => Ok(PointKind::Function(FunctionEvent::Return, function(rest)?)),
        "leave" => Ok(PointKind::Function(FunctionEvent::Leave, function(rest)?)),
        "pre" => offset(BlockEvent::Pre),
        "post" => offset(BlockEvent::Post),
        "block" => blocks(BlockEvent::Pre),
        "taken" => blocks(BlockEvent::Taken),
        "untaken" => blocks(BlockEvent::Untaken),
        "edge" => {
            let mut parts = rest.rsplitn(3, ':');
            let (to, from, name) = (parts.next(), parts.next(), parts.next());
            match (name, from, to) {
                (Some(name), Some(from), Some(to)) => {
                    Ok(PointKind::Edge(function(name)?, number(from)?, number(to)?))
                }
                _ => wrong(
                    format!("`{text}` names no edge."),
                    "Write the blocks that it leaves and enters: `edge:kernel_clone:3:5`."
                        .to_owned(),
                ),
            }
        }
        "tracepoint" => tracepoint(rest, text, span, function),
        "usdt" => static_probe(rest, text, span, function),
        "interval" => match seconds(rest) {
            Some(seconds) if (SHORTEST..=LONGEST).contains(&seconds) => {
                Ok(PointKind::Interval(seconds))
            }
            _ => wrong(
                format!("`{rest}` is no interval."),
                "Write `interval:1s` or `interval:250ms`; from 50ms to 1h.".to_owned(),
            ),
        },
        _ => unknown(word, text, span),
    }
}

/// Parses the name of a tracepoint, with or without its subsystem: `sched:sched_switch`, `sched_switch`.
fn tracepoint(
    rest: &str,
    text: &str,
    span: Span,
    function: impl Fn(&str) -> Result<String, Fault>,
) -> Result<PointKind, Fault> {
    let (subsystem, name) = match rest.split_once(':') {
        Some((subsystem, name)) => (Some(subsystem), name),
        None => (None, rest),
    };
    let call = [("sys_enter_", "entry"), ("sys_exit_", "return")]
        .into_iter()
        .find_map(|(prefix, event)| Some((name.strip_prefix(prefix)?, event)));
    if let Some((call, event)) = call {
        let what = format!("`{text}` is no tracepoint: the kernel makes it of that of all calls.");
        return Err(Fault::new(span, what).help(format!("Write `{event}:__x64_sys_{call}`.")));
    }
    if subsystem == Some("") || name.is_empty() || name.contains(':') {
        let what = format!("`{text}` names no tracepoint.");
        return Err(Fault::new(span, what)
            .help("Write `tracepoint:sched:sched_switch`, or `tracepoint:sched_switch`."));
    }
    if name.chars().all(|c| matches!(c, '*' | '?')) {
        let what = format!("`{text}` would switch every tracepoint on.");
        return Err(
            Fault::new(span, what).help("Write some letters of its name: `tracepoint:sched_*`.")
        );
    }
    Ok(PointKind::Tracepoint(function(name)?))
}

/// Parses the name of a static probe, with or without the object that has it: `python:gc__start`,
/// `libpython3.11.so.1.0:python:gc__start`.
fn static_probe(
    rest: &str,
    text: &str,
    span: Span,
    function: impl Fn(&str) -> Result<String, Fault>,
) -> Result<PointKind, Fault> {
    let parts: Vec<&str> = rest.split(':').collect();
    let (object, provider, name) = match parts.as_slice() {
        [provider, name] => (None, *provider, *name),
        [object, provider, name] => (Some(*object), *provider, *name),
        _ => (None, "", ""),
    };
    if provider.is_empty() || name.is_empty() || object == Some("") {
        let what = format!("`{text}` names no static probe.");
        return Err(Fault::new(span, what).help(
            "Write `usdt:python:gc__start`, the provider and the name, or `usdt:libc.so.6:libc:setjmp`, with the library \
             before them.",
        ));
    }
    Ok(PointKind::Static(StaticPattern {
        of_object: object.map(|_| function(rest)).transpose()?,
        provider: function(provider)?,
        name: function(name)?,
    }))
}

/// Parses a length of time in seconds: `10s`, `250ms`, `2m`, `1h`, or seconds without a unit.
#[must_use]
pub fn seconds(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match text.get(digits.len()..)? {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number * scale)
}

fn unknown(word: &str, text: &str, span: Span) -> Result<PointKind, Fault> {
    let fault = Fault::new(span, format!("No probe is of the kind `{word}`."));
    let rest = text.split_once(':').map_or("vfs_read", |(_, rest)| rest);
    Err(match word {
        "kprobe" | "fentry" | "k" | "kfunc" => fault.help(format!("Write `entry:{rest}`.")),
        "kretprobe" | "fexit" | "kr" | "kretfunc" => fault.help(format!("Write `return:{rest}`.")),
        "rawtracepoint" | "t" | "rt" => fault.help(format!("Write `tracepoint:{rest}`.")),
        "profile" | "hardware" | "software" => fault.help(
            "Nothing is sampled by time; count every hit instead: `entry:vfs_* { @hits = count() }`.",
        ),
        "uprobe" | "uretprobe" => {
            fault.help("Write `ilk process -p PID -e 'entry:F { … }'` for functions of a process.")
        }
        _ => match nearest(word, KINDS.iter().map(|(kind, _)| *kind).chain(["end"])) {
            Some(near) if text.contains(':') => fault.help(format!("Write `{near}:{rest}`.")),
            Some(near) => fault.help(format!("Did you mean `{near}`?")),
            None => fault.help(
                "Write `entry:F`, `return:F`, `pre:F+0x71`, `block:F:*`, `taken:F:3`, `edge:F:3:5`, \
                 `interval:1s`, `begin` or `end`; see `ilk help probes`.",
            ),
        },
    })
}
