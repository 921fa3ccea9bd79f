//! The choice of an accelerator: KVM if a trial boot under it passes, otherwise emulation.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::accelerator::Accelerator;
use super::cache::Fingerprint;
use super::host::{StepResult, on};
use super::qemu::{QemuMachine, Start};
use super::runtime::RunDirectory;

/// Time limit of a trial boot: a kernel that works under KVM boots in two seconds, and one that
/// does not may never boot.
const TRIAL: Duration = Duration::from_secs(15);
/// First characters of the lines of `init.sh`. A kernel that prints one has booted, even if the
/// module does not load.
const PASSED: &str = "gilk-lab: ";

/// A choice and its reason, for the user.
pub(super) struct Verdict {
    pub(super) accelerator: Accelerator,
    pub(super) reason: String,
}

/// Chooses an accelerator: KVM only after a short boot of this kernel and initramfs under it. The
/// outcome is cached in the cache's folder `accelerator`; without that folder the trial is
/// repeated.
///
/// `on_trial` is called before a trial.
pub(super) fn choose(
    cache: &Path,
    kernel: &Path,
    initramfs: &Path,
    on_trial: &mut dyn FnMut(),
) -> StepResult<Verdict> {
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
    on_trial();
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

/// Returns the validity of a cached verdict: this kernel on a processor with its current microcode
/// and hypervisor, according to `cpuinfo`.
fn fingerprint(kernel: &Path) -> StepResult<String> {
    let mut fingerprint = Fingerprint::default();
    fingerprint.state_of(kernel)?;
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_relevant = |line: &&str| {
        ["model name", "flags", "microcode"]
            .iter()
            .any(|field| line.starts_with(field))
    };
    for line in cpuinfo.lines().filter(is_relevant).take(3) {
        fingerprint.text(line);
    }
    Ok(fingerprint.finish())
}

/// Boots up to the load of the module. Returns the reason for a failure.
fn trial(kernel: &Path, initramfs: &Path) -> StepResult<Option<String>> {
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
            .is_ok_and(|output| String::from_utf8_lossy(&output).contains(PASSED))
    };
    loop {
        // Queried before the console is read, so that the last output of QEMU is seen.
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
            return Ok(Some(format!(
                "it had not booted after {} s",
                TRIAL.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_verdict_is_parsed_and_an_invalid_one_is_ignored() {
        let verdict = parse("emulate it had not booted after 20 s\n").unwrap();
        assert_eq!(
            (verdict.accelerator, verdict.reason.as_str()),
            (Accelerator::Emulate, "it had not booted after 20 s")
        );
        assert_eq!(
            parse("kvm a trial boot passed\n").unwrap().accelerator,
            Accelerator::Kvm
        );
        assert!(parse("").is_none() && parse("tcg x").is_none());
    }
}
