//! Functions with branches that skip the `lock` prefix of an instruction, as the C library has them.

use std::process::Command;

use gilk_samples::recording::Recording;

use super::cache_recording::recorded;
use super::compiled_from;
use super::launched::{counters, ilk, text_of};

/// Adds 1,000 times without the prefix, and 500 times in each of two threads with it.
const SOURCE: &str = r#"
#include <pthread.h>
#include <stdio.h>
long increased(long *word, const int *threads);
__asm__(".globl increased\n.type increased, @function\nincreased:\n"
        "mov (%rdi), %rax\n"
        "2: lea 1(%rax), %rcx\n"
        "cmpl $0, (%rsi)\n"
        "je 1f\n"
        "lock\n"
        "1: cmpxchg %rcx, (%rdi)\n"
        "jne 2b\n"
        "lea (%rax, %rax), %rax\n"
        "ret\n"
        ".size increased, . - increased\n");
static long word;
static int threads;
static void *half(void *none)
{
    for (int n = 0; n < 500; n++)
        increased(&word, &threads);
    return none;
}
int main(void)
{
    half(0);
    half(0);
    threads = 2;
    pthread_t other[2];
    for (int n = 0; n < 2; n++)
        pthread_create(&other[n], 0, half, 0);
    for (int n = 0; n < 2; n++)
        pthread_join(other[n], 0);
    printf("%ld\n", word);
    return word != 2000;
}
"#;

#[test]
fn a_skipped_lock_prefix_leaves_its_function_to_instruments() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &["-O2", "-pthread"]);
    let name = program.to_str().unwrap();
    for sparing in [None, Some("--sparing")] {
        let options = ["--blocks", "increased"].into_iter().chain(sparing);
        let options: Vec<&str> = options.chain(["--", name]).collect();
        let output = ilk(&options, "");
        let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
        assert!(output.status.success(), "{shown}{errors}");
        assert!(shown.starts_with("2000\n"), "{shown}");
        let counted = counters(&shown);
        for label in ["increased block 0", "increased block 4"] {
            assert_eq!(counted.get(label), Some(&2000), "{label}: {shown}{errors}");
        }
        // Another thread may change the word in between.
        let tries = counted.get("increased block 1").copied();
        assert!(tries.is_some_and(|tries| tries >= 2000), "{shown}");
        assert_eq!(counted.get("increased block 3").copied(), tries, "{shown}");
        // The instruction itself has no counter; where few blocks have one, its hits are computed from theirs.
        let computed = counted.get("increased block 2").copied();
        assert_eq!(computed, tries.filter(|_| sparing.is_some()), "{shown}");
        let refused = shown.contains("skipped-prefix: increased");
        assert_eq!(refused, sparing.is_none(), "{shown}");
    }
}

#[test]
fn both_ways_into_an_instruction_are_counted_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &["-O2", "-pthread"]);
    let file = folder.path().join("counts.arrow");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ilk"));
    let command = command.args(["clone", "--count", "-o"]).arg(&file);
    let command = command.env("XDG_CACHE_HOME", folder.path());
    let output = command.arg("--").arg(&program).output().unwrap();
    let errors = text_of(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let counts = recorded(&Recording::open(&file).unwrap());
    let of_blocks = counts.iter().filter(|((name, _), _)| name == "increased");
    let counts: Vec<u64> = of_blocks.map(|(_, count)| *count).collect();
    let [entry, tried, exchanged, repeats, last] = counts[..] else {
        panic!("{counts:?}");
    };
    assert_eq!((entry, last), (2000, 2000));
    assert!(
        tried >= 2000 && exchanged == tried && repeats == tried,
        "{counts:?}"
    );
}
