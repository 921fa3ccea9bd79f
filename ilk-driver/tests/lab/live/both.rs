//! A process and its kernel in one session: each write of a program is followed from the C library into the kernel and
//! back, on one timeline, by two scripts and by the session's file that they are saved in.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gilk_engine::Session;
use gilk_samples::Sample;
use gilk_samples::recording::Recording;
use ilk_driver::lab::Lab;

use crate::support::prepared;

/// Time limit of the machine, which plans for a kernel and a C library in an emulator.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// Writes of the program.
const WRITES: usize = 200;

const PROGRAM: &str = "
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words)
{
	static char bytes[4096];
	int file = open(\"/tmp/written\", O_CREAT | O_WRONLY, 0600);
	for (long n = 1; n <= atol(words[count - 1]); n++)
		if (write(file, bytes, n) != n)
			return 1;
	return 0;
}
";

/// The kernel's messages would lie within the lines.
const SCRIPT: &str = r#"#!/bin/busybox sh
dmesg -n 1
ilk agent --socket /run/ilk.sock --unknown-kernel > /tmp/agent 2>&1 &
tries=0
while [ ! -S /run/ilk.sock ] && [ $tries -lt 600 ]; do
	usleep 100000
	tries=$((tries + 1))
done
ilk process -e 'entry:libc.so.6:write { sample(arg2) } return:libc.so.6:write { sample(retval) }' \
	--kernel 'entry:vfs_write { sample(arg2) } return:vfs_write { sample(retval) }' --socket /run/ilk.sock \
	--save /tmp/x.ron -o /tmp/x.arrow -- /lab/writer WRITES < /dev/null > /tmp/said 2>&1
status=$?
ilk run /tmp/x.ron --socket /run/ilk.sock -o /tmp/y.arrow < /dev/null > /tmp/refused 2>&1
echo "refused with status $?" >> /tmp/refused
ilk run /tmp/x.ron --socket /run/ilk.sock -o /tmp/y.arrow -- /lab/writer WRITES < /dev/null > /tmp/again 2>&1
again=$?
sed 's/^/gilk-lab: said: /' /tmp/agent /tmp/said /tmp/again
sed 's/^/gilk-lab: refused: /' /tmp/refused
sed 's/^/gilk-lab: session: /' /tmp/x.ron
echo
for name in x y; do
	[ -f /tmp/$name.arrow ] && od -A n -v -t x1 /tmp/$name.arrow | tr -d ' ' | sed "s/^/gilk-lab: $name data: /"
done
exit $((status + again))
"#;

/// The lines of a console with a beginning.
fn lines<'c>(console: &'c str, beginning: &str) -> Vec<&'c str> {
    let lines = console.lines();
    lines
        .filter_map(|line| Some(line.split_once(beginning)?.1.trim_end()))
        .collect()
}

fn decoded(hexadecimal: &[&str]) -> Vec<u8> {
    let digits = hexadecimal.concat();
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty());
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(byte).collect()
}

/// The writer and the script, as files of the lab.
fn files(folder: &Path) -> Vec<(String, std::path::PathBuf)> {
    let [source, program, script] = ["writer.c", "writer", "run"].map(|name| folder.join(name));
    fs::write(&source, PROGRAM).unwrap();
    let compiled = Command::new("cc")
        .args(["-O2", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(compiled.success());
    fs::write(&script, SCRIPT.replace("WRITES", &WRITES.to_string())).unwrap();
    vec![
        ("lab/writer".to_owned(), program),
        ("lab/run".to_owned(), script),
    ]
}

#[test]
#[ignore = "plans for a kernel in an emulator, minutes; cargo xtask test --long runs it"]
fn each_write_is_followed_from_the_c_library_into_the_kernel_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = prepared().with(|options| options.files.extend(files(folder.path())));
    let lab = Lab::boot(&prepared, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let begun = Instant::now();
    while lab.end().is_none() {
        assert!(begun.elapsed() < LIMIT, "{}", lab.console().unwrap());
        std::thread::sleep(Duration::from_millis(100));
    }
    let console = lab.console().unwrap();
    let said = lines(&console, "gilk-lab: said: ");
    let status = lines(&console, "gilk-lab: /lab/run ended with status ");
    assert_eq!(status, ["0"], "{said:#?}");
    let refused = lines(&console, "gilk-lab: refused: ").join("\n");
    assert!(
        refused.contains("is of a process and its kernel: name the process with -p"),
        "{refused}"
    );
    assert!(refused.ends_with("refused with status 1"), "{refused}");
    let session = Session::from_ron(&lines(&console, "gilk-lab: session: ").join("\n")).unwrap();
    let kernel = session.of_kernel().unwrap();
    assert!(!session.placements.is_empty() && !kernel.placements.is_empty());
    let sources: Vec<&String> = kernel.sources.values().collect();
    assert!(
        sources.iter().all(|source| !source.contains("pid")),
        "the file is for any process: {sources:?}"
    );
    for name in ["x", "y"] {
        let path = folder.path().join(format!("{name}.arrow"));
        let data = lines(&console, &format!("gilk-lab: {name} data: "));
        fs::write(&path, decoded(&data)).unwrap();
        let recording = Recording::open(&path).unwrap();
        let recorded = Session::from_ron(&recording.metadata().session).unwrap();
        assert_eq!(recorded.kernel, session.kernel);
        followed(&recording, &said);
    }
}

/// Checks that each write has its four samples, with its size, in order of time.
fn followed(recording: &Recording, said: &[&str]) {
    assert_eq!(recording.recovered(), None);
    let instruments = &recording.metadata().instruments;
    let place = |id: u64| {
        let label = &instruments.iter().find(|one| one.id == id).unwrap().label;
        let is_entry = label.contains(" pre ") && label.ends_with("block 0");
        match (label.starts_with("kernel: "), is_entry) {
            (false, true) => 0,
            (true, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
        }
    };
    let samples: Vec<Sample> = recording.merged().map(|one| one.unwrap().1).collect();
    let found: Vec<(usize, u64)> = samples
        .iter()
        .map(|one| (place(one.id), one.value))
        .collect();
    // The program writes nothing else, and the kernel's side is of this process alone.
    let sizes = 1..=u64::try_from(WRITES).unwrap();
    let expected: Vec<(usize, u64)> = sizes
        .flat_map(|size| (0..4).map(move |place| (place, size)))
        .collect();
    assert_eq!(found, expected, "{said:#?}");
    let times = samples.windows(2);
    assert!(times.into_iter().all(|pair| pair[0].tsc < pair[1].tsc));
}
