//! The native bench's code counts right: a short run of each of its cases. No time is judged here.

#[path = "timing/mod.rs"]
mod timing;

use timing::cases::all;
use timing::measure::{Clock, measure};
use timing::model::report;
use timing::results::{Machine, Results, Row};
use timing::target::Target;

/// In one test: the memory is at fixed addresses of the process.
#[test]
fn every_case_counts_the_hits_of_the_model_and_changes_no_result() {
    let mut target = Target::new();
    let mut moved = 0;
    for case in all() {
        let ready = case.load(&mut target);
        case.check(&mut target, &ready);
        let displaced = case.name.starts_with("a call displaced");
        assert_eq!(ready.moved_calls > 0, displaced, "{}", case.name);
        moved += ready.moved_calls;
    }
    assert!(moved >= 4);
    let cases = all();
    let case = cases.iter().find(|case| case.name == "in a loop");
    let row = measure(&mut target, Clock::new(), case.unwrap(), 4);
    assert_eq!(row.hits_per_call, 16.0);
    assert!(row.bare_call_ns > 0.0 && row.quartiles_ns.is_sorted());
    let text = report(&mut target, Clock::new(), 16);
    assert!(
        text.starts_with("6 random sites to fit on, 10 others"),
        "{text}"
    );
    assert!(text.contains("| all | 10 |"), "{text}");
}

fn row(name: &str, ns: f64) -> Row {
    Row {
        group: "Some".to_owned(),
        name: name.to_owned(),
        hits_per_call: 1.0,
        bare_call_ns: 10.0,
        least_ns: ns,
        quartiles_ns: [ns - 0.1, ns, ns + 0.1],
        instructions: Some(3),
        moved_calls: 0,
    }
}

#[test]
fn what_takes_longer_than_before_is_marked() {
    let results = |rows: Vec<Row>| Results {
        machine: Machine::this(2.3),
        rounds: 10,
        rows,
    };
    let earlier = results(vec![row("a", 1.0), row("b", 80.0), row("c", 10.0)]);
    let now = results(vec![
        row("a", 1.5),
        row("b", 80.0),
        row("c", 12.0),
        row("d", 99.0),
    ]);
    let slower = now.regressions(&earlier);
    let slower: Vec<&str> = slower.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(slower, ["c"]);
    let text = now.markdown(Some(&earlier));
    assert_eq!(text.matches("slower now").count(), 1, "{text}");
    assert!(text.contains("**10.00, slower now**"), "{text}");
    let mut elsewhere = earlier.clone();
    elsewhere.machine.processor = "another".to_owned();
    assert!(now.regressions(&elsewhere).is_empty());
    let text = now.markdown(Some(&elsewhere));
    assert!(text.contains("on another processor"), "{text}");
    assert!(!text.contains("slower now"), "{text}");
    let saved = ron::to_string(&now).unwrap();
    assert_eq!(ron::from_str::<Results>(&saved).unwrap(), now);
}
