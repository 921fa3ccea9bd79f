//! A process that is instrumented, with the objects that it loads and unloads meanwhile.
//!
//! Objects that the process has at the start share a plan. One that it loads later has a plan, words and rings of its
//! own, and is instrumented while the thread that loads it waits, before it executes anything of it. When it is unloaded,
//! its counts are kept, and its patches and words are removed. All loads of an object with the same instruments are
//! added up.

use std::collections::BTreeSet;
use std::time::Duration;

use gilk_engine::Plan;
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::totals::Totals;

use super::attached::Removed;
use super::ended::ends_now;
use super::forks::{ForkWatch, ForkedChildren};
use super::guarded::GuardSearch;
use super::guards::reads_memory;
use super::objects::{Object, ObjectChoice, objects, program_of};
use super::parts::{
    LaterPlan, LoadedPart, LoadedParts, MappedCounts, NextNumbers, SharedVariable, shared_variables,
};
use super::registered::Registered;
use super::removal::Cleaned;
use super::rings::SampleRings;
use super::stacks::NumberedStacks;
use super::subject::Subject;
use super::watch::{EarlyWatch, LinkerWatch};
use super::{Attached, refused};
use crate::Result;
use crate::client::totals;

/// Plans for an object that a process has loaded; `None` if it has no place for the instruments.
pub type LaterPlanner<'p, P> =
    dyn FnMut(&Subject) -> std::result::Result<Option<LaterPlan<P>>, String> + 'p;

/// Is shown an object that was loaded with instruments that none had before.
pub type LoadNews<'p, P> = dyn FnMut(&LoadedPart<P>) -> Result<()> + 'p;

/// Treatment of objects that a process loads later.
pub struct FollowedLoads<'p, P> {
    /// The objects that are instrumented.
    pub choice: ObjectChoice,
    /// Plans for each.
    pub planner: Box<LaterPlanner<'p, P>>,
    /// Is shown each that is instrumented.
    pub news: Box<LoadNews<'p, P>>,
}

/// The words of all instruments up to now.
pub(super) struct WordsSoFar {
    /// Values of the objects from the start, by key.
    start: Vec<(u64, u64)>,
    /// Values of those that were loaded later, and are mapped.
    mapped: Vec<MappedCounts>,
}

/// The end of a process that was followed.
#[derive(Debug)]
pub struct FollowedEnd<P> {
    /// The removal, with the counts of the objects that the process had at the start.
    pub removed: Removed,
    /// The objects that were loaded later, in the order of their first loads.
    pub parts: Vec<LoadedPart<P>>,
    /// Objects that could not be instrumented, with the reasons; each once.
    pub notes: BTreeSet<String>,
    /// Its forked children, if they were to be clean.
    pub children: Option<ForkedChildren>,
}

/// An instrumented process.
pub struct FollowedProcess<'p, P> {
    /// Removed first: no thread waits then.
    watch: Option<LinkerWatch>,
    live: Vec<LiveObject>,
    /// Patches of unloaded objects to which the stack of a thread points: the one that unloads, say, which waits for this
    /// program. Nothing enters them any more.
    left_patches: Vec<Attached>,
    attached: Attached,
    /// Removed last, so that no child counts that waits.
    forks: Option<ForkWatch>,
    children: Option<ForkedChildren>,
    pid: u32,
    /// The registration of the threads, and what is done about objects that are loaded later.
    later: Option<(Registered, FollowedLoads<'p, P>)>,
    /// Chosen objects that the process has mapped.
    mapped: Vec<Object>,
    parts: LoadedParts<P>,
    /// Numbers of the files that forked children may have mapped.
    files: BTreeSet<u64>,
    /// Rings of objects that were unloaded, and the number of their first function.
    left: Vec<(SampleRings, u32)>,
    /// Stacks of unloaded objects, not reported yet.
    left_stacks: KeptStacks,
    cleaned: Cleaned,
    unwatched: Option<String>,
    notes: BTreeSet<String>,
    /// Variables that the instruments of the objects from the start share.
    shared: Vec<SharedVariable>,
    /// Search for guards of the plans of later objects.
    guard_search: GuardSearch,
}

/// An object that was loaded later, and is mapped.
struct LiveObject {
    object: Object,
    /// Index of its part.
    part: usize,
    attached: Attached,
    rings: Option<SampleRings>,
}

impl<'p, P> FollowedProcess<'p, P> {
    /// An instrumented process whose later objects are left alone.
    #[must_use]
    pub fn alone(attached: Attached) -> Self {
        Self {
            watch: None,
            live: Vec::new(),
            left_patches: Vec::new(),
            pid: attached.pid(),
            attached,
            forks: None,
            children: None,
            later: None,
            mapped: Vec::new(),
            parts: LoadedParts::default(),
            files: BTreeSet::new(),
            left: Vec::new(),
            left_stacks: KeptStacks::default(),
            cleaned: Cleaned::default(),
            unwatched: None,
            notes: BTreeSet::new(),
            shared: Vec::new(),
            guard_search: GuardSearch::default(),
        }
    }

    /// Follows the objects that an instrumented process loads and unloads, as far as they are chosen. A process whose
    /// dynamic linker cannot be watched is [not followed](Self::not_followed).
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the process cannot be read any more; everything is removed then.
    pub fn follow(
        attached: Attached,
        watch: EarlyWatch,
        (subject, plan): (&Subject, &Plan),
        later: FollowedLoads<'p, P>,
    ) -> Result<Self> {
        let mut followed = Self::alone(attached);
        match watch.watch(followed.pid) {
            Ok(watch) => followed.watch = Some(watch),
            Err(error) => {
                followed.unwatched = Some(error.to_string());
                return Ok(followed);
            }
        }
        followed.later = Some((subject.registered, later));
        followed.mapped.clone_from(&subject.objects);
        followed.shared = shared_variables(plan);
        followed.parts = LoadedParts::after(NextNumbers::after(plan));
        // Those that were loaded between the reading and the watch.
        followed.update()?;
        Ok(followed)
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Has the forked children of the process met until its end.
    #[must_use]
    pub fn with_forks(mut self, forks: ForkWatch) -> Self {
        self.forks = Some(forks);
        self
    }

    /// Returns whether objects that the process loads later are instrumented.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.watch.is_some()
    }

    /// The reason why objects that the process loads later are not seen, although that was requested.
    #[must_use]
    pub fn not_followed(&self) -> Option<&str> {
        self.unwatched.as_deref()
    }

    /// Returns whether the process has ended, or executed another program.
    pub(super) fn has_ended(&self) -> bool {
        self.attached.has_ended()
    }

    /// Takes the reader of the samples of the objects that the process had at the start; once.
    pub(super) fn take_rings(&mut self) -> Option<SampleRings> {
        self.attached.take_rings()
    }

    /// The readers of the samples of objects that were loaded later, with the number of the first function of each in
    /// recorded identifiers.
    pub(super) fn later_rings(&mut self) -> impl Iterator<Item = (&mut SampleRings, u32)> {
        let parts = &self.parts;
        let live = self.live.iter_mut().filter_map(|live| {
            let rings = live.rings.as_mut()?;
            Some((rings, parts.first_major(live.part)))
        });
        let left = self.left.iter_mut().map(|(rings, major)| (rings, *major));
        live.chain(left)
    }

    /// Forgets the rings of unloaded objects, which were read.
    pub(super) fn forget_rings(&mut self) {
        self.left.clear();
    }

    /// Gives up samples that hold up one of the rings: `rings`, those of the objects that the process had at the start, or
    /// those of later ones.
    pub(super) fn give_up(&mut self, rings: Option<&mut SampleRings>) {
        if let Some(rings) = rings {
            self.attached.give_up(rings);
        }
        for live in &mut self.live {
            if let Some(rings) = &mut live.rings {
                live.attached.give_up(rings);
            }
        }
    }

    /// The plans of objects that were loaded later, each with the number of its first function in recorded identifiers.
    pub(super) fn later_plans(&self) -> impl Iterator<Item = (&Plan, u32)> {
        self.parts.plans()
    }

    /// Waits for some time, or until the objects have changed, and instruments those that were loaded.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the counts of an object that is unloaded cannot be read.
    pub(super) fn wait(&mut self, longest: Duration) -> Result<()> {
        let Some(watch) = &self.watch else {
            std::thread::sleep(longest);
            return Ok(());
        };
        let Some(request) = watch.request(longest) else {
            return Ok(());
        };
        let updated = self.update();
        if let Some(watch) = &self.watch
            && !watch.answer(request)
        {
            let why = "a thread that loaded an object has waited too long; hits of objects since then may be missing";
            self.notes.insert(why.to_owned());
        }
        updated
    }

    /// Compares the objects with those that were mapped.
    fn update(&mut self) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        let (Ok(now), Ok(program)) = (objects(self.pid), program_of(self.pid)) else {
            // It is about to end.
            return Ok(());
        };
        let is_known = |list: &[Object], object: &Object| list.iter().any(|one| one.is(object));
        let (mapped, gone): (Vec<Object>, _) = std::mem::take(&mut self.mapped)
            .into_iter()
            .partition(|object| is_known(&now, object));
        self.mapped = mapped;
        self.stacks().try_for_each(NumberedStacks::refresh)?;
        self.remove_left_patches()?;
        for object in &gone {
            self.unloaded(object)?;
        }
        for object in now {
            let later = self.later.as_ref();
            let is_chosen = !object.is_program(&program)
                && later.is_some_and(|(_, later)| later.choice.takes_library(object.name()));
            if is_chosen && !is_known(&self.mapped, &object) {
                if let Err(error) = self.loaded(&object)
                    && !ends_now(|| self.has_ended())
                {
                    self.notes.insert(format!("{}: {error}", object.path));
                }
                self.mapped.push(object);
            }
        }
        Ok(())
    }

    /// Instruments an object that was loaded.
    fn loaded(&mut self, object: &Object) -> Result<()> {
        let Some((registered, later)) = &mut self.later else {
            return Ok(());
        };
        let subject = Subject::of_new_object(self.pid, object, *registered)?;
        let planned = (later.planner)(&subject).map_err(|reason| refused(self.pid, reason))?;
        let Some(LaterPlan {
            reserved,
            plan,
            kept,
        }) = planned
        else {
            return Ok(());
        };
        let variables = shared_variables(plan.plan());
        let others = self.parts.shared_with_others(&object.path);
        let mut before = self.shared.iter().chain(&others);
        if let Some((name, _)) = before.find(|one| variables.contains(one)) {
            let why = format!(
                "its instruments share the variable @{name} with those of objects that were mapped before, and an object \
                 that is loaded later has variables of its own; begin when it is loaded"
            );
            return Err(refused(self.pid, why));
        }
        let live = self.live.iter().map(|live| &live.attached);
        let mut others = std::iter::once(&self.attached).chain(live);
        if reads_memory(plan.plan()) && others.any(Attached::reads_memory) {
            let why = "instruments that read memory are in place already, and those of an object that is loaded later \
                       would need guards of their own; begin when it is loaded";
            return Err(refused(self.pid, why));
        }
        let mut attached =
            Attached::attach_searched(&subject, reserved, &plan, &mut self.guard_search)?;
        let rings = attached.take_rings();
        let (part, is_new) = self.parts.part(object, plan, kept)?;
        self.live.push(LiveObject {
            object: object.clone(),
            part,
            attached,
            rings,
        });
        match (self.parts.get(part), &mut self.later) {
            (Some(part), Some((_, later))) if is_new => (later.news)(part),
            _ => Ok(()),
        }
    }

    /// Keeps the counts of an object that was unloaded, and removes what was mapped for it, at the next change of the objects
    /// if not now.
    fn unloaded(&mut self, object: &Object) -> Result<()> {
        self.attached.forget(object.span);
        let live = std::mem::take(&mut self.live);
        let (gone, live): (Vec<_>, _) = live.into_iter().partition(|one| one.object.is(object));
        self.live = live;
        for mut gone in gone {
            gone.attached.forget(object.span);
            let removed = gone.attached.leave_now(&mut self.cleaned);
            let attached = self.kept(gone)?;
            if !removed? {
                self.left_patches.push(attached);
            }
        }
        Ok(())
    }

    /// Removes patches of unloaded objects to which no stack points any more.
    fn remove_left_patches(&mut self) -> Result<()> {
        for mut attached in std::mem::take(&mut self.left_patches) {
            if !attached.leave_now(&mut self.cleaned)? {
                self.left_patches.push(attached);
            }
        }
        Ok(())
    }

    /// Removes what was mapped for an object, and keeps its counts.
    fn end(&mut self, mut live: LiveObject) -> Result<()> {
        let left = live.attached.leave(&mut self.cleaned);
        self.kept(live)?;
        left.map(drop)
    }

    /// Keeps the counts, samples and stacks of an object whose instruments were removed.
    fn kept(&mut self, mut live: LiveObject) -> Result<Attached> {
        let counts = live.attached.counts()?;
        self.left_stacks.add(live.attached.stacks.report()?);
        if let Some(rings) = &mut live.rings {
            rings.end();
        }
        let first_major = self.parts.first_major(live.part);
        let rings = live.rings.take();
        self.left.extend(rings.map(|rings| (rings, first_major)));
        self.parts.add_load(live.part, counts);
        self.files.insert(live.attached.file_number()?);
        Ok(live.attached)
    }

    /// Reads the words of all instruments.
    pub(super) fn words(&self) -> Result<WordsSoFar> {
        let live = self.live.iter();
        let live = live.map(|live| Ok((live.part, live.attached.counts()?)));
        Ok(WordsSoFar {
            start: self.attached.counts()?,
            mapped: live.collect::<Result<_>>()?,
        })
    }

    /// The hits up to now, by recorded identifier, and words of aggregates of the objects from the start.
    pub(super) fn counts(&self, words: &WordsSoFar) -> Vec<(u64, u64)> {
        let mut all = words.start.clone();
        all.extend(self.parts.counts(&words.mapped));
        all
    }

    /// The totals up to now; `plan` is of the objects from the start.
    pub(super) fn totals(&self, plan: &Plan, words: &WordsSoFar) -> Totals {
        let mut all = totals(plan, &words.start.iter().copied().collect());
        self.parts.append_totals(&mut all, &words.mapped);
        all
    }

    /// The stacks that its instruments number.
    pub(super) fn stacks(&mut self) -> impl Iterator<Item = &mut NumberedStacks> {
        let live = self.live.iter_mut().map(|live| &mut live.attached.stacks);
        std::iter::once(&mut self.attached.stacks).chain(live)
    }

    /// Gives away the stacks of unloaded objects.
    pub(super) fn take_left_stacks(&mut self) -> KeptStacks {
        std::mem::take(&mut self.left_stacks)
    }

    /// Removes everything from the process and its forked children. Samples of [`Self::later_rings`] may be left.
    pub(super) fn remove(&mut self) -> Result<Removed> {
        let mut cleaned = std::mem::take(&mut self.cleaned);
        let mut failed = None;
        if let Some(watch) = &mut self.watch {
            match watch.leave(&mut cleaned) {
                Ok(file) => {
                    self.files.insert(file);
                }
                Err(error) => failed = Some(error),
            }
        }
        // The rest is removed first.
        self.cleaned = cleaned;
        for mut attached in std::mem::take(&mut self.left_patches) {
            if let Err(error) = attached.leave(&mut self.cleaned) {
                failed.get_or_insert(error);
            }
        }
        for live in std::mem::take(&mut self.live) {
            if let Err(error) = self.end(live) {
                failed.get_or_insert(error);
            }
        }
        let mut cleaned = std::mem::take(&mut self.cleaned);
        self.files.insert(self.attached.leave(&mut cleaned)?);
        if let Some(forks) = &mut self.forks {
            let (file, children) = forks.leave(&mut cleaned)?;
            self.files.insert(file);
            self.children = Some(children);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        self.attached.clean_children(&self.files, cleaned)
    }

    /// Ends it after its removal and the reading of all samples.
    pub(super) fn into_end(mut self, removed: Removed) -> FollowedEnd<P> {
        FollowedEnd {
            removed,
            parts: self.parts.take(),
            notes: self.notes,
            children: self.children,
        }
    }
}
