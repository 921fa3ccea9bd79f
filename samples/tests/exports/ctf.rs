//! CTF, read by babeltrace2.

use super::*;

#[test]
#[ignore = "needs babeltrace2; cargo xtask test installs it"]
fn babeltrace2_reads_ctf() {
    let dir = tempfile::TempDir::new().unwrap();
    let (path, all) = exported(dir.path(), Format::Ctf);
    let printed = said(
        Command::new("babeltrace2")
            .args(["--clock-cycles", "--no-delta"])
            .arg(&path),
    );
    // `[00000987654321012] 'Event', pre kernel_clone block 3: { cpu_id = 0 }, { value = 1 }`
    let read = printed.lines().filter(|line| {
        line.contains(", pre ") && line.contains("value = ") && !line.contains("launch")
    });
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let read: Vec<(u16, u64, u64)> = read
        .map(|line| {
            let between = |from: &str, to: &str| {
                let rest = line.split_once(from).unwrap().1;
                rest.split_once(to).unwrap().0.trim().to_owned()
            };
            let cpu = between("cpu_id = ", " }").parse().unwrap();
            (
                cpu,
                number(&between("[", "]")),
                number(&between("value = ", " }")),
            )
        })
        .collect();
    assert_eq!(read.len(), all.len());
    for (read, (cpu, sample)) in read.into_iter().zip(&all) {
        assert_eq!(read, (*cpu, sample.tsc, sample.value));
    }
    assert!(printed.contains("lost: ring full: { cpu_id = 2 }, { count = 41 }"));
    assert!(printed.contains(
        "launch: 'Duration', pre kernel_clone block 3: { cpu_id = 65535 }, { value = 77 }"
    ));
    let dated = said(
        Command::new("babeltrace2")
            .args(["--clock-seconds", "--no-delta"])
            .arg(&path),
    );
    let first = unix(START) / 1_000_000_000;
    assert!(
        dated.starts_with(&format!("[{first}.123456")),
        "{}",
        &dated[..80]
    );
}
