//! Labels by which instruments of two recordings are compared: without numbers of processes, which each run has others of.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::metadata::InstrumentInfo;

/// Returns the key of each label. The process that a label begins with, `process 12 sh: `, is left out if all labels begin
/// with it; otherwise its place among those of the same name stands for its number.
pub(super) fn matching(instruments: &[InstrumentInfo]) -> HashMap<&str, Cow<'_, str>> {
    let labels = || instruments.iter().map(|one| one.label.as_str());
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut of_name: BTreeMap<&str, usize> = BTreeMap::new();
    for process in labels().filter_map(process) {
        places.entry(process.number).or_insert_with(|| {
            let next = of_name.entry(process.name).or_default();
            *next += 1;
            *next
        });
    }
    let is_alone = places.len() == 1 && labels().all(|label| process(label).is_some());
    let key = |label| match process(label) {
        None => Cow::from(label),
        Some(Process { rest, .. }) if is_alone => rest.into(),
        Some(Process { number, name, rest }) => {
            let place = places.get(number).copied().unwrap_or_default();
            format!("process #{place}{name}: {rest}").into()
        }
    };
    labels().map(|label| (label, key(label))).collect()
}

/// The process that a label begins with.
struct Process<'l> {
    number: &'l str,
    /// The name of its program, after a space; empty without one.
    name: &'l str,
    /// The rest of the label.
    rest: &'l str,
}

fn process(label: &str) -> Option<Process<'_>> {
    let (owner, rest) = label.split_once(": ")?;
    let owner = owner.strip_prefix("process ")?;
    let end = owner.find(|one: char| !one.is_ascii_digit());
    let (number, name) = owner.split_at(end.unwrap_or(owner.len()));
    let is_process = !number.is_empty() && (name.is_empty() || name.starts_with(' '));
    is_process.then_some(Process { number, name, rest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meaning;
    use crate::metadata::Delivers;

    fn keys(labels: &[&str]) -> Vec<String> {
        let instruments: Vec<InstrumentInfo> = (0..)
            .zip(labels)
            .map(|(id, label)| InstrumentInfo {
                id,
                label: (*label).to_owned(),
                instrument: String::new(),
                meaning: Meaning::Event,
                unit: String::new(),
                launch: 0.0,
                splash: 1.0,
                placed: None,
                delivers: Delivers::Samples,
            })
            .collect();
        let keys = matching(&instruments);
        labels.iter().map(|label| keys[label].to_string()).collect()
    }

    #[test]
    fn processes_are_compared_by_their_programs_and_order() {
        assert_eq!(
            keys(&["counter f", "kernel: g"]),
            ["counter f", "kernel: g"]
        );
        // A process alone is as one whose recording does not name it.
        let alone = keys(&["process 7 sh: counter f", "process 7 sh: counter g"]);
        assert_eq!(alone, ["counter f", "counter g"]);
        let several = [
            "process 9 sh: f",
            "process 4 gzip: f",
            "process 12 gzip: f",
            "process 4 gzip: g",
            "process 3: f",
            "kernel: f",
        ];
        let expected = [
            "process #1 sh: f",
            "process #1 gzip: f",
            "process #2 gzip: f",
            "process #1 gzip: g",
            "process #1: f",
            "kernel: f",
        ];
        assert_eq!(keys(&several), expected);
        let named = ["process x: f", "process 4x: f", "processes 4: f"];
        assert_eq!(keys(&named), named);
    }
}
