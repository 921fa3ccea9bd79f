//! The watch of a process's forks: each child waits before its first instruction until everything is removed from it
//! (`gilk_engine::forks`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use gilk_engine::forks::{ForkWait, ForkWords};
use gilk_engine::rendezvous::RendezvousWords;
use gilk_engine::verify::forks::{VerifiedForkWait, verify};
use gilk_engine::{Addr, Image, Plan, Span};

use super::attached::{Attached, ForkedAttachment};
use super::child::{ChildPlace, WaitingPlace, adopted, freed};
use super::ended::ends;
use super::objects::{Object, objects, program_of};
use super::record::{Kept, Record, Written, kept};
use super::remote::RemoteCode;
use super::removal::{self, Cleaned, everywhere, memory};
use super::stopped::{BETWEEN, traced};
use super::subject::{files_of, has_code, image_without_tables};
use super::waits::Waits;
use super::{maps, refused};
use crate::{Error, Result};

/// The longest wait for a request, after which the thread that answers sees its end.
const INTERVAL: Duration = Duration::from_millis(100);
/// Attempts to meet a child before it continues, [`BETWEEN`] apart: it has forked, and was not scheduled since.
const ATTEMPTS: usize = 200;
/// Bytes of a `syscall`, after which a thread is that forks.
const SYSCALL: u64 = 2;

/// The forked children of a process that was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkedChildren {
    /// The number of those from which everything was removed before they executed an instruction.
    pub clean: u64,
    /// Those that were given words of their own. Their hits are not among those of the process.
    pub own: BTreeSet<u32>,
    /// Processes that were not met: their hits are among those of the process.
    pub unmet: BTreeSet<u32>,
    /// The reasons why children that waited had to continue with the instruments of the process.
    pub failed: BTreeSet<String>,
    /// A child has waited too long, and none after it has.
    pub was_late: bool,
    /// Arenas that remain in children, with the reasons.
    pub remains: Vec<String>,
}

/// The splices where a process forks, and the thread that answers its children. They are removed when this is dropped, if
/// they were not before.
#[derive(Debug)]
pub struct ForkWatch {
    served: Arc<Served>,
    server: Option<JoinHandle<ForkedChildren>>,
    unwatched: BTreeSet<String>,
    removed: bool,
}

/// The fate of children that wait.
enum Fate {
    /// Everything is removed from them.
    Clean,
    /// They are given words of their own, as their parent has, and are sent.
    Own(Box<ForkedAttachment>, Sender<Attached>),
}

/// A process with children that wait.
#[derive(Debug)]
struct Served {
    waits: Waits,
    /// The number of the file of its words.
    file: u64,
    places: Vec<WaitingPlace>,
    /// Instructions of the process for system calls.
    code: RemoteCode,
    is_over: AtomicBool,
}

impl ForkWatch {
    /// Has the forked children of a process wait before their first instruction, until their fate is decided. Nothing is
    /// mapped at addresses that are `reserved`.
    ///
    /// # Errors
    /// [`Error::Process`] if no place is known where the process forks, or another tool has changed it.
    pub fn attach(pid: u32, reserved: &[Span]) -> Result<Self> {
        let memory = memory(pid)?;
        let mut maps = maps::read(pid)?;
        for span in reserved {
            maps::insert(&mut maps, *span);
        }
        let full = |what: &str| refused(pid, format!("no memory is free {what}"));
        let words = maps::free_below(&maps, maps::PAGE, 1 << 31)
            .ok_or_else(|| full("in its lower 2 GiB"))?;
        maps::insert(&mut maps, words);
        let (program, patience) = (program_of(pid)?, Waits::patience());
        let mut verified: Vec<VerifiedForkWait> = Vec::new();
        let mut arenas = Vec::new();
        let mut unwatched = BTreeSet::new();
        for object in objects(pid)? {
            if !has_code(pid, &memory, &object, ForkWait::may_fork)? {
                continue;
            }
            let is_program = object.is_program(&program);
            let found = forks_of(pid, &memory, (object.clone(), is_program), |count| {
                // One of the arenas has the record at its end.
                let bytes =
                    (count * ForkWait::MOST_BYTES).next_multiple_of(maps::PAGE) + maps::PAGE;
                let arena = maps::free_near(&maps, bytes, object.span);
                let arena = arena.ok_or_else(|| full("near where it forks"))?;
                maps::insert(&mut maps, arena);
                arenas.push(arena);
                let words = ForkWords { start: words.start };
                Ok((arena.start, words, patience))
            });
            match found {
                Ok(found) => verified.extend(found),
                Err(error) => {
                    unwatched.insert(error.to_string());
                }
            }
        }
        if verified.is_empty() {
            let cause = match unwatched.is_empty() {
                true => {
                    "its C library has none that is read, or another ilk or tool has changed it"
                        .to_owned()
                }
                false => Vec::from_iter(unwatched).join("; "),
            };
            let why = format!(
                "its forked children cannot be met, since no place is known where it forks: {cause}"
            );
            return Err(refused(pid, why));
        }
        arenas.sort_unstable_by_key(|arena| arena.start);
        let mut watch = Self::written(pid, memory, (words, arenas), &verified)?;
        watch.unwatched = unwatched;
        Ok(watch)
    }

    /// Writes the code and the splices, and starts the thread that answers.
    fn written(
        pid: u32,
        memory: std::fs::File,
        (words, arenas): (Span, Vec<Span>),
        verified: &[VerifiedForkWait],
    ) -> Result<Self> {
        let all = || verified.iter().map(VerifiedForkWait::wait);
        let text = all().map(|wait| Written {
            at: wait.at,
            original: wait.original.clone(),
            splice: wait.splice.clone(),
        });
        let requests = ForkWords { start: words.start }.requests();
        let record = Record {
            words,
            storage: 0,
            arenas,
            text: text.collect(),
            bounces: Vec::new(),
            semaphores: Vec::new(),
            open: Some(requests.at(RendezvousWords::OPEN)),
        };
        let code: Vec<(Addr, &[u8])> = all()
            .map(|wait| (wait.start, wait.code.as_slice()))
            .collect();
        let after = |wait: &ForkWait| wait.at.add(wait.original.len() as u64 + SYSCALL);
        let places = all().map(|wait| WaitingPlace {
            code: Span::new(wait.start, wait.code.len() as u64),
            waiting: wait.waiting,
            after: after(wait),
        });
        let places = places.collect();
        let remote = RemoteCode::find(pid, &memory, &maps::read(pid)?)?;
        // A thread that forks by the original instructions now may have to repeat that after it was stopped.
        let forking = all().map(|wait| Span {
            start: wait.at.add(1),
            end: after(wait).add(1),
        });
        let forking: Vec<Span> = forking.collect();
        let waits = traced(pid, || {
            Waits::spliced(pid, memory, record, (&code, &forking))
        })?;
        Ok(Self {
            served: Arc::new(Served {
                file: waits.number()?,
                waits,
                places,
                code: remote,
                is_over: AtomicBool::new(false),
            }),
            server: None,
            unwatched: BTreeSet::new(),
            removed: false,
        })
    }

    /// Refuses a plan that was made before the watch, if it has splices in a function that this watches.
    ///
    /// # Errors
    /// [`Error::Process`] with the name of the function.
    pub(super) fn refuse_overlap(&self, plan: &Plan, image: &Image) -> Result<()> {
        let watched = |at: Addr| {
            let function = image.function_at(at)?;
            let mut places = self.served.places.iter();
            let is_watched = places.any(|place| function.span.contains(place.after));
            is_watched.then_some(&function.name)
        };
        let hit = plan
            .sites
            .iter()
            .find_map(|site| watched(site.displaced.start));
        hit.map_or(Ok(()), |name| {
            let why = format!(
                "its forked children are met in {name}, which has instruments (rule probed); leave those out, or have \
                 children count with it"
            );
            Err(refused(self.served.waits.pid, why))
        })
    }

    /// Has everything removed from each child before it executes an instruction, those too that wait now.
    pub fn leave_children_clean(&mut self) {
        self.serve(Fate::Clean);
    }

    /// Gives each child words of its own before it executes an instruction, with the instruments of its parent. Returns the
    /// attachments of children, as they are forked, until the process is left; these are to be removed after that.
    pub fn instrument_children(&mut self, parent: &Attached) -> Receiver<Attached> {
        let (sender, receiver) = unbounded();
        self.serve(Fate::Own(Box::new(parent.forked()), sender));
        receiver
    }

    /// Starts the thread that answers.
    fn serve(&mut self, fate: Fate) {
        let served = Arc::clone(&self.served);
        self.server = Some(std::thread::spawn(move || served.serve(&fate)));
    }

    /// The reasons why children are not met that are forked at other places.
    #[must_use]
    pub fn unwatched(&self) -> &BTreeSet<String> {
        &self.unwatched
    }

    /// Removes everything from the process and from the children that wait. Returns the number of its file, which children
    /// may have mapped still, and what became of the children.
    pub(super) fn leave(&mut self, cleaned: &mut Cleaned) -> Result<(u64, ForkedChildren)> {
        let served = &self.served;
        // Those that were forked before this is done exist then, and wait, or will.
        let done = served.waits.patched().take_out(cleaned);
        served.is_over.store(true, Ordering::Release);
        let server = self.server.take().map(JoinHandle::join);
        let mut children = match server {
            Some(Ok(children)) => children,
            Some(Err(_)) => {
                let why = "the thread that answers them has failed, which is a bug in gilk";
                ForkedChildren {
                    failed: [why.to_owned()].into(),
                    ..ForkedChildren::default()
                }
            }
            None => ForkedChildren::default(),
        };
        let met = traced(served.waits.pid, || {
            served.meet_all(&mut children)?;
            Ok(children)
        });
        // No child waits from now on; those that were not met are cleaned with the process.
        served.waits.close();
        self.removed = done.is_ok();
        done?;
        Ok((served.file, met?))
    }
}

impl Drop for ForkWatch {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        let mut cleaned = Cleaned::default();
        // No caller is left to report to.
        if let Ok((file, _)) = self.leave(&mut cleaned) {
            let children = |_, kept: &Kept| kept.file == file;
            let _unreported = removal::clean(&children, &mut cleaned);
        }
    }
}

impl Served {
    /// Meets children as they wait, until the end.
    fn serve(&self, fate: &Fate) -> ForkedChildren {
        let mut children = ForkedChildren::default();
        while !self.is_over.load(Ordering::Acquire) {
            if let Some(request) = self.waits.request(INTERVAL) {
                self.answer(request, fate, &mut children);
            }
        }
        children
    }

    /// Meets the children that wait, and lets those continue that remain.
    fn answer(&self, request: u32, fate: &Fate, children: &mut ForkedChildren) {
        let first = self.waits.answered().unwrap_or(request);
        let count = request.wrapping_sub(first);
        let mut is_complete = count <= ForkWords::MOST_CHILDREN;
        for number in 0..count.min(ForkWords::MOST_CHILDREN) {
            let pid = self.child(first.wrapping_add(number));
            match pid.filter(|&pid| self.is_child(pid)) {
                Some(pid) => {
                    self.meet(pid, 1, fate, children);
                }
                // It was not scheduled, was killed, or is in another namespace of numbers.
                None => is_complete = false,
            }
        }
        if !is_complete {
            self.meet_listed(1, fate, children);
        }
        children.was_late |= !self.waits.answer(request);
    }

    /// Takes the number of the child of a request.
    fn child(&self, number: u32) -> Option<u32> {
        let index = u64::from(number % ForkWords::MOST_CHILDREN);
        let word = self.waits.word(ForkWords::CHILDREN + 4 * index)?;
        let mut attempts = 0..ATTEMPTS;
        attempts.find_map(|attempt| {
            // The child stores it right after it has requested an answer.
            if attempt > 0 {
                std::thread::yield_now();
            }
            Some(word.swap(0, Ordering::AcqRel)).filter(|pid| *pid != 0)
        })
    }

    /// Returns whether a process has the code in which children wait, and is not the parent.
    fn is_child(&self, pid: u32) -> bool {
        // It may have ended.
        let kept = kept(pid).unwrap_or_default();
        pid != self.waits.pid && kept.iter().any(|kept| kept.file == self.file)
    }

    /// Decides the fate of a child that waits, or will within some attempts. Returns false if it lives, and has its parent's
    /// splices still.
    fn meet(&self, pid: u32, attempts: usize, fate: &Fate, children: &mut ForkedChildren) -> bool {
        if let Fate::Own(parent, sender) = fate {
            match adopted(pid, (&self.places, self.code), self.file, parent) {
                Ok(Some(attached)) => {
                    children.own.insert(pid);
                    // Without a receiver, it is dropped, and so removed.
                    let _no_receiver = sender.send(attached);
                    return true;
                }
                // It was forked before its parent was instrumented.
                Ok(None) => {}
                Err(_) if ends(pid) => return true,
                Err(error) => {
                    children.failed.insert(error.to_string());
                    return false;
                }
            }
        }
        let mut cleaned = Cleaned::default();
        for attempt in 0..attempts {
            if attempt > 0 {
                std::thread::sleep(BETWEEN);
            }
            match freed(pid, (&self.places, self.code), &mut cleaned) {
                Ok(ChildPlace::Freed) => {
                    children.clean += 1;
                    children.remains.append(&mut cleaned.remains);
                    return true;
                }
                Ok(ChildPlace::Near) => {}
                Ok(ChildPlace::Elsewhere) => return false,
                Ok(ChildPlace::Original) => return true,
                Err(_) if ends(pid) => return true,
                Err(error) => {
                    children.failed.insert(error.to_string());
                    return false;
                }
            }
        }
        false
    }

    /// Meets the children that the list of all processes has. Returns those that do not wait.
    fn meet_listed(
        &self,
        attempts: usize,
        fate: &Fate,
        children: &mut ForkedChildren,
    ) -> BTreeSet<u32> {
        // Without the list, they continue with the answer.
        let all = everywhere().unwrap_or_default();
        let all = all
            .into_iter()
            .filter(|(pid, kept)| kept.file == self.file && *pid != self.waits.pid)
            .filter(|(pid, _)| !children.own.contains(pid));
        let all: BTreeSet<u32> = all.map(|(pid, _)| pid).collect();
        let mut unmet = BTreeSet::new();
        for pid in all {
            if !self.meet(pid, attempts, fate, children) {
                unmet.insert(pid);
            }
        }
        unmet
    }

    /// Meets all children, which may fork others meanwhile.
    fn meet_all(&self, children: &mut ForkedChildren) -> Result<()> {
        let mut unmet = BTreeSet::new();
        loop {
            let before = (children.clean, unmet.len());
            unmet.extend(self.meet_listed(ATTEMPTS, &Fate::Clean, children));
            if before == (children.clean, unmet.len()) {
                break;
            }
        }
        // A child that is unmet and was so before ended meanwhile.
        unmet.retain(|&pid| self.is_child(pid));
        children.unmet = unmet;
        Ok(())
    }
}

/// Proves the places where an object of a process forks; `place` returns, for so many, the address of their code, the
/// words and the patience.
fn forks_of(
    pid: u32,
    memory: &std::fs::File,
    object: (Object, bool),
    place: impl FnOnce(u64) -> Result<(Addr, ForkWords, u64)>,
) -> Result<Vec<VerifiedForkWait>> {
    let objects = [object];
    let files = files_of(pid, &objects)?;
    let image = image_without_tables(pid, memory, &objects, &files)?;
    let places = ForkWait::places(&image);
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let (start, words, patience) = place(places.len() as u64)?;
    let waits = (0..).zip(places).map(|(number, at): (u64, _)| {
        let start = start.add(number * ForkWait::MOST_BYTES);
        let wait = ForkWait::new(&image, at, start, words, patience)?;
        verify(&image, wait).map_err(|violation| Error::Plan {
            reason: format!("the code in which forked children wait is wrong: {violation}"),
        })
    });
    waits.collect()
}
