//! The parser of scripts: attach points, and the texts of probes, which the language parses.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use gilk_engine::code::ProbeArgument;
use gilk_instruments::program::Span;
use gilk_instruments::source::words::AGGREGATES;
use gilk_instruments::{Fault, Faults, Source};

use super::arguments::ReplacedText;
use super::comments::skipped;
use super::point::{FunctionEvent, Point, PointKind, StaticPattern, point};
use super::terminal::{Terminal, TerminalAction, actions};

/// A clause of a script: attach points, a predicate, and statements.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clause {
    pub(super) points: Vec<Point>,
    /// Text between the slashes.
    pub(super) predicate: Option<Span>,
    /// Text between the braces.
    pub(super) body: Span,
}

/// A declaration of variables, without its semicolon.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DeclarationText {
    pub(super) span: Span,
    /// True for variables of a call, which cannot be shared.
    pub(super) of_call: bool,
    pub(super) shared: bool,
}

/// A script whose attach points and statements are well formed.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub(super) text: String,
    pub(super) clauses: Vec<Clause>,
    pub(super) declarations: Vec<DeclarationText>,
    terminal: Terminal,
}

/// Words that begin a declaration.
const SCOPES: [&str; 5] = ["shared", "global", "cpu", "thread", "call"];
/// Most clauses of a script.
const CLAUSES: usize = 64;
/// Longest script, in bytes: the limit of a source in the language.
const BYTES: usize = 64 << 10;

impl Script {
    /// Parses a script.
    ///
    /// # Errors
    /// Every fault that can be found without a kernel, with its line and column.
    pub fn parse(text: &str) -> Result<Self, Faults> {
        let faults = |list| Faults {
            text: text.to_owned(),
            list,
        };
        if text.len() > BYTES {
            let what = format!("The script has {} bytes; {BYTES} is the most.", text.len());
            return Err(Faults {
                text: String::new(),
                list: vec![Fault::new(Span::default(), what)],
            });
        }
        let mut script = Self {
            text: text.to_owned(),
            clauses: Vec::new(),
            declarations: Vec::new(),
            terminal: Terminal::default(),
        };
        let mut scanner = Scanner { text, at: 0 };
        scanner
            .script(&mut script)
            .map_err(|fault| faults(vec![fault]))?;
        let found = script.faults();
        if found.is_empty() {
            Ok(script)
        } else {
            Err(faults(found))
        }
    }

    /// Returns the functions that its probes name, patterns as they are written, static probes that are named with their
    /// objects, and files of source lines.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let points = self.clauses.iter().flat_map(|clause| &clause.points);
        points.filter_map(|point| match &point.kind {
            PointKind::Function(_, name)
            | PointKind::Offset(_, name, _)
            | PointKind::Block(_, name, _)
            | PointKind::Edge(name, _, _)
            | PointKind::Line(name, _) => Some(name.as_str()),
            PointKind::Static(pattern) => pattern.of_object.as_deref(),
            PointKind::Begin
            | PointKind::End
            | PointKind::Interval(_)
            | PointKind::Tracepoint(_) => None,
        })
    }

    /// Returns the patterns of static probes that are named without an object: the provider and the name.
    pub fn static_probes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.static_patterns()
            .filter(|pattern| pattern.of_object.is_none())
            .map(|pattern| (pattern.provider.as_str(), pattern.name.as_str()))
    }

    /// Returns the patterns of static probes.
    pub(super) fn static_patterns(&self) -> impl Iterator<Item = &StaticPattern> {
        let points = self.clauses.iter().flat_map(|clause| &clause.points);
        points.filter_map(|point| match &point.kind {
            PointKind::Static(pattern) => Some(pattern),
            _ => None,
        })
    }

    /// Returns the script with those attach points only of which the function, or its pattern, is `wanted`, and those
    /// without one if `others`.
    #[must_use]
    pub fn within(&self, wanted: impl Fn(&str) -> bool, others: bool) -> Self {
        let mut script = self.clone();
        for clause in &mut script.clauses {
            let points = &mut clause.points;
            points.retain(|point| point.kind.pattern().map_or(others, &wanted));
        }
        script
    }

    /// Returns the blocks that run in the terminal.
    #[must_use]
    pub fn terminal(&self) -> &Terminal {
        &self.terminal
    }

    /// Returns whether a probe names a tracepoint.
    #[must_use]
    pub fn names_tracepoints(&self) -> bool {
        let mut points = self.clauses.iter().flat_map(|clause| &clause.points);
        points.any(|point| matches!(point.kind, PointKind::Tracepoint(_)))
    }

    /// Returns whether a probe names a static probe.
    #[must_use]
    pub fn names_static_probes(&self) -> bool {
        self.static_patterns().next().is_some()
    }

    /// Returns whether a probe names a source line.
    #[must_use]
    pub fn names_lines(&self) -> bool {
        let mut points = self.clauses.iter().flat_map(|clause| &clause.points);
        points.any(|point| matches!(point.kind, PointKind::Line(..)))
    }

    /// Returns whether an aggregate keeps an extreme or a mean, from which nothing can be subtracted.
    fn keeps_extreme(&self, name: &str) -> bool {
        let mut bodies = self.clauses.iter().map(|clause| self.slice(clause.body));
        bodies.any(|body| {
            let dense: String = body.split_whitespace().collect();
            // `@name=avg(` or `@name[key]=avg(`.
            let variable = format!("@{name}");
            let mut rests = dense.split(variable.as_str()).skip(1);
            rests.any(|rest| {
                let keyed = rest
                    .strip_prefix('[')
                    .and_then(|keys| keys.split_once("]="));
                let value = keyed
                    .map(|(_, value)| value)
                    .or_else(|| rest.strip_prefix('='));
                let extremes = ["min(", "max(", "avg("];
                value.is_some_and(|value| extremes.iter().any(|word| value.starts_with(word)))
            })
        })
    }

    /// Returns the text of a span.
    pub(super) fn slice(&self, span: Span) -> &str {
        self.text
            .get(span.start as usize..span.end as usize)
            .unwrap_or_default()
    }

    /// Returns the faults of declarations and clauses that do not depend on a kernel.
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.clauses.is_empty() {
            let what = "The script has no probe in the kernel.";
            faults.push(
                Fault::new(Span::default(), what)
                    .help("Write `entry:vfs_read { @reads = count() }`; see `ilk help probes`."),
            );
        }
        if self.clauses.len() > CLAUSES {
            let what = format!(
                "The script has {} probes; {CLAUSES} is the most.",
                self.clauses.len()
            );
            faults.push(Fault::new(Span::default(), what));
        }
        for action in self.terminal.actions() {
            if let TerminalAction::Clear(name) = action
                && self.keeps_extreme(name)
            {
                let what = format!("@{name} cannot be cleared: it keeps one value, not a sum.");
                let help = "Clear aggregates by count, sum, hist, lhist or values.";
                faults.push(Fault::new(self.in_terminal(name), what).help(help));
            }
        }
        for declaration in &self.declarations {
            let mut blank = self.blank();
            // The sign that ends it follows it in the script.
            let end = declaration.span.end + 1;
            self.show(
                &mut blank,
                Span {
                    end,
                    ..declaration.span
                },
            );
            if let Err(wrong) = Source::parse(&String::from_utf8_lossy(&blank)) {
                faults.extend(wrong.list);
            }
        }
        for (index, clause) in self.clauses.iter().enumerate() {
            for point in &clause.points {
                let group = match &point.kind {
                    PointKind::Function(event, _) => Group::of(vec![(index, Some(*event))]),
                    PointKind::Tracepoint(_) => {
                        Group::of(vec![(index, Some(FunctionEvent::Entry))])
                    }
                    _ => Group::of(vec![(index, None)]),
                };
                if let Err(wrong) = Source::parse(&self.aligned(&group)) {
                    faults.extend(wrong.list);
                    break;
                }
            }
        }
        faults.sort_by_key(|fault| fault.span.start);
        faults.dedup();
        faults
    }

    /// Spaces in place of every byte but line ends.
    fn blank(&self) -> Vec<u8> {
        let blank = |byte| match byte {
            b'\n' => b'\n',
            _ => b' ',
        };
        self.text.bytes().map(blank).collect()
    }

    /// Copies a span of the script to a blank text.
    fn show(&self, blank: &mut [u8], span: Span) {
        let place = blank.get_mut(span.start as usize..span.end as usize);
        if let Some(place) = place {
            place.copy_from_slice(self.slice(span).as_bytes());
        }
    }

    /// Returns the source of an instrument whose bytes are at the positions of the script, so that its faults are the
    /// script's. The declarations of shared variables and the name follow on further lines.
    pub(super) fn aligned(&self, group: &Group) -> String {
        let mut blank = self.blank();
        let put = |blank: &mut Vec<u8>, at: u32, text: &str| {
            let place = blank.get_mut(at as usize..at as usize + text.len());
            if let Some(place) = place {
                place.copy_from_slice(text.as_bytes());
            }
        };
        for &(index, event) in &group.clauses {
            let Some(clause) = self.clauses.get(index) else {
                continue;
            };
            let word = event.map_or("hit", FunctionEvent::word);
            if let Some(first) = clause.points.first() {
                put(&mut blank, first.span.start, word);
            }
            if let Some(predicate) = clause.predicate {
                put(&mut blank, predicate.start - 1, "/");
                self.show(&mut blank, predicate);
                put(&mut blank, predicate.end, "/");
            }
            put(&mut blank, clause.body.start - 1, "{");
            self.show(&mut blank, clause.body);
            put(&mut blank, clause.body.end, "}");
        }
        let mut source = String::from_utf8_lossy(&blank).into_owned();
        // Writing to a String cannot fail.
        let _infallible = write!(source, "\n{}", self.header(group));
        source
    }

    /// Returns the source of an instrument for sessions.
    pub(super) fn source(&self, group: &Group, pid: Option<u32>) -> String {
        let mut source = self.header(group);
        for &(index, event) in &group.clauses {
            let Some(clause) = self.clauses.get(index) else {
                continue;
            };
            let predicate = clause.predicate.map(|span| self.slice(span).trim());
            let predicate = match (pid, predicate) {
                (None, None) => String::new(),
                (None, Some(predicate)) => format!("/ {predicate} /"),
                (Some(pid), None) => format!("/ pid == {pid} /"),
                (Some(pid), Some(predicate)) => format!("/ pid == {pid} && ({predicate}) /"),
            };
            let word = event.map_or("hit", FunctionEvent::word);
            let _infallible = writeln!(
                source,
                "\n{word} {predicate} {{{}}}",
                self.slice(clause.body)
            );
        }
        // The same words were replaced in the aligned source.
        let source = match group.replaced(source.clone()) {
            Ok(replaced) => replaced.text,
            Err(_) => source,
        };
        match Source::parse(&source) {
            Ok(parsed) => parsed.formatted(),
            Err(_) => source,
        }
    }

    /// The first statement, and the declarations of the variables: those of calls are of the clauses that name them.
    fn header(&self, group: &Group) -> String {
        let mut header = format!("instrument {} \"From ilk -e.\";\n", group.name());
        let clauses = group.clauses.iter();
        let clauses = clauses.filter_map(|&(index, _)| self.clauses.get(index));
        let texts = clauses.flat_map(|clause| clause.predicate.into_iter().chain([clause.body]));
        let named: BTreeSet<&str> = texts
            .flat_map(|span| variables(self.slice(span)))
            .map(|(name, _)| name)
            .collect();
        for declaration in &self.declarations {
            let text = self.slice(declaration.span);
            // Writing to a String cannot fail.
            let _infallible = if declaration.of_call {
                let own = variables(text).filter(|(name, _)| named.contains(name));
                let own: Vec<String> = own.map(|(name, _)| format!("@{name}")).collect();
                let (scope, _) = text.split_once('@').unwrap_or((text, ""));
                match own.as_slice() {
                    [] => Ok(()),
                    own => writeln!(header, "{scope}{};", own.join(", ")),
                }
            } else if declaration.shared {
                writeln!(header, "{text};")
            } else {
                // One variable for all functions, as the script has one declaration.
                writeln!(header, "shared {text};")
            };
        }
        for name in self.threads() {
            let _infallible = writeln!(header, "shared thread @{name};");
        }
        header
    }

    /// Returns the variables that are stored into as `@name[tid] = value` and have no declaration.
    pub(super) fn threads(&self) -> BTreeSet<&str> {
        let declared = |name: &str| {
            let mut declarations = self.declarations.iter();
            declarations.any(|one| variables(self.slice(one.span)).any(|(known, _)| known == name))
        };
        let bodies = self.clauses.iter().map(|clause| self.slice(clause.body));
        let stored = bodies.flat_map(variables).filter_map(|(name, rest)| {
            let key = rest.trim_start().strip_prefix('[')?.trim_start();
            let rest = key.strip_prefix("tid")?.trim_start().strip_prefix(']')?;
            let value = rest.trim_start().strip_prefix('=')?.trim_start();
            let word = value.split(|c: char| !c.is_ascii_alphanumeric()).next();
            let totals = word.is_some_and(|word| AGGREGATES.contains(&word));
            (!totals && !value.starts_with('=')).then_some(name)
        });
        stored.filter(|name| !declared(name)).collect()
    }

    /// Returns where a block of the terminal first names an aggregate.
    pub(super) fn in_terminal(&self, name: &str) -> Span {
        let written = format!("@{name}");
        let mut places = self.text.match_indices(&written).filter(|(at, _)| {
            let before = self.text.get(..*at).unwrap_or_default().trim_end();
            let word = before.strip_suffix('(').unwrap_or_default().trim_end();
            let after = self.text.get(at + written.len()..).unwrap_or_default();
            ["print", "clear", "zero"]
                .iter()
                .any(|known| word.ends_with(known))
                && after.trim_start().starts_with(')')
        });
        let Some((start, _)) = places.next() else {
            return Span::default();
        };
        let position = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Span {
            start: position(start),
            end: position(start + written.len()),
        }
    }

    /// Returns whether a probe names a variable or an aggregate.
    pub(super) fn names(&self, name: &str) -> bool {
        let mut bodies = self.clauses.iter().map(|clause| self.slice(clause.body));
        bodies.any(|body| {
            body.split('@').skip(1).any(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                end.is_some_and(|end| rest.get(..end) == Some(name))
            })
        })
    }
}

/// Returns each name after an `@`, and the text after it.
fn variables(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices('@').filter_map(|(at, _)| {
        let rest = text.get(at + 1..)?;
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        Some(rest.split_at(end.unwrap_or(rest.len())))
    })
}

/// Clauses that form an instrument, each with its event if that is one of the function.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) clauses: Vec<(usize, Option<FunctionEvent>)>,
    /// The arguments of the static probe that the clause stands on.
    pub(super) arguments: Option<Vec<ProbeArgument>>,
    /// The number of groups before it of the same clauses, whose static probes have their arguments elsewhere.
    pub(super) variant: usize,
}

impl Group {
    /// Clauses that stand on no static probe.
    pub(super) fn of(clauses: Vec<(usize, Option<FunctionEvent>)>) -> Self {
        Self {
            clauses,
            ..Self::default()
        }
    }

    /// Returns the instrument's name: `entry-1-return-2`.
    pub(super) fn name(&self) -> String {
        let parts = self.clauses.iter().map(|&(index, event)| {
            format!("{}-{}", event.map_or("hit", FunctionEvent::word), index + 1)
        });
        let name = parts.collect::<Vec<_>>().join("-");
        match self.variant {
            0 => name,
            before => format!("{name}-{}", before + 1),
        }
    }

    /// Returns a source with the arguments of the static probe, if the clause stands on one.
    pub(super) fn replaced(&self, source: String) -> Result<ReplacedText, Fault> {
        match &self.arguments {
            Some(arguments) => ReplacedText::of(&source, arguments),
            None => Ok(ReplacedText::unchanged(source)),
        }
    }
}

/// A position in the script.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span {
            start: position(start),
            end: position(end),
        }
    }

    /// Skips spaces and comments.
    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let spaces = rest.len() - rest.trim_start().len();
            self.at += spaces;
            let skipped = skipped(self.rest()).filter(|_| !self.rest().starts_with('"'));
            match skipped {
                Some(length) => self.at += length,
                None if spaces == 0 => return,
                None => {}
            }
        }
    }

    fn script(&mut self, script: &mut Script) -> Result<(), Fault> {
        loop {
            self.skip_space();
            let rest = self.rest();
            if rest.is_empty() {
                return Ok(());
            }
            if rest.starts_with(';') {
                self.at += 1;
                continue;
            }
            let word: String = rest
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            let after = rest.get(word.len()..).unwrap_or_default();
            if SCOPES.contains(&word.as_str()) && !after.starts_with(':') {
                script.declarations.push(self.declaration(&word)?);
            } else if word == "instrument" {
                let span = self.span(self.at, self.at + word.len());
                return Err(Fault::new(span, "A script is no instrument with a name.")
                    .help("Leave the first statement out."));
            } else {
                self.clause(script)?;
            }
        }
    }

    fn declaration(&mut self, word: &str) -> Result<DeclarationText, Fault> {
        let start = self.at;
        while let Some(letter) = self.rest().chars().next()
            && !matches!(letter, ';' | '{')
        {
            self.at += skipped(self.rest()).unwrap_or(letter.len_utf8());
        }
        if !self.rest().starts_with(';') {
            return Err(self.missing(";", "at the end of the declaration"));
        }
        let span = self.span(start, self.at);
        self.at += 1;
        Ok(DeclarationText {
            span,
            of_call: word == "call",
            shared: word == "shared",
        })
    }

    fn missing(&self, sign: &str, place: &str) -> Fault {
        let length = self.rest().chars().next().map_or(0, char::len_utf8);
        let span = self.span(self.at, self.at + length);
        let found = self.rest().chars().next();
        let found = found.map_or("the end".to_owned(), |c| format!("`{c}`"));
        Fault::new(span, format!("`{sign}` is expected {place}, not {found}."))
    }

    fn clause(&mut self, script: &mut Script) -> Result<(), Fault> {
        let mut points = Vec::new();
        loop {
            self.skip_space();
            let start = self.at;
            let kind = self.rest().split(':').next().unwrap_or_default();
            let known = super::point::KINDS.iter().any(|(word, _)| *word == kind);
            let ends = |c: char| {
                c.is_whitespace() || matches!(c, ',' | '{' | ';' | '}') || c == '/' && known
            };
            let length = self.rest().find(ends).unwrap_or(self.rest().len());
            if length == 0 {
                let help = "A probe is written `entry:vfs_read { @reads = count() }`.";
                return Err(self.missing("a probe", "here").help(help));
            }
            let text = self.rest().get(..length).unwrap_or_default().to_owned();
            self.at += length;
            points.push(point(&text, self.span(start, start + length))?);
            self.skip_space();
            match self.rest().chars().next() {
                Some(',') => self.at += 1,
                Some('{' | '/') => break,
                _ => return Err(self.missing("{", "before the statements of the probe")),
            }
        }
        let predicate = match self.rest().starts_with('/') {
            true => Some(self.predicate()?),
            false => None,
        };
        self.skip_space();
        if !self.rest().starts_with('{') {
            return Err(self.missing("{", "before the statements of the probe"));
        }
        let body = self.body()?;
        self.place(script, points, predicate, body)
    }

    /// Assigns a clause to the kernel or to the terminal.
    fn place(
        &self,
        script: &mut Script,
        points: Vec<Point>,
        predicate: Option<Span>,
        body: Span,
    ) -> Result<(), Fault> {
        let of_terminal = |point: &Point| {
            matches!(
                point.kind,
                PointKind::Begin | PointKind::End | PointKind::Interval(_)
            )
        };
        let Some(first) = points.iter().find(|point| of_terminal(point)) else {
            script.clauses.push(Clause {
                points,
                predicate,
                body,
            });
            return Ok(());
        };
        if let Some(other) = points.iter().find(|point| !of_terminal(point)) {
            let what = "One clause is in the kernel or in the terminal, not in both.";
            return Err(Fault::new(other.span, what).help("Write two clauses."));
        }
        if let Some(predicate) = predicate {
            let what = "Blocks of the terminal have no predicate.";
            return Err(Fault::new(predicate, what).help("Leave it out."));
        }
        let text = self.text.get(body.start as usize..body.end as usize);
        let actions: Vec<TerminalAction> = actions(text.unwrap_or_default(), body.start)?;
        if actions.is_empty() {
            let what = "The block does nothing.";
            return Err(
                Fault::new(first.span, what).help("Write `print(@name)` between its braces.")
            );
        }
        for point in &points {
            match point.kind {
                PointKind::Begin => script.terminal.begin.extend(actions.clone()),
                PointKind::End => {
                    script.terminal.has_end = true;
                    script.terminal.end.extend(actions.clone());
                }
                PointKind::Interval(seconds) => {
                    script.terminal.intervals.push((seconds, actions.clone()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads `/ … /`; the slash before braces ends it.
    fn predicate(&mut self) -> Result<Span, Fault> {
        let opening = self.at;
        self.at += 1;
        let start = self.at;
        while let Some(letter) = self.rest().chars().next() {
            if letter == '/'
                && let rest = self.rest().get(1..).unwrap_or_default()
                && rest.trim_start().starts_with('{')
            {
                let span = self.span(start, self.at);
                self.at += 1;
                return Ok(span);
            }
            self.at += skipped(self.rest()).unwrap_or(letter.len_utf8());
        }
        let span = self.span(opening, opening + 1);
        Err(Fault::new(span, "This predicate is not closed.")
            .help("Write `/` after it, and the statements in braces."))
    }

    /// Reads `{ … }`.
    fn body(&mut self) -> Result<Span, Fault> {
        let opening = self.at;
        self.at += 1;
        let start = self.at;
        let mut depth = 0_u32;
        while let Some(letter) = self.rest().chars().next() {
            match letter {
                '{' => depth += 1,
                '}' if depth == 0 => {
                    let span = self.span(start, self.at);
                    self.at += 1;
                    return Ok(span);
                }
                '}' => depth -= 1,
                _ => {}
            }
            self.at += skipped(self.rest()).unwrap_or(letter.len_utf8());
        }
        let span = self.span(opening, opening + 1);
        Err(Fault::new(span, "This `{` is not closed.").help("Write `}` where it ends."))
    }
}
