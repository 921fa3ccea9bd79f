//! glibc's own tests of threads, signals, jumps, memory, timers and processes: each has the same exit status as without
//! while every block is counted, in the code cache, and by splices in the program and the C library's functions of such.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The folder into which Debian's package `glibc-source` installs the source.
const SOURCE: &str = "/usr/src/glibc";
/// Folders of tests, and beginnings of their names.
const TESTS: [(&str, &[&str]); 14] = [
    ("nptl", &["tst-"]),
    ("sysdeps/pthread", &["tst-"]),
    ("signal", &["tst-"]),
    ("setjmp", &["tst-", "bug", "jmpbug"]),
    ("rt", &["tst-"]),
    ("debug", &["tst-backtrace"]),
    ("malloc", &["tst-"]),
    ("time", &["tst-"]),
    ("string", &["tst-"]),
    ("stdlib", &["tst-"]),
    ("stdio-common", &["tst-"]),
    ("sysdeps/unix/sysv/linux", &["tst-"]),
    (
        "posix",
        &[
            "tst-fork",
            "tst-spawn",
            "tst-exec",
            "tst-vfork",
            "tst-wait",
            "tst-getpid",
        ],
    ),
    (
        "misc",
        &["tst-mremap", "tst-syscall", "tst-sync", "tst-clone"],
    ),
];
/// Definitions without which sources of the tests' library need glibc's own headers.
const PRELUDE: &str = "
    #include <limits.h>
    #define libc_hidden_proto(x)
    #define libc_hidden_def(x)
    #define attribute_hidden
    #define TIMEOUTFACTOR 1
";
/// Headers in the place of such.
const HEADERS: [(&str, &str); 3] = [
    ("config.h", ""),
    ("atomic.h", ""),
    (
        "stackinfo.h",
        "#include <elf.h>\n#define _STACK_GROWS_DOWN 1\n#define DEFAULT_STACK_PERMS (PF_R | PF_W)\n",
    ),
];
/// Headers of the source itself, to be found without those beside them, which are glibc's own.
const COPIED: [&str; 7] = [
    "include/intprops.h",
    "include/array_length.h",
    "include/allocate_once.h",
    "include/scratch_buffer.h",
    "include/libc-diag.h",
    "malloc/dynarray.h",
    "malloc/dynarray-skeleton.c",
];
/// Paths of an installation that the tests' library has to be compiled with.
const PATHS: [&str; 13] = [
    "BINDIR",
    "COMPLOCALEDIR",
    "INSTDIR",
    "LIBDIR",
    "OBJDIR_ELF_LDSO",
    "OBJDIR",
    "ROOTDIR",
    "ROOTSBINDIR",
    "SBINDIR",
    "SLIBDIR",
    "SRCDIR",
    "SYSCONFDIR",
    "LOCALEDIR",
];
/// A test that takes longer natively is left out.
const LONGEST: Duration = Duration::from_secs(20);
/// Time after which a test in the cache has failed.
const HANGS: Duration = Duration::from_secs(120);
/// Native executions of a test whose status differs in the cache.
const AGAIN: u32 = 10;
/// Ways to count: options before the program.
const WAYS: [(&str, &[&str]); 2] = [
    ("cache", &["clone", "--count", "--"]),
    ("splices", &["process", "--blocks", SPLICED, "--"]),
];
/// Functions whose blocks are counted by splices.
const SPLICED: &str = "*,libc.so.6:*thread*,libc.so.6:*sem_*,libc.so.6:*sig*,libc.so.6:*jmp*,libc.so.6:*mutex*,\
                       libc.so.6:*cond*,libc.so.6:*clone*,libc.so.6:*fork*,libc.so.6:*timer*,libc.so.6:raise,\
                       libc.so.6:malloc,libc.so.6:free,libc.so.6:mem*,libc.so.6:*read,libc.so.6:*write";
/// Exit statuses of tests that have passed, and that this machine does not support.
const PASSED: [Option<i32>; 2] = [Some(0), Some(77)];

/// The source with what is compiled of it.
struct Glibc {
    source: PathBuf,
    folder: PathBuf,
}

impl Glibc {
    fn unpacked(folder: &Path) -> Self {
        let files = std::fs::read_dir(SOURCE).unwrap_or_else(|error| panic!("{SOURCE}: {error}"));
        let mut files = files.map(|file| file.unwrap().path());
        let archive = files.find(|path| path.extension().is_some_and(|end| end == "xz"));
        let mut tar = Command::new("tar");
        let tar = tar.arg("xf").arg(archive.unwrap()).arg("-C").arg(folder);
        assert!(tar.status().unwrap().success());
        let mut unpacked = std::fs::read_dir(folder).unwrap();
        let source = unpacked.next().unwrap().unwrap().path();
        let glibc = Self {
            source,
            folder: folder.to_path_buf(),
        };
        glibc.headers();
        glibc.library();
        glibc
    }

    fn headers(&self) {
        let place = |name: &str| {
            let path = self.folder.join("headers").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        std::fs::write(place("prelude.h"), PRELUDE).unwrap();
        for (name, text) in HEADERS {
            std::fs::write(place(name), text).unwrap();
        }
        for name in COPIED {
            let target = name.strip_prefix("include/").unwrap_or(name);
            std::fs::copy(self.source.join(name), place(target)).unwrap();
        }
        std::os::unix::fs::symlink(self.source.join("support"), place("support")).unwrap();
    }

    fn cc(&self) -> Command {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-w", "-std=gnu11", "-D_GNU_SOURCE", "-pthread"])
            .arg("-include")
            .arg(self.folder.join("headers/prelude.h"))
            .arg("-I")
            .arg(self.folder.join("headers"))
            .arg("-I")
            .arg(self.source.join("support"))
            .stderr(Stdio::null());
        cc
    }

    /// Compiles the library of the tests; what needs more of glibc's own headers is left out.
    fn library(&self) {
        let objects = self.folder.join("objects");
        std::fs::create_dir(&objects).unwrap();
        let mut compiled = Vec::new();
        for file in sources(&self.source.join("support"), &[""]) {
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            if name.starts_with("tst-") || name.contains("test-driver") || name.ends_with("-main") {
                continue;
            }
            let object = objects.join(&name).with_extension("o");
            let paths = PATHS.map(|path| format!("-D{path}_PATH=\"/usr\""));
            let mut cc = self.cc();
            let cc = cc.args(paths).arg("-c").arg(&file).arg("-o").arg(&object);
            if cc.status().unwrap().success() {
                compiled.push(object);
            }
        }
        let mut ar = Command::new("ar");
        let ar = ar.arg("rcs").arg(self.folder.join("libsupport.a"));
        assert!(ar.args(&compiled).status().unwrap().success());
    }

    /// Compiles a test, unless it needs more of glibc's own headers.
    fn compiled(&self, file: &Path) -> Option<PathBuf> {
        let name = self.name(file).replace('/', ".");
        let program = self.folder.join("programs").join(name);
        let mut cc = self.cc();
        for folder in [file.parent().unwrap(), &self.source.join("nptl")] {
            cc.arg("-I").arg(folder);
        }
        cc.arg("-I")
            .arg(self.source.join("sysdeps/pthread"))
            .arg("-idirafter")
            .arg(&self.source)
            .arg(file)
            .arg("-o")
            .arg(&program)
            .arg(self.folder.join("libsupport.a"))
            .args(["-ldl", "-lm", "-lrt"]);
        cc.status().unwrap().success().then_some(program)
    }

    /// `nptl/tst-mutex1`.
    fn name(&self, file: &Path) -> String {
        let name = file.strip_prefix(&self.source).unwrap().with_extension("");
        name.to_str().unwrap().to_owned()
    }
}

/// The sources of a folder whose names begin so, sorted.
fn sources(folder: &Path, beginnings: &[&str]) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.ends_with(".c") && beginnings.iter().any(|one| name.starts_with(one))
        })
        .collect();
    files.sort();
    files
}

/// Kills what is left of the processes of a child's group.
fn end(child: &Child) {
    let mut kill = Command::new("kill");
    let kill = kill.args(["-KILL", "--", &format!("-{}", child.id())]);
    // There may be none.
    let _none = kill.stderr(Stdio::null()).status().unwrap();
}

/// Executes a command; returns its exit status, which one that takes too long or is killed has none of, and its messages.
fn status(command: &mut Command, messages: &Path, longest: Duration) -> (Option<i32>, String) {
    let file = std::fs::File::create(messages).unwrap();
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(file).process_group(0).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if begun.elapsed() > longest {
            end(&child);
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // Its children may execute still.
    end(&child);
    let messages = std::fs::read(messages).unwrap();
    (status, String::from_utf8_lossy(&messages).into_owned())
}

#[test]
#[ignore = "takes minutes, and the package glibc-source; cargo xtask test --long"]
fn glibcs_tests_have_the_same_status_with_every_block_counted() {
    let folder = tempfile::tempdir().unwrap();
    let glibc = Glibc::unpacked(folder.path());
    std::fs::create_dir(folder.path().join("programs")).unwrap();
    let folders = TESTS.iter();
    let all = folders.flat_map(|(folder, names)| sources(&glibc.source.join(folder), names));
    let all: Vec<PathBuf> = all.collect();
    let (next, compared) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let different = Mutex::new(Vec::new());
    let work = |worker: usize| {
        let messages = folder.path().join(format!("messages-{worker}"));
        while let Some(file) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = glibc.name(file);
            let Some(program) = glibc.compiled(file) else {
                continue;
            };
            let execute = |command: &mut Command, longest| {
                let command = command.current_dir(folder.path());
                // Of their own limits, which other work on the machine exceeds.
                let command = command.env("TIMEOUTFACTOR", "10");
                status(command, &messages, longest)
            };
            let natively = || execute(&mut Command::new(&program), LONGEST).0;
            let native = natively();
            if !PASSED.contains(&native) {
                continue;
            }
            let mut has_races = false;
            for (way, options) in WAYS {
                let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
                let ilk = ilk.env("XDG_CACHE_HOME", folder.path().join("cache"));
                let (counted, errors) = execute(ilk.args(options).arg(&program), HANGS);
                // Some tests have races of their own.
                if counted != native && (0..AGAIN).any(|_| natively() != native) {
                    println!("{name} does not always have the same status natively");
                    has_races = true;
                    break;
                }
                // It has not ended early, and continued natively.
                if counted != native || errors.contains("was let go") {
                    let mut different = different.lock().unwrap();
                    different.push(format!(
                        "{name}, {way}: {native:?} natively, {counted:?}: {errors}"
                    ));
                }
            }
            compared.fetch_add(usize::from(!has_races), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || work(worker));
        }
    });
    let compared = compared.into_inner();
    println!("{compared} programs have passed natively, of {}", all.len());
    let different = different.into_inner().unwrap();
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(compared > 500, "{compared}");
}
