//! An agent that runs no programs, as outside the lab: its filter of system calls permits a
//! session, and invalid messages do not end it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gilk_engine::Session;
use ilk_driver::Error;
use ilk_driver::client::Connection;
use ilk_driver::protocol::{Opening, VERSION};

use super::losses::{assert_balanced, only};
use crate::nonsense::Random;
use crate::support::{Turn, number_in, placement, prepared, shared_of};

/// A function that every CPU executes periodically.
const INTERRUPTS: &str = "update_process_times";

/// Runs a session and checks that every hit is accounted for.
fn serves(turn: &Turn<'_>) {
    let both = ["counter", "timestamp"].map(|it| placement(INTERRUPTS, 0, it, (0.0, 2.0)));
    let mut session = Session {
        name: "guarded".into(),
        duration: 2.0,
        placements: both.into(),
        ..Session::empty()
    };
    session.collection.grace = 5.0;
    let outcome = turn.run(&session);
    assert!(outcome.total(0) > 50, "the timer did not interrupt");
    only(assert_balanced(&outcome), |_| ());
}

/// Connects as soon as the previous client's connection has ended.
fn connected(turn: &Turn<'_>) -> Connection {
    let begun = Instant::now();
    loop {
        match Connection::connect(turn.shared.lab.socket()) {
            Err(Error::Busy { .. }) if begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(200));
            }
            connection => return connection.unwrap_or_else(|error| panic!("{error}")),
        }
    }
}

/// Sends random requests; `GILK_NONSENSE` sets the number of rounds, of some tens of messages each.
#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn invalid_messages_at_the_port_harm_neither_agent_nor_kernel() {
    let shared = shared_of(&prepared().with(|options| {
        options
            .append
            .extend(["gilk.run=off", "gilk.debugfs=off"].map(String::from));
    }));
    let turn = shared.turn();
    assert!(!turn.connect().info().runs_programs);
    // The kernel's list of functions that must not be probed is read, though debugfs is mounted nowhere.
    let parts = turn.connect().live_parts(&mut |_, _| ()).unwrap();
    assert!(parts.blacklist.lines().count() > 100, "{}", parts.blacklist);
    serves(&turn);
    let mut random = Random(0x6761_7264);
    let mut pieces = 0;
    for nonce in 0..number_in("GILK_NONSENSE").unwrap_or(25) {
        let mut stream = UnixStream::connect(shared.lab.socket()).unwrap();
        let mut answers = stream.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while matches!(answers.read(&mut bytes), Ok(1..)) {}
        });
        let opening = Opening {
            version: VERSION,
            nonce,
        };
        stream.write_all(&opening.to_bytes()).unwrap();
        for _ in 0..random.below(80) {
            stream.write_all(&random.piece()).unwrap();
            pieces += 1;
        }
        // Gives some messages time to be answered.
        std::thread::sleep(Duration::from_millis(random.below(60) as u64));
        stream.shutdown(Shutdown::Both).unwrap();
        reader.join().unwrap();
    }
    println!("{pieces} valid and invalid messages");
    drop(connected(&turn));
    serves(&turn);
    let console = shared.lab.console().unwrap();
    assert!(!console.contains("the agent ended"), "{console}");
    turn.assert_untouched();
}
