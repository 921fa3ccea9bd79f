//! The recording of an execution in the cache: a counter at each block that was executed, in the course of time, and the
//! numbers of the cache.
//!
//! The cache counts dynamic blocks: from where control entered to the next branch. Those of the recording are blocks of
//! the graphs of functions, as instruments have them, so that every reader of recordings shows both alike: one was
//! executed as often as the dynamic blocks that have its first instruction.

mod objects;
mod readings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::code::FunctionId;
use gilk_engine::{Addr, HookType, InstrumentId, Session, Span};
use gilk_instruments::Library;
use gilk_samples::metadata::{Delivers, FunctionInfo, InstrumentInfo, Metadata};
use gilk_samples::recording::{Summary, Writer};
use gilk_samples::totals::Totals;

use self::objects::{CodeObjects, ObjectId};
use self::readings::CountedBlock;
use super::progress::ExecutionBegin;
use crate::process::code_lines::CodeLines;
use crate::process::names::ProcessNames;
use crate::process::subject;
use crate::{Error, Result};

pub use self::objects::ReadImages;
pub(super) use self::readings::CountedSoFar;

/// The instrument of the library that counts the executions of a block.
const COUNTER: &str = "counter";
/// Shortest length of the session of a recording, in seconds.
const SHORTEST: f64 = 1e-6;

/// A recording that was written.
#[derive(Debug)]
pub struct CacheRecording {
    /// The file.
    pub summary: Summary,
    /// Executed blocks.
    pub blocks: usize,
    /// Functions with executed blocks; a block without a function is one of its own.
    pub functions: usize,
    /// Reasons why the functions of objects are not known, with their names.
    pub unread: Vec<String>,
    /// Blocks that recordings have no numbers for.
    pub left_out: usize,
}

/// Writes recordings of one execution; the numbers of functions and counters are the same in all.
pub(super) struct CacheRecorder {
    pid: u32,
    pub(super) begin: ExecutionBegin,
    objects: CodeObjects,
    /// Dynamic blocks whose functions were looked for.
    placed: BTreeSet<Span>,
    /// Graphs of functions by their numbers in the recording; none if the function has no blocks.
    numbers: BTreeMap<(ObjectId, FunctionId), Option<u32>>,
    graphs: Vec<(u32, Cfg)>,
    functions: Vec<FunctionInfo>,
    /// Functions and blocks of graphs that have counters.
    counted: BTreeSet<(u32, BlockIndex)>,
    /// Counters with their labels, by their numbers.
    labels: Vec<String>,
    counters: Vec<(u64, CountedBlock)>,
    left_out: usize,
}

impl CacheRecorder {
    /// A recorder of an execution of a process.
    pub(super) fn new(pid: u32, begin: ExecutionBegin) -> Self {
        Self {
            pid,
            begin,
            objects: CodeObjects::new(pid, begin.program),
            placed: BTreeSet::new(),
            numbers: BTreeMap::new(),
            graphs: Vec::new(),
            functions: Vec::new(),
            counted: BTreeSet::new(),
            labels: Vec::new(),
            counters: Vec::new(),
            left_out: 0,
        }
    }

    /// Has objects that other executions have read not be read again.
    pub(super) fn reuse(&mut self, images: &ReadImages) {
        self.objects.images = images.clone();
    }

    /// The time that was spent reading the objects of the process, each once.
    pub(super) fn reading(&self) -> Duration {
        self.objects.reading()
    }

    /// Writes a recording in the place of an existing one, with source lines if these are to be read.
    pub(super) fn write(
        &mut self,
        path: &Path,
        (names, lines): (&mut ProcessNames, Option<&mut CodeLines>),
        counted: &CountedSoFar<'_>,
        totals: Totals,
    ) -> Result<CacheRecording> {
        self.objects.refresh(names.mapped(self.pid));
        let executed: BTreeSet<Span> = counted.executed().collect();
        for block in executed {
            if self.placed.insert(block) && !self.is_in_graphs(block)? {
                self.add_apart(&names.known(self.pid, block.start), block);
            }
        }
        self.count_blocks(&Span::merged(counted.executed().collect()));
        let batches = counted.readings(&self.counters);
        let mut metadata = self.metadata(counted)?;
        if let Some(lines) = lines {
            for (id, block) in &self.counters {
                if let Some(line) = lines.line(names, self.pid, block.start()) {
                    metadata.lines.insert(*id, &line.file, line.line);
                }
            }
        }
        let written = Writer::create(path, &metadata).and_then(|mut writer| {
            for batch in &batches {
                writer.write(batch)?;
            }
            writer.totals(totals);
            writer.finish()
        });
        Ok(CacheRecording {
            summary: written.map_err(|source| Error::Recording { source })?,
            blocks: metadata.instruments.len(),
            functions: metadata.functions.len(),
            unread: self.objects.unread(),
            left_out: self.left_out,
        })
    }

    /// Returns whether the functions of a dynamic block have graphs, which are added.
    fn is_in_graphs(&mut self, block: Span) -> Result<bool> {
        let Some(reached) = self.objects.functions(block) else {
            return Ok(false);
        };
        let mut is_readable = true;
        for function in reached.functions {
            let key = (reached.object, function);
            let number = match self.numbers.get(&key) {
                Some(number) => *number,
                None => {
                    let number = self.add_graph(Cfg::of(&reached.image, function))?;
                    self.numbers.insert(key, number);
                    number
                }
            };
            is_readable &= number.is_some();
        }
        Ok(is_readable)
    }

    /// Adds a function, unless its graph has no blocks.
    fn add_graph(&mut self, graph: Cfg) -> Result<Option<u32>> {
        if graph.blocks.is_empty() {
            return Ok(None);
        }
        let start = graph.span.start;
        let offset = |at: Addr| {
            u32::try_from(start.to(at)).map_err(|_| Error::Plan {
                reason: format!("the block at {at} is outside of {}", graph.name),
            })
        };
        let blocks = graph.blocks.iter();
        let blocks = blocks.map(|block| Ok((offset(block.span.start)?, offset(block.span.end)?)));
        let edges = graph.edges.iter();
        let major = self.next_major();
        self.functions.push(FunctionInfo {
            major,
            name: graph.name.clone(),
            address: start.0,
            blocks: blocks.collect::<Result<_>>()?,
            edges: edges.map(|edge| (edge.from.0, edge.to.0)).collect(),
        });
        self.graphs.push((major, graph));
        Ok(Some(major))
    }

    /// Adds a block without a function as a function of its own.
    fn add_apart(&mut self, name: &str, block: Span) {
        let major = self.next_major();
        self.functions.push(FunctionInfo {
            major,
            name: name.to_owned(),
            address: block.start.0,
            blocks: vec![(0, u32::try_from(block.len()).unwrap_or(u32::MAX))],
            edges: Vec::new(),
        });
        self.count(major, name, 0, CountedBlock::Apart(block));
    }

    fn next_major(&self) -> u32 {
        u32::try_from(self.functions.len()).unwrap_or(u32::MAX)
    }

    /// Adds counters of blocks that were executed first since the last recording, by all executed spans.
    fn count_blocks(&mut self, executed: &[Span]) {
        let is_executed = |at: Addr| {
            let after = executed.partition_point(|span| span.start <= at);
            let last = after.checked_sub(1).and_then(|last| executed.get(last));
            last.is_some_and(|span| span.contains(at))
        };
        let graphs = std::mem::take(&mut self.graphs);
        for (major, graph) in &graphs {
            for block in &graph.blocks {
                let start = block.first_executed();
                if is_executed(start) && self.counted.insert((*major, block.index)) {
                    let counted = CountedBlock::OfGraph(start);
                    self.count(*major, &graph.name, block.index.0, counted);
                }
            }
        }
        self.graphs = graphs;
    }

    fn count(&mut self, major: u32, function: &str, block: u32, counted: CountedBlock) {
        let Some(id) = InstrumentId::new(major, HookType::Pre, block, 0) else {
            self.left_out += 1;
            return;
        };
        let label = format!("{COUNTER} {} {function} block {block}", HookType::Pre);
        self.labels.push(label);
        self.counters.push((id.pack(), counted));
    }

    fn metadata(&self, counted: &CountedSoFar<'_>) -> Result<Metadata> {
        let clock = self.begin.clock();
        let seconds = clock.seconds(counted.ticks.1).max(SHORTEST);
        let library = Library::builtin().map_err(gilk_engine::Error::from)?;
        let counter = library.get(COUNTER).map_err(gilk_engine::Error::from)?;
        let instruments = self.counters.iter().zip(&self.labels);
        let instruments = instruments.map(|((id, _), label)| InstrumentInfo {
            id: *id,
            label: label.clone(),
            instrument: counter.name.clone(),
            meaning: counter.meaning,
            unit: counter.unit.clone(),
            launch: 0.0,
            splash: seconds,
            placed: None,
            delivers: Delivers::Samples,
        });
        let name = match self.objects.program() {
            Some(program) => program.to_owned(),
            None => format!("process {}", self.pid),
        };
        // A session without instruments of its own.
        let session = Session {
            name,
            duration: seconds,
            ..Session::empty()
        };
        Ok(Metadata {
            session: session.to_ron()?,
            machine: subject::host()?,
            kernel: format!("{} of process {}", session.name, self.pid),
            cpus: subject::cpus()?,
            clock,
            functions: self.functions.clone(),
            instruments: instruments.collect(),
            ..Metadata::default()
        })
    }
}
