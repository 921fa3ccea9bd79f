//! Processes that cannot be instrumented, each with the sentence that names the cause and what to do.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ilk_driver::process::{Attached, ObjectChoice, ProcessTarget, Subject};

use super::{Counted, attached, every_block, hits, maps, planned_session, subject};

/// A user and group without rights.
const UNPRIVILEGED: u32 = 65534;

#[track_caller]
fn refused(pid: u32, function: &str, words: &[&str]) {
    let choice = ObjectChoice::of(std::iter::once(function));
    let error = Subject::read(pid, &choice).unwrap_err().to_string();
    for words in words {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn processes_that_cannot_be_instrumented_are_refused_by_name() {
    let mut counted = Counted::start(&[], |_| {});
    refused(counted.pid(), "libnothing.so:f", &["libc.so.6"]);
    let pid = counted.pid();
    counted.does("filter");
    refused(pid, "main", &["seccomp"]);
    counted.end();
    refused(pid, "main", &["no such process"]);
    // Not even one's own threads can be traced by one.
    refused(std::process::id(), "main", &["cannot be instrumented"]);
}

#[test]
fn a_process_that_another_traces_is_refused_with_the_tracer() {
    let mut counted = Counted::start(&[], |_| {});
    counted.does("traced");
    refused(counted.pid(), "main", &["is tracing it", "end that first"]);
    counted.does("untraced");
    // Its tracer has ended.
    let attached = attached(counted.pid());
    let before = counted.does("count").0;
    assert_eq!(
        counted.does("load").0 - before,
        hits(&attached.remove().unwrap().counts).0
    );
    counted.end();
}

#[test]
fn instruments_that_begin_or_end_within_the_session_are_refused() {
    let counted = Counted::start(&[], |_| {});
    let maps_before = maps(counted.pid());
    let (subject, reserved) = subject(counted.pid(), "counted", 64);
    let whole = every_block(subject.image(), &["counted"]);
    let [mut late, mut early] = [whole.clone(), whole.clone()];
    late.placements.iter_mut().for_each(|one| one.launch = 0.1);
    early.placements[0].splash /= 2.0;
    for session in [late, early] {
        let plan = planned_session(&subject, &reserved, &session);
        let refusal = ProcessTarget::refusal(plan.plan()).unwrap();
        assert!(refusal.contains("launch 0"), "{refusal}");
        let error = Attached::attach(&subject, reserved.clone(), &plan).unwrap_err();
        assert_eq!(error.to_string(), refusal);
    }
    assert_eq!(maps(counted.pid()), maps_before);
    let plan = planned_session(&subject, &reserved, &whole);
    assert_eq!(ProcessTarget::refusal(plan.plan()), None);
    counted.end();
}

/// A kernel's agent runs a session's program. In a process it was left out without a word.
#[test]
fn a_session_that_runs_a_program_is_refused_for_a_process() {
    let counted = Counted::start(&[], |_| {});
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_string_lossy().into_owned();
    let (session, recording, pid) = (
        path("forks.ron"),
        path("forks.arrow"),
        counted.pid().to_string(),
    );
    let text = r#"(version: 1, name: "forks", duration: 1.0, workload: Some((program: "/bin/pulsar", start: 0.5)), placements: [])"#;
    std::fs::write(&session, text).unwrap();
    for way in [&["run"][..], &["clone", "--session"]] {
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
        ilk.args(way).args([&session, "-o", &recording, "-p", &pid]);
        let output = ilk.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{way:?}: {message}");
        assert!(
            message.contains("forks.ron runs /bin/pulsar during the session"),
            "{way:?}: {message}"
        );
        assert!(!std::path::Path::new(&recording).exists(), "{way:?}");
    }
    counted.end();
}

#[test]
fn a_thread_of_the_kernel_and_an_ended_process_are_named() {
    // kthreadd, unless this is a container.
    let name = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if name.trim() == "kthreadd" {
        refused(2, "main", &["a thread of the kernel", "ilk -e"]);
    }
    let mut child = Command::new("true").spawn().unwrap();
    let state = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&state).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    refused(child.id(), "main", &["it has ended"]);
    child.wait().unwrap();
}

/// `pause` for ever, by 32-bit code.
fn program_of_32_bits() -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 1, 1, 1];
    file.resize(16, 0);
    for half in [2_u16, 3] {
        file.extend(half.to_le_bytes());
    }
    let at = 0x0804_8000_u32;
    for word in [1, at + 84, 52, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    for half in [52_u16, 32, 1, 40, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for word in [1, 0, at, at, 93, 93, 5, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    // mov eax, 29; int 0x80; jmp -9
    file.extend([0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7]);
    file
}

#[test]
fn a_program_of_32_bits_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short");
    std::fs::write(&path, program_of_32_bits()).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    // A kernel without 32-bit programs has none to refuse.
    let Ok(mut child) = Command::new(&path).spawn() else {
        return;
    };
    // The kernel maps it after `spawn` has returned.
    let name = path.to_str().unwrap();
    let begun = Instant::now();
    while !maps(child.id()).contains(name) && begun.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    let choice = ObjectChoice::of(std::iter::once("main"));
    let error = Subject::read(child.id(), &choice).err();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = error.unwrap().to_string();
    assert!(error.contains("64 bits"), "{error}");
}

#[test]
fn another_users_process_is_refused_with_the_mend() {
    let counted = Counted::start(&[], |_| {});
    let folder = tempfile::tempdir().unwrap();
    // Only root starts programs as another user.
    if std::fs::metadata(folder.path()).unwrap().uid() == 0 {
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let ilk = folder.path().join("ilk");
        std::fs::copy(env!("CARGO_BIN_EXE_ilk"), &ilk).unwrap();
        let output = Command::new(&ilk)
            .args(["process", "-p", &counted.pid().to_string(), "counted"])
            .current_dir("/")
            .uid(UNPRIVILEGED)
            .gid(UNPRIVILEGED)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        for words in ["another user", "root's rights"] {
            assert!(errors.contains(words), "{errors}");
        }
    }
    counted.end();
}

#[test]
fn counts_end_where_the_process_executes_another_program() {
    let mut counted = Counted::start(&[], |_| {});
    let attached = attached(counted.pid());
    let (calls, _) = counted.does("load");
    writeln!(counted.input, "exec").unwrap();
    assert_eq!(counted.line(), "ready");
    assert!(attached.has_ended());
    let text = counted.text();
    counted.does("load");
    let removed = attached.remove().unwrap();
    assert!(removed.ended);
    assert_eq!(hits(&removed.counts).0, calls);
    assert_eq!(counted.text(), text);
    counted.end();
}
