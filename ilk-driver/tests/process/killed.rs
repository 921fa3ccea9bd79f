//! Remains in a process when `ilk process` is killed, and in its forked children.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Counted, attached, clean, maps, text};

/// `ilk process` counting every block of `counted`.
fn client(pid: u32) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["process", "-p", &pid.to_string(), "counted", "--blocks"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

pub(super) fn cleaned(pid: u32) -> (bool, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["process", "--clean", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let both = text(&done.stdout) + &text(&done.stderr);
    (done.status.success(), both)
}

/// The line of `ilk status` about a process.
fn status(pid: u32) -> Option<String> {
    // There is no agent, which it says after the processes.
    let done = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["status", "--socket", "/run/no-agent.sock"])
        .output()
        .unwrap();
    assert!(!done.status.success());
    let lines = String::from_utf8(done.stdout).unwrap();
    let start = format!("process {pid} (counted): ");
    let mut lines = lines.lines().filter_map(|line| line.strip_prefix(&start));
    lines.next().map(str::to_owned)
}

pub(super) fn kill(pid: u32) {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}

fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// The only child of an `ilk process`.
pub(super) fn supervisor_of(client: u32) -> u32 {
    let supervisors = children(client);
    assert_eq!(supervisors.len(), 1);
    supervisors[0]
}

/// Returns whether a process executes: it exists, and is no zombie.
pub(super) fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

/// Waits until a process has patches.
fn wait_patched(pid: u32) {
    let begun = Instant::now();
    while !maps(pid).contains("memfd:gilk") {
        let waits = begun.elapsed();
        assert!(
            is_alive(pid) && waits < Duration::from_secs(60),
            "{}",
            maps(pid)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_supervisor_removes_what_a_killed_client_leaves() {
    let mut counted = Counted::start(&[], |_| {});
    let before = counted.text();
    counted.does("begin");
    // While threads execute system calls for it too.
    for delay_ms in std::iter::repeat_n(0, 20).chain([1, 2, 3, 10, 300]) {
        let mut client = client(counted.pid());
        wait_patched(counted.pid());
        let supervisor = supervisor_of(client.id());
        std::thread::sleep(Duration::from_millis(delay_ms));
        client.kill().unwrap();
        client.wait().unwrap();
        let begun = Instant::now();
        while is_alive(supervisor) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!counted.maps().contains("memfd:gilk"), "{}", counted.maps());
    }
    assert_eq!(counted.text(), before);
    counted.does("end");
    counted.end();
}

#[test]
fn what_remains_of_a_killed_client_and_supervisor_is_removed_on_request() {
    let mut counted = Counted::start(&[], |_| {});
    let before = counted.text();
    counted.does("begin");
    let pid = counted.pid();
    let mut client = client(pid);
    wait_patched(pid);
    std::thread::sleep(Duration::from_millis(300));
    let (done, said) = cleaned(pid);
    assert!(
        !done && said.contains(&format!("process {} instruments it", client.id())),
        "{said}"
    );
    let [supervisor] = children(client.id())[..] else {
        panic!("the client has no supervisor");
    };
    let counting = status(pid).unwrap();
    let (splices, by) = counting.split_once(" splices, ").unwrap();
    assert!(splices.parse::<u32>().unwrap() > 1, "{counting}");
    assert_eq!(by, format!("by process {}", client.id()));
    kill(supervisor);
    client.kill().unwrap();
    client.wait().unwrap();
    let left = status(pid).unwrap();
    let way = format!("which was killed (`ilk process --clean -p {pid}`)");
    assert!(left.starts_with(splices) && left.ends_with(&way), "{left}");
    counted.does("fork");
    assert_ne!(counted.text(), before);
    let forked = children(pid);
    assert_eq!(forked.len(), 3);
    let (done, said) = cleaned(pid);
    assert!(done, "{said}");
    for pid in forked.iter().chain([&pid]) {
        assert!(
            said.contains(&format!("removed from process {pid}.")),
            "{said}"
        );
        assert_eq!(text(*pid), before);
    }
    let (done, said) = cleaned(pid);
    assert!(done && said.contains("Nothing of a killed ilk"), "{said}");
    assert_eq!(status(pid), None);
    counted.does("join");
    counted.does("end");
    counted.end();
}

#[test]
fn forked_children_count_and_are_clean_after_the_removal() {
    let mut counted = Counted::start(&[], |_| {});
    let before = counted.text();
    let attached = attached(counted.pid());
    counted.does("fork");
    std::thread::sleep(Duration::from_millis(50));
    let (calls, _) = counted.does("join");
    let sum = |counts: &[(u64, u64)]| counts[0].1;
    assert_eq!(sum(&attached.counts().unwrap()), calls);
    counted.does("fork");
    let forked = children(counted.pid());
    std::thread::sleep(Duration::from_millis(50));
    let removed = attached.remove().unwrap();
    clean(&removed);
    let mut processes = removed.cleaned.processes;
    processes.sort_unstable();
    let mut all = [&forked[..], &[counted.pid()]].concat();
    all.sort_unstable();
    assert_eq!(processes, all);
    for pid in &all {
        assert_eq!(text(*pid), before);
        assert!(!maps(*pid).contains("memfd:gilk"));
    }
    counted.does("join");
    counted.end();
}

/// The program ends first, and its children continue.
#[test]
fn children_of_a_program_that_ends_are_clean_too() {
    let mut counted = Counted::start(&[], |_| {});
    let before = counted.text();
    let attached = attached(counted.pid());
    counted.does("fork");
    let forked = children(counted.pid());
    counted.child.kill().unwrap();
    counted.child.wait().unwrap();
    let removed = attached.remove().unwrap();
    assert!(removed.ended);
    for pid in &forked {
        assert_eq!(text(*pid), before);
        kill(*pid);
    }
    assert_eq!(removed.cleaned.failed, [""; 0]);
    assert_eq!(removed.cleaned.processes.len(), 3);
}
