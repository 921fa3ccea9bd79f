//! From attach points to hooks: the code of one kernel's image that a script names.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use gilk_engine::cfg::{BlockEnd, BlockIndex, Cfg, EdgeKind};
use gilk_engine::code::{Function, FunctionId, Origin, StaticProbe};
use gilk_engine::{Addr, HookType, Image};
use gilk_instruments::program::Span;
use gilk_instruments::{Fault, Faults, nearest};
use gilk_samples::chart::scale;

use super::parse::Script;
use super::pattern::{is_pattern, matches};
use super::point::{BlockEvent, Blocks, FunctionEvent, Point, PointKind, StaticPattern};
use super::query::{Absent, AtBlock, Filter, Query, ScriptHooks};
use crate::sources::SourceLine;
use crate::tracepoint::{self, Tracepoint};

/// Finds the source line of an address.
pub type Lines<'l> = dyn Fn(Addr) -> Option<SourceLine> + 'l;

/// Reason why a name of a list is left out.
pub const NOT_HERE: &str = "not in this kernel";

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
        image,
        lines,
        graphs: HashMap::new(),
        hooks: ScriptHooks::default(),
    };
    let mut faults = Vec::new();
    for (index, clause) in script.clauses.iter().enumerate() {
        // Of a list, code that only other kernels have is left out, if this one has the rest.
        let missing = |point: &&Point| resolver.is_missing(point);
        let (missing, present): (Vec<_>, Vec<_>) = clause.points.iter().partition(missing);
        let points = match present.is_empty() {
            true => missing,
            false => {
                resolver
                    .hooks
                    .absent
                    .extend(missing.iter().filter_map(|point| {
                        let (function, reason) = match &point.kind {
                            PointKind::Static(pattern) => {
                                (pattern.to_string(), "no object that is read has it")
                            }
                            kind => (kind.pattern()?.to_owned(), NOT_HERE),
                        };
                        Some(Absent {
                            function,
                            reason: reason.to_owned(),
                        })
                    }));
                present
            }
        };
        for point in points {
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
            let help = "Count it in a probe: `entry:vfs_read { @calls = count() }`.";
            faults.push(Fault::new(script.in_terminal(name), what).help(help));
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
    match resolver.hooks.query(script, image, filter) {
        Ok(query) => Ok(query),
        Err(faults) => failed(faults),
    }
}

struct Resolver<'a> {
    image: &'a Image,
    lines: Option<&'a Lines<'a>>,
    graphs: HashMap<FunctionId, Arc<Cfg>>,
    hooks: ScriptHooks,
}

impl<'a> Resolver<'a> {
    fn graph(&mut self, function: FunctionId) -> Arc<Cfg> {
        let image = self.image;
        let graph = self.graphs.entry(function);
        Arc::clone(graph.or_insert_with(|| Arc::new(Cfg::of(image, function))))
    }

    /// Returns whether this kernel has no code of the name of a point.
    fn is_missing(&self, point: &Point) -> bool {
        if let PointKind::Static(pattern) = &point.kind {
            return self.probes(pattern).next().is_none();
        }
        let Some(pattern) = point.kind.pattern() else {
            return false;
        };
        let pattern = match &point.kind {
            PointKind::Tracepoint(_) => &tracepoint::function(pattern),
            _ => pattern,
        };
        if !is_pattern(pattern) {
            let found = self.image.function_named(pattern);
            return matches!(found, Err(gilk_engine::Error::NoFunction { .. }));
        }
        let mut functions = self.image.functions().iter();
        !functions.any(|function| matches(pattern, &function.name))
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
        let matching = functions.filter(|function| {
            matches(pattern, &function.name) && (!function.is_part() || pattern.contains('.'))
        });
        let matching: Vec<&Function> = matching.collect();
        if matching.is_empty() {
            let shorter = pattern.trim_matches('*').trim_end_matches(['_', '?']);
            let what = format!("No function matches `{pattern}`.");
            return Err(Fault::new(span, what).help(format!(
                "List functions with `ilk functions {}`.",
                shorter.get(..shorter.len().min(4)).unwrap_or_default()
            )));
        }
        Ok(matching)
    }

    fn point(&mut self, clause: usize, point: &Point) -> Result<(), Fault> {
        let span = point.span;
        match &point.kind {
            PointKind::Function(event, pattern) => {
                for function in self.matching(pattern, span)? {
                    self.at_function(clause, function.id, *event);
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
            PointKind::Tracepoint(pattern) => self.tracepoint((clause, span), pattern)?,
            PointKind::Static(pattern) => self.static_probes((clause, span), pattern)?,
            PointKind::Begin | PointKind::End | PointKind::Interval(_) => {
                debug_assert!(false, "blocks of the terminal are no clauses");
            }
        }
        Ok(())
    }

    fn at_function(&mut self, clause: usize, function: FunctionId, event: FunctionEvent) {
        let entry = self.hooks.functions.entry(function).or_default();
        if !entry.contains(&(clause, Some(event))) {
            entry.push((clause, Some(event)));
        }
    }

    /// Selects the functions that the probes of tracepoints are called from.
    fn tracepoint(&mut self, (clause, span): (usize, Span), pattern: &str) -> Result<(), Fault> {
        let functions = self.image.functions();
        let known = functions.iter().filter_map(|function| {
            let of = tracepoint::of_function(&function.name)?;
            Some((function, of))
        });
        let (own, of_modules): (Vec<_>, Vec<_>) = known
            .filter(|(_, of)| matches(pattern, of.name))
            .partition(|(_, of)| of.module.is_none());
        if own.is_empty() {
            if let Some((_, Tracepoint { name, module })) = of_modules.first() {
                let module = module.unwrap_or_default();
                let what = format!(
                    "The tracepoint {name} is the module {module}'s, and only those of the kernel itself \
                     can be switched on."
                );
                return Err(Fault::new(span, what).help(format!(
                    "Write `entry:{module}:` and the function that has it."
                )));
            }
            let all = functions.iter().filter_map(|function| {
                let of = tracepoint::of_function(&function.name)?;
                Some(of.name)
            });
            let what = match is_pattern(pattern) {
                true => format!("No tracepoint of this kernel matches `{pattern}`."),
                false => format!("This kernel has no tracepoint {pattern}."),
            };
            let fault = Fault::new(span, what);
            return Err(match nearest(pattern, all) {
                Some(near) => fault.help(format!("Write `tracepoint:{near}`.")),
                None => fault.help("List them with `ilk functions __traceiter_`."),
            });
        }
        for (function, _) in own {
            self.at_function(clause, function.id, FunctionEvent::Entry);
        }
        Ok(())
    }

    /// Returns the static probes that a pattern names.
    fn probes(&self, pattern: &StaticPattern) -> impl Iterator<Item = &'a StaticProbe> {
        let image = self.image;
        image.probes().iter().filter(move |probe| {
            let of_object = pattern.object().is_none_or(|object| {
                let library = image.module_at(probe.at);
                library.is_some_and(|library| matches(object, library))
            });
            of_object && pattern.has(&probe.provider, &probe.name)
        })
    }

    /// Selects the blocks that begin with the nops of static probes.
    fn static_probes(
        &mut self,
        (clause, span): (usize, Span),
        pattern: &StaticPattern,
    ) -> Result<(), Fault> {
        if self.image.origin() == Origin::Kernel {
            let what = format!("`{pattern}` is a probe of a program, not of the kernel.");
            return Err(Fault::new(span, what).help(format!(
                "Write `ilk process -p PID -e '{pattern} {{ … }}'`."
            )));
        }
        let probes: Vec<&StaticProbe> = self.probes(pattern).collect();
        if probes.is_empty() {
            let what = format!(
                "No object that is read has a static probe {}:{}.",
                pattern.provider, pattern.name
            );
            let titles: Vec<String> = self.image.probes().iter().map(StaticProbe::title).collect();
            let wanted = format!("{}:{}", pattern.provider, pattern.name);
            let fault = Fault::new(span, what);
            return Err(match nearest(&wanted, titles.iter().map(String::as_str)) {
                Some(near) => fault.help(format!("Write `usdt:{near}`.")),
                None if titles.is_empty() => fault.help("They have no static probes at all."),
                None => fault.help("List them with `ilk functions --probes --image FILE`."),
            });
        }
        for probe in probes {
            let at = probe.at;
            let image = self.image;
            let function = image.function_at(at);
            let graph = function.map(|function| self.graph(function.id));
            let mut leave_out = |reason: &str| {
                self.hooks.absent.push(Absent {
                    function: format!("usdt:{} at {at}", probe.title()),
                    reason: reason.to_owned(),
                });
            };
            let Some((function, graph)) = function.zip(graph) else {
                leave_out("in no function");
                continue;
            };
            let block = graph.block_at(at).filter(|block| block.span.start == at);
            match block {
                Some(block) => self.at_probe(clause, function.id, (block.index.0, probe)),
                None => leave_out(&match &graph.refusal {
                    Some(refusal) => refusal.rule.to_string(),
                    None => "no block begins there".to_owned(),
                }),
            }
        }
        Ok(())
    }

    fn at_probe(
        &mut self,
        clause: usize,
        function: FunctionId,
        (block, probe): (u32, &StaticProbe),
    ) {
        let mut blocks = self.hooks.blocks.iter();
        let is_known = blocks.any(|one| {
            one.arguments.is_some()
                && (one.clause, one.function, one.block) == (clause, function, block)
        });
        if !is_known {
            self.hooks.blocks.push(AtBlock {
                clause,
                function,
                block,
                hook: HookType::Pre,
                arguments: Some(probe.arguments.clone()),
            });
        }
    }

    fn at_block(&mut self, clause: usize, function: FunctionId, block: u32, hook: HookType) {
        let known = self.hooks.blocks.iter().any(|one| {
            (one.clause, one.function, one.block, one.hook) == (clause, function, block, hook)
        });
        if !known {
            self.hooks.blocks.push(AtBlock {
                clause,
                function,
                block,
                hook,
                arguments: None,
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
                self.hooks.absent.push(Absent {
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
            Blocks::One(number) => self.hooks.absent.push(Absent {
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
            let targets = targets.collect::<Vec<_>>();
            let what = format!(
                "{} has no edge from block {from} to block {to}.",
                function.name
            );
            return Err(Fault::new(span, what).help(match targets.as_slice() {
                [] => format!("Block {from} leaves the function."),
                [target] => format!("The edge of block {from} enters block {target}."),
                targets => format!("Edges of block {from} enter blocks {}.", targets.join(", ")),
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
                "Source lines need the debug information of {}, which is not installed.",
                self.image.title()
            );
            let help = match self.image.origin() {
                Origin::Kernel => {
                    "Install the kernel's debug package (linux-image-…-dbg), name its vmlinux with --debug, or name a function and a block: `block:vfs_read:2`."
                }
                Origin::Object => {
                    "Compile it with -g, install its debug package (…-dbgsym), or name a function and a block: `block:parse:2`."
                }
            };
            return Err(Fault::new(span, what).help(help));
        };
        let is_in =
            |source: &SourceLine| source.file == file || source.file.ends_with(&format!("/{file}"));
        let image = self.image;
        let functions = image.functions().iter();
        let functions: Vec<&Function> = functions
            .filter(|function| lines(function.span.start).is_some_and(|source| is_in(&source)))
            .collect();
        if functions.is_empty() {
            let what = format!("No function of {} is in {file}.", image.title());
            return Err(Fault::new(span, what)
                .help("Write the path in the source's tree: `fs/read_write.c:450`."));
        }
        let mut is_any = false;
        // The nearest lines that have instructions.
        let (mut below, mut above): (Option<u32>, Option<u32>) = (None, None);
        for function in functions {
            let graph = self.graph(function.id);
            let mut first = None;
            for block in graph.blocks.iter() {
                for instruction in block.instructions.iter() {
                    let source = lines(Addr(instruction.ip())).filter(is_in);
                    match source.map(|source| (source.line.cmp(&line), source.line)) {
                        Some((Ordering::Equal, _)) => first = first.or(Some(block.index.0)),
                        Some((Ordering::Less, near)) => below = below.max(Some(near)),
                        Some((Ordering::Greater, near)) => {
                            above = Some(above.map_or(near, |above| above.min(near)));
                        }
                        None => {}
                    }
                }
            }
            if let Some(block) = first {
                is_any = true;
                self.at_block(clause, function.id, block, HookType::Pre);
            }
        }
        if is_any {
            return Ok(());
        }
        let what = format!("No instruction is of line {line} of {file}.");
        let near: Vec<String> = [below, above]
            .into_iter()
            .flatten()
            .map(|line| format!("`{file}:{line}`"))
            .collect();
        Err(Fault::new(span, what).help(format!("Write {}.", near.join(" or "))))
    }
}

fn no_block(graph: &Cfg, number: u32, span: Span) -> Fault {
    let name = &graph.name;
    let what = format!(
        "{name} has {}, and no block {number}.",
        scale::counted(graph.blocks.len() as u64, "block")
    );
    Fault::new(span, what).help(format!(
        "Blocks are numbered from 0; `ilk cfg {name}` shows them."
    ))
}
