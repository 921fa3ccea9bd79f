//! Comparison of executed instructions with the graphs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use gilk_engine::cfg::{Block, Cfg, EdgeKind};
use gilk_engine::code::{Decision, FunctionId};
use gilk_engine::kernel::LiveParts;
use gilk_engine::{Addr, Image, Span};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

/// The classification of an executed instruction, or of a step from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// From one instruction to the next in memory, inside a block.
    RunsOn,
    /// Into the next block, without a branch taken.
    FallsThrough,
    /// A branch or call that names its target.
    Direct,
    /// A branch or call through a register or memory, or a return used as one.
    Indirect,
    /// A jump label or static call, with either target.
    Patched,
    /// A return to the instruction after a call.
    Returns,
    /// A branch out of the kernel's text: to a module, or to generated code.
    Leaves,
    /// A branch from there into the text.
    ComesBack,
    /// Ignored: an interrupt or exception, which can occur anywhere.
    Interrupted,
    /// Ignored: the target of `iret` and `sysret`. (It is still an instruction.)
    Resumes,
    /// Ignored: the same instruction again: a string instruction's repetition, or QEMU's retry.
    Again,
    /// Ignored: text that no function symbol covers, or a function that could not be analysed.
    Unknown,
}

/// The classification of an address.
enum Place<'g> {
    Start(&'g Cfg, &'g Block),
    Inside(&'g Cfg),
    Unknown,
    Outside,
    Wrong(&'g Cfg),
}

pub(super) struct Judge<'a> {
    image: &'a Image,
    entry_text: Span,
    graphs: HashMap<FunctionId, Cfg>,
    /// Every step seen, with its frequency and classification.
    steps: HashMap<(Addr, Addr), (u64, Verdict)>,
    targets: HashSet<Addr>,
    complete: HashSet<Addr>,
    pub(super) violations: Vec<String>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(image: &'a Image, parts: &LiveParts) -> Self {
        let symbol = |wanted: &str| {
            let line = parts
                .kallsyms
                .lines()
                .find(|line| line.split_whitespace().nth(2) == Some(wanted));
            let digits = line.and_then(|line| line.split_whitespace().next());
            Addr(u64::from_str_radix(digits.expect("the symbol is there"), 16).unwrap())
        };
        Self {
            image,
            entry_text: Span {
                start: symbol("__entry_text_start"),
                end: symbol("__entry_text_end"),
            },
            graphs: HashMap::new(),
            steps: HashMap::new(),
            targets: HashSet::new(),
            complete: HashSet::new(),
            violations: Vec::new(),
        }
    }

    /// Judges instructions that executed consecutively.
    pub(super) fn window(&mut self, pcs: &[Addr]) {
        for pair in pcs.windows(2) {
            let step = (pair[0], pair[1]);
            if let Some((count, _)) = self.steps.get_mut(&step) {
                *count += 1;
                continue;
            }
            for at in pair {
                if let Some(function) = self.image.function_at(*at) {
                    let (image, id) = (self.image, function.id);
                    self.graphs.entry(id).or_insert_with(|| Cfg::of(image, id));
                }
            }
            let verdict = self.step(step.0, step.1).unwrap_or_else(|wrong| {
                self.violations
                    .push(format!("{}: {wrong}", self.described(step)));
                Verdict::Unknown
            });
            let taken = !matches!(
                verdict,
                Verdict::RunsOn | Verdict::FallsThrough | Verdict::Again
            );
            if taken && self.image.text().contains(step.1) {
                self.targets.insert(step.1);
            }
            if let Place::Start(_, block) = self.place(step.1)
                && !block.open
            {
                let start = block.span.start;
                self.complete.insert(start);
            }
            self.steps.insert(step, (1, verdict));
        }
    }

    fn described(&self, (from, to): (Addr, Addr)) -> String {
        let name = |at| {
            let (name, into) = self.image.symbol_at(at).unwrap_or(("?", 0));
            format!("{at} ({name}+{into:#x})")
        };
        let instruction = self.instruction(from);
        let code = instruction.map_or(Code::INVALID, |instruction| instruction.code());
        format!("{code:?} at {} to {}", name(from), name(to))
    }

    fn place(&self, at: Addr) -> Place<'_> {
        if !self.image.text().contains(at) {
            return Place::Outside;
        }
        let Some(cfg) = self
            .image
            .function_at(at)
            .and_then(|function| self.graphs.get(&function.id))
        else {
            return Place::Unknown;
        };
        if cfg.blocks.is_empty() {
            return Place::Unknown;
        }
        match cfg.block_at(at) {
            Some(block) if block.span.start == at => Place::Start(cfg, block),
            Some(block) if block.instructions.iter().any(|known| known.ip() == at.0) => {
                Place::Inside(cfg)
            }
            _ => Place::Wrong(cfg),
        }
    }

    /// Returns the instruction at an address, from the live bytes.
    fn instruction(&self, at: Addr) -> Option<Instruction> {
        let bytes = self.image.bytes_from(at, 15)?;
        let decoded = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
        (self.image.text().contains(at) && !decoded.is_invalid()).then_some(decoded)
    }

    /// Returns the classification of a step if the graphs permit it.
    fn step(&self, from: Addr, to: Addr) -> Result<Verdict, String> {
        let place = self.place(to);
        match place {
            Place::Wrong(cfg) => {
                return Err(format!("no instruction of {} begins there", cfg.name));
            }
            Place::Outside => return Ok(Verdict::Leaves),
            Place::Start(..) | Place::Inside(..) | Place::Unknown => {}
        }
        if from == to && !matches!(place, Place::Start(..)) {
            return Ok(Verdict::Again);
        }
        let Some(last) = self.instruction(from) else {
            // A module calls a function, or returns to its caller.
            return match place {
                Place::Unknown => Ok(Verdict::Unknown),
                Place::Start(_, block) if block.open => Ok(Verdict::ComesBack),
                _ if self.entry_text.contains(to) => Ok(Verdict::Interrupted),
                _ => self.returned(to, None).map(|_| Verdict::ComesBack),
            };
        };
        let names = last.near_branch_target() == to.0;
        if self.entry_text.contains(to) && !names && !self.entry_text.contains(from) {
            return Ok(Verdict::Interrupted);
        }
        if matches!(self.place(from), Place::Unknown) {
            return Ok(Verdict::Unknown);
        }
        let next = last.next_ip() == to.0;
        let decided = self.image.decided(from);
        let patched = decided.is_some();
        let key = decided.is_some_and(|site| matches!(site.by, Decision::StaticKey { .. }));
        let verdict = match last.flow_control() {
            _ if from == to && !names => return Ok(Verdict::Again),
            // A jump label may have been switched since the text was read.
            _ if key || patched && !next => Verdict::Patched,
            FlowControl::Next | FlowControl::ConditionalBranch if next => Verdict::FallsThrough,
            FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::Call
                if names =>
            {
                Verdict::Direct
            }
            FlowControl::IndirectBranch | FlowControl::IndirectCall => Verdict::Indirect,
            FlowControl::Return if matches!(last.code(), Code::Retnq | Code::Retnq_imm16) => {
                return self.returned(to, Some(from));
            }
            FlowControl::Return => return Ok(Verdict::Resumes),
            _ if self.entry_text.contains(to) => return Ok(Verdict::Interrupted),
            _ => return Err("this instruction does not branch there".into()),
        };
        match place {
            Place::Start(cfg, block) => {
                self.known_way(cfg, block, from)?;
                Ok(verdict)
            }
            // Assembly without a symbol is jumped to; no function falls through into it.
            Place::Unknown if verdict != Verdict::FallsThrough => Ok(Verdict::Unknown),
            Place::Unknown => Err("it falls through the end of its function".into()),
            // A static call may currently be a nop.
            _ if verdict == Verdict::FallsThrough && last.flow_control() == FlowControl::Next => {
                Ok(Verdict::RunsOn)
            }
            _ => Err("it is in the middle of a block".into()),
        }
    }

    /// Judges a return to the instruction after a call; or, from `from`, to the start of a block
    /// that may be entered from anywhere.
    fn returned(&self, to: Addr, from: Option<Addr>) -> Result<Verdict, String> {
        let before = |cfg: &Cfg| {
            let all = cfg.blocks.iter().flat_map(|block| &block.instructions);
            let call = all.filter(|known| known.next_ip() == to.0).find(|known| {
                matches!(
                    known.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                ) || self.image.decided(Addr(known.ip())).is_some()
            });
            call.map(|call| Addr(call.ip()))
        };
        match self.place(to) {
            Place::Inside(cfg) if before(cfg).is_some() => Ok(Verdict::Returns),
            Place::Unknown => Ok(Verdict::Unknown),
            Place::Start(_, block) if block.open => Ok(if from.is_some() {
                Verdict::Indirect
            } else {
                Verdict::ComesBack
            }),
            Place::Start(cfg, block) => {
                let call = before(cfg).ok_or("no call precedes that address")?;
                self.known_way(cfg, block, call)?;
                Ok(Verdict::Returns)
            }
            _ => Err("there is no call before it".into()),
        }
    }

    /// Checks that the graph has an edge from the instruction at `from` into a block.
    fn known_way(&self, cfg: &Cfg, block: &Block, from: Addr) -> Result<(), String> {
        let ways = cfg.ways_in(self.image, block.index).expect("a block of it");
        let by_edge = ways.edges.iter().any(|edge| {
            let last = cfg
                .block(edge.from)
                .and_then(|block| block.instructions.last());
            edge.kind != EdgeKind::Fixup && last.is_some_and(|last| last.ip() == from.0)
        });
        let by_branch = ways.branches.iter().any(|branch| branch.source == from);
        if by_edge || by_branch || !ways.complete {
            return Ok(());
        }
        Err(format!(
            "block {} has no such incoming edge, and no unknown one",
            block.index.0
        ))
    }

    /// Checks that enough of the kernel was executed for a meaningful result.
    pub(super) fn assert_covered(&self, instructions: u64) {
        let count = |wanted| {
            self.steps
                .values()
                .filter(|(_, verdict)| *verdict == wanted)
                .count()
        };
        // New steps become rarer, so that fewer instructions have more than their share of them.
        let share = instructions.min(1_000_000) as usize;
        let of = |of_a_million: usize| of_a_million * share / 1_000_000;
        assert!(self.targets.len() > of(5000), "{self}");
        for (verdict, least) in [
            (Verdict::Direct, 5000),
            (Verdict::FallsThrough, 3000),
            (Verdict::Returns, 1000),
            (Verdict::Indirect, 50),
            (Verdict::Interrupted, 5),
        ] {
            assert!(count(verdict) >= of(least), "{verdict:?}: {self}");
        }
        // Few steps may remain unjudged.
        assert!(count(Verdict::Unknown) * 50 < self.steps.len(), "{self}");
    }

    /// Checks that wrong steps would be detected: every step that was seen, moved one byte beyond
    /// its target.
    pub(super) fn assert_strict(&self) {
        let (mut wrong, mut passed) = (0, Vec::new());
        for (&(from, to), &(_, verdict)) in &self.steps {
            let led = matches!(
                verdict,
                Verdict::Direct | Verdict::FallsThrough | Verdict::RunsOn
            );
            // Text that the kernel patches may branch anywhere.
            if led && self.image.decided(from).is_none() {
                match self.step(from, to.add(1)) {
                    Err(_) => wrong += 1,
                    // Interrupts can occur anywhere.
                    Ok(Verdict::Interrupted | Verdict::Again) => {}
                    Ok(other) => passed.push((other, self.described((from, to)))),
                }
            }
        }
        assert!(
            wrong > 10_000 && passed.is_empty(),
            "{wrong} wrong steps were detected, but not {passed:#?}"
        );
    }
}

impl fmt::Display for Judge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<Verdict, (u64, u64)> = BTreeMap::new();
        for &(count, verdict) in self.steps.values() {
            let (distinct, all) = counts.entry(verdict).or_default();
            *distinct += 1;
            *all += count;
        }
        writeln!(
            f,
            "{} functions, {} distinct steps, {} distinct targets; {} entered blocks have only known incoming edges; {} violations",
            self.graphs.len(),
            self.steps.len(),
            self.targets.len(),
            self.complete.len(),
            self.violations.len(),
        )?;
        let unknown: BTreeSet<&str> = self
            .steps
            .iter()
            .filter(|(_, (_, verdict))| *verdict == Verdict::Unknown)
            .filter_map(|(&(from, _), _)| Some(self.image.symbol_at(from)?.0))
            .collect();
        writeln!(f, "  not known: at or from {unknown:?}")?;
        for (verdict, (distinct, all)) in counts {
            writeln!(f, "  {verdict:?}: {distinct} distinct, {all} in all")?;
        }
        Ok(())
    }
}
