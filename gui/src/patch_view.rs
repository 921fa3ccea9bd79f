//! The writes of a plan for the hooks of one block, as two columns of disassembly: the original
//! code before and after, and the patches.

use std::collections::BTreeSet;
use std::sync::Arc;

use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use gilk_engine::listing::{Line, disassemble};
use gilk_engine::patch::PieceKind;
use gilk_engine::placement::{Point, SiteIndex, Slot, Splice};
use gilk_engine::plan::{HitCosts, Part, Patch, Plan, PokeKind};
use gilk_engine::{Addr, Image, InstrumentId, Span};

use crate::widgets;

/// Code under a heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// Remarks.
    pub notes: Vec<String>,
    /// The code, piece by piece.
    pub pieces: Vec<Stretch>,
}

/// A contiguous range of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its purpose; empty if the heading says it.
    pub what: String,
    /// True if it exists for an instrument.
    pub ours: bool,
    /// Its instructions.
    pub lines: Vec<Line>,
}

/// Both columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchView {
    /// The original code, before and after.
    pub text: Vec<Section>,
    /// The code in the arena.
    pub patches: Vec<Section>,
}

/// A plan, by the number of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanNumber {
    OfSession(u64),
    OfPreview(u64),
}

/// A plan, and the block whose writes are shown.
type ViewKey = (PlanNumber, FunctionId, BlockIndex);

/// The view shown last, made after a change only: it looks through all patches of the plan.
#[derive(Debug, Default)]
pub(crate) struct LastPatchView {
    last: Option<(ViewKey, Arc<PatchView>)>,
}

impl LastPatchView {
    /// Returns the view of a plan and a block.
    pub(crate) fn of(&mut self, key: ViewKey, make: impl FnOnce() -> PatchView) -> Arc<PatchView> {
        let last = self.last.take().filter(|(known, _)| *known == key);
        let (_, view) = self
            .last
            .insert(last.unwrap_or_else(|| (key, Arc::new(make()))));
        Arc::clone(view)
    }
}

impl PatchView {
    /// Returns the writes of `plan` for the instruments at `block` of `function`.
    #[must_use]
    pub fn of(image: &Image, plan: &Plan, function: FunctionId, block: BlockIndex) -> Self {
        let view = Viewer::new(image, plan);
        let here = plan.instruments.iter().filter(|one| {
            one.id.block == block.0
                && plan
                    .function(one.id.major)
                    .is_some_and(|planned| planned.outline.function == function)
        });
        let mut sites: BTreeSet<SiteIndex> = BTreeSet::new();
        for one in here {
            sites.extend(one.points.iter().map(|&(site, _)| site));
            sites.extend(one.needs.iter().copied());
        }
        // A bounce in an exposed slot needs the splice of its donor.
        let hosts: Vec<SiteIndex> = sites.iter().filter_map(|&site| view.host(site)).collect();
        sites.extend(hosts);
        let mut made = Self::default();
        for &site in &sites {
            made.text.extend(view.site(site));
            for (number, patch) in (0..).zip(&plan.patches) {
                if patch.site == site {
                    made.patches.push(view.patch(number, patch));
                }
            }
        }
        made
    }

    /// Returns the code of a plan's instruments only, without saves, restores and copies.
    #[must_use]
    pub fn instruments(image: &Image, plan: &Plan) -> Vec<Section> {
        let view = Viewer::new(image, plan);
        let patches = (0..).zip(&plan.patches);
        let sections = patches.map(|(number, patch)| {
            let own: Vec<bool> = patch
                .pieces()
                .map(|piece| matches!(piece.kind, PieceKind::Instrument(_)))
                .collect();
            let mut section = view.patch(number, patch);
            let mut own = own.into_iter();
            section.pieces.retain(|_| own.next().unwrap_or(false));
            section
        });
        sections
            .filter(|section| !section.pieces.is_empty())
            .collect()
    }
}

struct Viewer<'a> {
    image: &'a Image,
    plan: &'a Plan,
    costs: HitCosts<'a>,
}

impl<'a> Viewer<'a> {
    fn new(image: &'a Image, plan: &'a Plan) -> Self {
        Self {
            image,
            plan,
            costs: HitCosts::of(plan),
        }
    }
}

impl Viewer<'_> {
    /// Returns an entry of the plan. The plan refers only to entries that exist; a missing one is a
    /// bug of the planner.
    fn entry<'e, T>(&self, entries: &'e [T], index: u32) -> Option<&'e T> {
        let entry = entries.get(index as usize);
        debug_assert!(
            entry.is_some(),
            "the plan of Linux {} refers to entry {index} of {}",
            self.plan.release,
            entries.len()
        );
        entry
    }

    /// Returns original bytes of the plan's image, which has all text.
    fn bytes(&self, span: Span) -> &[u8] {
        let bytes = self.image.bytes(span);
        debug_assert!(bytes.is_some(), "the image has no bytes at {}", span.start);
        bytes.unwrap_or_default()
    }

    fn host(&self, site: SiteIndex) -> Option<SiteIndex> {
        let Splice::Short(bounce) = self.entry(&self.plan.sites, site.0)?.splice else {
            return None;
        };
        match self.entry(&self.plan.bounces, bounce.0)?.slot {
            Slot::Exposed(host) => Some(host),
            Slot::Padding => None,
        }
    }

    fn plain(&self, at: Addr, code: &[u8]) -> Stretch {
        Stretch {
            what: String::new(),
            ours: false,
            lines: disassemble(Some(self.image), at, code),
        }
    }

    /// Returns the write of the first batch that installs `part`.
    fn written(&self, part: Part) -> Option<Stretch> {
        let mut pokes = self.plan.batches.iter().flat_map(|batch| &batch.pokes);
        let poke = pokes.find(|poke| poke.part == part && poke.kind == PokeKind::Install)?;
        Some(Stretch {
            what: "replacement".to_owned(),
            ours: true,
            lines: disassemble(Some(self.image), poke.at, &poke.write),
        })
    }

    fn site(&self, index: SiteIndex) -> Option<Section> {
        let site = self.entry(&self.plan.sites, index.0)?;
        let form = site.splice.words();
        let place = self.image.symbol_at(site.displaced.start);
        let place = place.map_or_else(
            || site.displaced.start.to_string(),
            |(name, at)| format!("{name}+{at:#x}"),
        );
        let original = self.bytes(site.displaced);
        let mut pieces = vec![Stretch {
            what: format!(
                "original, {} displaced",
                widgets::counted(site.displaced.len() as usize, "byte")
            ),
            ..self.plain(site.displaced.start, original)
        }];
        pieces.extend(self.written(Part::Site(index)));
        let mut notes = Vec::new();
        let mut parts = vec![Part::Site(index)];
        if let Splice::Short(bounce) = site.splice {
            parts.push(Part::Bounce(bounce));
            if let Some(known) = self.entry(&self.plan.bounces, bounce.0) {
                let slot = match known.slot {
                    Slot::Padding => "padding".to_owned(),
                    Slot::Exposed(host) => format!("bytes that {} exposes", self.name(host)),
                };
                notes.push(format!("bounce at {} in {slot}", known.at));
            }
            pieces.extend(self.written(Part::Bounce(bounce)).map(|stretch| Stretch {
                what: "the bounce".to_owned(),
                ..stretch
            }));
        }
        if site.overwritten > 1 {
            notes.push(format!(
                "overwrites {} instructions: waits until no thread is between them",
                site.overwritten
            ));
        }
        let own = self.plan.dependences.iter();
        for one in own.filter(|one| parts.contains(&one.what)) {
            notes.push(format!(
                "{} depends on {}",
                self.part(one.what),
                self.part(one.on)
            ));
        }
        for run_on in &site.continuations {
            let copied = self.bytes(run_on.copied);
            pieces.push(Stretch {
                what: format!("continuation, copied after {}", run_on.edge.from),
                ..self.plain(run_on.copied.start, copied)
            });
        }
        Some(Section {
            title: format!("{place}: {form}"),
            notes,
            pieces,
        })
    }

    fn patch(&self, number: u32, patch: &Patch) -> Section {
        let executed: u32 = patch.pieces().map(|piece| piece.executed).sum();
        let time = self.costs.work(patch).nanoseconds();
        let mut notes: Vec<String> = Vec::new();
        for (point, ids) in &patch.hooks {
            let at = match point {
                Point::Entry => "at the start".to_owned(),
                Point::Before(at) => format!("before {at}"),
                Point::On(edge) => format!("on the edge from {} to {}", edge.from, edge.to),
            };
            let ids: Vec<String> = ids.iter().map(|&id| self.label(id)).collect();
            notes.push(format!("{at}: {}", ids.join(", ")));
        }
        if patch.hooks.iter().next().is_none() {
            notes.push("no instruments: needed by another splice".to_owned());
        }
        let pieces = patch.pieces().map(|piece| {
            let (what, ours) = match piece.kind {
                PieceKind::Save => ("save".to_owned(), true),
                PieceKind::Instrument(id) => (self.label(id), true),
                PieceKind::Restore => ("restore".to_owned(), true),
                PieceKind::Relocated => ("relocated sequence".to_owned(), false),
                PieceKind::Terminating => ("terminating branch".to_owned(), false),
                PieceKind::Lost(id) => (format!("lost samples of {}", self.label(id)), true),
                PieceKind::Descriptors => ("descriptors".to_owned(), true),
            };
            let range = piece.range.start as usize..piece.range.end as usize;
            let code = patch.code.get(range);
            debug_assert!(code.is_some(), "patch {number} is shorter than its pieces");
            let code = code.unwrap_or_default();
            let at = patch.address.add(u64::from(piece.range.start));
            Stretch {
                what,
                ours,
                lines: disassemble(Some(self.image), at, code),
            }
        });
        Section {
            title: format!(
                "Patch {number}: {}, {} per hit and the splice, about {time:.1} ns",
                widgets::counted(patch.code.len(), "byte"),
                widgets::counted(executed as usize, "instruction")
            ),
            notes,
            pieces: pieces.collect(),
        }
    }

    fn label(&self, id: InstrumentId) -> String {
        let one = self.plan.instrument(id);
        let name = one.map_or("?", |one| one.definition.name.as_str());
        format!("{name} {id}")
    }

    fn name(&self, site: SiteIndex) -> String {
        let known = self.entry(&self.plan.sites, site.0);
        known.map_or_else(
            || "a splice".to_owned(),
            |known| format!("the splice at {}", known.displaced.start),
        )
    }

    fn part(&self, part: Part) -> String {
        match part {
            Part::Site(site) => self.name(site),
            Part::Bounce(bounce) => {
                let known = self.entry(&self.plan.bounces, bounce.0);
                known.map_or_else(
                    || "a bounce".to_owned(),
                    |known| format!("the bounce at {}", known.at),
                )
            }
        }
    }
}
