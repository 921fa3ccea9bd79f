//! KVM where it truly runs the lab's kernel, emulation elsewhere.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::cache::Fingerprint;
use super::host::{Result, on};
use super::qemu::{QemuMachine, Start};
use super::runtime::RunDirectory;

/// How QEMU runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accelerator {
    /// The processor itself runs them.
    Kvm,
    /// QEMU translates them, all CPUs on one thread: with a thread for each, QEMU 7.2 goes on running
    /// old translations after another CPU has written text.
    Emulate,
    /// Emulation of one CPU on which the time stamp counter counts instructions, without KASLR: for
    /// measurements that give the same figure every time.
    CountInstructions,
}

/// A kernel that KVM runs is up in two seconds; one that it does not run may take forever.
const TRIAL: Duration = Duration::from_secs(15);
/// What `init.sh` begins its lines with. A kernel that got there runs, also where the module does not load.
const PASSED: &str = "gilk-lab: ";

impl Accelerator {
    /// Its arguments for QEMU.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-accel", "kvm"],
            Self::Emulate => &["-accel", "tcg,thread=single"],
            Self::CountInstructions => &["-accel", "tcg,thread=single", "-icount", "shift=0"],
        }
    }

    /// Words for a person.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Emulate => "emulation",
            Self::CountInstructions => "emulation that counts instructions",
        }
    }
}

/// A choice and, for a person, why.
pub(super) struct Verdict {
    pub(super) accelerator: Accelerator,
    pub(super) reason: String,
}

/// Chooses: KVM only after a short boot of this very kernel and initramfs under it. The outcome is
/// kept in the cache's `accelerator`; delete that to have it tried again.
///
/// `trying` is called when a trial is about to begin.
pub(super) fn chosen(
    cache: &Path,
    kernel: &Path,
    initramfs: &Path,
    trying: &mut dyn FnMut(),
) -> Result<Verdict> {
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/kvm") {
        return Ok(Verdict {
            accelerator: Accelerator::Emulate,
            reason: format!("/dev/kvm cannot be used: {error}"),
        });
    }
    let home = cache.join("accelerator");
    fs::create_dir_all(&home).map_err(on("create", &home))?;
    let note = home.join(fingerprint(kernel)?);
    if let Some(verdict) = fs::read_to_string(&note).ok().and_then(|text| parse(&text)) {
        return Ok(verdict);
    }
    trying();
    let verdict = match trial(kernel, initramfs)? {
        None => Verdict {
            accelerator: Accelerator::Kvm,
            reason: "a trial boot passed".into(),
        },
        Some(why) => {
            let reason = format!("a trial boot under KVM did not pass ({why})");
            Verdict {
                accelerator: Accelerator::Emulate,
                reason,
            }
        }
    };
    let word = if verdict.accelerator == Accelerator::Kvm {
        "kvm"
    } else {
        "emulate"
    };
    fs::write(&note, format!("{word} {}\n", verdict.reason)).map_err(on("write", &note))?;
    Ok(verdict)
}

fn parse(note: &str) -> Option<Verdict> {
    let (word, reason) = note.trim_end().split_once(' ')?;
    let accelerator = match word {
        "kvm" => Accelerator::Kvm,
        "emulate" => Accelerator::Emulate,
        _ => return None,
    };
    Some(Verdict {
        accelerator,
        reason: reason.to_owned(),
    })
}

/// The verdict holds for a kernel on a processor with its present microcode and hypervisor: for this boot's `cpuinfo`.
fn fingerprint(kernel: &Path) -> Result<String> {
    let mut fingerprint = Fingerprint::default();
    fingerprint.state_of(kernel)?;
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let lasting = |line: &&str| {
        ["model name", "flags", "microcode"]
            .iter()
            .any(|field| line.starts_with(field))
    };
    for line in about.lines().filter(lasting).take(3) {
        fingerprint.text(line);
    }
    Ok(fingerprint.finish())
}

/// Boots as far as the module. Gives why that failed, if it did.
fn trial(kernel: &Path, initramfs: &Path) -> Result<Option<String>> {
    let directory = RunDirectory::create()?;
    let machine = QemuMachine {
        kernel,
        initramfs,
        append: vec!["gilk.trial".into()],
        arguments: Vec::new(),
        accelerator: Accelerator::Kvm,
        cpus: 2,
        memory_mib: 512,
        directory: directory.path(),
        start: Start::Boot,
    };
    let running = machine.start()?;
    let begin = Instant::now();
    let passed = || {
        fs::read(machine.console())
            .is_ok_and(|said| String::from_utf8_lossy(&said).contains(PASSED))
    };
    loop {
        // Asked before the console is read: what QEMU wrote before it ended is seen.
        let end = running.end();
        if passed() {
            return Ok(None);
        }
        if let Some(end) = end {
            return Ok(Some(format!(
                "QEMU ended, {}",
                end.split(';').next().unwrap_or_default()
            )));
        }
        if begin.elapsed() > TRIAL {
            return Ok(Some(format!("it was not up after {} s", TRIAL.as_secs())));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_verdict_is_read_back_and_nonsense_is_not() {
        let verdict = parse("emulate it was not up after 20 s\n").unwrap();
        assert_eq!(
            (verdict.accelerator, verdict.reason.as_str()),
            (Accelerator::Emulate, "it was not up after 20 s")
        );
        assert_eq!(
            parse("kvm a trial boot passed\n").unwrap().accelerator,
            Accelerator::Kvm
        );
        assert!(parse("").is_none() && parse("tcg x").is_none());
    }
}
