//! Programs of the language in a process: their totals are those of the program.

use std::collections::BTreeMap;

use gilk_engine::Session;
use gilk_engine::verify::verify;
use gilk_instruments::Library;
use gilk_samples::totals::TotalValue;
use ilk_driver::client::totals;
use ilk_driver::process::{Attached, Subject};
use ilk_driver::script::{Filter, Script, resolve};

use super::{Counted, clean};

const SCRIPT: &str = "
    cpu @seen;
    global @all;
    entry:counted {
        @calls = count();
        @sum = sum(arg0);
        @mean = avg(arg0);
        @least = min(arg0);
        @most = max((u32)arg0);
        @sizes = hist(arg0);
        @steps = lhist((u32)arg0 % 3, 0, 3, 1);
        @rest = values((u32)arg0 % 3);
        @by[(u32)arg0 % 3] = sum(arg0);
        @seen += 1;
        @all += 1
    }
    return:counted / retval == 7 / { @sevens = count() }
    return:counted { @returned = sum((u32)retval) }
    entry:counted / @seen > 0 && @all > 0 && cpu < 4096 / { @after = count() }
";

/// The session of a script for the program.
fn session(subject: &Subject, script: &str) -> Session {
    let script = Script::parse(script).unwrap();
    let filter = Filter {
        duration: 10.0,
        pid: None,
    };
    resolve(&script, subject.image(), filter, None)
        .unwrap_or_else(|faults| panic!("{faults}"))
        .session
}

#[test]
fn totals_of_programs_are_those_of_the_process() {
    let mut counted = Counted::start(&[], |_| {});
    let subject = Subject::read(counted.pid(), None, 8192).unwrap();
    let session = session(&subject, SCRIPT);
    let library = Library::builtin().unwrap();
    let plan = gilk_engine::plan::plan(subject.image(), &session, &library, subject.layout());
    let plan = verify(subject.image(), plan.unwrap()).unwrap();
    let attached = Attached::attach(subject, &plan).unwrap();
    let (calls, odd) = counted.does("load");
    let (sum, returned) = counted.does("sums");
    let removed = attached.remove().unwrap();
    clean(&removed);
    let words: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
    let all = totals(plan.plan(), &words).added_up;
    let value = |name: &str| -> Vec<&TotalValue> {
        let named = all.iter().filter(|one| one.name == name);
        named.map(|one| &one.value).collect()
    };
    let number = |name: &str| -> i128 {
        let numbers = value(name).into_iter().map(|value| match value {
            TotalValue::Number(number) => *number,
            other => panic!("{name}: {other:?}"),
        });
        numbers.sum()
    };
    assert_eq!(number("sum"), sum.into());
    assert_eq!(number("returned"), returned.into());
    assert_eq!(number("least"), 1);
    assert_eq!(number("most"), 2_000_004);
    let [TotalValue::Mean(mean)] = value("mean")[..] else {
        panic!("{:?}", value("mean"));
    };
    assert!((mean - sum as f64 / calls as f64).abs() < 1e-6, "{mean}");
    for name in ["sizes", "steps", "rest"] {
        let hits: u64 = value(name).iter().map(|value| value.hits()).sum();
        assert_eq!(hits, calls, "{name}");
    }
    let [TotalValue::Values(rest, 0)] = value("rest")[..] else {
        panic!("{:?}", value("rest"));
    };
    assert!(rest.contains(&(1, odd)), "{rest:?}");
    let [TotalValue::Map(rows, 0)] = value("by")[..] else {
        panic!("{:?}", value("by"));
    };
    let sums = rows.iter().map(|row| match row.value {
        TotalValue::Number(number) => number,
        ref other => panic!("{other:?}"),
    });
    assert_eq!(sums.sum::<i128>(), sum.into());
    counted.end();
}
