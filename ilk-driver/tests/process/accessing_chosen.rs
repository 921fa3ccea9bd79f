//! Accesses of memory by their addresses and their functions, and files of them that cannot be written to their ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Fills a table and looks it up in turns; prints the address of the second word of its sixth entry, and a sum.
const PROGRAM: &str = r#"
#include <stdio.h>
struct entry { long key, value, spare; } table[1000];
__attribute__((noinline)) void fill(long by)
{
    for (long i = 0; i < 1000; i++) {
        table[i].key = i;
        table[i].value = by * i;
    }
}
__attribute__((noinline)) long look_up(void)
{
    long sum = 0;
    for (long i = 0; i < 1000; i++)
        sum += table[i].value;
    return sum;
}
int main(int count, char **arguments)
{
    long sum = 0;
    for (long i = 0; i < (count > 1 ? 1000 : 3); i++) {
        fill(i);
        sum += look_up();
    }
    printf("%p %ld\n", (void *)&table[5].value, sum);
    return 3;
}
"#;

fn compiled(folder: &Path) -> PathBuf {
    super::cloned::compiled_from(folder, PROGRAM, &["-O1", "-no-pie", "-fno-inline"])
}

fn ilk(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder)
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Finds the functions that have written an address, and the accesses of a function, in the table and in each access.
#[test]
fn accesses_are_found_by_address_and_by_function() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = compiled(folder);
    let program = program.to_str().unwrap();
    let recorded = ilk(folder, &["clone", "--accesses", "file", "--", program]);
    assert_eq!(recorded.status.code(), Some(3), "{recorded:?}");
    let output = text(&recorded.stdout);
    let at = output.split(' ').next().unwrap();
    let shown = |arguments: &[&str]| {
        let shown = ilk(folder, &[&["accesses", "file"], arguments].concat());
        assert!(shown.status.success(), "{arguments:?}: {shown:?}");
        text(&shown.stdout)
    };
    let rows = |arguments: &[&str]| -> Vec<String> {
        let text = shown(arguments);
        let lines = text.lines().skip(1);
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    };
    // The functions that access a word of the table.
    let of_word = [
        "0 3 24 fill (cloned)",
        "3 0 24 look_up (cloned)",
        "3 3 48 all 2",
    ];
    assert_eq!(rows(&["--address", at]), of_word);
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let start = number(at) - (5 * 24 + 8);
    let table = format!("{start:#x}..{:#x}", start + 24_000);
    let of_table = [
        "0 6,000 48,000 fill (cloned)",
        "3,000 0 24,000 look_up (cloned)",
        "3,000 6,000 72,000 all 2",
    ];
    assert_eq!(rows(&["--address", &table]), of_table);
    // All bytes of the word but the first, and the byte after it.
    let after = format!("{:#x}..{:#x}", number(at) + 1, number(at) + 9);
    assert_eq!(rows(&["--address", &after]), of_word);
    // What a function accesses there.
    let of_function = ["3,000 0 24,000 look_up (cloned)", "3,000 0 24,000 all 1"];
    for name in ["look_up", "look*", "cloned:look_up", "none_such*,look_up"] {
        let arguments = ["--address", &table, "--function", name];
        if name.starts_with("none") {
            let shown = ilk(folder, &[&["accesses", "file"], &arguments[..]].concat());
            let errors = text(&shown.stderr);
            assert_eq!(shown.status.code(), Some(1), "{errors}");
            assert!(errors.contains("matches \"none_such*\""), "{errors}");
            continue;
        }
        assert_eq!(rows(&arguments), of_function, "{name}");
    }
    // Each access, with the function and the file of its instruction.
    let csv = shown(&["--csv", "--address", at]);
    let mut lines = csv.lines();
    let head = "thread,instruction,kind,address,bytes,process,function,file";
    assert_eq!(lines.next(), Some(head));
    let each: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(each.len(), 6, "{csv}");
    for (access, of) in each.iter().zip(["fill", "look_up"].iter().cycle()) {
        let kind = if *of == "fill" { "W" } else { "R" };
        assert_eq!(access[2..5], [kind, at, "8"], "{csv}");
        assert_eq!(access[6..], [*of, "cloned"], "{csv}");
    }
    // A pipe is read, too.
    let mut piped = Command::new("sh");
    let script = r#"cat file | "$0" accesses --csv --address "$1" /dev/stdin"#;
    let piped = piped.args(["-c", script, env!("CARGO_BIN_EXE_ilk"), at]);
    let piped = piped.current_dir(folder).output().unwrap();
    assert_eq!(text(&piped.stdout), csv, "{}", text(&piped.stderr));
    // What cannot be is refused by its name.
    for (arguments, status, why) in [
        (["--address", "404010"], 2, "404010 is no address"),
        (
            ["--address", "0x2000..0x1000"],
            2,
            "0x2000..0x1000 has no address",
        ),
        (["--address", "0x10"], 1, "file has no access at 0x10."),
        (["--function", "lookup"], 1, "Did you mean look_up?"),
        (
            ["--function", "libnone.so:look_up"],
            1,
            "is named \"libnone.so:look_up\"",
        ),
        (["--function", ""], 2, "empty name"),
    ] {
        let refused = ilk(folder, &[&["accesses", "file"], &arguments[..]].concat());
        let errors = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(status), "{errors}");
        assert!(errors.contains(why), "{errors}");
        assert_eq!(text(&refused.stdout), "", "{arguments:?}");
    }
}

/// Records accesses to a file system of so many bytes in KiB, with a file of some of them. Returns the output, the errors
/// and the outcome of each command.
fn recorded_within(folder: &Path, program: &Path, kilobytes: u64, taken: u64) -> Vec<String> {
    let script = r#"
        mkdir -p small && mount -t tmpfs -o size="$3"k none small || exit 77
        head -c "$4" /dev/zero > small/taken
        "$1" clone --accesses small/file -- "$2" long > output 2> errors
        echo "$?" > status
        "$1" accesses small/file > table 2> remarks
        echo "$?" >> status
        stat -c %s small/file > size
    "#;
    let done = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_ilk"))
        .arg(program)
        .arg(kilobytes.to_string())
        .arg((taken * 1024).to_string())
        .env("XDG_CACHE_HOME", folder)
        .current_dir(folder)
        .output()
        .unwrap();
    assert_ne!(done.status.code(), Some(77), "{}", text(&done.stderr));
    let parts = ["status", "output", "errors", "table", "remarks", "size"];
    let parts = parts.iter();
    parts
        .map(|part| std::fs::read_to_string(folder.join(part)).unwrap())
        .collect()
}

/// The names of functions are written last, so a file that is cut off has accesses without them, and says so.
#[test]
fn functions_of_a_file_that_is_cut_off_have_no_names_and_the_reason_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = compiled(folder);
    let recorded = [
        "clone",
        "--accesses",
        "file",
        "--",
        program.to_str().unwrap(),
    ];
    let recorded = ilk(folder, &[&recorded[..], &["long"]].concat());
    assert_eq!(recorded.status.code(), Some(3), "{recorded:?}");
    let shown = |arguments: &[&str]| {
        let shown = ilk(folder, &[&["accesses", "file"], arguments].concat());
        assert!(shown.status.success(), "{arguments:?}: {shown:?}");
        (text(&shown.stdout), text(&shown.stderr))
    };
    let said = "a function whose name is missing is shown as ?";
    let (table, remarks) = shown(&[]);
    assert!(
        !table.contains("  ?") && !remarks.contains(said),
        "{table}{remarks}"
    );
    let whole = std::fs::read(folder.join("file")).unwrap();
    std::fs::write(folder.join("file"), &whole[..whole.len() / 2]).unwrap();
    for arguments in [&[][..], &["--csv"]] {
        let (table, remarks) = shown(arguments);
        assert_eq!(table.contains("  ?\n"), arguments.is_empty());
        assert!(!table.contains("fill"));
        assert!(
            remarks.contains("has no end") && remarks.contains(said),
            "{remarks}"
        );
    }
}

/// A full disk does not end anything: the program executes to its end, and the file has what was recorded before, with its names.
#[test]
fn accesses_that_a_full_disk_does_not_take_are_counted_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = compiled(folder);
    let natively = Command::new(&program).arg("long").output().unwrap();
    let kept_and_lost = |remarks: &str| {
        let (lost, rest) = remarks
            .split_once(" bytes of records were lost, after ")
            .unwrap();
        let (kept, _) = rest.split_once(" bytes").unwrap();
        let lost = lost.rsplit(' ').next().unwrap();
        [kept, lost].map(|number| number.replace(',', "").parse::<u64>().unwrap())
    };
    let full = "No space left on device";
    let mut size = 8 << 20;
    let mut kept_before = u64::MAX;
    // The second is too small for the names of blocks beside the groups that it has taken first.
    for (round, less) in [0, 16].into_iter().enumerate() {
        let parts = recorded_within(folder, &program, size / 1024 - less, 0);
        let [status, output, errors, table, remarks, length] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert_eq!(status, "3\n0\n", "{errors}{remarks}");
        assert_eq!(output.as_bytes(), natively.stdout);
        assert!(
            errors.contains(full) && errors.contains("is lost"),
            "{errors}"
        );
        let [kept, lost] = kept_and_lost(remarks);
        assert!(lost > 0 && kept < kept_before, "{round}: {remarks}");
        assert!(remarks.contains(full), "{remarks}");
        assert!(!remarks.contains("has no end"), "{remarks}");
        assert_eq!(table.contains("fill (cloned)"), kept > 0, "{table}");
        assert_eq!(round == 0, kept > 0, "{remarks}");
        kept_before = kept;
        size = length.trim().parse().unwrap();
    }
    // Not even the blocks: the process is let go, and the file is read as one that is cut.
    let parts = recorded_within(folder, &program, 80, 0);
    let [status, output, errors, table, remarks, _] = &parts[..] else {
        panic!("{parts:?}");
    };
    assert_eq!(status, "1\n0\n", "{errors}{remarks}");
    assert_eq!(output.as_bytes(), natively.stdout);
    assert!(
        errors.contains("small/file cannot be written") && errors.contains(full),
        "{errors}"
    );
    assert!(
        remarks.contains("has no end") && table.contains("all 0"),
        "{remarks}{table}"
    );
    // Nothing at all: no file remains.
    let parts = recorded_within(folder, &program, 8, 8);
    let [status, _, errors, _, remarks, length] = &parts[..] else {
        panic!("{parts:?}");
    };
    assert_eq!(status, "1\n1\n", "{errors}{remarks}");
    assert!(errors.contains("small/file cannot be written"), "{errors}");
    assert!(remarks.contains("No such file"), "{remarks}");
    assert_eq!(length, "");
}
