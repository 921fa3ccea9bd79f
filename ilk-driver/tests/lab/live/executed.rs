//! Blocks, and the ways into them, against the instructions that a processor really executed: QEMU
//! runs the lab one instruction at a time and writes down where each one is.
//!
//! `GILK_EXECUTED` says how many instructions are looked at; two million if it is not set.

mod judge;
mod trace;

use std::path::Path;
use std::time::{Duration, Instant};

use gilk_engine::session::{Session, Workload};
use gilk_engine::{Addr, Image};
use ilk_driver::client::{Connection, Event, StopFlag};
use ilk_driver::lab::{Accelerator, Lab};

use crate::support::prepared;
use judge::Judge;
use trace::{Monitor, WINDOW_BYTES, executed};

/// Forks, signals, pipes, files, a file system that comes and goes, the loopback device, compression
/// and what /proc and /sys show of the kernel, over and over.
const WORKLOAD: &str = "
ifconfig lo 127.0.0.1 up
mkdir -p /tmp/w; cd /tmp/w; mkfifo f
while :; do
	pulsar 1 1
	strobe 1 50
	seq 200 | sort -r | uniq | wc -l
	(sleep 0.01; echo through) > f & cat f
	sleep 10 & kill $!; wait $!
	nc -l -p 7 > got & usleep 5000; echo hello | nc -w 1 127.0.0.1 7
	for n in 1 2 3; do dd if=/dev/zero of=z$n bs=4k count=9; cp z$n y$n; ln -s z$n l$n; mv y$n x$n; done
	sync; cat z1 x2 | gzip | gunzip | md5sum; rm -f z* x* l*
	mkdir m; mount -t tmpfs none m; touch m/a; umount m; rmdir m
	cat /proc/self/maps /proc/meminfo /proc/interrupts /proc/stat /proc/cpuinfo > /dev/null
	find /sys/kernel /proc/sys -type f | head -n 300 | xargs cat > /dev/null
	ps; df; free; uptime; dmesg | tail -n 3; hostname lab; chmod 700 .; ls -lR /dev
	nice -n 5 true; timeout 1 true; renice 3 $$; taskset 1 true; flock got true
	head -c 5000 /dev/urandom | od | tail -n 1
done > /dev/null 2>&1
";

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn every_branch_taken_leads_to_the_start_of_a_block() {
    let wanted = std::env::var("GILK_EXECUTED").map_or(2_000_000, |number| {
        number.parse().expect("GILK_EXECUTED is a number")
    });
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("monitor");
    let prepared = prepared().with(|options| {
        // The clock counts instructions: however slow this gets, no time passes in the kernel.
        options.accelerator = Some(Accelerator::CountInstructions);
        options.arguments = vec![
            "-monitor".into(),
            format!("unix:{},server=on,wait=off", socket.display()),
            // The kernel and its modules: nothing of user space.
            "-dfilter".into(),
            "0xffffffff80000000..0xfffffffffffffffe".into(),
        ];
    });
    let lab = Lab::boot(&prepared, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let mut connection =
        Connection::connect(lab.socket()).unwrap_or_else(|error| panic!("{error}"));
    let parts = connection
        .live_parts(&mut |_, _| ())
        .unwrap_or_else(|error| panic!("{error}"));
    let image = Image::from_live(&parts).unwrap();
    let mut judge = Judge::new(&image, &parts);
    begin_workload(connection, image.clone(), directory.path());

    let mut monitor = Monitor::connect(&socket);
    monitor.command("singlestep on");
    let begin = Instant::now();
    let (mut number, mut looked_at) = (0, 0_u64);
    while looked_at < wanted {
        let log = directory.path().join(format!("window-{number}"));
        number += 1;
        monitor.command(&format!("logfile {}", log.display()));
        monitor.command("log exec,nochain");
        let window = Instant::now();
        while std::fs::metadata(&log).map_or(0, |found| found.len()) < WINDOW_BYTES {
            assert!(
                window.elapsed() < Duration::from_secs(60) && lab.end().is_none(),
                "the workload does nothing: {:?}\n{}",
                lab.end(),
                lab.console().unwrap()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        monitor.command("log none");
        let text = std::fs::read(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        let pcs = executed(&text);
        assert!(
            pcs.len() > 10_000,
            "the log cannot be read: {} of {} bytes",
            pcs.len(),
            text.len()
        );
        // A string instruction is one, however many rounds it takes.
        looked_at += pcs.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
        judge.window(&pcs);
    }
    println!(
        "{looked_at} instructions in {number} windows, {:.0} s\n{judge}",
        begin.elapsed().as_secs_f64()
    );
    assert!(judge.violations.is_empty(), "{:#?}", judge.violations);
    judge.assert_covered();
    judge.assert_strict();
}

/// The workload runs as long as the lab does; nobody waits for it.
fn begin_workload(mut connection: Connection, image: Image, directory: &Path) {
    let session = Session {
        name: "instructions".into(),
        duration: 3600.0,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), WORKLOAD.into()],
            start: 0.0,
        }),
        ..Session::empty()
    };
    let recording = directory.join("recording.arrow");
    let (events, heard) = crossbeam_channel::unbounded();
    std::thread::spawn(move || {
        let library = gilk_instruments::Library::builtin().unwrap();
        let plan =
            gilk_engine::plan::plan(&image, &session, &library, &connection.info().layout).unwrap();
        let verified = gilk_engine::verify::verify(&image, plan).unwrap();
        let _ended_with_the_lab =
            connection.run(&verified, &session, &recording, &events, &StopFlag::new());
    });
    let started = heard
        .iter()
        .any(|event| matches!(event, Event::Workload(_) | Event::Started(_)));
    assert!(started, "the session did not begin");
}

/// A line of the log, and what is said of it.
#[test]
fn a_log_reads_as_the_instructions_that_ran() {
    let text = b"Trace 0: 0x7f3c40000100 [00000000/ffffffff81000000/0040c2b0/ff000201] start\n\
        Trace 0: 0x7f3c40000200 [00000000/ffffffff81000005/0040c2b0/ff000201] start\n\
        Stopped execution of TB chain before 0x7f3c40000200 [ffffffff81000005] start\n\
        Trace 0: 0x7f3c40000200 [00000000/ffffffff81000005/0040c2b0/ff000201] start\n\
        something else\n\
        Trace 0: 0x7f3c4000";
    assert_eq!(
        executed(text),
        [Addr(0xffff_ffff_8100_0000), Addr(0xffff_ffff_8100_0005)]
    );
}
