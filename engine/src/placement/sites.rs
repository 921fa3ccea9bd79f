//! The sites of one block: chosen from the hooks that are ever wanted on it in a session.

use iced_x86::{Instruction, Mnemonic};

use super::admit::{admit, is_call, split_point};
use super::{SPLICE_BYTES, Site, Tactic};
use crate::cfg::{Block, Cfg};
use crate::image::SiteKind;
use crate::relocate::refuse;
use crate::{Addr, HookType, Image, Refusal, Rule, Span};

/// The sites that serve the hooks wanted on one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sited {
    /// The site of the pre-hook, if it is wanted.
    pub pre: Option<Site>,
    /// The site of the post-hook, if it is wanted; the same as `pre` where one patch serves both.
    pub post: Option<Site>,
}

/// Chooses the sites for a block. A hook that is alone gets a direct splice; so do both hooks where
/// their splices do not meet. Where they do, the whole block is relocated.
///
/// # Errors
/// The rule that forbids a hook, and which of the two.
pub fn choose(
    image: &Image,
    cfg: &Cfg,
    block: &Block,
    pre: bool,
    post: bool,
) -> Result<Sited, (HookType, Refusal)> {
    let site = |hook, wanted: bool| {
        if wanted {
            direct(image, cfg, block, hook)
                .map(Some)
                .map_err(|refusal| (hook, refusal))
        } else {
            Ok(None)
        }
    };
    let sited = Sited {
        pre: site(HookType::Pre, pre)?,
        post: site(HookType::Post, post)?,
    };
    match (sited.pre, sited.post) {
        (Some(first), Some(second)) if first.displaced.overlaps(second.displaced) => {
            let whole = whole(image, cfg.span, block, first, second)
                .map_err(|refusal| (HookType::Post, refusal))?;
            Ok(Sited {
                pre: Some(whole),
                post: Some(whole),
            })
        }
        _ => Ok(sited),
    }
}

/// The direct splice for one hook.
pub(super) fn direct(
    image: &Image,
    cfg: &Cfg,
    block: &Block,
    hook: HookType,
) -> Result<Site, Refusal> {
    if let Some(refusal) = &cfg.refusal {
        return Err(refusal.clone());
    }
    match hook {
        HookType::Pre => pre(image, cfg.span, block),
        HookType::Post => post(image, cfg.span, block),
    }
}

/// The instructions of the block behind `endbr64`, or what a kernel that seals writes over it
/// (`seal_endbr` of arch/x86/kernel/alternative.c), and the function tracer's bytes.
fn body<'a>(image: &Image, block: &'a Block) -> &'a [Instruction] {
    let body = block.instructions.as_slice();
    let is_traced = |instruction: &Instruction| {
        let span = Span {
            start: Addr(instruction.ip()),
            end: Addr(instruction.next_ip()),
        };
        let mut sites = image.sites().overlapping(span);
        sites.any(|site| site.kind == SiteKind::Ftrace)
    };
    let entry = match body.iter().take(2).position(is_traced) {
        Some(tracer) => tracer + 1,
        None => usize::from(
            body.first()
                .is_some_and(|first| first.mnemonic() == Mnemonic::Endbr64),
        ),
    };
    body.get(entry..).unwrap_or_default()
}

fn pre(image: &Image, function: Span, block: &Block) -> Result<Site, Refusal> {
    let body = body(image, block);
    let Some(first) = body.first() else {
        return refuse(
            Rule::NothingToDisplace,
            block.span.start,
            "the block has nothing behind the function tracer's bytes",
        );
    };
    let enough = body
        .iter()
        .position(|instruction| instruction.next_ip() - first.ip() >= SPLICE_BYTES);
    let displaced = enough.and_then(|last| body.get(..=last)).unwrap_or(body);
    admit(
        image,
        function,
        block,
        displaced,
        Tactic::DirectSplice,
        displaced_end(displaced, block),
    )
}

fn displaced_end(displaced: &[Instruction], block: &Block) -> Addr {
    displaced
        .last()
        .map_or(block.span.end, |last| Addr(last.next_ip()))
}

/// The latest start that leaves five bytes: with the instruction that ends the block among them,
/// or, where that may not be moved, before it.
fn post(image: &Image, function: Span, block: &Block) -> Result<Site, Refusal> {
    let split = split_point(image, block);
    let body = body(image, block);
    let with_end = tail(image, function, block, body, split);
    let Some(sequential) = body
        .iter()
        .position(|instruction| instruction.ip() >= split.0)
        .and_then(|end| body.get(..end))
    else {
        return with_end;
    };
    with_end.or_else(|refusal| match refusal.rule {
        // Without its end the block is shorter still.
        Rule::BlockTooShort | Rule::NothingToDisplace | Rule::PostBehindCall => Err(refusal),
        _ => tail(image, function, block, sequential, split).map_err(|_| refusal),
    })
}

fn tail(
    image: &Image,
    function: Span,
    block: &Block,
    body: &[Instruction],
    split: Addr,
) -> Result<Site, Refusal> {
    let Some(last) = body.last() else {
        return refuse(
            Rule::NothingToDisplace,
            block.span.start,
            "the block has no instruction that could be displaced",
        );
    };
    let call = body
        .iter()
        .rposition(|instruction| is_call(instruction) && instruction.ip() < split.0);
    let behind_call = call.map_or(0, |call| call + 1);
    let start = body
        .iter()
        .rposition(|instruction| last.next_ip() - instruction.ip() >= SPLICE_BYTES);
    match (start, call.and_then(|call| body.get(call))) {
        (Some(start), _) if start >= behind_call => admit(
            image,
            function,
            block,
            body.get(start..).unwrap_or_default(),
            Tactic::DirectSplice,
            split,
        ),
        (_, Some(call)) => refuse(
            Rule::PostBehindCall,
            Addr(call.ip()),
            format!(
                "only {} bytes of the block are left behind this call, and a splice needs {SPLICE_BYTES}",
                last.next_ip() - call.next_ip()
            ),
        ),
        _ => admit(image, function, block, body, Tactic::DirectSplice, split),
    }
}

/// One splice for both hooks whose direct splices `pre` and `post` meet.
fn whole(
    image: &Image,
    function: Span,
    block: &Block,
    pre: Site,
    post: Site,
) -> Result<Site, Refusal> {
    let span = Span {
        start: pre.displaced.start,
        end: post.displaced.end,
    };
    let displaced: Vec<Instruction> = block
        .instructions
        .iter()
        .filter(|instruction| span.contains(Addr(instruction.ip())))
        .copied()
        .collect();
    admit(
        image,
        function,
        block,
        &displaced,
        Tactic::BlockRelocation,
        post.split,
    )
}
