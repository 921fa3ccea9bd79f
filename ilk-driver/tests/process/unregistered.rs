//! Processes of which no thread registers for restartable sequences: older C libraries, and others.

use std::process::Command;

use gilk_instruments::Library;

use super::launched::{counters, ilk, text_of};
use super::programs::session;
use super::{Counted, compile, compiled_from, subject, without_area};

#[test]
fn samples_and_words_of_a_cpu_are_refused() {
    let counted = Counted::start(&[], without_area);
    let (subject, reserved) = subject(counted.pid(), "counted", 8192);
    let library = Library::builtin().unwrap();
    for script in [
        "entry:counted { sample(arg0) }",
        "cpu @seen; entry:counted { @seen += 1 }",
        "entry:counted / cpu < 4 / { @n = count() }",
    ] {
        let session = session(&subject, script);
        let plan = gilk_engine::plan::plan(subject.image(), &session, &library, &reserved.layout);
        let error = plan.unwrap_err().to_string();
        assert!(error.contains("ring-owner"), "{script}: {error}");
        assert!(error.contains("glibc from 2.35"), "{script}: {error}");
    }
    counted.end();
}

/// Adds in four threads, and calls itself.
const SOURCE: &str = "
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
static __thread unsigned own;
__attribute__((noinline)) unsigned counted(unsigned n)
{
    own += n;
    return n % 3 == 0 ? own : n;
}
static void *calls(void *argument)
{
    for (unsigned n = 0; n < 30000; n++)
        own ^= counted(n);
    return argument;
}
int main(int count, char **arguments)
{
    signal(SIGPIPE, SIG_IGN);
    pthread_t all[4];
    for (int n = 0; n < 4; n++)
        pthread_create(&all[n], 0, calls, 0);
    for (int n = 0; n < 4; n++)
        pthread_join(all[n], 0);
    printf(\"%zu\\n\", strlen(arguments[count - 1]));
    return 7;
}
";

#[test]
fn programs_of_another_c_library_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("own.c"), folder.path().join("own"));
    std::fs::write(&source, SOURCE).unwrap();
    let name = program.to_str().unwrap();
    for linked in ["-static", "-s", "-static-pie", "-pie"] {
        let mut compiler = Command::new("musl-gcc");
        let compiler = compiler.args(["-O2", linked, "-rdynamic", "-o"]);
        compile(compiler.arg(&program).arg(&source));
        let output = ilk(&["--blocks", "counted", "--", name, "argument"], "");
        let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
        assert_eq!(output.status.code(), Some(7), "{linked}: {shown}{errors}");
        assert!(shown.starts_with("8\n"), "{linked}: {shown}");
        let counted = counters(&shown);
        let hits = counted.get("counted block 0");
        assert_eq!(hits, Some(&120_000), "{linked}: {shown}");
    }
    // The C library is the dynamic linker.
    let output = ilk(&["libc.so:strlen", "--", name, "argument"], "");
    let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{shown}{errors}");
    let counted = counters(&shown);
    let hits = counted.get("libc.so:strlen block 0");
    assert!(hits.is_some_and(|&hits| hits > 0), "{shown}");
    let output = ilk(&["-e", "entry:counted { sample(arg0) }", "--", name], "");
    let errors = text_of(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("glibc from 2.35"),
        "{errors}"
    );
}

#[test]
fn a_program_of_go_is_refused() {
    // With C in it, its C library registers its threads.
    for change in [without_area as fn(&mut Command), |_| {}] {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("counted.c").to_owned()
            + "\n__attribute__((used, section(\".go.buildinfo\"))) static const char go[32] = {1};\n";
        let program = compiled_from(folder.path(), &text, &[]);
        let mut command = Command::new(program);
        change(&mut command);
        let mut counted = Counted::of(command, folder);
        let (maps, text) = (counted.maps(), counted.text());
        let pid = counted.pid().to_string();
        let output = ilk(&["-p", &pid, "counted", "--for", "100ms"], "");
        let errors = text_of(&output.stderr);
        assert!(!output.status.success(), "{errors}");
        for words in ["no-runtime", "written in Go", "ilk clone"] {
            assert!(errors.contains(words), "{errors}");
        }
        counted.does("nothing");
        assert_eq!((counted.maps(), counted.text()), (maps, text));
        counted.end();
    }
}
