//! The real agent at a unix socket on this machine, whose kernel lacks the module `ilk`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a test's failure"
)]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ilk_driver::protocol::{
    self, Decoder, FrameDecoder, Message, Opening, RefusalKind, Request, encode,
};

mod nonsense;

use nonsense::Random;

struct Agent {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Agent {
    fn start() -> Self {
        Self::start_by(&["env"])
    }

    /// Starts an agent as the command of these words.
    fn start_by(words: &[&str]) -> Self {
        Self::start_with(words, &[])
    }

    /// Starts an agent with further arguments.
    fn start_with(words: &[&str], further: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock");
        let child = Command::new(words[0])
            .args(&words[1..])
            .arg(env!("CARGO_BIN_EXE_ilk"))
            .args(["agent", "--socket"])
            .arg(&socket)
            .args(further)
            .envs([("RUST_BACKTRACE", "0")])
            .env_remove("DOAS_USER")
            .env_remove("PKEXEC_UID")
            .stderr(Stdio::null())
            .env_remove("SUDO_UID")
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !socket.exists() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "the agent created no socket"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Self {
            child,
            socket,
            _folder: folder,
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client {
    stream: UnixStream,
    decoder: FrameDecoder,
}

impl Client {
    fn open(socket: &Path, nonce: u64) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut client = Self {
            stream: stream.try_clone().unwrap(),
            decoder: Decoder::frames_only(),
        };
        stream
            .write_all(&Opening { version: 99, nonce }.to_bytes())
            .unwrap();
        let mut answer = [0; protocol::OPENING_BYTES];
        client.stream.read_exact(&mut answer).unwrap();
        let (answer, _) = Opening::find_last(&answer).unwrap();
        assert_eq!(
            answer,
            Opening {
                version: protocol::VERSION,
                nonce
            }
        );
        client
    }

    fn send(&mut self, request: &Request) {
        self.stream.write_all(&encode(request).unwrap()).unwrap();
    }

    fn next(&mut self) -> Message {
        loop {
            if let Some(message) = self.decoder.take().unwrap() {
                return message;
            }
            let mut bytes = [0; 65_536];
            let count = self.stream.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "the agent closed the connection");
            self.decoder.push(&bytes[..count]);
        }
    }

    /// Returns whether the next message answers this ping, with a clock that advances.
    fn is_pong(&mut self, ping: u64) -> bool {
        matches!(self.next(), Message::Pong { number, tsc } if number == ping && tsc > 0)
    }

    fn pong(&mut self, ping: u64) {
        assert!(self.is_pong(ping));
    }

    fn file(&mut self, request: &Request) -> (Vec<u8>, String) {
        self.send(request);
        let mut bytes = Vec::new();
        loop {
            match self.next() {
                Message::Chunk(chunk) => bytes.extend(chunk.into_vec()),
                Message::End(note) => return (bytes, note),
                other => panic!("{other:?}"),
            }
        }
    }

    fn refused(&mut self, request: &Request) -> (RefusalKind, String) {
        self.send(request);
        match self.next() {
            Message::Refused(refusal) => (refusal.kind, refusal.text),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_agent_without_the_module_reports_it_and_still_serves() {
    let agent = Agent::start();
    let mode = std::fs::metadata(&agent.socket)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "other users could connect");

    let mut client = Client::open(&agent.socket, 1);
    let (kind, text) = client.refused(&Request::Info);
    assert_eq!(kind, RefusalKind::Module);
    assert!(
        text.starts_with("The module ilk is not loaded on ") && text.contains("insmod ilk.ko"),
        "{text}"
    );
    let (kind, _) = client.refused(&Request::Read {
        address: u64::MAX,
        length: 2,
    });
    assert_eq!(kind, RefusalKind::Request);
    // The direct map of all memory is never read; on this machine the symbols may be hidden too.
    let (kind, text) = client.refused(&Request::Read {
        address: 0xffff_8880_0000_0000,
        length: 8,
    });
    assert!(
        matches!(kind, RefusalKind::Request | RefusalKind::Read),
        "{text}"
    );
    client.send(&Request::Ping(42));
    client.pong(42);

    let (symbols, note) = client.file(&Request::Kallsyms);
    assert!(note.is_empty());
    let own = std::fs::read("/proc/kallsyms").unwrap();
    assert!(
        symbols.len().abs_diff(own.len()) < 4096,
        "{} bytes of symbols, and this process reads {}",
        symbols.len(),
        own.len()
    );
}

#[test]
fn a_second_client_is_refused_and_the_next_one_is_served() {
    let agent = Agent::start();
    let mut first = Client::open(&agent.socket, 1);
    let mut second = Client::open(&agent.socket, 2);
    let (kind, text) = second.refused(&Request::Info);
    assert_eq!(kind, RefusalKind::Busy);
    assert!(
        text.contains("Another program is using the agent"),
        "{text}"
    );
    drop(second);
    first.send(&Request::Ping(1));
    first.pong(1);
    drop(first);

    let begun = Instant::now();
    loop {
        let mut next = Client::open(&agent.socket, 3);
        next.send(&Request::Ping(3));
        if next.is_pong(3) {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the agent never became free"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_second_client_may_look() {
    let agent = Agent::start();
    let mut first = Client::open(&agent.socket, 1);
    first.send(&Request::Ping(1));
    first.pong(1);
    let mut second = Client::open(&agent.socket, 2);
    second.send(&Request::Status);
    let Message::Status(status) = second.next() else {
        panic!()
    };
    let holder = status.holder.unwrap();
    assert_eq!(holder.process, Some(std::process::id()));
    assert_eq!((status.parked, status.splices), (None, 0));
    let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["status", "--socket"])
        .arg(&agent.socket)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let process = format!("process {}", std::process::id());
    assert!(
        output.status.success() && said.contains(&process) && said.contains("nothing is spliced"),
        "{output:?}"
    );
    // A looking client reads the kernel's symbols, and nothing that a session needs.
    let mut third = Client::open(&agent.socket, 3);
    let (symbols, _) = third.file(&Request::Kallsyms);
    assert!(
        symbols.len() > 1 << 16,
        "{} bytes of symbols",
        symbols.len()
    );
    let (kind, text) = third.refused(&Request::Clear);
    assert_eq!(kind, RefusalKind::Busy);
    assert!(text.contains("Another program is using"), "{text}");
    let (kind, _) = third.refused(&Request::Look);
    assert_eq!(kind, RefusalKind::Busy, "no client has learned of a module");
    // The only client sees no other, and has nothing to end.
    first.send(&Request::Status);
    assert!(matches!(first.next(), Message::Status(status) if status.holder.is_none()));
    let (kind, text) = first.refused(&Request::End);
    assert_eq!(kind, RefusalKind::Request);
    assert!(text.contains("nothing to end"), "{text}");
}

#[test]
fn an_agent_out_of_descriptors_serves_again() {
    let agent = Agent::start_by(&["sh", "-c", "ulimit -n 16; exec \"$@\"", "sh"]);
    let mut clients = Vec::new();
    for _ in 0..40 {
        clients.push(UnixStream::connect(&agent.socket).unwrap());
    }
    std::thread::sleep(Duration::from_millis(300));
    drop(clients);
    let begun = Instant::now();
    loop {
        let mut next = Client::open(&agent.socket, 3);
        next.send(&Request::Ping(3));
        if next.is_pong(3) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_group_that_is_not_there_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["agent", "--group", "no-such-group", "--socket"])
        .arg(folder.path().join("agent.sock"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("no group no-such-group"),
        "{said}"
    );
}

/// Starts an agent as a service manager does, with a descriptor as the socket.
fn activated(passed: OwnedFd, count: &str) -> Command {
    let mut agent = Command::new("sh");
    let script = r#"exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS="$1" exec "$0" agent --socket /nowhere/s"#;
    agent
        .args(["-c", script, env!("CARGO_BIN_EXE_ilk"), count])
        .stdin(Stdio::from(passed));
    agent
}

#[test]
fn a_socket_of_a_service_manager_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("passed.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let child = activated(listener.into(), "1")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let agent = Agent {
        child,
        socket,
        _folder: folder,
    };
    // The connection waits in the socket until the agent accepts it.
    let mut client = Client::open(&agent.socket, 3);
    client.send(&Request::Ping(8));
    client.pong(8);
}

#[test]
fn what_is_passed_and_is_no_listening_socket_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |passed: OwnedFd, count: &str, reason: &str| {
        let output = activated(passed, count).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    };
    let file = std::fs::File::create(folder.path().join("file")).unwrap();
    refused(file.into(), "1", "Socket operation on non-socket");
    let (one, _other) = UnixStream::pair().unwrap();
    refused(one.into(), "1", "no unix socket that listens");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    refused(tcp.into(), "1", "no unix socket that listens");
    let listener = UnixListener::bind(folder.path().join("s")).unwrap();
    refused(listener.into(), "2", "exactly one socket");
}

#[test]
fn invalid_bytes_are_refused_and_a_new_opening_is_accepted() {
    let agent = Agent::start();
    let mut client = Client::open(&agent.socket, 1);
    client.stream.write_all(&[0xff; 64]).unwrap();
    match client.next() {
        Message::Refused(refusal) => assert!(refusal.text.contains("over the limit")),
        other => panic!("{other:?}"),
    }
    let opening = Opening {
        version: protocol::VERSION,
        nonce: 9,
    };
    client.stream.write_all(&opening.to_bytes()).unwrap();
    let mut answer = [0; protocol::OPENING_BYTES];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(Opening::find_last(&answer).unwrap().0, opening);
    client.send(&Request::Ping(5));
    client.pong(5);
}

#[test]
fn an_agent_replaces_neither_a_used_socket_nor_a_file() {
    let agent = Agent::start();
    let second = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["agent", "--socket"])
        .arg(&agent.socket)
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("listens there already"));

    let file = agent.socket.with_file_name("notes.txt");
    std::fs::write(&file, "mine").unwrap();
    let third = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["agent", "--socket"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(!third.status.success());
    assert!(String::from_utf8_lossy(&third.stderr).contains("is not a socket"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn random_input_does_not_end_the_agent() {
    let agent = Agent::start();
    let mut random = Random(0x6769_6c6b);
    for round in 0..60 {
        let mut stream = UnixStream::connect(&agent.socket).unwrap();
        let mut answers = stream.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 65_536];
            while matches!(answers.read(&mut bytes), Ok(1..)) {}
        });
        let opening = Opening {
            version: protocol::VERSION,
            nonce: round,
        };
        stream.write_all(&opening.to_bytes()).unwrap();
        for _ in 0..random.below(60) {
            // A client refused while the previous one is disconnected may lose its connection.
            let _cut_off = stream.write_all(&random.piece());
        }
        let _gone = stream.shutdown(Shutdown::Both);
        reader.join().unwrap();
    }
    let begun = Instant::now();
    loop {
        let mut client = Client::open(&agent.socket, 3);
        client.send(&Request::Ping(11));
        if client.is_pong(11) {
            let (kind, _) = client.refused(&Request::Info);
            assert_eq!(kind, RefusalKind::Module);
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether this test runs as root.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[test]
fn the_agent_keeps_only_the_capabilities_and_calls_that_it_needs() {
    let agent = Agent::start();
    let mut client = Client::open(&agent.socket, 1);
    client.send(&Request::Ping(1));
    client.pong(1);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", agent.child.id())).unwrap();
    for task in tasks.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        let set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
        };
        // CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_PTRACE, CAP_SYSLOG, CAP_PERFMON, CAP_CHECKPOINT_RESTORE
        let needed = 1 << 16 | 1 << 17 | 1 << 19 | 1 << 34 | 1 << 38 | 1 << 40;
        for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:"] {
            if name != "CapBnd:" || is_root() {
                assert_eq!(set(name) & !needed, 0, "{name} {:x}", set(name));
            }
        }
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        assert!(status.contains("Seccomp:\t2"), "{status}");
    }
}

#[test]
fn another_user_is_not_served_even_if_it_can_connect() {
    if !is_root() {
        eprintln!("Skipped: only root can act as another user.");
        return;
    }
    let agent = Agent::start();
    let folder = agent.socket.parent().unwrap();
    for (path, mode) in [(folder, 0o755), (agent.socket.as_path(), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    // The folder of the program may be inaccessible to other users.
    let program = folder.join("ilk");
    std::fs::copy(env!("CARGO_BIN_EXE_ilk"), &program).unwrap();
    let output = Command::new(&program)
        .args(["functions", "--socket"])
        .arg(&agent.socket)
        .uid(65_534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("does not serve user 65534"),
        "{said}"
    );
    assert!(said.contains("--group NAME"), "{said}");
    // Root is served.
    let mut client = Client::open(&agent.socket, 1);
    let (kind, _) = client.refused(&Request::Info);
    assert!(matches!(kind, RefusalKind::Module | RefusalKind::Busy));
}

#[test]
fn the_users_of_a_chosen_group_are_served() {
    if !is_root() {
        eprintln!("Skipped: only root can act as another user.");
        return;
    }
    let agent = Agent::start_with(&["env"], &["--group", "daemon"]);
    let metadata = std::fs::metadata(&agent.socket).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
    let group = std::os::unix::fs::MetadataExt::gid(&metadata);
    let folder = agent.socket.parent().unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("ilk");
    std::fs::copy(env!("CARGO_BIN_EXE_ilk"), &program).unwrap();
    let status = |group: u32| {
        let mut command = Command::new(&program);
        command.args(["status", "--socket"]).arg(&agent.socket);
        command.uid(65_534).gid(group).output().unwrap()
    };
    let member = status(group);
    assert!(
        member.status.success() && String::from_utf8_lossy(&member.stdout).contains("no client"),
        "{member:?}"
    );
    assert!(!status(65_534).status.success());
    // Without the mode of the socket, the agent itself refuses.
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(&agent.socket, open).unwrap();
    let other = status(65_534);
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(said.contains("join the group daemon"), "{said}");
}
