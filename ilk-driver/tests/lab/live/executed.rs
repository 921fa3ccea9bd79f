//! Comparison of graphs with the instructions that a processor executed: QEMU runs the lab one
//! instruction at a time and logs their addresses.
//!
//! `GILK_EXECUTED` sets the number of instructions to compare; the default is 180,000.

mod faulted;
mod judge;
mod trace;
mod traced;

use std::time::Instant;

use gilk_engine::session::{Session, Workload};

use judge::Judge;
use traced::Traced;

/// A loop of forks, signals, pipes, files, a file system that is mounted and unmounted, the
/// loopback device, compression and reads of /proc and /sys.
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
fn every_executed_branch_targets_the_start_of_a_block() {
    let wanted = std::env::var("GILK_EXECUTED").map_or(180_000, |number| {
        number.parse().expect("GILK_EXECUTED is a number")
    });
    let traced = Traced::boot(|_| ());
    let mut judge = Judge::new(&traced.shared.image, &traced.shared.parts);
    traced.begin(Session {
        name: "instructions".into(),
        duration: 3600.0,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), WORKLOAD.into()],
            start: 0.0,
        }),
        ..Session::empty()
    });
    let mut windows = traced.windows();
    let begin = Instant::now();
    let mut looked_at = 0_u64;
    while looked_at < wanted {
        let pcs = windows.next();
        // A string instruction counts once, however often it repeats.
        looked_at += pcs.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
        judge.window(&pcs);
    }
    println!(
        "{looked_at} instructions in {} windows, {:.0} s\n{judge}",
        windows.number,
        begin.elapsed().as_secs_f64()
    );
    assert!(judge.violations.is_empty(), "{:#?}", judge.violations);
    judge.assert_covered(wanted);
    judge.assert_strict();
}
