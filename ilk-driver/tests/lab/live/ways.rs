//! What the ways from an agent to its client carry.

use std::process::Stdio;
use std::time::{Duration, Instant};

use ilk_driver::client::{Throughput, measure_throughput};

use crate::support::{ilk, shared};

/// Of 64 KiB each.
const MESSAGES: u32 = 1000;

fn tell(way: &str, carried: &Throughput) {
    println!(
        "{way:<40} {:>6.2} million samples/s {:>7.1} MB/s",
        carried.samples_per_second() / 1e6,
        carried.megabytes_per_second()
    );
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn each_carries_all_that_is_sent() {
    let shared = shared();
    let _turn = shared.turn();
    let socket = shared.lab.socket();
    // Everything is warm then.
    measure_throughput(socket, 10, false).unwrap();
    let port = measure_throughput(socket, MESSAGES, false).unwrap_or_else(|error| panic!("{error}"));
    let memory = measure_throughput(socket, MESSAGES, true).unwrap_or_else(|error| panic!("{error}"));
    tell("virtio-serial, from the lab", &port);
    tell("shared memory (ivshmem), from the lab", &memory);
    assert!(memory.shared && !port.shared);
    assert_eq!(memory.samples, port.samples);

    // On a machine of one's own the way is a unix socket.
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("agent.sock");
    let mut agent = ilk()
        .args(["agent", "--socket"])
        .arg(&socket)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !socket.exists() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let own = measure_throughput(&socket, MESSAGES, true);
    let _ended = agent.kill().and_then(|()| agent.wait());
    let own = own.unwrap_or_else(|error| panic!("{error}"));
    tell("unix socket, from this machine", &own);
    assert!(!own.shared);
    assert_eq!(own.samples, port.samples);
}
