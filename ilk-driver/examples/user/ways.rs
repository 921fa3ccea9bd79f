//! Ways to execute a program: natively, by `ilk`, and by other tools that this machine has.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The name of the file of recorded accesses.
pub(crate) const RECORDS: &str = "accesses";

/// The use of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nothing.
    Bare,
    /// Counts its executions.
    Counted,
    /// Records its accesses of memory.
    Accesses,
}

/// The begin of a way.
pub(crate) enum Begin {
    Native,
    /// A command, given the number of the process after its arguments, attaches to the program while that waits for its
    /// input. Its messages have these words once it has begun.
    Attached(&'static str),
    /// A command starts the program.
    Started,
}

/// A way to execute a program.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) purpose: Purpose,
    pub(crate) begin: Begin,
    /// The command and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Words of its output or of its messages at the end, if it has done what it is for.
    pub(crate) done: &'static str,
}

impl Way {
    fn new(
        (name, purpose): (&'static str, Purpose),
        begin: Begin,
        command: Vec<OsString>,
        done: &'static str,
    ) -> Self {
        Self {
            name,
            purpose,
            begin,
            command,
            done,
        }
    }
}

/// The program by itself.
pub(crate) fn native() -> Way {
    Way::new(("native", Purpose::Bare), Begin::Native, Vec::new(), "")
}

/// The ways of `ilk`, in a folder for files.
pub(crate) fn own(ilk: &Path, folder: &Path) -> Vec<Way> {
    let command = |arguments: &[&str]| {
        let arguments = arguments.iter().map(OsString::from);
        std::iter::once(ilk.into()).chain(arguments).collect()
    };
    let spliced = || Begin::Attached("instrumented; its threads");
    let cached = || Begin::Attached("is ready. Ctrl-C");
    let accesses = folder.join(RECORDS);
    let mut accesses = vec![
        "clone".into(),
        "--accesses".into(),
        accesses.into_os_string(),
    ];
    accesses.insert(0, OsString::from(ilk));
    accesses.extend(["--most", "0", "--"].map(OsString::from));
    use Purpose::{Accesses, Bare, Counted};
    vec![
        Way::new(("cache", Bare), cached(), command(&["clone", "-p"]), ""),
        Way::new(
            ("cache, started", Bare),
            Begin::Started,
            command(&["clone", "--"]),
            "",
        ),
        Way::new(
            ("splices", Counted),
            spliced(),
            command(&["process", "--blocks", "*,*:*", "-p"]),
            "counter pre",
        ),
        Way::new(
            ("splices, sparing", Counted),
            spliced(),
            command(&["process", "--blocks", "--sparing", "*,*:*", "-p"]),
            "counter pre",
        ),
        Way::new(
            ("cache", Counted),
            cached(),
            command(&["clone", "--count", "-p"]),
            "blocks executed",
        ),
        Way::new(
            ("cache, started", Counted),
            Begin::Started,
            command(&["clone", "--count", "--"]),
            "blocks executed",
        ),
        Way::new(
            ("cache, started", Accesses),
            Begin::Started,
            accesses,
            "bytes of records of accesses",
        ),
    ]
}

/// The ways of other tools, and the names of those that are missing. `recorder` is a client of DynamoRIO that records
/// accesses.
pub(crate) fn peers(script: &Path, recorder: Option<&Path>) -> (Vec<Way>, Vec<&'static str>) {
    let (mut ways, mut missing) = (Vec::new(), Vec::new());
    let mut add = |way: Way, is_there: bool| match is_there {
        true => ways.push(way),
        false => missing.push(way.name),
    };
    let dynamorio = found("drrun");
    let client = dynamorio.as_deref().and_then(counting_client);
    let words = |all: &[&str]| all.iter().map(OsString::from).collect::<Vec<_>>();
    add(
        Way::new(
            ("DynamoRIO", Purpose::Bare),
            Begin::Started,
            words(&["drrun", "--"]),
            "",
        ),
        dynamorio.is_some(),
    );
    add(
        Way::new(
            ("Valgrind, none", Purpose::Bare),
            Begin::Started,
            words(&["valgrind", "--tool=none"]),
            "",
        ),
        found("valgrind").is_some(),
    );
    add(
        Way::new(
            ("QEMU", Purpose::Bare),
            Begin::Started,
            words(&["qemu-x86_64"]),
            "",
        ),
        found("qemu-x86_64").is_some(),
    );
    let mut counting = words(&["drrun", "-c"]);
    counting.extend(client.iter().map(|path| path.as_os_str().to_owned()));
    counting.push("--".into());
    let mut stalker = words(&["python3"]);
    stalker.push(script.as_os_str().to_owned());
    let mut python = Command::new("python3");
    let python = python.args(["-c", "import frida"]).stderr(Stdio::null());
    add(
        Way::new(
            ("Frida's Stalker", Purpose::Bare),
            Begin::Attached("following"),
            stalker,
            "",
        ),
        python.status().is_ok_and(|status| status.success()),
    );
    add(
        Way::new(
            ("DynamoRIO, bbcount", Purpose::Counted),
            Begin::Started,
            counting,
            "basic block executions",
        ),
        client.is_some(),
    );
    let mut recording = words(&["drrun", "-c"]);
    recording.extend(recorder.map(|client| client.as_os_str().to_owned()));
    recording.push("--".into());
    add(
        Way::new(
            ("DynamoRIO", Purpose::Accesses),
            Begin::Started,
            recording,
            "memory references",
        ),
        dynamorio.is_some() && recorder.is_some(),
    );
    (ways, missing)
}

/// Returns the path of a program that the shell finds.
fn found(program: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&search).map(|folder| folder.join(program));
    all.into_iter()
        .find(|path| path.is_file())
        .and_then(|path| fs::canonicalize(path).ok())
}

/// Returns DynamoRIO's sample client that counts blocks, of a package or of its build.
fn counting_client(drrun: &Path) -> Option<PathBuf> {
    let home = drrun.parent()?.parent()?;
    let folders = ["samples/bin64", "api/bin"].map(|folder| home.join(folder));
    let clients = folders.map(|folder| folder.join("libbbcount.so"));
    clients.into_iter().find(|client| client.is_file())
}
