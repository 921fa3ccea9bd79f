//! A plan as text: the sites, their patches, and the writes by time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::cost::HitCosts;
use super::model::{
    Batch, Part, Patch, Plan, PlannedFunction, PlannedInstrument, Poke, PokeKind, Quiesce,
};
use crate::cfg::{BlockIndex, Cfg};
use crate::ids::part;
use crate::listing::disassemble;
use crate::native::NativeCode;
use crate::patch::PieceKind;
use crate::placement::{Bounce, InsnEdge, Point, Site, SiteIndex, Slot, compare};
use crate::{Addr, HookType, Image, InstrumentId, Span};

/// Formats a plan: notes, the cost of each function in place and whole, instruments in the session's order, sites
/// with their bounces, dependencies and patches by address, then batches by time.
#[must_use]
pub fn report(image: &Image, plan: &Plan) -> String {
    let mut report = Report {
        out: String::new(),
        image,
        plan,
        costs: HitCosts::of(plan),
    };
    let result = report.write();
    debug_assert!(result.is_ok(), "writing to a string does not fail");
    report.out
}

struct Report<'a> {
    out: String,
    image: &'a Image,
    plan: &'a Plan,
    costs: HitCosts<'a>,
}

impl Report<'_> {
    fn write(&mut self) -> std::fmt::Result {
        let plan = self.plan;
        let bytes: usize = plan.patches.iter().map(|patch| patch.code.len()).sum();
        writeln!(
            self.out,
            "{} instruments in {} functions of Linux {}: {} splices and {} bounces, {} patches of {bytes} bytes together, {} batches in {} s",
            plan.instruments.len(),
            plan.functions.len(),
            plan.release,
            plan.sites.len(),
            plan.bounces.len(),
            plan.patches.len(),
            plan.batches.len(),
            plan.duration,
        )?;
        for note in &plan.notes {
            writeln!(self.out, "note: {note}")?;
        }
        if !plan.layout.unwinds {
            writeln!(
                self.out,
                "stacks: the stack of a thread interrupted in a patch ends there, because the arena is not in the module's own text"
            )?;
        } else if plan.natives.is_empty() {
            writeln!(
                self.out,
                "stacks: the kernel unwinds them through every patch"
            )?;
        } else {
            writeln!(
                self.out,
                "stacks: the kernel unwinds them through every patch, but not from within an object file's code"
            )?;
        }
        self.styles()?;
        if !plan.instruments.is_empty() {
            writeln!(self.out)?;
        }
        for one in &plan.instruments {
            self.instrument(one)?;
        }
        let numbered = plan.patches.iter().enumerate();
        let mut by_site: Vec<(SiteIndex, usize, &Patch)> = numbered
            .map(|(number, patch)| (patch.site, number, patch))
            .collect();
        by_site.sort_unstable_by_key(|&(site, number, _)| (site, number));
        for (index, site) in (0..).map(SiteIndex).zip(&plan.sites) {
            self.site(index, site)?;
            let first = by_site.partition_point(|(known, ..)| *known < index);
            let patches = by_site.iter().skip(first);
            for &(_, number, patch) in patches.take_while(|(known, ..)| *known == index) {
                self.patch(number, patch)?;
            }
        }
        for code in &plan.natives {
            self.native(code)?;
        }
        for batch in &plan.batches {
            self.batch(batch)?;
        }
        Ok(())
    }

    fn styles(&mut self) -> std::fmt::Result {
        let plan = self.plan;
        let mut hooks: BTreeMap<u32, BTreeSet<(BlockIndex, HookType)>> = BTreeMap::new();
        for one in &plan.instruments {
            let hook = (BlockIndex(one.id.block), one.id.hook);
            hooks.entry(one.id.major).or_default().insert(hook);
        }
        for function in &plan.functions {
            // A probe may have named the function and have no place in it.
            let hooks = hooks.remove(&function.major).unwrap_or_default();
            self.style(function, &hooks.into_iter().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn style(
        &mut self,
        function: &PlannedFunction,
        hooks: &[(BlockIndex, HookType)],
    ) -> std::fmt::Result {
        // A plan compares styles only where it has the choice; its reader may want to have it.
        let compared = function.compared.clone().unwrap_or_else(|| {
            let cfg = Cfg::of(self.image, function.outline.function);
            Box::new(compare(self.image, &cfg, hooks))
        });
        writeln!(self.out, "{}: {}", function.name, function.style)?;
        write!(self.out, "{compared}")
    }

    fn instrument(&mut self, instrument: &PlannedInstrument) -> std::fmt::Result {
        let label = label(self.plan, instrument.id);
        let (launch, splash) = (instrument.launch, instrument.splash);
        writeln!(
            self.out,
            "{label}, {launch} s to {splash} s: {}",
            instrument.tactic.name()
        )?;
        for &(site, point) in &instrument.points {
            let site = self.name(site);
            writeln!(self.out, "  {} of {site}", at_point(point))?;
        }
        for &site in &instrument.needs {
            let site = self.name(site);
            writeln!(self.out, "  needs {site}")?;
        }
        Ok(())
    }

    /// `splice 3 at 0x…`.
    fn name(&self, site: SiteIndex) -> String {
        match self.plan.site(site) {
            Some(known) => format!("splice {} at {}", site.0, known.displaced.start),
            None => format!("splice {}", site.0),
        }
    }

    fn part(&self, part: Part) -> String {
        match part {
            Part::Site(site) => self.name(site),
            Part::Bounce(bounce) => match self.plan.bounce(bounce) {
                Some(known) => format!("bounce {} at {}", bounce.0, known.at),
                None => format!("bounce {}", bounce.0),
            },
        }
    }

    fn site(&mut self, index: SiteIndex, site: &Site) -> std::fmt::Result {
        let form = site.splice.words();
        let wait = match site.overwritten {
            0 => "nothing".to_owned(),
            count => instructions(count),
        };
        let place = self.image.symbol_at(site.displaced.start);
        let place = place.map_or_else(String::new, |(name, at)| format!(" in {name}+{at:#x}"));
        let displaced = site.displaced.len();
        let bytes = if displaced == 1 { "byte" } else { "bytes" };
        writeln!(
            self.out,
            "\n{}{place}: {form}, {displaced} {bytes} displaced, {wait} overwritten",
            self.name(index),
        )?;
        self.original(site.displaced, "  ")?;
        if let Some(bounce) = site.splice.bounce()
            && let Some(bounce) = self.plan.bounce(bounce)
        {
            self.bounce(bounce)?;
        }
        let plan = self.plan;
        let own = |part: Part| match part {
            Part::Site(site) => site == index,
            Part::Bounce(bounce) => site.splice.bounce() == Some(bounce),
        };
        for one in plan.dependences.iter().filter(|one| own(one.what)) {
            let (what, on) = (self.part(one.what), self.part(one.on));
            writeln!(self.out, "  {what} depends on {on}")?;
        }
        for continuation in &site.continuations {
            let edge = on_edge(continuation.edge);
            writeln!(self.out, "  {edge} its patch continues with a copy of")?;
            self.original(continuation.copied, "    ")?;
        }
        Ok(())
    }

    fn bounce(&mut self, bounce: &Bounce) -> std::fmt::Result {
        let slot = match bounce.slot {
            Slot::Padding => "padding".to_owned(),
            Slot::Exposed(host) => format!("bytes that {} exposes", self.name(host)),
        };
        writeln!(self.out, "  bounce at {} in {slot}", bounce.at)
    }

    fn patch(&mut self, index: usize, patch: &Patch) -> std::fmt::Result {
        let executed: u32 = patch.pieces().map(|piece| piece.executed).sum();
        writeln!(
            self.out,
            "  patch {index} at {}, {} bytes, {} a hit and the splice, about {:.1} ns",
            patch.address,
            patch.code.len(),
            instructions(executed),
            self.costs.work(patch).nanoseconds()
        )?;
        for (point, ids) in &patch.hooks {
            let ids: Vec<String> = ids.iter().map(|&id| label(self.plan, id)).collect();
            writeln!(self.out, "    {}: {}", at_point(*point), ids.join(", "))?;
        }
        for piece in patch.pieces() {
            let what = match piece.kind {
                PieceKind::Save => "save".to_owned(),
                PieceKind::Instrument(id) => {
                    format!("{}, {}", label(self.plan, id), instructions(piece.executed))
                }
                PieceKind::Restore => "restore".to_owned(),
                PieceKind::Relocated => "relocated sequence".to_owned(),
                PieceKind::Terminating => "terminating branch".to_owned(),
                PieceKind::Lost(id) => format!("lost samples of {}", label(self.plan, id)),
                PieceKind::Descriptors => "descriptors".to_owned(),
            };
            writeln!(self.out, "    ; {what}")?;
            let range = piece.range.start as usize..piece.range.end as usize;
            let code = part(&patch.code, range);
            let at = patch.address.add(u64::from(piece.range.start));
            self.lines(at, code, "    ")?;
        }
        Ok(())
    }

    fn batch(&mut self, batch: &Batch) -> std::fmt::Result {
        writeln!(self.out, "\nat {} s", batch.at)?;
        for poke in &batch.pokes {
            self.poke(poke)?;
        }
        for id in &batch.launched {
            let label = label(self.plan, *id);
            writeln!(self.out, "  launches {label}")?;
        }
        for id in &batch.splashed {
            let label = label(self.plan, *id);
            writeln!(self.out, "  splashes {label}")?;
        }
        Ok(())
    }

    fn poke(&mut self, poke: &Poke) -> std::fmt::Result {
        let kind = match poke.kind {
            PokeKind::Install => "install",
            PokeKind::Retarget => "retarget",
            PokeKind::Remove => "remove",
        };
        let what = match poke.part {
            Part::Site(_) => "splice",
            Part::Bounce(_) => "bounce",
        };
        let mut notes = String::new();
        notes.push_str(match poke.quiesce() {
            Quiesce::None => "",
            Quiesce::Between => "; waits until no thread is between the overwritten instructions",
            Quiesce::Inside => "; waits until no thread is inside the code that it leaves",
        });
        if poke.detour != poke.patch {
            write!(notes, "; until then to patch {}", poke.detour.0)?;
        }
        writeln!(
            self.out,
            "  {} {kind:8} {what} at {}  {} -> {}  patch {}{notes}",
            poke.rank,
            poke.at,
            hex(&poke.expect),
            hex(&poke.write),
            poke.patch.0
        )
    }

    /// The code of an object file, by function.
    fn native(&mut self, code: &NativeCode) -> std::fmt::Result {
        writeln!(
            self.out,
            "\nobject file {} at {}: its effect is not proven",
            code.file, code.address
        )?;
        let end = code.address.add(code.text);
        let starts = code.entries.iter().map(|(_, at)| *at).chain([end]);
        for (name, at) in &code.entries {
            let next = starts
                .clone()
                .filter(|start| start > at)
                .min()
                .unwrap_or(end);
            let span = |at: Addr| usize::try_from(code.address.to(at)).unwrap_or(usize::MAX);
            writeln!(self.out, "  {name}")?;
            let bytes = code.bytes.get(span(*at)..span(next)).unwrap_or_default();
            self.lines(*at, bytes, "    ")?;
        }
        Ok(())
    }

    /// Code of the target, unless the plan is for another one.
    fn original(&mut self, span: Span, indent: &str) -> std::fmt::Result {
        match self.image.bytes(span) {
            Some(code) => self.lines(span.start, code, indent),
            None => writeln!(
                self.out,
                "{indent}(the image has no bytes at {})",
                span.start
            ),
        }
    }

    fn lines(&mut self, at: Addr, code: &[u8], indent: &str) -> std::fmt::Result {
        for line in disassemble(Some(self.image), at, code) {
            writeln!(
                self.out,
                "{indent}{}  {:32} {}",
                line.at,
                hex(&line.bytes),
                line.text
            )?;
        }
        Ok(())
    }
}

fn on_edge(edge: InsnEdge) -> String {
    format!("on the edge from {} to {}", edge.from, edge.to)
}

fn at_point(point: Point) -> String {
    match point {
        Point::Entry => "at the start".to_owned(),
        Point::Before(at) => format!("before {at}"),
        Point::On(edge) => on_edge(edge),
    }
}

fn instructions(count: u32) -> String {
    if count == 1 {
        "1 instruction".to_owned()
    } else {
        format!("{count} instructions")
    }
}

/// `timestamp pre __x64_sys_clone block 0 (0.Pre.0.0)`.
fn label(plan: &Plan, id: InstrumentId) -> String {
    let hook = id.hook;
    let instrument = plan
        .instrument(id)
        .map_or("?", |instrument| instrument.definition.name.as_str());
    let function = plan
        .function(id.major)
        .map_or("?", |function| function.name.as_str());
    format!("{instrument} {hook} {function} block {} ({id})", id.block)
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}
