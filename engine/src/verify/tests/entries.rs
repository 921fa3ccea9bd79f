//! Variables of threads and calls: their entry of the table is found once, at one place, and its value is read again
//! after a store.

use iced_x86::{Code, OpKind};

use super::programs::{instrument, written};
use super::*;
use crate::patch::TIMER_FACTOR;

/// Returns the instructions that compute the place of the only entry that a plan finds: another function of the key
/// is as good there, since nothing else finds that entry.
pub(super) fn place_of_only_entry(plan: &Plan) -> Option<std::ops::Range<u64>> {
    let all = instrument(plan);
    let factor =
        |one: &Instruction| one.code() == Code::Mov_r64_imm64 && one.immediate64() == TIMER_FACTOR;
    let mut found = (0..all.len()).filter(|&number| factor(&all[number].1));
    let (first, None) = (found.next()?, found.next()) else {
        return None;
    };
    // The factor, the product, and two shifts.
    Some(all[first].1.ip()..all[first + 3].1.next_ip())
}

/// A variable of a thread or a call is found once in a probe, however often it is used, unless registers are short.
#[test]
fn an_entry_of_the_table_is_found_once_in_a_probe() {
    let image = kernel().image();
    let found = |source: &str| {
        let source = format!("instrument mine \"x.\"; {source}");
        let plan = written(&image, "helper", 0, &source).unwrap();
        passes(&image, &plan);
        let hashes = instrument(&plan).into_iter();
        hashes
            .filter(|(_, one)| {
                one.code() == Code::Mov_r64_imm64 && one.immediate64() == TIMER_FACTOR
            })
            .count()
    };
    let timer = "hit / @t != 0 / { sample(tsc - @t); @t = 0 }";
    assert_eq!(found(&format!("thread @t; {timer}")), 1);
    let two = "hit / @t != @u / { @u += @t; sample(@t + @u); @t = 0; @u = 0 }";
    assert_eq!(found(&format!("thread @t, @u; {two}")), 2);
    let many = ["a", "b", "c", "d", "e", "f", "g"];
    let stores = many
        .map(|name| format!("@{name} = @{name} | arg0;"))
        .concat();
    let all = many.map(|name| format!("@{name}")).join(", ");
    let short = found(&format!("thread {all}; hit {{ {stores} }}"));
    assert!((8..14).contains(&short), "{short}");
}

/// The same program, whose code reads the value of its thread before its own store, and uses it after that.
fn read_before_its_store(plan: &mut Plan) {
    let all = decoded(plan.patches[0].address, &plan.patches[0].code);
    let load = all.iter().find(|one| {
        one.code() == Code::Mov_r64_rm64
            && one.op1_kind() == OpKind::Memory
            && one.memory_displacement64() == 8
            && one.memory_base() != iced_x86::Register::RSP
    });
    let (load, lock) = (
        load.unwrap(),
        all.iter().find(|one| one.has_lock_prefix()).unwrap(),
    );
    let patch = &mut plan.patches[0];
    let offset = |at: u64| (at - patch.address.0) as usize;
    let (from, to) = (offset(lock.ip()), offset(load.next_ip()));
    patch.code[from..to].rotate_right(load.len());
    // What branches over the instruction, or to what it has passed, has as much farther to go.
    let place = |at: u64| match at {
        at if (lock.ip()..=load.ip()).contains(&at) => at + load.len() as u64,
        at => at,
    };
    let branches = all.iter().filter(|one| one.near_branch_target() != 0);
    for one in branches.filter(|one| one.ip() != load.ip()) {
        let (at, target) = (place(one.ip()), place(one.near_branch_target()));
        let end = offset(at) + one.len();
        let distance = target.wrapping_sub(at + one.len() as u64).cast_signed();
        match one.is_jcc_short() {
            true => patch.code[end - 1] = i8::try_from(distance).unwrap().cast_unsigned(),
            false => patch.code[end - 4..end]
                .copy_from_slice(&i32::try_from(distance).unwrap().to_le_bytes()),
        }
    }
}

/// All probes find the entry of a variable at the same place.
#[test]
fn no_place_of_an_entry_can_be_another_than_in_other_probes() {
    let image = kernel().image();
    let source =
        "instrument mine \"x.\"; thread @t; hit { @t = arg0; sample(@t) } hit { @n = sum(@t) }";
    let good = written(&image, "helper", 0, source).unwrap();
    let factor = instrument(&good)
        .into_iter()
        .find(|(_, one)| one.code() == Code::Mov_r64_imm64 && one.immediate64() == TIMER_FACTOR);
    let (at, factor) = factor.unwrap();
    refused(&image, &good, "OtherEntry", |plan| {
        plan.patches[0].code[at + factor.len() - 1] ^= 1;
    });
}

/// The word of an entry that was read before the program's own store is not the variable after it.
#[test]
fn no_value_of_an_entry_outlives_a_store_into_it() {
    let image = kernel().image();
    for source in [
        "thread @t; hit { @t = arg0; sample(@t) }",
        "thread @t; hit { @t += arg0; @n = sum(@t) }",
        "call @c; entry { @c = arg0; sample(@c) }",
    ] {
        let source = format!("instrument mine \"x.\"; {source}");
        let good = written(&image, "helper", 0, &source).unwrap();
        refused(&image, &good, "StaleEntry", read_before_its_store);
    }
}
