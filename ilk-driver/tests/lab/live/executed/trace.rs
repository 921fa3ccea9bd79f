//! QEMU's monitor, and its log of executed instructions.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use gilk_engine::Addr;

/// Bytes of log per window; between windows the workload runs at full speed.
pub(super) const WINDOW_BYTES: u64 = 12 << 20;

const PROMPT: &[u8] = b"(qemu) ";

/// A connection to the human monitor.
pub(super) struct Monitor(UnixStream);

impl Monitor {
    pub(super) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("QEMU listens from its start");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut monitor = Self(stream);
        monitor.answer();
        monitor
    }

    /// Executes a command without output.
    pub(super) fn command(&mut self, command: &str) {
        self.one_of(&[command]);
    }

    /// Executes the first command without output: commands are renamed from version to version.
    pub(super) fn one_of(&mut self, commands: &[&str]) {
        let mut answers = String::new();
        for command in commands {
            self.0.write_all(format!("{command}\n").as_bytes()).unwrap();
            let said = self.answer();
            // The terminal emulation echoes the command as it is typed; an answer has a line of its
            // own.
            if said.lines().filter(|line| !line.trim().is_empty()).count() <= 2 {
                return;
            }
            answers += &said;
        }
        panic!("QEMU answered {commands:?}: {answers}");
    }

    fn answer(&mut self) -> String {
        let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
        while !said.ends_with(PROMPT) {
            let count = self.0.read(&mut buffer).expect("the monitor answers");
            assert!(count > 0, "the monitor is gone");
            said.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// Parses the addresses of the instructions in a log (`log exec`, one instruction per block), in
/// order (accel/tcg/cpu-exec.c of QEMU: `log_cpu_exec`, `cpu_tb_exec`). A block that was stopped
/// before its execution is omitted.
///
/// QEMU switches to single instructions while it runs, and on a busy machine a previously
/// translated block of several instructions may execute after the log has begun. Only its first
/// instruction is logged, so everything up to it is omitted.
pub(super) fn executed(log: &[u8]) -> Vec<Addr> {
    let mut pcs = Vec::with_capacity(log.len() / 90);
    for line in log.split_inclusive(|&byte| byte == b'\n') {
        if let Some(rest) = line.strip_prefix(b"Trace ") {
            match block(rest) {
                Some((pc, 1)) => pcs.push(pc),
                Some(_) => pcs.clear(),
                None => {}
            }
        } else if line.starts_with(b"Stopped execution of TB chain") {
            pcs.pop();
        }
    }
    pcs
}

/// Returns the start of a block and its limit on instructions, 0 for no limit: the second field in
/// brackets and the low bits of the fourth, `[cs_base/pc/flags/cflags]` (`CF_COUNT_MASK`).
fn block(line: &[u8]) -> Option<(Addr, u64)> {
    let open = line.iter().position(|&byte| byte == b'[')?;
    let close = line.iter().position(|&byte| byte == b']')?;
    let mut fields = line.get(open + 1..close)?.split(|&byte| byte == b'/');
    let mut number = || u64::from_str_radix(std::str::from_utf8(fields.next()?).ok()?, 16).ok();
    let [_, pc, _, flags] = [number()?, number()?, number()?, number()?];
    line.ends_with(b"\n").then_some((Addr(pc), flags & 0x1ff))
}

/// Parses a sample of a log.
#[test]
fn a_log_is_parsed_as_the_executed_instructions() {
    let text = b"Trace 0: 0x7f3c40000000 [00000000/ffffffff80000000/0040c2b0/ff000201] start\n\
        Trace 0: 0x7f3c40000080 [00000000/ffffffff80000005/0040c2b0/ff000008] start\n\
        Trace 0: 0x7f3c40000100 [00000000/ffffffff81000000/0040c2b0/ff000201] start\n\
        Trace 0: 0x7f3c40000200 [00000000/ffffffff81000005/0040c2b0/ff000201] start\n\
        Stopped execution of TB chain before 0x7f3c40000200 [ffffffff81000005] start\n\
        Trace 0: 0x7f3c40000200 [00000000/ffffffff81000005/0040c2b0/ff000201] start\n\
        something else\n\
        Trace 0: 0x7f3c4000";
    assert_eq!(
        executed(text),
        [Addr(0xffff_ffff_8100_0000), Addr(0xffff_ffff_8100_0005)]
    );
}
