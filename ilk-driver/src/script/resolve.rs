//! From a script to a session: attach points become placements in one kernel's image.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gilk_engine::cfg::{BlockEnd, BlockIndex, Cfg, EdgeKind};
use gilk_engine::code::{Function, FunctionId};
use gilk_engine::session::{Placement, Session};
use gilk_engine::{Addr, HookType, Image};
use gilk_instruments::program::Span;
use gilk_instruments::{Context, Fault, Faults, Source};

use super::parse::{Group, Script};
use super::point::{BlockEvent, Blocks, FunctionEvent, Point, PointKind};
use crate::sources::SourceLine;

/// Code of a kernel that a script cannot stand on, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Its name.
    pub function: String,
    /// The reason, without the function.
    pub reason: String,
}

/// The code of a placement, for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its symbol.
    pub function: String,
    /// The hook, if it is one of a block: `block 3 pre`.
    pub hook: Option<String>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.function)?;
        match &self.hook {
            Some(hook) => write!(f, " {hook}"),
            None => Ok(()),
        }
    }
}

/// A script in one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The session, which lasts as long as requested.
    pub session: Session,
    /// The place of each placement.
    pub places: Vec<Place>,
    /// Names of aggregates of instruments that only count, by instrument.
    pub counters: BTreeMap<String, String>,
    /// Functions of wildcards that are left out.
    pub absent: Vec<Absent>,
}

/// Restrictions of a script, and the length of its session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// Seconds.
    pub duration: f64,
    /// The only process whose hits count.
    pub pid: Option<u32>,
}

/// Finds the source line of an address.
pub type Lines<'l> = dyn Fn(Addr) -> Option<SourceLine> + 'l;

/// Finds the code of a script's probes. `lines` is for source lines; without it they are refused.
///
/// # Errors
/// Every fault with its line and column: names that the kernel does not have, and statements that are wrong for the
/// functions.
pub fn resolve(
    script: &Script,
    image: &Image,
    filter: Filter,
    lines: Option<&Lines<'_>>,
) -> Result<Query, Faults> {
    let mut resolver = Resolver {
        script,
        image,
        lines,
        names: names(image),
        graphs: HashMap::new(),
        functions: BTreeMap::new(),
        blocks: Vec::new(),
        absent: Vec::new(),
    };
    let mut faults = Vec::new();
    for (index, clause) in script.clauses.iter().enumerate() {
        for point in &clause.points {
            if let Err(fault) = resolver.point(index, point) {
                faults.push(fault);
            }
        }
    }
    for action in script.terminal().actions() {
        use super::terminal::TerminalAction::{Clear, Print};
        if let Print(name) | Clear(name) = action
            && !script.names(name)
        {
            let what = format!("No probe has @{name}, which the terminal prints or clears.");
            faults.push(Fault::new(Span::default(), what));
        }
    }
    let failed = |list| {
        Err(Faults {
            text: script.text.clone(),
            list,
        })
    };
    if !faults.is_empty() {
        faults.sort_by_key(|fault| fault.span.start);
        return failed(faults);
    }
    match resolver.session(filter) {
        Ok(query) => Ok(query),
        Err(faults) => failed(faults),
    }
}

/// The number of functions of each name.
fn names(image: &Image) -> HashMap<&str, u32> {
    let mut names = HashMap::new();
    for function in image.functions() {
        *names.entry(function.name.as_str()).or_insert(0) += 1;
    }
    names
}

/// Returns whether a name matches a pattern of `*` and `?`.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Position after the last star, and that of the name where it is tried next.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, n));
            }
            Some(&letter) if letter == b'?' || Some(&letter) == name.get(n) => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((after, at)) => {
                    *at += 1;
                    (p, n) = (*after, *at);
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .is_none_or(|rest| rest.iter().all(|&letter| letter == b'*'))
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// A placement of a clause at a hook of a block.
struct AtBlock {
    clause: usize,
    function: FunctionId,
    block: u32,
    hook: HookType,
}

struct Resolver<'a> {
    script: &'a Script,
    image: &'a Image,
    lines: Option<&'a Lines<'a>>,
    names: HashMap<&'a str, u32>,
    graphs: HashMap<FunctionId, Arc<Cfg>>,
    /// Clauses at functions, in the order of the script.
    functions: BTreeMap<FunctionId, Vec<(usize, Option<FunctionEvent>)>>,
    blocks: Vec<AtBlock>,
    absent: Vec<Absent>,
}

impl<'a> Resolver<'a> {
    fn graph(&mut self, function: FunctionId) -> Arc<Cfg> {
        let image = self.image;
        let graph = self.graphs.entry(function);
        Arc::clone(graph.or_insert_with(|| Arc::new(Cfg::of(image, function))))
    }

    /// Returns the functions that a pattern names.
    fn matching(&self, pattern: &str, span: Span) -> Result<Vec<&'a Function>, Fault> {
        if !is_pattern(pattern) {
            let found = self.image.function_named(pattern);
            return match found {
                Ok(function) => Ok(vec![function]),
                Err(error) => Err(Fault::new(span, error.to_string())),
            };
        }
        let functions = self.image.functions().iter();
        // Parts that the compiler split off have no calls of their own.
        let found = functions.filter(|function| {
            matches(pattern, &function.name) && (!function.is_part() || pattern.contains('.'))
        });
        let found: Vec<&Function> = found.collect();
        if found.is_empty() {
            let shorter = pattern.trim_matches('*').trim_end_matches(['_', '?']);
            let what = format!("No function matches `{pattern}`.");
            return Err(Fault::new(span, what).help(format!(
                "List functions with `ilk functions {}`.",
                shorter.get(..shorter.len().min(4)).unwrap_or_default()
            )));
        }
        Ok(found)
    }

    fn point(&mut self, clause: usize, point: &Point) -> Result<(), Fault> {
        let span = point.span;
        match &point.kind {
            PointKind::Function(event, pattern) => {
                for function in self.matching(pattern, span)? {
                    let entry = self.functions.entry(function.id).or_default();
                    if !entry.contains(&(clause, Some(*event))) {
                        entry.push((clause, Some(*event)));
                    }
                }
            }
            PointKind::Offset(event, pattern, offset) => {
                for function in self.matching(pattern, span)? {
                    self.offset((clause, span), *event, function, *offset)?;
                }
            }
            PointKind::Block(event, pattern, blocks) => {
                let all = self.matching(pattern, span)?;
                let alone = all.len() == 1;
                for function in all {
                    self.of_blocks((clause, span), *event, (function, alone), *blocks)?;
                }
            }
            PointKind::Edge(pattern, from, to) => {
                for function in self.matching(pattern, span)? {
                    self.edge((clause, span), function, (*from, *to))?;
                }
            }
            PointKind::Line(file, line) => self.line((clause, span), file, *line)?,
            PointKind::Begin | PointKind::End | PointKind::Interval(_) => {
                debug_assert!(false, "blocks of the terminal are no clauses");
            }
        }
        Ok(())
    }

    fn at_block(&mut self, clause: usize, function: FunctionId, block: u32, hook: HookType) {
        let known = self.blocks.iter().any(|one| {
            (one.clause, one.function, one.block, one.hook) == (clause, function, block, hook)
        });
        if !known {
            self.blocks.push(AtBlock {
                clause,
                function,
                block,
                hook,
            });
        }
    }

    /// Returns the graph of a function that has blocks.
    fn readable(&mut self, function: &Function, span: Span) -> Result<Arc<Cfg>, Fault> {
        let graph = self.graph(function.id);
        match (&graph.refusal, graph.blocks.is_empty()) {
            (Some(refusal), true) => Err(Fault::new(
                span,
                format!("{} has no blocks: {refusal}.", function.name),
            )),
            _ => Ok(graph),
        }
    }

    fn offset(
        &mut self,
        (clause, span): (usize, Span),
        event: BlockEvent,
        function: &Function,
        offset: u64,
    ) -> Result<(), Fault> {
        let graph = self.readable(function, span)?;
        let name = &function.name;
        let at = function.span.start.add(offset);
        let Some(block) = graph.block_at(at) else {
            let what = format!(
                "{name}+{offset:#x} is no code of {name}, which has {:#x} bytes.",
                function.span.len()
            );
            return Err(Fault::new(span, what).help(format!("See `ilk cfg {name}`.")));
        };
        let begins = function.span.start.to(block.span.start);
        let hook = match event {
            BlockEvent::Pre if block.span.start != at => {
                let what = format!(
                    "{name}+{offset:#x} is inside block {} of {name}, and hooks are before and after blocks.",
                    block.index.0
                );
                return Err(Fault::new(span, what).help(format!(
                    "Write `pre:{name}+{begins:#x}`, where the block begins."
                )));
            }
            BlockEvent::Pre => HookType::Pre,
            _ => HookType::Post,
        };
        let block = block.index.0;
        self.at_block(clause, function.id, block, hook);
        Ok(())
    }

    fn of_blocks(
        &mut self,
        (clause, span): (usize, Span),
        event: BlockEvent,
        (function, alone): (&Function, bool),
        blocks: Blocks,
    ) -> Result<(), Fault> {
        let graph = match self.readable(function, span) {
            Ok(graph) => graph,
            Err(fault) if alone => return Err(fault),
            Err(_) => {
                let refusal = self.graph(function.id).refusal.clone();
                let reason = refusal.map_or("no blocks".to_owned(), |it| it.rule.to_string());
                self.absent.push(Absent {
                    function: function.name.clone(),
                    reason,
                });
                return Ok(());
            }
        };
        let hook = match event {
            BlockEvent::Pre => HookType::Pre,
            BlockEvent::Post => HookType::Post,
            BlockEvent::Taken => HookType::Taken,
            BlockEvent::Untaken => HookType::Untaken,
        };
        let branches = matches!(event, BlockEvent::Taken | BlockEvent::Untaken);
        match blocks {
            Blocks::All => {
                for block in &graph.blocks {
                    if !branches || block.end == BlockEnd::Conditional {
                        self.at_block(clause, function.id, block.index.0, hook);
                    }
                }
            }
            Blocks::One(number) if graph.block(BlockIndex(number)).is_some() => {
                self.at_block(clause, function.id, number, hook);
            }
            Blocks::One(number) if alone => return Err(no_block(&graph, number, span)),
            Blocks::One(number) => self.absent.push(Absent {
                function: function.name.clone(),
                reason: format!("no block {number}"),
            }),
        }
        Ok(())
    }

    fn edge(
        &mut self,
        (clause, span): (usize, Span),
        function: &Function,
        (from, to): (u32, u32),
    ) -> Result<(), Fault> {
        let graph = self.readable(function, span)?;
        let Some(block) = graph.block(BlockIndex(from)) else {
            return Err(no_block(&graph, from, span));
        };
        let ways: Vec<_> = graph
            .successors(block.index)
            .filter(|edge| edge.kind != EdgeKind::Fixup)
            .collect();
        let Some(edge) = ways.iter().find(|edge| edge.to.0 == to) else {
            let targets = ways.iter().map(|edge| edge.to.0.to_string());
            let targets = targets.collect::<Vec<_>>().join(", ");
            let what = format!(
                "{} has no edge from block {from} to block {to}.",
                function.name
            );
            return Err(Fault::new(span, what).help(match targets.is_empty() {
                true => format!("Block {from} leaves the function."),
                false => format!("Edges of block {from} enter block {targets}."),
            }));
        };
        let hook = match (block.end, edge.kind) {
            (BlockEnd::Conditional, EdgeKind::Taken | EdgeKind::Jump) => HookType::Taken,
            (BlockEnd::Conditional, _) => HookType::Untaken,
            _ => HookType::Post,
        };
        self.at_block(clause, function.id, from, hook);
        Ok(())
    }

    fn line(&mut self, (clause, span): (usize, Span), file: &str, line: u32) -> Result<(), Fault> {
        let Some(lines) = self.lines else {
            let what = format!(
                "Source lines need the debug information of Linux {}, which is not installed.",
                self.image.release()
            );
            return Err(Fault::new(span, what).help(
                "Install the kernel's debug package (linux-image-…-dbg), or name a function and a block: `block:vfs_read:2`.",
            ));
        };
        let is_in =
            |found: &SourceLine| found.file == file || found.file.ends_with(&format!("/{file}"));
        let image = self.image;
        let functions = image.functions().iter();
        let functions: Vec<&Function> = functions
            .filter(|function| lines(function.span.start).is_some_and(|found| is_in(&found)))
            .collect();
        if functions.is_empty() {
            return Err(
                Fault::new(span, format!("No function of the kernel is in {file}."))
                    .help("Write the path in the kernel's tree: `fs/read_write.c:450`."),
            );
        }
        let mut found = false;
        for function in functions {
            let graph = self.graph(function.id);
            let of_line =
                |at: u64| lines(Addr(at)).is_some_and(|found| is_in(&found) && found.line == line);
            let block = graph.blocks.iter().find(|block| {
                let mut instructions = block.instructions.iter();
                instructions.any(|instruction| of_line(instruction.ip()))
            });
            if let Some(block) = block {
                found = true;
                self.at_block(clause, function.id, block.index.0, HookType::Pre);
            }
        }
        if found {
            Ok(())
        } else {
            let what = format!("No instruction is of line {line} of {file}.");
            Err(Fault::new(span, what).help("Choose a line with a statement."))
        }
    }

    /// Returns the designation of a function in sessions.
    fn designation(&self, function: &Function) -> Arc<str> {
        match self.names.get(function.name.as_str()) {
            Some(1) => Arc::from(function.name.as_str()),
            _ => Arc::from(format!("{}@{}", function.name, function.span.start)),
        }
    }

    fn session(mut self, filter: Filter) -> Result<Query, Vec<Fault>> {
        // Placements by instrument, so that each source is parsed once.
        let mut groups: BTreeMap<Group, Vec<(FunctionId, u32, HookType)>> = BTreeMap::new();
        let functions = std::mem::take(&mut self.functions);
        for (function, list) in functions {
            let placed = (function, 0, HookType::Pre);
            groups.entry(Group(list)).or_default().push(placed);
        }
        for one in std::mem::take(&mut self.blocks) {
            let group = Group(vec![(one.clause, None)]);
            let placed = (one.function, one.block, one.hook);
            groups.entry(group).or_default().push(placed);
        }
        let mut query = Query {
            session: Session {
                name: String::from("ilk -e"),
                duration: filter.duration,
                ..Session::empty()
            },
            places: Vec::new(),
            counters: BTreeMap::new(),
            absent: std::mem::take(&mut self.absent),
        };
        let mut faults = Vec::new();
        for (group, placed) in groups {
            if let Err(wrong) = self.place(&group, &placed, filter, &mut query) {
                faults.extend(wrong);
            }
        }
        faults.sort_by_key(|fault: &Fault| fault.span.start);
        faults.dedup();
        if faults.is_empty() {
            Ok(query)
        } else {
            Err(faults)
        }
    }

    /// Adds the placements of one instrument.
    fn place(
        &self,
        group: &Group,
        placed: &[(FunctionId, u32, HookType)],
        filter: Filter,
        query: &mut Query,
    ) -> Result<(), Vec<Fault>> {
        let source = Source::parse(&self.script.aligned(group)).map_err(|wrong| wrong.list)?;
        let counted = Group(group.0.iter().map(|&(clause, _)| (clause, None)).collect());
        let entries = matches!(group.0.as_slice(), [(_, None | Some(FunctionEvent::Entry))]);
        // A count of entries is one instruction at the hook before block 0.
        let counts = entries
            && filter.pid.is_none()
            && Source::parse(&self.script.aligned(&counted)).is_ok_and(|hit| hit.is_counter());
        let group = if counts { &counted } else { group };
        let name: Arc<str> = Arc::from(group.name());
        if counts && let Some(aggregate) = self.aggregate(group) {
            query.counters.insert(name.to_string(), aggregate);
        }
        let mut wrong: Option<Vec<Fault>> = None;
        let mut placements = 0;
        let mut fine: BTreeSet<FunctionId> = BTreeSet::new();
        for (index, &(id, block, hook)) in placed.iter().enumerate() {
            let Some(function) = self.image.function(id) else {
                debug_assert!(false, "a function of the image is not in it");
                continue;
            };
            let designation = self.designation(function);
            if (index == 0 || source.depends_on_function()) && fine.insert(id) {
                let context = Context {
                    types: self.image.types(),
                    function: Some(&designation),
                };
                if let Err(faults) = source.check(&context) {
                    let first = faults.list.first();
                    query.absent.push(Absent {
                        function: function.name.clone(),
                        reason: first.map_or(String::new(), |fault| fault.message.clone()),
                    });
                    wrong.get_or_insert(faults.list);
                    fine.remove(&id);
                    if !source.depends_on_function() {
                        break;
                    }
                    continue;
                }
            }
            placements += 1;
            query.session.placements.push(Placement {
                function: designation,
                block,
                hook,
                instrument: Arc::clone(&name),
                launch: 0.0,
                splash: filter.duration,
            });
            let of_function = matches!(group.0.as_slice(), [(_, Some(_)), ..])
                || counts && self.is_function(group);
            query.places.push(Place {
                function: function.name.clone(),
                hook: (!of_function).then(|| format!("block {block} {hook}")),
            });
        }
        if placements == 0
            && let Some(wrong) = wrong
        {
            return Err(wrong);
        }
        let text = self.script.source(group, filter.pid);
        query.session.sources.insert(name.to_string(), text);
        Ok(())
    }

    /// Returns whether a clause stands on functions only.
    fn is_function(&self, group: &Group) -> bool {
        let clauses = group.0.iter();
        let clauses = clauses.filter_map(|&(clause, _)| self.script.clauses.get(clause));
        clauses
            .flat_map(|clause| &clause.points)
            .all(|point| matches!(point.kind, PointKind::Function(..)))
    }

    /// Returns the name of the only aggregate of an instrument that only counts.
    fn aggregate(&self, group: &Group) -> Option<String> {
        let clause = self.script.clauses.get(group.0.first()?.0)?;
        let (_, rest) = self.script.slice(clause.body).split_once('@')?;
        let name = rest
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_');
        Some(name.collect())
    }
}

fn no_block(graph: &Cfg, number: u32, span: Span) -> Fault {
    let name = &graph.name;
    let what = format!(
        "{name} has {} blocks, and no block {number}.",
        graph.blocks.len()
    );
    Fault::new(span, what).help(format!(
        "Blocks are numbered from 0; `ilk cfg {name}` shows them."
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::matches;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("vfs_*", "vfs_read", true),
            ("vfs_*", "xvfs_read", false),
            ("*", "", true),
            ("*_read*", "vfs_readv", true),
            ("vfs_rea?", "vfs_read", true),
            ("vfs_rea?", "vfs_rea", false),
            ("a*b*c", "abbbcbc", true),
            ("a*b*c", "abbbcb", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_with_stars_put_into_it_matches(name in "[a-c_]{0,12}", at in prop::collection::vec(0..=12_usize, 0..4)) {
            let mut pattern = name.clone();
            for at in at {
                pattern.insert(at.min(pattern.len()), '*');
            }
            prop_assert!(matches(&pattern, &name));
            prop_assert_eq!(matches(&pattern, &format!("{name}x")), pattern.ends_with('*'));
        }
    }
}
