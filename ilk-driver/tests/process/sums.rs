//! Sums, smallest and largest values and means of 0 are shown, and those of no hit are not.

use std::collections::BTreeMap;

use gilk_samples::recording::Recording;
use gilk_samples::totals::TotalValue;

use super::compiled_from;
use super::launched::{ilk, text_of};

const SOURCE: &str = "
#define NOINLINE __attribute__((noipa))
NOINLINE long zero(long n) { return 3 * n + 1; }
NOINLINE long cancels(long n) { return 5 * n + 1; }
NOINLINE long never(long n) { return 7 * n + 1; }
int main(int count, char **arguments)
{
    (void)arguments;
    for (long n = 0; n < 3; n++)
        zero(0);
    cancels(-7);
    cancels(7);
    if (count > 5)
        never(1);
    return 0;
}
";

#[test]
fn what_is_zero_is_shown_and_what_was_not_hit_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let recording = folder.path().join("sums.arrow");
    let scripts = ["zero", "cancels", "never"].map(|function| {
        format!(
            "entry:{function} {{ @sum = sum((s64)arg0); @max = max((s64)arg0); @min = min((s64)arg0); @mean = avg((s64)arg0); \
             @count = count(); @by[arg0 == 9] = sum((s64)arg0) }} "
        )
    });
    let script = scripts.concat();
    let output = ilk(
        &[
            "-e",
            &script,
            "-o",
            recording.to_str().unwrap(),
            "--",
            program.to_str().unwrap(),
        ],
        "",
    );
    let shown = text_of(&output.stdout);
    assert!(output.status.success(), "{shown}");
    let line = |number: &str, name: &str, function: &str| {
        let mut lines = shown.lines();
        lines.any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(number)
                && words.next() == Some(&format!("@{name}"))
                && line.contains(&format!(" {function} "))
        })
    };
    for name in ["sum", "max", "min"] {
        assert!(line("0", name, "zero"), "{name}: {shown}");
    }
    assert!(line("0", "sum", "cancels"), "{shown}");
    assert!(
        line("7", "max", "cancels") && line("-7", "min", "cancels"),
        "{shown}"
    );
    assert!(
        line("0", "mean", "zero") && line("0", "mean", "cancels"),
        "{shown}"
    );
    assert!(line("3", "count", "zero"), "{shown}");
    assert!(!shown.contains(" never "), "{shown}");
    assert!(shown.contains("6 others: 0 or no value"), "{shown}");
    // By key, too.
    let keyed = shown.lines().filter(|line| line.trim() == "0  0").count();
    assert_eq!(keyed, 2, "{shown}");

    let recording = Recording::open(&recording).unwrap();
    let totals = recording.totals().added_up.iter();
    let values: BTreeMap<(String, String), &TotalValue> = totals
        .map(|total| {
            let place = recording.metadata().placement(total.placement).unwrap();
            let function = ["zero", "cancels", "never"];
            let function = function
                .into_iter()
                .find(|name| place.contains(name))
                .unwrap();
            ((function.to_owned(), total.name.clone()), &total.value)
        })
        .collect();
    let value = |function: &str, name: &str| values[&(function.to_owned(), name.to_owned())];
    for name in ["sum", "max", "min"] {
        assert_eq!(*value("zero", name), TotalValue::Number(0));
        assert_eq!(*value("never", name), TotalValue::Nothing);
    }
    assert_eq!(*value("cancels", "sum"), TotalValue::Number(0));
    assert_eq!(*value("never", "mean"), TotalValue::Nothing);
    assert_eq!(*value("never", "count"), TotalValue::Number(0));
}
