//! Rows by which the kernel unwinds stacks through patches.

use super::*;
use crate::unwind::Row;

/// Plans for every hook, of patches that the kernel unwinds through.
fn plans(image: &Image) -> Vec<Plan> {
    let layout = RuntimeLayout {
        unwinds: true,
        ..layout()
    };
    let kinds = ["timestamp", "counter", "block-trace"];
    let hooked = |((function, block, hook), kind): ((String, u32, HookType), &&str)| {
        let session = session(vec![placement(&function, block, hook, kind)]);
        plan(image, &session, &Library::builtin().unwrap(), &layout).unwrap()
    };
    let hooks = hooks(image).into_iter();
    hooks.zip(kinds.iter().cycle()).map(hooked).collect()
}

#[test]
fn every_row_matters() {
    let image = kernel().image();
    let (mut rows, mut pushed) = (0, 0);
    let mut changed = Caught::new("changed unwind rows", &[&["NoRow", "OtherRow", "RowOrder"]]);
    let mut removed = Caught::new("removed unwind rows", &[&["NoRow", "OtherRow"]]);
    for good in plans(&image) {
        passes(&image, &good);
        let all = &good.patches[0].rows;
        rows += all.len();
        pushed += all.iter().filter(|row| row.pushed > 0).count();
        assert_eq!(all[0].at, 0);
        for number in 0..all.len() {
            let damages: [fn(&mut Row); 4] = [
                |row| row.pushed += 8,
                |row| row.pushed ^= 16,
                |row| row.original = row.original.add(1),
                |row| row.at += 1,
            ];
            for damage in damages {
                let mut bad = good.clone();
                damage(&mut bad.patches[0].rows[number]);
                changed.must_refuse(&image, bad, format_args!("row {number} of {all:?}"));
            }
            let mut bad = good.clone();
            let mut rows = bad.patches[0].rows.to_vec();
            rows.remove(number);
            bad.patches[0].rows = rows.into();
            removed.must_refuse(&image, bad, format_args!("row {number} of {all:?}"));
        }
    }
    assert!(rows > 200 && pushed > 50, "{rows} rows, {pushed} pushed");
}

#[test]
fn rows_are_in_order_and_complete() {
    let image = kernel().image();
    let good = &plans(&image)[0];
    refused(&image, good, "RowOrder", |plan| {
        plan.patches[0].rows.swap(0, 1);
    });
    refused(&image, good, "UselessRows", |plan| {
        plan.layout.unwinds = false;
    });
    refused(&image, good, "NoRow", |plan| {
        plan.patches[0].rows = Box::default();
    });
    refused(&image, good, "OtherRow: below 8 bytes", |plan| {
        plan.patches[0].rows[0].pushed = 8;
    });
}
