//! Counts of every block of functions by counters at some of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::circulation::Circulation;
use gilk_engine::code::FunctionId;
use gilk_engine::ids::Id;
use gilk_engine::placement::options;
use gilk_engine::session::Placement;
use gilk_engine::{Addr, HookType, Image, InstrumentId, Plan, Session};
use gilk_samples::metadata::{InstrumentInfo, Metadata, Placed};

/// The functions of which every block is counted.
#[derive(Default)]
pub(crate) struct SparingCounts {
    functions: Vec<SparingFunction>,
}

struct SparingFunction {
    start: Addr,
    name: Arc<str>,
    circulation: Circulation,
}

/// Counts that follow from those of counters.
pub(crate) struct FollowingCounts<'c> {
    functions: Vec<FollowingFunction<'c>>,
}

struct FollowingFunction<'c> {
    /// Its number in the plan.
    major: u32,
    name: &'c Arc<str>,
    circulation: &'c Circulation,
    /// Blocks without a counter whose counts follow, with their identifiers.
    blocks: Vec<(BlockIndex, u64)>,
}

impl SparingCounts {
    /// Adds a function; returns the blocks that need a counter.
    pub(crate) fn add(
        &mut self,
        image: &Image,
        (function, name): (FunctionId, Arc<str>),
    ) -> Vec<BlockIndex> {
        let cfg = Cfg::of(image, function);
        let options = options(image, &cfg);
        let can_count = |block: BlockIndex| {
            let of_block = options.get(block.index());
            of_block.is_some_and(|options| options.pre.is_ok())
        };
        let circulation = Circulation::of(&cfg, can_count);
        let counted = circulation.counted().collect();
        self.functions.push(SparingFunction {
            start: cfg.span.start,
            name,
            circulation,
        });
        counted
    }

    /// Returns the counts that follow in a plan.
    pub(crate) fn following(&self, plan: &Plan) -> FollowingCounts<'_> {
        let functions = plan.functions.iter();
        let majors: HashMap<Addr, u32> = functions
            .map(|function| (function.outline.span.start, function.major))
            .collect();
        let instruments = plan.instruments.iter();
        let counters: HashSet<u64> = instruments.map(|one| one.id.pack()).collect();
        let of_function = |function| {
            let SparingFunction {
                start,
                name,
                circulation,
            }: &SparingFunction = function;
            let major = *majors.get(start)?;
            let counter = |block| id(major, block).filter(|id| counters.contains(id));
            let known = circulation.complete(|block| counter(block).map(|_| 0));
            let blocks = known.iter().filter_map(|(block, known)| {
                let follows = known.is_some() && counter(block).is_none();
                Some((block, id(major, block)?)).filter(|_| follows)
            });
            Some(FollowingFunction {
                major,
                name,
                circulation,
                blocks: blocks.collect(),
            })
        };
        FollowingCounts {
            functions: self.functions.iter().filter_map(of_function).collect(),
        }
    }
}

/// The identifier of a counter before a block.
fn id(major: u32, block: BlockIndex) -> Option<u64> {
    InstrumentId::new(major, HookType::Pre, block.0, 0).map(InstrumentId::pack)
}

impl FollowingCounts<'_> {
    /// Returns the counts that follow, with their labels, from hits by identifier.
    pub(crate) fn counts(&self, hits: &BTreeMap<u64, u64>) -> Vec<(u64, u64, String)> {
        let mut counts = Vec::new();
        for function in &self.functions {
            let hits_of = |block| hits.get(&id(function.major, block)?).copied();
            let all = function.circulation.complete(hits_of);
            let of_blocks = function
                .blocks
                .iter()
                .filter_map(|&(block, id)| Some((id, all[block]?, label(function.name, block))));
            counts.extend(of_blocks);
        }
        counts
    }

    /// Describes them in a recording as counters, and adds their placements to its session.
    ///
    /// # Errors
    /// The session cannot be written.
    pub(crate) fn describe(
        &self,
        metadata: &mut Metadata,
        session: &Session,
    ) -> anyhow::Result<()> {
        let mut instruments = metadata.instruments.iter();
        let counter = instruments.find(|one| one.instrument == "counter");
        let Some(counter) = counter.cloned() else {
            return Ok(());
        };
        let mut session = session.clone();
        for function in &self.functions {
            for &(block, id) in &function.blocks {
                let placement = u32::try_from(session.placements.len())?;
                session.placements.push(Placement {
                    function: Arc::clone(function.name),
                    block: block.0,
                    hook: HookType::Pre,
                    instrument: "counter".into(),
                    launch: counter.launch,
                    splash: counter.splash,
                });
                metadata.instruments.push(InstrumentInfo {
                    id,
                    label: label(function.name, block),
                    placed: Some(Placed {
                        placement,
                        function: function.name.to_string(),
                        major: function.major,
                    }),
                    ..counter.clone()
                });
            }
        }
        metadata.session = session.to_ron()?;
        Ok(())
    }
}

fn label(function: &str, block: BlockIndex) -> String {
    format!("counter pre {function} block {}", block.0)
}
