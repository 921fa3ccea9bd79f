//! Guards of reads of memory: before a thread begins to filter the system calls of its process, the reads end
//! (`engine::filters`), since a filter may end the process for the system call of a read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gilk_engine::code::Function;
use gilk_engine::filters::FilterTest;
use gilk_engine::layout::{CounterBank, Rings, RuntimeLayout, SegmentOffset};
use gilk_engine::reads::{MemoryReader, ReadsEnd};
use gilk_engine::session::Placement;
use gilk_engine::verify::reads::{VerifiedEnds, verify_ends};
use gilk_engine::verify::verify;
use gilk_engine::{Addr, HookType, Image, Plan, Refusal, Rule, Session, Span, VerifiedPlan};
use gilk_instruments::Library;

use super::guarded::{GuardSearch, GuardedCode};
use super::library::imports;
use super::objects::{Object, file_of, program_of};
use super::record::{MOST_PER_WRITE, Written, text_of};
use super::reserved::{GUARD_WORDS, Reserved, SMALLEST_ARENA, SMALLEST_RECORD};
use super::subject::Subject;
use super::{clock, maps, refused};
use crate::script::Designations;
use crate::{Error, Result};

/// The longest wait of a thread that ends the reads for those of other threads, which are system calls, is a second
/// divided by this.
const PATIENCES_PER_S: u64 = 10;

/// The function of the C library that cancels a thread.
const CANCELS: &str = "pthread_cancel";

/// Returns whether an instrument of a plan reads memory of the process.
pub(super) fn reads_memory(plan: &Plan) -> bool {
    let mut probes = plan.instruments.iter();
    probes.any(|one| {
        let probe = one.probe.as_deref();
        probe.is_some_and(|probe| probe.homes.failed.is_some())
    })
}

/// The guards of a plan: splices at all system calls of the process that may install a filter.
pub(super) struct ReadGuards {
    pub(super) plan: VerifiedPlan,
    code: Arc<GuardedCode>,
    /// The code that ends the reads.
    pub(super) ends: VerifiedEnds,
    /// Addresses for its arenas.
    pub(super) arenas: Vec<Span>,
    /// Writes of text.
    pub(super) text: Vec<Written>,
    /// Places of threads that have passed a guard, and not yet the system call.
    pub(super) passed: Vec<Span>,
}

impl ReadGuards {
    /// Plans the guards of a process, in what was reserved for a plan that reads its memory.
    ///
    /// # Errors
    /// [`Error::Engine`] with the rule if a system call cannot be guarded; [`Error::Process`] if the process cannot be read.
    pub(super) fn of(
        subject: &Subject,
        reserved: &Reserved,
        search: &mut GuardSearch,
    ) -> Result<Self> {
        let pid = subject.pid;
        let (guarded, all) = search.search(pid, &subject.memory)?;
        refuse_cancelled(pid, &all, &guarded)?;
        let mut taken = maps::read(pid)?;
        maps::insert(&mut taken, reserved.words);
        for arena in &reserved.arenas {
            maps::insert(&mut taken, *arena);
        }
        let objects = reserved.objects.iter();
        for part in objects.flat_map(|object| &object.parts) {
            maps::insert(&mut taken, part.span());
        }
        // One of them may be the last, which has the record.
        let counters = reserved
            .layout
            .counters
            .iter()
            .map(|bank| u64::from(bank.slots));
        let record =
            SMALLEST_RECORD + (counters.sum::<u64>() + u64::from(GUARD_WORDS)) * MOST_PER_WRITE;
        let bytes = (SMALLEST_ARENA + record).next_multiple_of(maps::PAGE);
        let mut arenas = Vec::new();
        for &group in &guarded.groups {
            let span = maps::free_near(&taken, bytes, group);
            let span = span.ok_or_else(|| {
                refused(
                    pid,
                    format!("no {bytes} bytes are free near {}", group.start),
                )
            })?;
            maps::insert(&mut taken, span);
            arenas.push(span);
        }
        let layout = layout(reserved, &arenas);
        let (session, passed) = session(&guarded);
        let library = Library::builtin().map_err(gilk_engine::Error::from)?;
        let plan = gilk_engine::plan::plan(&guarded.image, &session, &library, &layout)?;
        let plan = verify(&guarded.image, plan).map_err(|violations| Error::Plan {
            reason: format!("the guards of its reads are wrong: {violations:?}"),
        })?;
        let (gate, patience) = (reserved.gate(), clock().tsc_hz / PATIENCES_PER_S);
        let ends = verify_ends(&layout, gate, ReadsEnd::all(&layout, gate, patience));
        let ends = ends.map_err(|violation| Error::Plan {
            reason: format!("the code that ends reads is wrong: {violation}"),
        })?;
        Ok(Self {
            text: text_of(plan.plan())?,
            plan,
            code: guarded,
            ends,
            arenas,
            passed,
        })
    }

    /// The image that the plan is of.
    pub(super) fn image(&self) -> &Image {
        &self.code.image
    }

    /// Refuses a plan that splices where the guards do.
    pub(super) fn refuse_overlap(&self, plan: &Plan, image: &Image) -> Result<()> {
        let guarded: BTreeSet<&str> = (self.plan.plan().sites.iter())
            .filter_map(|site| {
                Some(
                    self.image()
                        .function_at(site.displaced.start)?
                        .name
                        .as_str(),
                )
            })
            .collect();
        let near =
            |one: Span, other: Span| one.start < other.end.add(1) && other.start < one.end.add(1);
        let guards = &self.plan.plan().sites;
        let hit = plan.sites.iter().find(|site| {
            let mut guards = guards.iter();
            guards.any(|guard| near(site.displaced, guard.displaced))
        });
        match hit {
            None => Ok(()),
            Some(site) => {
                let name = image.named(site.displaced.start).unwrap_or_default();
                let guarded: Vec<&str> = guarded.into_iter().collect();
                Err(Error::Plan {
                    reason: format!(
                        "it reads memory, and so the functions that may begin to filter system calls (seccomp) have guards, \
                         next to which {name} cannot be instrumented; leave out what it reads, or {}",
                        guarded.join(", ")
                    ),
                })
            }
        }
    }
}

/// The layout of the guards, whose words are in the rows of the plan that they guard.
fn layout(reserved: &Reserved, arenas: &[Span]) -> RuntimeLayout {
    let words = reserved.guard_words();
    let mut patches = arenas.iter().map(|arena| Span {
        start: arena.start.add(MemoryReader::BYTES),
        end: arena.start.add(SMALLEST_ARENA),
    });
    let first = patches.next();
    RuntimeLayout {
        arena: first.unwrap_or_default(),
        further_arenas: patches.collect(),
        rings: Rings::none(reserved.sequences),
        counters: vec![CounterBank {
            base: SegmentOffset(words.0),
            slots: GUARD_WORDS,
        }],
        shared: vec![words.add(reserved.sequences.unregistered())],
        users: first.map(|arena| Addr(arena.start.0 - MemoryReader::BYTES)),
        ..reserved.layout.clone()
    }
}

/// Refuses guards of cancellable system calls in a process that may cancel threads: one that is cancelled within a guard
/// would wait in the call, since the handler takes it to be elsewhere.
fn refuse_cancelled(pid: u32, objects: &[Object], guarded: &GuardedCode) -> Result<()> {
    let GuardedCode { image, calls, .. } = guarded;
    let calls = calls.iter().filter(|call| call.is_cancellable);
    let calls: Vec<_> = calls.map(|call| &image[call.function]).collect();
    let Some(&first) = calls.first() else {
        return Ok(());
    };
    let program = program_of(pid)?;
    for object in objects {
        // A program that is linked statically has such calls only if it cancels threads.
        let is_own = |function: &&Function| object.has_code(function.span.start);
        let own = calls.iter().copied().find(is_own);
        let function = match own.filter(|_| object.is_program(&program)) {
            Some(own) => own,
            None if imports(&file_of(pid, object)?, CANCELS) => first,
            None => continue,
        };
        let why = format!(
            "memory, `pid` and `comm` are not read, since {} may cancel threads (`{CANCELS}`), and the C library decides by \
             the place of a thread whether its system call at {} is still to begin: a guard there would change the place",
            object.name(),
            function.name,
        );
        return Err(gilk_engine::Error::Unplanned {
            target: image.title(),
            refusal: Refusal::new(Rule::Unguarded, function.span.start, &why),
        }
        .into());
    }
    Ok(())
}

/// The session of the guards, and the places of threads that have passed one.
fn session(guarded: &GuardedCode) -> (Session, Vec<Span>) {
    let GuardedCode { image, calls, .. } = guarded;
    let designations = Designations::new(image);
    let mut session = Session::empty();
    session.duration = 1.0;
    let mut names: BTreeMap<String, Arc<str>> = BTreeMap::new();
    let mut passed = Vec::new();
    for call in calls {
        let number = names.len() + 1;
        // The code that is called for a read ends all reads instead.
        let probe = match &call.test {
            FilterTest::Condition(condition) => {
                let always = ReadsEnd::ALWAYS;
                format!("hit / {condition} / {{ @ended = sum(*(u64 *){always}) }}")
            }
            FilterTest::NumberAt(address) => {
                format!("hit {{ @ended = sum(*(u64 *)({address})) }}")
            }
        };
        let name = names.entry(probe).or_insert_with_key(|probe| {
            let name = format!("guard-{number}");
            let source = format!(
                "instrument {name} \"Ends reads of memory before system calls are filtered.\";\n\n{probe}\n"
            );
            session.sources.insert(name.clone(), source);
            Arc::from(name)
        });
        session.placements.push(Placement {
            function: designations.of(&image[call.function]),
            block: call.block.0,
            hook: HookType::Pre,
            instrument: Arc::clone(name),
            launch: 0.0,
            splash: session.duration,
        });
        passed.push(call.passed);
    }
    (session, passed)
}
