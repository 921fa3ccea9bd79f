//! A program that a client runs, since the agent on its machine runs none: it is counted as one that the agent runs, and
//! ends the session with its status.

use std::time::{Duration, Instant};

use ilk_driver::lab::Lab;

use crate::support::prepared;

/// Time limit of the machine, which plans for a kernel in an emulator.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// As on a machine of one's own: the client is beside the agent.
const SCRIPT: &str = r#"#!/bin/busybox sh
dmesg -n 1
ilk agent --socket /run/ilk.sock --unknown-kernel > /tmp/agent 2>&1 &
tries=0
while [ ! -S /run/ilk.sock ] && [ $tries -lt 600 ]; do
	usleep 100000
	tries=$((tries + 1))
done
ilk -e 'entry:__do_sys_clone { @calls = count() }' -c '/bin/pulsar 100 5; echo printed; exit 3' \
	--socket /run/ilk.sock < /dev/null > /tmp/said 2>&1
echo "status $?" >> /tmp/said
sed 's/^/gilk-lab: said: /' /tmp/said
"#;

#[test]
#[ignore = "plans for a kernel in an emulator, a minute; cargo xtask test --long runs it"]
fn a_client_runs_the_program_where_the_agent_runs_none() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("run");
    std::fs::write(&script, SCRIPT).unwrap();
    let prepared = prepared().with(|options| options.files.push(("lab/run".to_owned(), script)));
    let lab = Lab::boot(&prepared, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let begun = Instant::now();
    while lab.end().is_none() {
        assert!(begun.elapsed() < LIMIT, "{}", lab.console().unwrap());
        std::thread::sleep(Duration::from_millis(100));
    }
    let console = lab.console().unwrap();
    let said = |line: &str| console.lines().any(|said| said.trim_end() == line);
    for line in ["program: printed", "status 3"] {
        assert!(
            said(&format!("gilk-lab: said: {line}")),
            "{line}: {console}"
        );
    }
    // Pulsar's forks, and the shell's.
    let calls = console.lines().filter_map(|line| {
        let line = line.strip_prefix("gilk-lab: said: ")?.trim();
        line.strip_suffix("  __do_sys_clone")?
            .trim()
            .parse::<u64>()
            .ok()
    });
    let calls: Vec<u64> = calls.collect();
    assert!(matches!(calls[..], [160..165]), "{calls:?}: {console}");
}
