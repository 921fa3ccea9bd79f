use iced_x86::IcedError;
use iced_x86::code_asm::{CodeAssembler, qword_ptr, registers::*};

use super::*;
use crate::Rule;
use crate::image::FunctionId;
use crate::image::fixture::{Fixture, TEXT};

/// A kernel of one function, and what can be done at its blocks.
fn of(fixture: &Fixture) -> Vec<BlockOptions> {
    let image = fixture.image();
    let cfg = Cfg::of(&image, FunctionId(0));
    assert_eq!(cfg.refusal, None);
    options(&image, &cfg)
}

fn function(write: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) -> Fixture {
    Fixture::new().asm("function", write)
}

/// Offset of the splice and of the end of what it displaces, offset of the split, instructions
/// overwritten.
fn site(option: &Result<Site, Refusal>) -> (u64, u64, u64, u32) {
    let site = option.as_ref().unwrap();
    let offset = |at: Addr| at.0 - TEXT;
    (
        offset(site.displaced.start),
        offset(site.displaced.end),
        offset(site.split),
        site.overwritten,
    )
}

fn rule(option: &Result<Site, Refusal>) -> (Rule, u64) {
    let refusal = option.as_ref().unwrap_err();
    assert!(
        !refusal.why.is_empty() && !refusal.why.ends_with('.'),
        "{}",
        refusal.why
    );
    (refusal.rule, refusal.at.0 - TEXT)
}

#[test]
fn a_pre_hook_takes_the_first_instructions_that_have_five_bytes() {
    let blocks = of(&function(|a| {
        a.push(rbx)?; // 0
        a.mov(rbx, rdi)?; // 1
        a.mov(ecx, 7)?; // 4
        a.ret() // 9
    }));
    assert_eq!(site(&blocks[0].pre), (0, 9, 9, 3));
    // The block's end alone is too short: what stands before it goes along, and runs before the split.
    assert_eq!(site(&blocks[0].post), (4, 10, 9, 1));
    assert_eq!(
        blocks[0].both,
        Some(Ok(())),
        "they meet, so the block is relocated"
    );
}

#[test]
fn an_entry_keeps_endbr64_and_the_function_tracers_bytes() {
    let body = |a: &mut CodeAssembler| {
        a.mov(eax, 1)?;
        a.mov(ecx, 2)?;
        a.ret()
    };
    assert_eq!(
        site(&of(&Fixture::new().compiled("f", body))[0].pre),
        (5, 10, 10, 1)
    );
    let with_endbr = Fixture::new().asm("f", |a| {
        a.endbr64()?;
        a.db(&crate::image::fixture::FTRACE_NOP)?;
        body(a)
    });
    let blocks = of(&with_endbr);
    assert_eq!(site(&blocks[0].pre), (9, 14, 14, 1));
    assert_eq!(site(&blocks[0].post), (14, 20, 19, 1));
    // A sealed endbr64, as Linux 6.2 and later and newer ones write it.
    for seal in [[0x66, 0x0f, 0x1f, 0x00], [0x0f, 0x1f, 0x40, 0xd6]] {
        let sealed = Fixture::new().asm("f", |a| {
            a.db(&seal)?;
            a.db(&crate::image::fixture::FTRACE_NOP)?;
            body(a)
        });
        assert_eq!(site(&of(&sealed)[0].pre), (9, 14, 14, 1));
    }
    // Nothing behind the tracer's bytes, or not enough.
    let only = of(&Fixture::new().compiled("f", |a| a.ret()));
    assert_eq!(rule(&only[0].pre), (Rule::BlockTooShort, 5));
    assert_eq!(rule(&only[0].post), (Rule::BlockTooShort, 5));
}

#[test]
fn a_branch_of_five_bytes_is_displaced_alone() {
    let blocks = of(&function(|a| {
        let mut end = a.create_label();
        a.test(edi, edi)?; // 0
        a.je(end)?; // 2, near: 6 bytes
        a.db(&[0x90; 200])?;
        a.set_label(&mut end)?;
        a.ret()
    }));
    assert_eq!(site(&blocks[0].post), (2, 8, 2, 1));
    assert_eq!(
        site(&blocks[0].pre),
        (0, 8, 8, 2),
        "a pre-hook alone has its instruments before all of it"
    );
    let Ok(pre) = blocks[0].pre else {
        unreachable!()
    };
    assert_eq!(pre.point(HookType::Pre), pre.displaced.start);
    assert_eq!(blocks[0].both, Some(Ok(())));
    // The block that runs on has its post-hook at its end.
    assert_eq!(site(&blocks[1].post), (203, 208, 208, 5));
    assert_eq!(rule(&blocks[2].pre), (Rule::BlockTooShort, 208));
}

#[test]
fn both_hooks_where_the_splices_meet_share_one_site() {
    let image = function(|a| {
        a.mov(eax, edi)?; // 0
        a.mov(rcx, 0x1122_3344_5566_7788u64)?; // 2
        a.ret() // 12
    })
    .image();
    let cfg = Cfg::of(&image, FunctionId(0));
    let block = cfg.block(BlockIndex(0)).unwrap();
    let both = choose(&image, &cfg, block, true, true).unwrap();
    assert_eq!(both.pre, both.post);
    let site = both.pre.unwrap();
    assert_eq!(
        (site.tactic, site.displaced.len(), site.split),
        (Tactic::BlockRelocation, 13, Addr(TEXT + 12))
    );
    // Alone, each has its own.
    let pre = choose(&image, &cfg, block, true, false).unwrap();
    assert_eq!(
        (pre.pre.unwrap().tactic, pre.post),
        (Tactic::DirectSplice, None)
    );
    let post = choose(&image, &cfg, block, false, true).unwrap();
    assert_eq!(post.post.unwrap().displaced.start, Addr(TEXT + 2));
}

#[test]
fn a_call_is_moved_only_as_the_last_and_nothing_runs_behind_it() {
    let other = TEXT + 0x400;
    let blocks = of(&function(|a| {
        a.push(rbx)?; // 0
        a.call(other)?; // 1
        a.test(eax, eax)?; // 6
        a.pop(rbx)?; // 8
        a.ret() // 9
    })
    .bytes("other", &[0xc3]));
    assert_eq!(site(&blocks[0].pre), (0, 6, 6, 2));
    assert_eq!(rule(&blocks[0].post), (Rule::PostBehindCall, 1));
    assert_eq!(blocks[0].both, None);
    let blocks = of(&function(|a| {
        a.call(other)?; // 0
        a.test(eax, eax)?; // 5
        a.lea(rax, qword_ptr(rax + 8))?; // 7
        a.ret() // 11
    })
    .bytes("other", &[0xc3]));
    assert_eq!(site(&blocks[0].pre), (0, 5, 5, 1));
    assert_eq!(site(&blocks[0].post), (7, 12, 11, 2));
    // An indirect call is short: it would return into the splice.
    let blocks = of(&function(|a| {
        a.call(rax)?;
        a.mov(eax, 1)?;
        a.ret()
    }));
    assert_eq!(rule(&blocks[0].pre), (Rule::ReturnInsideSplice, 0));
}

#[test]
fn what_the_kernel_patches_or_knows_by_address_stays() {
    let body = |a: &mut CodeAssembler| {
        a.mov(rax, qword_ptr(rdi))?; // 0
        a.mov(ecx, 5)?; // 3
        a.nop_1(eax)?; // 8: three bytes
        a.lea(rax, qword_ptr(rax + 0x100))?; // 11
        a.ret() // 18
    };
    let at = |offset: u64| TEXT + offset;
    assert_eq!(site(&of(&function(body))[0].pre), (0, 8, 8, 2));

    let mut may_fault = function(body);
    may_fault.exceptions.push((at(0), at(11)));
    let blocks = of(&may_fault);
    assert_eq!(rule(&blocks[0].pre), (Rule::MayFault, 0));
    assert_eq!(
        site(&blocks.last().unwrap().pre),
        (11, 18, 18, 1),
        "the fixup begins a block of its own"
    );

    let mut fault_behind = function(body);
    fault_behind.exceptions.push((at(3), at(11)));
    assert_eq!(
        rule(&of(&fault_behind)[0].pre),
        (Rule::MayFault, 3),
        "also behind the first instruction"
    );

    let mut black = function(body);
    black.blacklist.push((at(5), at(6)));
    let image = black.image();
    let cfg = Cfg::of(&image, FunctionId(0));
    assert!(options(&image, &cfg).iter().all(|block| {
        block
            .pre
            .as_ref()
            .is_err_and(|r| r.rule == Rule::Blacklisted)
    }));
}

#[test]
fn a_static_key_and_a_bug_end_a_block_that_is_hooked_before_them() {
    // 0 mov eax, 1; 5 jump label of five bytes; 10 mov ecx, 2; 15 ret
    let mut keyed = function(|a| {
        a.mov(eax, 1)?;
        a.db(&[0x0f, 0x1f, 0x44, 0, 0])?;
        a.mov(ecx, 2)?;
        a.ret()
    });
    keyed.jumps.push((TEXT + 5, TEXT + 15));
    let blocks = of(&keyed);
    assert_eq!(site(&blocks[0].pre), (0, 5, 5, 1));
    assert_eq!(
        site(&blocks[0].post),
        (0, 5, 5, 1),
        "before the jump label, which stays"
    );

    let mut bug = function(|a| {
        a.mov(eax, 1)?;
        a.ud2()
    });
    bug.bugs.push((TEXT + 5, false));
    let blocks = of(&bug);
    assert_eq!(site(&blocks[0].pre), (0, 5, 5, 1));
    assert_eq!(site(&blocks[0].post), (0, 5, 5, 1));

    let mut called = function(|a| {
        a.call(TEXT + 0x400)?;
        a.ret()
    })
    .bytes("other", &[0xc3]);
    called.static_calls.push(TEXT);
    assert_eq!(rule(&of(&called)[0].pre), (Rule::StaticCall, 0));
}

#[test]
fn system_instructions_and_shadows_stay() {
    let blocks = of(&function(|a| {
        a.mov(eax, 1)?; // 0
        a.sti()?; // 5
        a.mov(ecx, 2)?; // 6
        a.ret() // 11
    }));
    assert_eq!(site(&blocks[0].pre), (0, 5, 5, 1));
    assert_eq!(site(&blocks[0].post), (6, 12, 11, 1));
    let blocks = of(&function(|a| {
        a.sti()?;
        a.hlt()?;
        a.mov(ecx, 2)?;
        a.ret()
    }));
    assert_eq!(rule(&blocks[0].pre), (Rule::System, 0));
}

/// A call that never returns is no sequential instruction: the post-hook is before it.
#[test]
fn a_post_hook_runs_before_a_call_that_never_returns() {
    let blocks = of(&function(|a| {
        a.mov(edi, 9)?; // 0
        a.call(TEXT + 0x400) // 5
    })
    .bytes("do_exit", &[0xeb, 0xfe]));
    assert_eq!(site(&blocks[0].post), (5, 10, 5, 1));
}

/// What looks like a call is there to fill the return stack buffer.
#[test]
fn a_call_into_its_own_function_stays() {
    let blocks = of(&function(|a| {
        let mut over = a.create_label();
        a.mov(eax, 16)?; // 0
        a.call(over)?; // 5
        a.int3()?; // 10
        a.set_label(&mut over)?;
        a.add(rsp, 8)?; // 11
        a.ret()
    }));
    assert_eq!(
        site(&blocks[0].pre),
        (0, 5, 5, 1),
        "the call is not displaced"
    );
    let image = function(|a| {
        let mut over = a.create_label();
        a.call(over)?;
        a.int3()?;
        a.set_label(&mut over)?;
        a.add(rsp, 8)?;
        a.ret()
    })
    .image();
    let cfg = Cfg::of(&image, FunctionId(0));
    assert_eq!(
        rule(&options(&image, &cfg)[0].pre),
        (Rule::Unrelocatable, 0)
    );
}
