//! The schedule, by accessibility names: ends of bars, snapping, groups, batches.

use crate::support::{Window, browsing, button, click, fill, placements, press, settle};
use egui::{Event, Key, Modifiers, Pos2, Rect, vec2};
use egui_kittest::kittest::Queryable;

/// Two instruments in a session of ten seconds: one from the start, one that launches after four.
fn scheduled() -> Window {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    click(&mut harness, "block 1 of kernel_clone");
    fill(&mut harness, "Launch time", "4");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    click(&mut harness, "Add instrument");
    click(&mut harness, "Schedule tab");
    harness
}

fn bar(harness: &Window, block: u32) -> Rect {
    let name = format!("bar of timestamp pre kernel_clone block {block}");
    harness.get_by_label(&name).rect()
}

/// Returns the points per second.
fn second(harness: &Window) -> f32 {
    (bar(harness, 1).left() - bar(harness, 0).left()) / 4.0
}

fn times(harness: &Window, place: usize) -> (f64, f64) {
    let one = &placements(harness)[place];
    (one.launch, one.splash)
}

/// Drags from a point by a distance, with modifiers held.
fn drag(harness: &mut Window, from: Pos2, by: f32, modifiers: Modifiers) {
    harness.event(Event::ModifiersChanged(modifiers));
    harness.hover_at(from);
    harness.run_steps(2);
    button(harness, from, true);
    for share in 1..=6 {
        harness.hover_at(from + vec2(by * share as f32 / 6.0, 0.0));
        harness.run_steps(2);
    }
    button(harness, from + vec2(by, 0.0), false);
    harness.event(Event::ModifiersChanged(Modifiers::NONE));
    settle(harness);
}

#[test]
fn dragging_a_bar_snaps_and_is_one_undo_step() {
    let mut harness = scheduled();
    harness.get_by_label_contains("batch 0 at 0 s: ");
    let rect = bar(&harness, 0);
    // Three points to the right of the other launch, to which it snaps.
    let by = bar(&harness, 1).left() - rect.left() + 3.0;
    let end = rect.left_center() + vec2(5.0, 0.0);
    drag(&mut harness, end, by, Modifiers::NONE);
    assert_eq!(times(&harness, 0), (4.0, 10.0));
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(times(&harness, 0), (0.0, 10.0), "one drag is one step");
    fill(
        &mut harness,
        "splash of bar: timestamp pre kernel_clone block 0",
        "6.125",
    );
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert_eq!(times(&harness, 0).1, 6.125);
    click(&mut harness, "fold kernel_clone");
    assert!(
        harness
            .query_by_label("bar of timestamp pre kernel_clone block 0")
            .is_none()
    );
    harness.get_by_label("bar of all of kernel_clone");
}

#[test]
fn each_end_of_a_bar_can_be_dragged() {
    let mut harness = scheduled();
    let second = second(&harness);
    let rect = bar(&harness, 0);
    let end = rect.right_center() - vec2(5.0, 0.0);
    drag(&mut harness, end, -3.0 * second, Modifiers::NONE);
    let (launch, splash) = times(&harness, 0);
    assert_eq!(launch, 0.0);
    assert!((splash - 7.0).abs() < 0.1, "{splash}");
    let rect = bar(&harness, 0);
    let begin = rect.left_center() + vec2(5.0, 0.0);
    // Two points to the right of the other launch, to which it snaps.
    drag(&mut harness, begin, 4.0 * second + 2.0, Modifiers::NONE);
    assert_eq!(times(&harness, 0), (4.0, splash));
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(times(&harness, 0), (0.0, splash), "each is one step");
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(times(&harness, 0), (0.0, 10.0));
}

#[test]
fn alt_disables_snapping() {
    let mut harness = scheduled();
    let by = 4.0 * second(&harness) + 3.0;
    let begin = bar(&harness, 0).left_center() + vec2(5.0, 0.0);
    drag(&mut harness, begin, by, Modifiers::ALT);
    let (launch, splash) = times(&harness, 0);
    assert!(launch > 4.0 && launch < 4.3, "{launch}");
    assert_eq!(splash, 10.0);
}

#[test]
fn dragging_a_group_moves_all_its_bars() {
    let mut harness = scheduled();
    // Both end two seconds earlier, so that they can be moved.
    let end = |block| format!("splash of bar: timestamp pre kernel_clone block {block}");
    for block in [0, 1] {
        fill(&mut harness, &end(block), "8");
        press(&mut harness, Modifiers::NONE, Key::Enter);
    }
    let all = harness.get_by_label("bar of all of kernel_clone").rect();
    let by = second(&harness);
    drag(&mut harness, all.center(), by, Modifiers::ALT);
    let ((first, end), (second, last)) = (times(&harness, 0), times(&harness, 1));
    assert!(first > 0.8 && first < 1.2, "{first}");
    assert!((second - first - 4.0).abs() < 1e-5 && (end - last).abs() < 1e-5);
    assert!((end - first - 8.0).abs() < 1e-5);
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(
        (times(&harness, 0), times(&harness, 1)),
        ((0.0, 8.0), (4.0, 8.0))
    );
}

#[test]
fn a_batch_lists_its_writes_waits_and_ranks() {
    let mut harness = browsing("copy_process");
    click(&mut harness, "block 0 of copy_process");
    click(&mut harness, "Add to every hookable block");
    click(&mut harness, "Schedule tab");
    let mark = harness.get_by_label_contains("batch 0 at 0 s: ").rect();
    harness.hover_at(mark.center());
    harness.run_steps(30);
    for words in [
        "installs ",
        "launches ",
        "one wait: ",
        " in slots that another splice exposes",
        "ranks, in sequence",
    ] {
        harness.get_by_label_contains(words);
    }
}
