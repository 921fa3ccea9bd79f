//! A process that is stopped and continued while it is taken into the cache, is in it, and is let go: its parent sees each
//! stop, and each end of one.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::compiled_from;

/// Stops and continues its child, which has a timer of a millisecond.
const STOPPING: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long ticks;
static void tick(int signal) { ticks++; }
static volatile unsigned sum;
__attribute__((noipa)) void work(unsigned value) { sum += value; }
int main(void) {
    pid_t child = fork();
    if (child == 0) {
        struct itimerval often = {{0, 1000}, {0, 1000}};
        signal(SIGALRM, tick);
        setitimer(ITIMER_REAL, &often, NULL);
        for (unsigned value = 0;; value++)
            work(value);
    }
    printf("%d\n", child);
    fflush(stdout);
    int stopped = 0, continued = 0, status;
    for (int i = 0; i < 300; i++) {
        usleep(7000);
        kill(child, SIGSTOP);
        waitpid(child, &status, WUNTRACED);
        stopped += WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
        kill(child, SIGCONT);
        waitpid(child, &status, WCONTINUED);
        continued += WIFCONTINUED(status);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf("%d %d %d\n", stopped, continued, WTERMSIG(status));
    return 0;
}
"#;

#[test]
fn no_stop_of_a_process_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), STOPPING, &[]);
    // A stop that is lost would be waited for without an end.
    let mut limited = Command::new("timeout");
    let limited = limited.arg("120").arg(program).stdout(Stdio::piped());
    let mut parent = limited.spawn().unwrap();
    let mut output = BufReader::new(parent.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let child = line.trim().to_owned();
    let mut taken = 0;
    while parent.try_wait().unwrap().is_none() {
        let cached = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .env("XDG_CACHE_HOME", folder.path())
            .args(["clone", "--count", "--for", "150ms", "-p", &child])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&cached.stderr);
        assert!(!said.contains("a bug in gilk"), "{said}");
        taken += usize::from(cached.status.success());
    }
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "300 300 9\n");
    assert!(taken > 2, "{taken}");
}
