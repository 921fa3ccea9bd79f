//! Samples written by hand, right and wrong.

use super::handmade::*;
use super::*;
use iced_x86::IcedError;

/// A handmade sample, with one part of it as `part` describes.
fn sample(a: &mut CodeAssembler, part: &str, id: u64) -> Result<(), IcedError> {
    let (mut again, mut full, mut done) = (a.create_label(), a.create_label(), a.create_label());
    let (head, limit) = (0x3_0000, 0x3_0008);
    a.push(rax)?;
    if part == "limit first" {
        a.mov(rsi, qword_ptr(limit).gs())?;
    }
    if part == "clock first" {
        a.rdtsc()?;
        a.shl(rdx, 32)?;
        a.or(rdx, rax)?;
    }
    a.set_label(&mut again)?;
    a.mov(rcx, qword_ptr(head).gs())?;
    match part {
        "limit first" => a.cmp(rcx, rsi)?,
        "no limit" => a.cmp(rcx, rax)?,
        "limit known" => {
            a.mov(rsi, qword_ptr(limit).gs())?;
            a.cmp(rsi, rcx)?;
        }
        _ => a.cmp(rcx, qword_ptr(limit).gs())?,
    }
    match part {
        "greater" => a.jae(full)?,
        "inverted" => a.jne(full)?,
        _ => a.je(full)?,
    }
    if part != "clock first" {
        a.rdtsc()?;
        a.shl(rdx, 32)?;
        a.or(rdx, rax)?;
    }
    a.mov(rax, rcx)?;
    a.add(
        rcx,
        if part == "two slots" {
            0x2_0000
        } else {
            0x1_0000
        },
    )?;
    a.cmpxchg(qword_ptr(head).gs(), rcx)?;
    match part {
        "result unseen" => a.nop()?,
        "gives up" => a.jne(done)?,
        "keeps failing" => a.je(again)?,
        _ => a.jne(again)?,
    }
    if part.starts_with("rotated") {
        a.mov(ecx, eax)?;
        a.rol(ecx, if part == "rotated" { 18 } else { 19 })?;
        a.shl(rcx, 3)?;
    } else {
        // The same place by other means.
        a.mov(rcx, rax)?;
        a.shr(rcx, 14)?;
        a.and(ecx, if part == "slots" { 0x7_ffff } else { 0x3_ffff })?;
        a.shl(rcx, 3)?;
        a.mov(rsi, rax)?;
        a.and(esi, if part == "cpu" { 0x1fff } else { 0x3fff })?;
        a.shl(rsi, 21)?;
        a.add(rcx, rsi)?;
    }
    a.mov(rsi, 0xffff_c900_0400_0000u64)?;
    a.add(rcx, rsi)?;
    if part == "mark first" {
        a.mov(qword_ptr(rcx), rax)?;
    }
    if part != "no identifier" {
        a.mov(rsi, if part == "identifier" { id + 1 } else { id })?;
        a.mov(qword_ptr(rcx + 24), rsi)?;
    }
    if part == "mark" {
        a.inc(rax)?;
    }
    a.mov(
        qword_ptr(rcx + if part == "neighbour" { 32 } else { 8 }),
        rdx,
    )?;
    if part != "no time" {
        a.mov(qword_ptr(rcx + 16), if part == "time" { rsi } else { rdx })?;
    }
    a.mov(qword_ptr(rcx), rax)?;
    if part == "mark twice" {
        a.mov(qword_ptr(rcx), rax)?;
    }
    a.set_label(&mut done)?;
    a.pop(rax)?;
    moved(a)?;
    leave(a)?;
    a.set_label(&mut full)?;
    match part {
        "not counted" => a.nop()?,
        "wrong cause" => a.inc(qword_ptr(0x3_0018).gs())?,
        _ => a.inc(qword_ptr(0x3_0010).gs())?,
    }
    a.jmp(done)
}

#[test]
fn a_sample() {
    let image = image();
    let plan = planned_close(&image, vec![placement("f", 0, HookType::Pre, "timestamp")]);
    let id = plan.instruments[0].id.pack();
    for (part, rule) in [
        ("right", None),
        ("limit known", None),
        ("limit first", Some("RingFull")),
        ("no limit", Some("RingFull")),
        // After a migration the head of one CPU and the limit of another say nothing.
        ("greater", Some("RingFull")),
        ("inverted", Some("RingFull")),
        ("clock first", Some("StaleClock")),
        ("two slots", Some("HeadStep")),
        ("result unseen", Some("UntestedExchange")),
        ("gives up", Some("Leaves: is not done here")),
        ("keeps failing", Some("OutsideSample: is not done here")),
        ("slots", Some("OutsideSlot")),
        ("cpu", Some("OutsideSlot")),
        ("neighbour", Some("OutsideSlot")),
        ("rotated", None),
        ("rotated too far", Some("OutsideSlot")),
        ("identifier", Some("OtherIdentifier")),
        ("no identifier", Some("EarlyMark")),
        ("mark", Some("OtherMark")),
        ("mark first", Some("EarlyMark")),
        ("time", Some("OtherTime")),
        ("no time", Some("EarlyMark")),
        ("mark twice", Some("UnhookedStore")),
        ("not counted", Some("Leaves: is not done here")),
        ("wrong cause", Some("OutsideSample")),
    ] {
        println!("{part}");
        judged(&image, &plan, rule, &|a| sample(a, part, id));
    }
}
