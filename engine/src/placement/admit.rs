//! The safety rules for displacing some instructions of a block.

use iced_x86::{FlowControl, Instruction};

use super::{SPLICE_BYTES, Site, Tactic};
use crate::cfg::{Block, BlockEnd};
use crate::image::SiteKind;
use crate::relocate::{movable, refuse};
use crate::{Addr, Image, Refusal, Rule, Span};

/// Whether `displaced`, instructions of `block` of `function` in a row, may be displaced by a splice over the
/// first five bytes of them; the site, if so.
///
/// # Errors
/// The first rule that is broken, in order of address.
pub(super) fn admit(
    image: &Image,
    function: Span,
    block: &Block,
    displaced: &[Instruction],
    tactic: Tactic,
    split: Addr,
) -> Result<Site, Refusal> {
    let (Some(first), Some(last)) = (displaced.first(), displaced.last()) else {
        return refuse(
            Rule::NothingToDisplace,
            block.span.start,
            "the block has no instruction that could be displaced",
        );
    };
    let span = Span {
        start: Addr(first.ip()),
        end: Addr(last.next_ip()),
    };
    if span.len() < SPLICE_BYTES {
        return refuse(
            Rule::BlockTooShort,
            span.start,
            format!(
                "only {} bytes of the block are left here, and a splice needs {SPLICE_BYTES}",
                span.len()
            ),
        );
    }
    let splice = Span::new(span.start, SPLICE_BYTES);
    for instruction in displaced {
        kernel_sites(image, instruction)?;
        if is_call(instruction) && instruction.ip() != last.ip() {
            return refuse(
                Rule::ReturnInsideSplice,
                Addr(instruction.ip()),
                format!(
                    "this call would return to {}, among displaced bytes",
                    Addr(instruction.next_ip())
                ),
            );
        }
        let target = Addr(instruction.near_branch_target());
        if is_call(instruction) && target != function.start && function.contains(target) {
            // FILL_RETURN_BUFFER, for example (arch/x86/include/asm/nospec-branch.h).
            return refuse(
                Rule::Unrelocatable,
                Addr(instruction.ip()),
                "this call is for the processor's stack of return addresses, which a moved one does not fill",
            );
        }
        movable(instruction)?;
    }
    if let Some(&inside) = image
        .entered(splice)
        .iter()
        .find(|&&at| at != splice.start && splice.contains(at))
    {
        return refuse(
            Rule::BranchTarget,
            inside,
            "control may come here from outside the function",
        );
    }
    let overwritten = displaced
        .iter()
        .take_while(|instruction| instruction.ip() < splice.end.0)
        .count();
    Ok(Site {
        tactic,
        displaced: span,
        split,
        overwritten: u32::try_from(overwritten).unwrap_or(u32::MAX),
    })
}

/// Sites of the kernel's own patching, and addresses that mean something to it.
fn kernel_sites(image: &Image, instruction: &Instruction) -> Result<(), Refusal> {
    let span = Span {
        start: Addr(instruction.ip()),
        end: Addr(instruction.next_ip()),
    };
    let worst = image
        .sites()
        .overlapping(span)
        .min_by_key(|site| site.span.start);
    let Some(site) = worst else { return Ok(()) };
    let (rule, why) = match site.kind {
        SiteKind::StaticKey => (
            Rule::StaticKey,
            "the kernel rewrites this jump label when its static key changes",
        ),
        SiteKind::StaticCall => (
            Rule::StaticCall,
            "the kernel rewrites this static call when its target changes",
        ),
        SiteKind::Alternative => (
            Rule::Alternative,
            "the kernel may rewrite this instruction itself",
        ),
        SiteKind::Ftrace => (Rule::FtraceSite, "the function tracer rewrites these bytes"),
        SiteKind::Exception => (
            Rule::MayFault,
            "the kernel handles a fault of this instruction by its address",
        ),
        SiteKind::Bug { .. } => (
            Rule::Trap,
            "the kernel knows this ud2 (BUG or WARN) by its address",
        ),
        SiteKind::Blacklist => (Rule::Blacklisted, "the kernel forbids probes here"),
    };
    refuse(rule, site.span.start.max(span.start), why)
}

pub(super) fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

/// Where post-hook instruments of a block run: before the instruction that ends it, or at its end
/// if it runs on into the next.
pub(super) fn split_point(image: &Image, block: &Block) -> Addr {
    let Some(last) = block.instructions.last() else {
        return block.span.end;
    };
    let at = Span {
        start: Addr(last.ip()),
        end: Addr(last.next_ip()),
    };
    let branches = match last.flow_control() {
        FlowControl::Next => {
            // A static key that is off now is a branch all the same.
            image
                .sites()
                .overlapping(at)
                .any(|site| site.kind == SiteKind::StaticKey)
        }
        FlowControl::Call | FlowControl::IndirectCall => block.end == BlockEnd::NoReturn,
        _ => true,
    };
    if branches { at.start } else { at.end }
}
