//! Functions of processes that functions of object files replace.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gilk_instruments::{Definition, Library};

use super::killed::{is_alive, kill, supervisor_of};
use super::launched::{ilk, text_of};
use super::{Counted, compile, compiled_from};

const SOURCE: &str = include_str!("replaced.c");

/// An object file of this source.
fn object(folder: &Path, text: &str, options: &[&str]) -> PathBuf {
    let (source, object) = (folder.join("own.c"), folder.join("own.o"));
    std::fs::write(&source, text).unwrap();
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../instruments/native");
    compile(
        Command::new("cc")
            .args(["-c", "-O2", "-fPIC", "-I", header, "-o"])
            .arg(&object)
            .args(options)
            .arg(&source),
    );
    object
}

/// The program, executing, and the object file.
fn started(options: &[&str]) -> (Counted, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, options);
    let own = object(folder.path(), include_str!("replacing.c"), &[]);
    (Counted::of(Command::new(program), folder), own)
}

/// `ilk process` replacing functions until it is interrupted.
fn replacing(pid: u32, object: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["process", "-p", &pid.to_string(), "--native"])
        .arg(object)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until calls are replaced.
fn wait_replaced(counted: &mut Counted) {
    let begun = Instant::now();
    let (_, before) = counted.does("nothing");
    while counted.does("call").1 < before + 2000 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn interrupt(client: Child) -> (String, String) {
    let id = client.id().to_string();
    let signalled = Command::new("kill").args(["-INT", &id]).status();
    assert!(signalled.unwrap().success());
    let output = client.wait_with_output().unwrap();
    let (shown, notes) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{shown}{notes}");
    (shown, notes)
}

/// The number before a label.
fn number(shown: &str, label: &str) -> u64 {
    let line = shown.lines().find(|line| line.contains(label));
    let line = line.unwrap_or_else(|| panic!("{label}: {shown}"));
    let digits = line.trim().split(' ').next().unwrap();
    digits.replace(',', "").parse().unwrap()
}

#[test]
fn replaced_functions_are_called_in_place_of_the_originals_which_they_may_call() {
    for options in [&[][..], &["-no-pie"], &["-O0"]] {
        let (mut counted, own) = started(options);
        let text = counted.text();
        let (plain, none) = counted.does("call");
        assert_eq!((plain, none), (2000, 0));
        let both = ["--replace", "price=raised", "--replace", "far=farther"];
        // Counters stand before the replacements.
        let client = replacing(counted.pid(), &own, &[&both[..], &["price,far"]].concat());
        wait_replaced(&mut counted);
        counted.does("begin");
        counted.does("children");
        std::thread::sleep(Duration::from_millis(100));
        let (plain, replaced) = counted.does("end");
        let (shown, notes) = interrupt(client);
        // Each call while the splices were in place was counted and replaced, and no call of an original was counted.
        let counts = number(&shown, "counter pre price") + number(&shown, "counter pre far");
        assert!(counts > 50_000, "{shown}");
        assert_eq!((counts, counted.does("nothing").0), (replaced, plain));
        assert!(notes.contains("price is replaced by raised."), "{notes}");
        assert!(
            shown.contains("own.o replaced are called again; it stays mapped"),
            "{shown}"
        );
        // Afterwards the originals are called again, and nothing but the object file is left.
        assert_eq!(counted.does("call"), (plain + 2000, replaced));
        let after = counted.text();
        let differs = text.iter().filter(|before| !after.contains(before));
        assert_eq!(differs.count(), 0);
        assert!(!counted.maps().contains("memfd:gilk"), "{}", counted.maps());
        counted.end();
    }
}

#[test]
fn functions_are_replaced_and_restored_many_times_under_load() {
    let (mut counted, own) = started(&[]);
    counted.does("begin");
    let mut counts = 0;
    for _ in 0..12 {
        let arguments = ["--replace", "price=raised", "--for", "20ms", "price"];
        let client = replacing(counted.pid(), &own, &arguments);
        let output = client.wait_with_output().unwrap();
        let shown = text_of(&output.stdout);
        assert!(
            output.status.success(),
            "{shown}{}",
            text_of(&output.stderr)
        );
        counts += number(&shown, "counter pre price");
    }
    let (plain, replaced) = counted.does("end");
    assert!(plain > 0 && replaced > 0, "{plain} {replaced}");
    assert_eq!(counts, replaced);
    counted.end();
}

#[test]
fn the_originals_are_called_again_when_the_client_is_killed() {
    for kills_supervisor in [false, true] {
        let (mut counted, own) = started(&[]);
        let mut client = replacing(counted.pid(), &own, &["--replace", "price=raised"]);
        let begun = Instant::now();
        while counted.does("call").1 == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        counted.does("begin");
        let supervisor = supervisor_of(client.id());
        if kills_supervisor {
            kill(supervisor);
        }
        client.kill().unwrap();
        client.wait().unwrap();
        if kills_supervisor {
            let (_, shown) = super::killed::cleaned(counted.pid());
            assert!(!counted.maps().contains("memfd:gilk"), "{shown}");
        } else {
            let begun = Instant::now();
            while is_alive(supervisor) {
                assert!(begun.elapsed() < Duration::from_secs(60));
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let (_, replaced) = counted.does("end");
        assert_eq!(counted.does("call").1, replaced);
        counted.end();
    }
}

#[test]
fn a_function_of_the_c_library_is_replaced_from_a_programs_first_instruction_on() {
    let text = "
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    int fails = 0;
    for (int i = 0; i < 40; i++) {
        void *volatile bytes = malloc(i * 50000 + 1);
        fails += !bytes;
        free(bytes);
    }
    printf(\"%d failed\\n\", fails);
    return fails != 20;
}
";
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), text, &[]);
    let own = object(folder.path(), include_str!("replacing.c"), &[]);
    let (own, program) = (own.to_str().unwrap(), program.to_str().unwrap());
    let replace = ["--native", own, "--replace", "libc.so.6:malloc=few-bytes"];
    let (session, recording) = (folder.path().join("x.ron"), folder.path().join("x.arrow"));
    let session = session.to_str().unwrap();
    let saving = ["--save", session, "--for", "10s", "--", program];
    let output = ilk(&[&replace[..], &saving[..]].concat(), "");
    let (shown, notes) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{shown}{notes}");
    assert!(shown.contains("20 failed"), "{shown}");
    assert!(
        !shown.contains("samples") && !shown.contains("No place"),
        "{shown}"
    );
    // The saved session does the same.
    let run = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["run", session, "--native", own, "-o"])
        .arg(recording)
        .args(["--", program])
        .output()
        .unwrap();
    let shown = text_of(&run.stdout);
    assert!(run.status.success(), "{shown}{}", text_of(&run.stderr));
    assert!(shown.contains("20 failed"), "{shown}");
}

#[test]
fn what_cannot_be_replaced_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let program = program.to_str().unwrap();
    let refused = |text: &str, options: &[&str], replace: &[&str]| {
        let own = object(folder.path(), text, options);
        let native = ["--native", own.to_str().unwrap()];
        let replace = replace.iter().flat_map(|one| ["--replace", one]);
        let arguments: Vec<&str> = native
            .into_iter()
            .chain(replace)
            .chain(["--", program])
            .collect();
        let output = ilk(&arguments, "others\n");
        let said = text_of(&output.stderr);
        assert!(!output.status.success(), "{options:?}: {said}");
        said
    };
    let all = include_str!("replacing.c");
    let said = refused(all, &[], &["leaf=nothing"]);
    assert!(
        said.contains("not-replaceable") && said.contains("-fipa-ra"),
        "{said}"
    );
    let said = refused(all, &[], &["again=nothing"]);
    assert!(
        said.contains("not-replaceable") && said.contains("branch of the function itself"),
        "{said}"
    );
    let said = refused(all, &[], &["price=raised", "far=raised"]);
    assert!(said.contains("replaces 2; place it at one"), "{said}");
    let said = refused(all, &[], &["price=cheaper"]);
    assert!(said.contains("no instrument named \"cheaper\""), "{said}");
    let with = |more: &str| {
        format!(
            "#include \"gilk.h\"\nGILK_INSTRUMENT(\"raised replaces: Adds.\");\nint raised(int x) {{ return x; }}\n{more}\n"
        )
    };
    for (more, options, reason) in [
        (
            "__thread int own; int *at(void) { return &own; }",
            &[][..],
            "variables of threads",
        ),
        (
            "int all; __attribute__((constructor)) void begin(void) { all = 1; }",
            &[],
            "executed at the start",
        ),
        (
            "int absent(void); int other(void) { return absent(); }",
            &[],
            "refers to absent, which neither",
        ),
        (
            "int all; int *at(void) { return &all; }",
            &["-fno-pic", "-mcmodel=kernel"],
            "compile it with -fPIC",
        ),
        (
            "int all; int other(void) { return all; }",
            &["-fcommon"],
            "compile it with -fno-common",
        ),
    ] {
        let said = refused(&with(more), options, &["price=raised"]);
        assert!(said.contains(reason), "{reason}: {said}");
    }
}

/// A damaged file may be read, but neither the reader of its list nor the linker panics.
#[test]
fn a_damaged_object_file_is_linked_or_refused() {
    let (counted, own) = started(&[]);
    let bytes = std::fs::read(own).unwrap();
    let (subject, reserved) = super::subject(counted.pid(), "price", 64);
    let mut session = super::every_block(subject.image(), &["price"]);
    session.placements.truncate(1);
    session.placements[0].instrument = "raised".into();
    let linked = |bytes: &[u8]| {
        let mut library = Library::builtin().unwrap();
        for definition in Definition::natives("own.o", bytes).map_err(|error| error.to_string())? {
            // A name may be that of an instrument of the library.
            let _taken = library.add(definition);
        }
        let reserved = reserved.clone();
        let linked = reserved.with_replacements(&subject, &session, &library);
        linked.map_err(|error| error.to_string())
    };
    linked(&bytes).unwrap();
    let (mut linkable, mut refused) = (0, 0);
    let places = (0..bytes.len()).step_by(bytes.len() / 128);
    for (at, damage) in places.flat_map(|at| [0, 1, 0x40, 0xff].map(|damage| (at, damage))) {
        let mut bytes = bytes.clone();
        match damage {
            0 => bytes.truncate(at),
            damage => bytes[at] ^= damage,
        }
        match linked(&bytes) {
            Ok(_) => linkable += 1,
            Err(reason) => {
                assert!(!reason.is_empty());
                refused += 1;
            }
        }
    }
    assert!(linkable > 20 && refused > 20, "{linkable} {refused}");
    counted.end();
}

#[test]
fn clean_children_call_the_originals_and_others_the_replacements() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let own = object(folder.path(), include_str!("replacing.c"), &[]);
    // Twenty children call 1,000 times, and then the program itself does.
    for (children, expected) in [
        ("shared", "21000 21000"),
        ("clean", "41000 1000"),
        ("own", "21000 21000"),
    ] {
        let native = [
            "--native",
            own.to_str().unwrap(),
            "--replace",
            "price=raised",
        ];
        let program = ["--children", children, "--", program.to_str().unwrap()];
        let output = ilk(&[&native[..], &program[..]].concat(), "children\ncall\n");
        let shown = text_of(&output.stdout);
        assert!(
            output.status.success(),
            "{shown}{}",
            text_of(&output.stderr)
        );
        assert!(shown.contains(expected), "{children}: {shown}");
    }
}
