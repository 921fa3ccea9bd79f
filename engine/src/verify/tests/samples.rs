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
        ("two slots", Some("RingFull")),
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

/// Two samples of one reservation, written by hand, with one part of it as `part` describes.
fn pair(a: &mut CodeAssembler, part: &str, ids: [u64; 2]) -> Result<(), IcedError> {
    let [mut again, full, beyond, mut done] = [(); 4].map(|()| a.create_label());
    let (head, limit) = (0x3_0000, 0x3_0008);
    let one = 0x1_0000;
    a.push(rax)?;
    a.set_label(&mut again)?;
    a.mov(rcx, qword_ptr(head).gs())?;
    if part == "second slot first" {
        a.add(rcx, one)?;
        a.cmp(rcx, qword_ptr(limit).gs())?;
        a.je(beyond)?;
        a.sub(rcx, one)?;
    }
    if part != "first slot unseen" {
        a.cmp(rcx, qword_ptr(limit).gs())?;
        a.je(full)?;
    }
    a.add(rcx, one)?;
    if !["second slot unseen", "second slot first"].contains(&part) {
        a.cmp(rcx, qword_ptr(limit).gs())?;
        a.je(beyond)?;
    }
    a.rdtsc()?;
    a.shl(rdx, 32)?;
    a.or(rdx, rax)?;
    a.lea(rax, ptr(rcx - one))?;
    match part {
        "one slot" => {}
        "three slots" => a.add(rcx, 2 * one)?,
        "half a slot" => a.add(rcx, one / 2)?,
        _ => a.add(rcx, one)?,
    }
    a.cmpxchg(qword_ptr(head).gs(), rcx)?;
    a.jne(again)?;
    a.mov(rsi, 0xffff_c900_0400_0000u64)?;
    for (number, id) in (0..2).zip(ids) {
        if number == 1 {
            if part != "same mark" {
                a.add(rax, one)?;
            }
            if part == "another time" {
                a.mov(r8, rax)?;
                a.rdtsc()?;
                a.shl(rdx, 32)?;
                a.or(rdx, rax)?;
                a.mov(rax, r8)?;
            }
            if part == "first alone" {
                break;
            }
        }
        if number == 0 || part != "same slot" {
            a.mov(ecx, eax)?;
            a.rol(ecx, 18)?;
        }
        a.mov(qword_ptr(rsi + rcx * 8 + 8), rdx)?;
        a.mov(qword_ptr(rsi + rcx * 8 + 16), rdx)?;
        let id = if part == "exchanged" {
            ids[0] + ids[1] - id
        } else {
            id
        };
        a.mov(r8, id)?;
        a.mov(qword_ptr(rsi + rcx * 8 + 24), r8)?;
        a.mov(qword_ptr(rsi + rcx * 8), rax)?;
    }
    a.set_label(&mut done)?;
    a.pop(rax)?;
    moved(a)?;
    leave(a)?;
    for mut way in [full, beyond] {
        a.set_label(&mut way)?;
        match part {
            "one lost" => a.inc(qword_ptr(0x3_0010).gs())?,
            "three lost" => a.add(qword_ptr(0x3_0010).gs(), 3)?,
            "none lost" => a.add(qword_ptr(0x3_0010).gs(), 0)?,
            "lost by ones" => {
                a.inc(qword_ptr(0x3_0010).gs())?;
                a.inc(qword_ptr(0x3_0010).gs())?;
            }
            _ => a.add(qword_ptr(0x3_0010).gs(), 2)?,
        }
        a.jmp(done)?;
    }
    Ok(())
}

#[test]
fn two_samples_of_one_reservation() {
    let image = image();
    let placements = vec![placement("f", 0, HookType::Pre, "timestamp"); 2];
    let plan = planned_close(&image, placements);
    let ids = [0, 1].map(|place: usize| plan.instruments[place].id.pack());
    for (part, rule) in [
        ("right", None),
        ("first slot unseen", Some("RingFull")),
        ("second slot unseen", Some("RingFull")),
        // The limit may move on between: then it is at the second slot.
        ("second slot first", Some("RingFull")),
        ("one slot", Some("OutsideSample")),
        ("three slots", Some("RingFull")),
        ("half a slot", Some("HeadStep")),
        ("same mark", Some("OutsideSlot")),
        ("same slot", Some("OutsideSlot")),
        ("another time", Some("OtherTime")),
        ("first alone", Some("Leaves: is not done here")),
        ("exchanged", Some("OtherIdentifier")),
        ("one lost", Some("CountsLoss|Leaves: is not done here")),
        ("three lost", Some("CountsLoss")),
        ("none lost", Some("CountsLoss")),
        ("lost by ones", Some("CountsLoss")),
    ] {
        println!("{part}");
        judged(&image, &plan, rule, &|a| pair(a, part, ids));
    }
}
