//! Lines of text that instruments deliver.

use std::collections::BTreeMap;

use crate::support::{answer, exported, printed, shared};

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn lines_are_printed_and_exported_with_their_arguments() {
    let shared = shared();
    let turn = shared.turn();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("run.arrow");
    let script = r#"entry:__do_sys_clone {
        printf("%-8s|%d|%04x|%s|%s\n", comm, pid - pid - 5, 0xab, ksym(*(u64 *)reg("sp")), kstack(2));
    }"#;
    let to = recording.to_str().unwrap();
    let output = answer(&turn, &["-e", script, "-c", "/bin/pulsar 100 5", "-o", to]);
    let (out, err) = printed(&output);
    assert!(output.status.success(), "{out}{err}");
    let own: Vec<&str> = out.lines().filter(|line| line.contains('|')).collect();
    assert_eq!(own.len(), 160, "{out}{err}");
    for line in &own {
        let parts: Vec<&str> = line.split('|').collect();
        let [comm, minus, hex, caller, stack] = parts[..] else {
            panic!("{line}")
        };
        assert_eq!((comm, minus, hex), ("pulsar  ", "-5", "00ab"));
        // The returned-to function is the second of the stack.
        let outer = caller.split('+').next().unwrap();
        assert_eq!(stack, format!("{outer};__do_sys_clone"), "{line}");
        assert!(!outer.starts_with("0x"), "{line}");
    }

    let csv = folder.path().join("run.csv");
    let text = exported(&recording, &[], &csv);
    let count = |lines: &mut dyn Iterator<Item = String>| {
        let mut counts = BTreeMap::new();
        lines.for_each(|line| *counts.entry(line).or_insert(0) += 1);
        counts
    };
    // A line ends with its own line break, so that it is in quotes, over two lines.
    let fields = text.split('"').skip(1).step_by(2);
    let exported = count(&mut fields.map(|field| field.trim_end().to_owned()));
    let printed = count(&mut own.iter().map(|line| (*line).to_owned()));
    assert_eq!(exported, printed, "{text}");
    turn.assert_untouched();
}
