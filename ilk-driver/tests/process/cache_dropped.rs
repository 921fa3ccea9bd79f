//! Translations that are dropped while threads execute.

use std::process::Command;

use super::cloned::compiled_from;

/// A process that is begun executes the code after its system call, which is dropped before it does.
#[test]
fn a_process_that_is_begun_while_its_code_is_dropped_continues_there() {
    const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *page;
static volatile int done;

static void *writes(void *none)
{
	for (unsigned n = 0; !done && n < 4000; n++) {
		*(volatile unsigned *)(page + 1) = n;
		usleep(30);
	}
	return none;
}

int main(void)
{
	page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* mov ecx, n; mov eax, fork; syscall; ret */
	memcpy(page, "\xb9\0\0\0\0\xb8\x39\0\0\0\x0f\x05\xc3", 13);
	pthread_t thread;
	pthread_create(&thread, 0, writes, 0);
	int wrong = 0;
	for (int n = 0; n < 1000; n++) {
		int child = ((int (*)(void))page)(), status;
		if (child == 0)
			_exit(7);
		if (child < 0 || waitpid(child, &status, 0) != child)
			return 3;
		wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 7;
	}
	done = 1;
	pthread_join(thread, 0);
	return wrong != 0;
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &[]);
    let cached = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder.path())
        .args(["clone", "--count", "--"])
        .arg(&program)
        .output()
        .unwrap();
    let said = String::from_utf8(cached.stderr).unwrap();
    assert!(cached.status.success(), "{said}");
    assert!(!said.contains("let go"), "{said}");
}
