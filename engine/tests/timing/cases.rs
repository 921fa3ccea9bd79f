//! The measured cases, in the order of the tables.

use std::rc::Rc;

use gilk_engine::cfg::Cfg;
use gilk_engine::placement::{Style, options};
use gilk_engine::plan::Plan;
use gilk_engine::session::Placement;
use gilk_engine::{HookType, Image, Session};
use gilk_instruments::program::Table;
use iced_x86::{Code as Op, Decoder, DecoderOptions};

use super::rivals::Rival;
use super::small::{Tables, parts};
use super::target::{Changes, NAME, PROCESS, Taken, Target};
use super::trees::{COLD_LEAVES, LEAF, Leaf, Tree};
use super::tried::Tried;
use super::unwinder::{Stack, Stacks, Unwinder};

/// An instrument in a tree.
pub(crate) struct Case {
    /// Heading of the table that it belongs to.
    pub(crate) group: &'static str,
    pub(crate) name: String,
    pub(crate) tree: Tree,
    pub(crate) effect: Effect,
    /// Hits that a count of each counter stands for, in their order, if not one each.
    weights: &'static [u64],
    /// The amounts that hits add to the sum of counters in turns, if not `effect.counts` each.
    turns: Vec<u64>,
    /// Frames of the stacks that it reads.
    depth: usize,
    /// True if the instrument reads words of the running thread.
    reads_thread: bool,
    way: Way,
}

/// Sums of counters, wrapping, and samples of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) counts: u64,
    pub(crate) samples: u64,
}

const COUNT: Effect = Effect {
    counts: 1,
    samples: 0,
};
const SAMPLE: Effect = Effect {
    counts: 0,
    samples: 1,
};
const NOTHING: Effect = Effect {
    counts: 0,
    samples: 0,
};

enum Way {
    /// A session, whose first patch is so many bytes after a boundary of cache lines.
    Session(Box<Session>, u64),
    /// As the session's, but by a jump over block 1 of the leaf, so that the patch executes its call: the planner
    /// avoids that where it can.
    Displaced(Box<Session>),
    Rival(Rival),
}

/// Hits of a run that checks what an instrument leaves.
const CHECK_HITS: u64 = 4800;
const CHECK_SEED: u64 = 0x1234_5678_9abc_def1;

/// A case in memory, ready to run.
pub(crate) struct Ready {
    pub(crate) changes: Changes,
    /// Instructions of the patches' usual ways, beyond the copied ones: of a case with one patch, those of a hit.
    pub(crate) instructions: Option<u32>,
    /// Calls in patches that push their return address.
    pub(crate) moved_calls: usize,
}

impl Case {
    fn new(group: &'static str, name: &str, tree: Tree, way: Way, effect: Effect) -> Self {
        Self {
            group,
            name: name.to_owned(),
            tree,
            effect,
            weights: &[],
            turns: Vec::new(),
            depth: 0,
            reads_thread: false,
            way,
        }
    }

    /// Writes the tree and what the instrument needs.
    pub(crate) fn load(&self, target: &mut Target) -> Ready {
        target.load(&self.tree);
        target.use_thread(self.reads_thread);
        if let Some(unwinder) = &mut target.unwinder {
            unwinder.forget();
        }
        match &self.way {
            Way::Session(session, offset) => {
                let (plan, changes) = target.plan_at(&self.tree, session, *offset);
                // A patch that reads a stack pushes words, and calls the unwinder, whose instructions are not counted.
                let reads_stacks = self.tree.stacks.is_some();
                Ready {
                    changes,
                    instructions: (!reads_stacks).then(|| instructions(&plan)).flatten(),
                    moved_calls: if reads_stacks { 0 } else { moved_calls(&plan) },
                }
            }
            Way::Displaced(session) => {
                let (code, changes) = target.displace(&self.tree, session);
                Ready {
                    changes,
                    instructions: None,
                    moved_calls: pushes(&code),
                }
            }
            Way::Rival(rival) => Ready {
                changes: rival.changes(target, &self.tree),
                instructions: None,
                moved_calls: 0,
            },
        }
    }

    /// Checks a short run without the instrument, with it, and without it again: its results are those of the
    /// model, and the instrument leaves what the model's hits are.
    pub(crate) fn check(&self, target: &mut Target, ready: &Ready) {
        let (_, hits) = self.tree.call(CHECK_SEED, 1);
        let calls = (CHECK_HITS / hits).clamp(3, CHECK_HITS / 8);
        let (result, hits) = self.tree.run(calls, CHECK_SEED);
        assert!(hits > 0, "{}", self.name);
        // What measured runs have left.
        target.taken(&[]);
        target.calls();
        for on in [false, true, false] {
            target.set(&ready.changes, on);
            let run = target.run(calls, CHECK_SEED);
            assert_eq!(run.result, result, "{}", self.name);
            let counted = if self.tree.counts_calls { hits } else { 0 };
            assert_eq!(target.calls(), counted, "{} {on}", self.name);
            let hits = if on { hits } else { 0 };
            let expected = Taken {
                counts: self.counts(hits),
                samples: hits * self.effect.samples,
                lost: 0,
            };
            assert_eq!(target.taken(self.weights), expected, "{} {on}", self.name);
        }
        if let (Some(stacks), Some(unwinder)) = (&self.tree.stacks, &target.unwinder) {
            for (place, stack) in (0..).zip(&stacks.stacks) {
                let seen = unwinder.seen(place);
                let expected = stack.frames.get(..self.depth).map(<[u64]>::to_vec);
                assert_eq!(seen, expected, "{}", self.name);
            }
            assert_eq!(unwinder.seen(stacks.stacks.len() as u32), None);
        }
    }
}

impl Case {
    /// Returns the sum of counters after so many hits.
    fn counts(&self, hits: u64) -> u64 {
        if self.turns.is_empty() {
            return hits.wrapping_mul(self.effect.counts);
        }
        let turns = self.turns.iter().cycle();
        let counts = (0..hits).zip(turns).map(|(_, count)| *count);
        counts.fold(0, u64::wrapping_add)
    }
}

/// Returns the instructions that the only patch of a plan adds to the original ones; one of them is the splice.
fn instructions(plan: &Plan) -> Option<u32> {
    use gilk_engine::patch::PieceKind;
    let [patch] = plan.patches.as_slice() else {
        return None;
    };
    let added = patch
        .pieces()
        .filter(|piece| piece.kind != PieceKind::Relocated);
    Some(1 + added.map(|piece| piece.executed).sum::<u32>())
}

/// Counts the return addresses that patches push.
fn moved_calls(plan: &Plan) -> usize {
    plan.patches.iter().map(|patch| pushes(&patch.code)).sum()
}

fn pushes(code: &[u8]) -> usize {
    let decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let pushes = decoder
        .into_iter()
        .filter(|one| one.code() == Op::Pushq_imm32);
    pushes.count()
}

fn placement(function: &str, block: u32, hook: HookType, instrument: &str) -> Placement {
    Placement {
        function: function.into(),
        block,
        hook,
        instrument: instrument.into(),
        launch: 0.0,
        splash: 1.0,
    }
}

fn planned(session: Session) -> Way {
    Way::Session(Box::new(session), 0)
}

fn session(placements: Vec<Placement>) -> Session {
    Session {
        placements,
        ..Session::empty()
    }
}

/// The instrument before some blocks of the leaf.
fn before(blocks: &[u32], instrument: &str) -> Session {
    let hooks = blocks.iter();
    session(
        hooks
            .map(|&block| placement(LEAF, block, HookType::Pre, instrument))
            .collect(),
    )
}

/// An instrument before every block of the leaf.
fn every_block(tree: &Tree, style: Style, instrument: &str) -> Session {
    let image = Image::from_live(&parts(&tree.functions, &Tables::default())).unwrap();
    let cfg = Cfg::of(&image, image.function_named(LEAF).unwrap().id);
    let blocks = options(&image, &cfg);
    assert!(blocks.iter().all(|block| block.pre.is_ok()));
    let blocks: Vec<u32> = blocks.iter().map(|block| block.block.0).collect();
    let mut session = before(&blocks, instrument);
    session.styles.insert(LEAF.to_owned(), style);
    session
}

fn with_source(session: Session, name: &str, probes: &str) -> Session {
    let mut session = session;
    let text = format!("instrument {name} \"Measured.\"; {probes}");
    session.sources.insert(name.to_owned(), text);
    session
}

/// Depth of most trees.
const DEPTH: u64 = 8;

/// Everything that is measured, in the order of the tables.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |group, name: &str, tree, way, effect| {
        cases.push(Case::new(group, name, tree, way, effect));
    };
    let chain = |leaf| Tree::chain(DEPTH, leaf);

    let group = "An instrument in a leaf, eight calls deep";
    let fails = with_source(
        before(&[0], "fails"),
        "fails",
        "hit / arg0 == 0x123456789ab / { sample(tsc) }",
    );
    let mut both = before(&[0], "counter");
    both.placements
        .push(placement(LEAF, 0, HookType::Pre, "timestamp"));
    let mut twice = before(&[0], "timestamp");
    twice
        .placements
        .push(placement(LEAF, 0, HookType::Pre, "argument-0"));
    let saving = Session {
        save_all: true,
        ..before(&[0], "counter")
    };
    for (name, session, effect) in [
        ("counter", before(&[0], "counter"), COUNT),
        ("counter that saves everything", saving, COUNT),
        ("predicate that fails", fails, NOTHING),
        ("histogram", before(&[0], "histogram"), COUNT),
        ("sample with time", before(&[0], "timestamp"), SAMPLE),
        ("sample with argument", before(&[0], "argument-0"), SAMPLE),
        (
            "counter and sample",
            both,
            Effect {
                counts: 1,
                samples: 1,
            },
        ),
        (
            "two samples",
            twice,
            Effect {
                counts: 0,
                samples: 2,
            },
        ),
        (
            "elapsed, from entry to return",
            before(&[0], "elapsed"),
            SAMPLE,
        ),
    ] {
        add(group, name, chain(Leaf::Plain), planned(session), effect);
    }
    for (name, leaf, instrument, effect) in [
        ("counter, flags live", Leaf::FlagsLive, "counter", COUNT),
        (
            "sample with time, flags live",
            Leaf::FlagsLive,
            "timestamp",
            SAMPLE,
        ),
        (
            "counter, nine registers live",
            Leaf::RegistersLive,
            "counter",
            COUNT,
        ),
        (
            "sample with time, nine registers live",
            Leaf::RegistersLive,
            "timestamp",
            SAMPLE,
        ),
    ] {
        add(
            group,
            name,
            chain(leaf),
            planned(before(&[1], instrument)),
            effect,
        );
    }

    let group = "Without a patch, eight calls deep";
    for (name, rival, effect) in [
        ("counter compiled in by gcc", Rival::CompiledCounter, COUNT),
        (
            "sample with time compiled in by gcc",
            Rival::CompiledSample,
            SAMPLE,
        ),
        (
            "counter that is called and saves what a callee may change",
            Rival::Called,
            COUNT,
        ),
        (
            "a system call that the kernel refuses",
            Rival::SystemCall,
            COUNT,
        ),
        ("int3 and SIGTRAP", Rival::Trap, COUNT),
    ] {
        add(group, name, chain(Leaf::Plain), Way::Rival(rival), effect);
    }

    const CALLS: [(&str, Leaf); 3] = [
        ("jump back to the call", Leaf::CallLong),
        ("call of the patch over the call", Leaf::CallFirst),
        ("a call displaced", Leaf::CallShort),
    ];
    let before_call = |leaf| {
        let session = Box::new(before(&[1], "counter"));
        match leaf {
            Leaf::CallShort => Way::Displaced(session),
            _ => Way::Session(session, 0),
        }
    };
    let group = "A counter before a call, by the depth of the tree";
    for depth in [2, 4, 8, 12] {
        for (name, leaf) in CALLS {
            let way = before_call(leaf);
            let tree = Tree::chain(depth, leaf);
            add(
                group,
                &format!("{name}, {depth} calls deep"),
                tree,
                way,
                COUNT,
            );
        }
    }

    let group = "A counter before a call that is counted, eight calls deep";
    for (name, leaf) in CALLS {
        let way = before_call(leaf);
        add(
            group,
            &format!("{name}, counted"),
            Tree::counting_calls(DEPTH, leaf),
            way,
            COUNT,
        );
    }

    let group = "A counter before blocks, eight calls deep";
    let edges = session(
        [HookType::Taken, HookType::Untaken]
            .map(|hook| placement(LEAF, 0, hook, "counter"))
            .to_vec(),
    );
    for (name, leaf, session) in [
        ("in a loop", Leaf::Loop, before(&[1], "counter")),
        (
            "both sides of an unpredictable branch",
            Leaf::Branch,
            before(&[1, 2], "counter"),
        ),
        ("both ways of an unpredictable branch", Leaf::Branch, edges),
    ] {
        add(group, name, chain(leaf), planned(session), COUNT);
    }
    for (name, leaf) in [
        ("every block of ten", Leaf::Blocks),
        ("every block of a loop of calls", Leaf::CallLoop),
        (
            "every block of a loop of calls that call",
            Leaf::DeepCallLoop,
        ),
    ] {
        for style in [Style::InPlace, Style::Whole] {
            let tree = chain(leaf);
            let way = planned(every_block(&tree, style, "counter"));
            add(group, &format!("{name}, {style}"), tree, way, COUNT);
        }
    }

    let group = "Samples in a loop of one block, sixteen passes";
    let at = |instrument| placement(LEAF, 1, HookType::Pre, instrument);
    for (name, instruments, counts) in [
        ("sample with time", &["timestamp"][..], 0),
        ("two samples", &["timestamp", "argument-0"], 0),
        (
            "four samples",
            &["timestamp", "argument-0", "argument-1", "block-trace"],
            0,
        ),
        (
            "two samples with a counter between",
            &["timestamp", "counter", "argument-0"],
            1,
        ),
    ] {
        let placements: Vec<Placement> = instruments.iter().map(|&one| at(one)).collect();
        let samples = instruments.len() as u64 - counts;
        let effect = Effect { counts, samples };
        add(
            group,
            name,
            chain(Leaf::Loop),
            planned(session(placements)),
            effect,
        );
    }

    let group = "Every block of ten, by how its counter is reached";
    let tree = || chain(Leaf::Blocks);
    for (name, instrument, save_all) in [
        ("in the patch, what is live saved", "counter", false),
        ("in the patch, all saved", "counter", true),
        ("called, what is live saved", "count-natively", false),
        ("called, all saved", "count-natively", true),
    ] {
        let session = Session {
            save_all,
            ..every_block(&tree(), Style::InPlace, instrument)
        };
        add(group, name, tree(), planned(session), COUNT);
    }

    let group = "A cold cache: 1,024 functions in turn";
    for (name, instrument, effect) in [
        ("counter", "counter", COUNT),
        ("sample with time", "timestamp", SAMPLE),
    ] {
        let placements = (0..COLD_LEAVES)
            .map(|number| placement(&format!("{LEAF}_{number}"), 0, HookType::Pre, instrument));
        let way = planned(session(placements.collect()));
        add(group, &format!("{name}, cold"), Tree::cold(), way, effect);
    }

    let group = "Tried: a sample in a function that a loop calls";
    for (name, tried) in [
        ("as it is, written by hand", Tried::Same),
        ("without the clock", Tried::NoClock),
        ("the clock read after the reservation", Tried::ClockAfter),
        ("reserved by xadd", Tried::Added),
        ("not reserved", Tried::Unreserved),
        ("three registers pushed", Tried::Pushed),
        ("three registers saved in words of the CPU", Tried::InWords),
    ] {
        let way = Way::Rival(Rival::Tried(tried));
        add(group, name, Tree::chain(1, Leaf::Plain), way, SAMPLE);
    }
    let group = "Tried: a patch, by its place in a cache line";
    for (name, instrument, effect) in [
        ("counter", "counter", COUNT),
        ("sample with time", "timestamp", SAMPLE),
    ] {
        for offset in [0, 16, 32, 48] {
            let way = Way::Session(Box::new(before(&[0], instrument)), offset);
            let name = format!("{name}, at byte {offset} of 64");
            add(group, &name, chain(Leaf::Plain), way, effect);
        }
    }
    cases.extend(keyed_counts());
    cases.extend(off_spanning_trees());
    cases
}

/// Counts by a key, which is the same at every hit.
fn keyed_counts() -> Vec<Case> {
    let group = "A count by key";
    let [first, second] = [&NAME[..8], &NAME[8..]];
    let word = |half: &[u8]| u64::from_le_bytes(half.try_into().unwrap());
    let name = [word(first), word(second)];
    let process = [u64::from(PROCESS)];
    let mut cases = Vec::new();
    for (of, leaf, block) in [
        ("eight calls deep", Leaf::Plain, 0),
        ("in a loop of one block", Leaf::Loop, 1),
    ] {
        for (by, source, key) in [
            ("process", "hit { @n[pid] = count() }", &process[..]),
            ("name of the process", "hit { @n[comm] = count() }", &name),
            (
                "process and name",
                "hit { @n[pid, comm] = count() }",
                &[process[0], name[0], name[1]],
            ),
        ] {
            let session = with_source(before(&[block], "keyed"), "keyed", source);
            let effect = Effect {
                counts: keyed(key),
                samples: 0,
            };
            let tree = Tree::chain(DEPTH, leaf);
            cases.push(Case {
                reads_thread: true,
                ..Case::new(
                    group,
                    &format!("by {by}, {of}"),
                    tree,
                    planned(session),
                    effect,
                )
            });
        }
    }
    cases
}

/// Stacks that are read in turns.
const MANY: usize = 16;

/// Counts by the stack of the kernel, with the module's own unwinder.
pub(crate) fn stacks(unwinder: &Unwinder) -> Vec<Case> {
    let group = "A count by the stack of the kernel";
    let one = Rc::new(unwinder.stacks(1));
    let many = Rc::new(unwinder.stacks(MANY));
    let mut cases = Vec::new();
    for (of, stacks, depths) in [
        ("the same stack", one, &[1, 2, 7, 8, 16, 32][..]),
        ("16 stacks in turn", many, &[8, 16, 32]),
    ] {
        for &depth in depths {
            let source = format!("hit {{ @n[kstack({depth})] = count() }}");
            let session = with_source(before(&[0], "stacks"), "stacks", &source);
            let number = |stack: &Stack| Stacks::number(&stack.frames[..depth]);
            let turns = stacks.stacks.iter().map(|stack| keyed(&[number(stack)]));
            let noun = if depth == 1 { "frame" } else { "frames" };
            let tree = Tree::on(Rc::clone(&stacks));
            cases.push(Case {
                turns: turns.collect(),
                depth,
                ..Case::new(
                    group,
                    &format!("{depth} {noun}, {of}"),
                    tree,
                    planned(session),
                    COUNT,
                )
            });
        }
    }
    cases
}

/// Returns what an entry adds to the sums of its two buckets, together.
fn keyed(key: &[u64]) -> u64 {
    let table = Table {
        keys: u32::try_from(key.len()).unwrap(),
        binned: false,
        summed: false,
        room_log2: 8,
    };
    let parts = table.parts(key, 0).into_iter();
    parts.fold(0, u64::wrapping_add).wrapping_mul(2)
}

/// Counters of the blocks off a spanning tree of the flow graph (Knuth and Stevenson, Optimal measurement points for
/// program frequency counts, 1973), of which the counts of all blocks follow: for a hit of every block.
fn off_spanning_trees() -> Vec<Case> {
    let group = "Tried: counters off a spanning tree, for a hit of every block";
    let mut cases = Vec::new();
    // Blocks 2, 4, 6 and 9 execute as often as block 0, and blocks 7 and 8 together.
    let ten: (&[u32], &[u64]) = (&[0, 1, 3, 5, 7], &[6, 1, 1, 1, 0]);
    let calls: (&[u32], &[u64]) = (&[0, 1], &[2, 1]);
    for (name, leaf, (counted, weights)) in [
        ("five of ten blocks", Leaf::Blocks, ten),
        (
            "two of three blocks of a loop of calls",
            Leaf::CallLoop,
            calls,
        ),
    ] {
        for style in [Style::InPlace, Style::Whole] {
            let mut session = before(counted, "counter");
            session.styles.insert(LEAF.to_owned(), style);
            let tree = Tree::chain(DEPTH, leaf);
            cases.push(Case {
                weights,
                ..Case::new(
                    group,
                    &format!("{name}, {style}"),
                    tree,
                    planned(session),
                    COUNT,
                )
            });
        }
    }
    cases
}
