//! A plan for people: what stands at each site, what will be written, and when.

use std::fmt::Write as _;

use super::{Patch, Plan, PokeKind};
use crate::listing::disassemble;
use crate::patch::PieceKind;
use crate::{Addr, Image, InstrumentId};

/// The whole plan as text: sites with their patches, in order of address, then batches in order of
/// time.
#[must_use]
pub fn report(image: &Image, plan: &Plan) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_report(&mut out, image, plan);
    out
}

fn write_report(out: &mut String, image: &Image, plan: &Plan) -> std::fmt::Result {
    let bytes: usize = plan.patches.iter().map(|patch| patch.code.len()).sum();
    writeln!(
        out,
        "{} instruments in {} functions of Linux {}: {} patches of {bytes} bytes together, {} batches in {} s",
        plan.instruments.len(),
        plan.functions.len(),
        plan.release,
        plan.patches.len(),
        plan.batches.len(),
        plan.duration,
    )?;
    let mut last_site = None;
    for (index, patch) in plan.patches.iter().enumerate() {
        if last_site != Some(patch.site) {
            write_site(out, image, plan, patch)?;
            last_site = Some(patch.site);
        }
        write_patch(out, image, plan, index, patch)?;
    }
    for batch in &plan.batches {
        writeln!(out, "\nat {} s", batch.at)?;
        for poke in &batch.pokes {
            let what = match poke.kind {
                PokeKind::Install => "install",
                PokeKind::Retarget => "retarget",
                PokeKind::Remove => "remove",
            };
            let wait = if poke.overwritten > 1 {
                "; waits, for it covers more than one instruction"
            } else {
                ""
            };
            writeln!(
                out,
                "  {what:8} {}  {} -> {}  patch {}{wait}",
                poke.at,
                hex(&poke.expect),
                hex(&poke.write),
                poke.patch
            )?;
        }
        for id in &batch.launched {
            writeln!(out, "  launches {}", label(plan, *id))?;
        }
        for id in &batch.splashed {
            writeln!(out, "  splashes {}", label(plan, *id))?;
        }
    }
    Ok(())
}

fn write_site(out: &mut String, image: &Image, plan: &Plan, patch: &Patch) -> std::fmt::Result {
    let site = patch.site;
    let id = patch.pre.iter().chain(&patch.post).next();
    let place = id.and_then(|id| Some((plan.function(id.major)?, id.block)));
    let name = place.map_or_else(String::new, |(function, block)| {
        format!("{} block {block}, ", function.name)
    });
    let wait = if site.overwritten == 1 {
        "one instruction"
    } else {
        "several instructions"
    };
    writeln!(
        out,
        "\n{name}{}: {} bytes displaced from {}, {wait} overwritten",
        site.tactic.name(),
        site.displaced.len(),
        site.displaced.start
    )?;
    let original = image.bytes(site.displaced).unwrap_or_default();
    write_lines(out, image, site.displaced.start, original, "  ")
}

fn write_patch(
    out: &mut String,
    image: &Image,
    plan: &Plan,
    index: usize,
    patch: &Patch,
) -> std::fmt::Result {
    let executed: u32 = patch.pieces.iter().map(|piece| piece.executed).sum();
    writeln!(
        out,
        "  patch {index} at {}, {} bytes, {} a hit and the splice",
        patch.address,
        patch.code.len(),
        instructions(executed)
    )?;
    for piece in &patch.pieces {
        let what = match piece.kind {
            PieceKind::Save => "save".to_owned(),
            PieceKind::Instrument(id) => {
                format!("{}, {}", label(plan, id), instructions(piece.executed))
            }
            PieceKind::Restore => "restore".to_owned(),
            PieceKind::Relocated => "relocated sequence".to_owned(),
            PieceKind::Terminating => "terminating branch".to_owned(),
            PieceKind::Lost(id) => format!("lost samples of {}", label(plan, id)),
        };
        writeln!(out, "    ; {what}")?;
        let range = piece.range.start as usize..piece.range.end as usize;
        let code = patch.code.get(range).unwrap_or_default();
        write_lines(
            out,
            image,
            patch.address.add(u64::from(piece.range.start)),
            code,
            "    ",
        )?;
    }
    Ok(())
}

fn write_lines(
    out: &mut String,
    image: &Image,
    at: Addr,
    code: &[u8],
    indent: &str,
) -> std::fmt::Result {
    for line in disassemble(Some(image), at, code) {
        writeln!(
            out,
            "{indent}{}  {:32} {}",
            line.at,
            hex(&line.bytes),
            line.text
        )?;
    }
    Ok(())
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
    let hook = match id.hook {
        crate::HookType::Pre => "pre",
        crate::HookType::Post => "post",
    };
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
