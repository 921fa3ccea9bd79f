//! The lab in Bochs, an emulator that is independent of QEMU and has indirect branch tracking.
//!
//! Bochs has none of the devices by which a client speaks to the lab's agent. A session is therefore run by `ilk` in
//! the guest, and its recording comes over the serial port.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::boot::{FAILED, LOOK, read, read_since, with_files, with_tail};
use super::host::{StepResult, failed, on, run};
use super::prepare::Prepared;
use super::qemu::EmulatorProcess;
use super::runtime::RunDirectory;
use crate::Result;

/// Text of `init.sh` before the status of `/lab/run`.
const ENDED: &str = "gilk-lab: /lab/run ended with status ";
/// Beginnings of the script's lines: what `ilk run` prints, the recording in hexadecimal, and its size and sum.
const SAID: &str = "gilk-lab: said: ";
const DATA: &str = "gilk-lab: data: ";
const SUM: &str = "gilk-lab: sum: ";

/// Starts an agent and runs `/lab/session.ron`. The kernel's messages would lie within the lines.
const SCRIPT: &str = r#"#!/bin/busybox sh
dmesg -n 1
ilk agent --socket /run/ilk.sock --allow-run --allow-native --unknown-kernel > /tmp/agent 2>&1 &
tries=0
while [ ! -S /run/ilk.sock ] && [ $tries -lt 600 ]; do
	usleep 100000
	tries=$((tries + 1))
done
ilk run /lab/session.ron --socket /run/ilk.sock -o /tmp/x.arrow < /dev/null > /tmp/said 2>&1
status=$?
sed 's/^/gilk-lab: said: /' /tmp/agent /tmp/said
if [ -f /tmp/x.arrow ]; then
	od -A n -v -t x1 /tmp/x.arrow | tr -d ' ' | sed 's/^/gilk-lab: data: /'
	echo "gilk-lab: sum: $(od -A n -v -t u1 /tmp/x.arrow |
		awk '{ for (i = 1; i <= NF; i++) { s = (s * 31 + $i) % 4294967291; n++ } } END { printf "%.0f %d", s, n }')"
fi
exit $status
"#;

/// Results of a session in Bochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BochsSession {
    /// Lines that the agent and `ilk run` have printed.
    pub said: Vec<String>,
    /// The bytes of the recording, if there is one.
    pub recording: Option<Vec<u8>>,
    /// Exit status of `ilk run`.
    pub status: i32,
}

/// Runs a session (the text of a RON file) in Bochs. `line` receives each line of the console; `limit` bounds the time
/// from the start to the end, some minutes for the boot alone.
///
/// # Errors
/// [`crate::Error::Lab`] with the end of the console: Bochs or GRUB is missing, the guest did not end in time, or the
/// recording did not come whole.
pub fn session_in_bochs(
    prepared: &Prepared,
    session: &str,
    limit: Duration,
    line: &mut dyn FnMut(&str),
) -> Result<BochsSession> {
    let at = |failure: super::host::Failure| failure.at_step("run a session in Bochs");
    let directory = RunDirectory::create().map_err(at)?;
    let files = [("run", SCRIPT), ("session.ron", session)];
    let mut prepared = prepared.clone();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::write(&path, text)
            .map_err(on("write", &path))
            .map_err(at)?;
        prepared = prepared.with(|options| options.files.push((format!("lab/{name}"), path)));
    }
    let console = console_in_bochs(&prepared, limit, line)?;
    parsed(&console).map_err(at)
}

/// Boots the lab in Bochs, with `/lab/run` among [`super::Options::files`], and returns its console after that has ended.
///
/// # Errors
/// [`crate::Error::Lab`], as of [`session_in_bochs`].
pub fn console_in_bochs(
    prepared: &Prepared,
    limit: Duration,
    line: &mut dyn FnMut(&str),
) -> Result<String> {
    let console = booted(prepared, limit, line);
    console.map_err(|failure| failure.at_step("boot in Bochs"))
}

fn booted(prepared: &Prepared, limit: Duration, line: &mut dyn FnMut(&str)) -> StepResult<String> {
    let directory = RunDirectory::create()?;
    let home = directory.path();
    let disc = disc(prepared, home)?;
    let console = home.join("console");
    let path = home.join("bochsrc");
    fs::write(
        &path,
        configuration(home, &disc, prepared.options.memory_mib),
    )
    .map_err(on("write", &path))?;
    // Debian's build begins in its debugger.
    let commands = home.join("commands");
    fs::write(&commands, "c\n").map_err(on("write", &commands))?;
    let commands = fs::File::open(&commands).map_err(on("open", &commands))?;
    let messages = home.join("messages");
    let output = fs::File::create(&messages).map_err(on("create", &messages))?;
    let errors = output.try_clone().map_err(on("write", &messages))?;
    let mut bochs = Command::new("bochs");
    bochs.arg("-q").arg("-f").arg(&path);
    bochs.stdin(commands).stdout(output).stderr(errors);
    let running = EmulatorProcess::start(bochs, messages, "bochs")?;
    let mut seen = 0;
    loop {
        // Queried before the console is read, so that its last output is seen.
        let end = running.end();
        if console.exists() {
            read_since(&console, &mut seen)?
                .iter()
                .for_each(|said| line(said));
        }
        let text = if console.exists() {
            read(&console)?
        } else {
            String::new()
        };
        if text.lines().any(|said| said.starts_with(ENDED)) {
            return Ok(text);
        }
        if let Some((_, reason)) = text.lines().find_map(|said| said.split_once(FAILED)) {
            return Err(with_tail(
                &format!("its first process gave up ({reason})"),
                &text,
            ));
        }
        if let Some(end) = end {
            return Err(with_tail(&format!("Bochs ended ({end})"), &text));
        }
        if running.time() > limit {
            let limit = limit.as_secs();
            return Err(with_tail(
                &format!("it had not ended after {limit} s"),
                &text,
            ));
        }
        thread::sleep(LOOK * 10);
    }
}

/// Makes a disc from which GRUB boots the lab.
fn disc(prepared: &Prepared, home: &Path) -> StepResult<PathBuf> {
    let boot = home.join("disc/boot");
    let grub = boot.join("grub");
    fs::create_dir_all(&grub).map_err(on("create", &grub))?;
    let copy = |from: &Path, name: &str| {
        let to = boot.join(name);
        fs::copy(from, to).map_err(on("copy", from))
    };
    copy(&prepared.kernel.image, "vmlinuz")?;
    copy(&with_files(prepared, home)?, "initrd")?;
    let mut words =
        String::from("console=ttyS0 loglevel=5 oops=panic panic=-1 no_timer_check ibt=on");
    for word in &prepared.options.append {
        words.push(' ');
        words.push_str(word);
    }
    let path = grub.join("grub.cfg");
    let text = format!(
        "set timeout=0\nmenuentry lab {{\n linux /boot/vmlinuz {words}\n initrd /boot/initrd\n}}\n"
    );
    fs::write(&path, text).map_err(on("write", &path))?;
    let disc = home.join("disc.iso");
    let mut make = Command::new("grub-mkrescue");
    make.arg("-o").arg(&disc).arg(home.join("disc"));
    run(&mut make, &mut |_| ())?;
    Ok(disc)
}

/// Bochs' options: one processor with control-flow enforcement. Sounds have a driver that plays none: with ALSA's, Bochs 2.7
/// aborts on a machine without a sound card.
fn configuration(home: &Path, disc: &Path, memory_mib: u32) -> String {
    format!(
        "cpu: model=tigerlake, count=1, ips=50000000, reset_on_triple_fault=0\n\
         memory: guest={memory_mib}, host={memory_mib}\n\
         romimage: file=$BXSHARE/BIOS-bochs-latest\n\
         vgaromimage: file=$BXSHARE/VGABIOS-lgpl-latest\n\
         display_library: rfb, options=\"timeout=0\"\n\
         com1: enabled=1, mode=file, dev={home}/console\n\
         ata0-master: type=cdrom, path={disc}, status=inserted\n\
         boot: cdrom\n\
         sound: driver=dummy\n\
         log: {home}/log\n\
         panic: action=fatal\nerror: action=report\ninfo: action=ignore\n\
         clock: sync=none\n",
        home = home.display(),
        disc = disc.display()
    )
}

/// Parses the console of [`SCRIPT`].
fn parsed(console: &str) -> StepResult<BochsSession> {
    let lines = |start: &'static str| {
        console
            .lines()
            .filter_map(move |line| line.strip_prefix(start))
    };
    let said: Vec<String> = lines(SAID).map(str::to_owned).collect();
    let status = lines(ENDED)
        .next()
        .and_then(|status| status.trim().parse().ok());
    let status = status.ok_or_else(|| with_tail("the status of ilk run is missing", console))?;
    let digits: String = lines(DATA).collect();
    let recording = match lines(SUM).next() {
        None => None,
        Some(sum) => {
            let damaged = || {
                failed(format!(
                    "the recording came damaged over the serial port: its sum is not {sum}"
                ))
            };
            let bytes = bytes(&digits).ok_or_else(damaged)?;
            let whole = format!("{} {}", polynomial(&bytes), bytes.len());
            if sum.trim() != whole {
                return Err(damaged());
            }
            Some(bytes)
        }
    };
    Ok(BochsSession {
        said,
        recording,
        status,
    })
}

/// Bytes from hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// The sum of [`SCRIPT`]: a polynomial in 31 over the bytes, modulo the largest prime below 2³².
fn polynomial(bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum * 31 + u64::from(*byte)) % 4_294_967_291;
    bytes.iter().fold(0, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the script's own program.
    #[test]
    fn the_sum_is_that_of_the_script() {
        let (_, program) = SCRIPT.split_once("awk '").unwrap();
        let (program, _) = program.split_once('\'').unwrap();
        let shell = format!("printf 123456789 | od -A n -v -t u1 | awk '{program}'");
        let printed = Command::new("sh").args(["-c", &shell]).output().unwrap();
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert_eq!(printed.trim(), format!("{} 9", polynomial(b"123456789")));
    }

    #[test]
    fn a_console_is_parsed_and_a_damaged_recording_is_refused() {
        let console = "x\ngilk-lab: said: one\ngilk-lab: data: 313233343536\ngilk-lab: data: 373839\n\
                       gilk-lab: sum: SUM 9\ngilk-lab: /lab/run ended with status 3\n";
        let console = console.replace("SUM", &polynomial(b"123456789").to_string());
        let session = parsed(&console).unwrap();
        assert_eq!(session.said, ["one"]);
        assert_eq!(session.recording.as_deref(), Some(&b"123456789"[..]));
        assert_eq!(session.status, 3);
        let damaged = parsed(&console.replace("3738", "3838")).unwrap_err();
        assert!(damaged.to_string().contains("damaged"), "{damaged}");
        let cut = parsed("gilk-lab: said: one\n").unwrap_err();
        assert!(cut.to_string().contains("status"), "{cut}");
    }
}
