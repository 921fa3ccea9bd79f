//! Throughput of the connections from an agent to its client.

use std::process::Stdio;
use std::time::{Duration, Instant};

use ilk_driver::client::{Throughput, measure_throughput};

use crate::support::{ilk, shared};

/// Number of messages of 64 KiB.
const MESSAGES: u32 = 1000;

fn print(connection: &str, measured: &Throughput) {
    println!(
        "{connection:<40} {:>6.2} million samples/s {:>7.1} MB/s",
        measured.samples_per_second() / 1e6,
        measured.megabytes_per_second()
    );
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn every_connection_delivers_all_samples() {
    let shared = shared();
    let _turn = shared.turn();
    let socket = shared.lab.socket();
    // Warms everything up.
    measure_throughput(socket, 10, false).unwrap();
    let port =
        measure_throughput(socket, MESSAGES, false).unwrap_or_else(|error| panic!("{error}"));
    let memory =
        measure_throughput(socket, MESSAGES, true).unwrap_or_else(|error| panic!("{error}"));
    print("virtio-serial, from the lab", &port);
    print("shared memory (ivshmem), from the lab", &memory);
    assert!(memory.shared && !port.shared);
    assert_eq!(memory.samples, port.samples);

    // Outside the lab the connection is a unix socket.
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
    print("unix socket, from this machine", &own);
    assert!(!own.shared);
    assert_eq!(own.samples, port.samples);
}
