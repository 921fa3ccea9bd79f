//! Machines with one fault each, made of files as kernels write them.

use std::fs;
use std::path::Path;

use super::{Finding, Judgement, Machine, examine};
use crate::agent::abi::ABI_VERSION;

const RELEASE: &str = "6.1.0-56-amd64";

/// Writes the files of a machine on which everything but the agent is in place.
fn healthy(root: &Path) {
    let version = format!("{ABI_VERSION}u\n");
    let symbols = super::kernel::required(include_str!("../../kmod/symbols.c"))
        .into_iter()
        .map(|alternatives| alternatives[0].to_owned())
        .chain(["module_alloc".to_owned()])
        .map(|name| format!("0000000000000000 T {name}\n"))
        .collect::<String>();
    let build = format!("/lib/modules/{RELEASE}/build/Makefile");
    let files: [(&str, &str); 16] = [
        ("/proc/sys/kernel/osrelease", "6.1.0-56-amd64\n"),
        (
            "/proc/cpuinfo",
            "processor\t: 0\nflags\t\t: fpu lm constant_tsc nonstop_tsc\n",
        ),
        ("/proc/kallsyms", &symbols),
        ("/proc/kcore", ""),
        ("/proc/modules", ""),
        (
            "/proc/meminfo",
            "MemTotal:       16000000 kB\nMemAvailable:   8000000 kB\n",
        ),
        ("/proc/sys/kernel/kptr_restrict", "1\n"),
        ("/proc/sys/kernel/modules_disabled", "0\n"),
        (
            "/sys/kernel/security/lockdown",
            "[none] integrity confidentiality\n",
        ),
        ("/sys/kernel/btf/vmlinux", ""),
        ("/sys/module/module/parameters/sig_enforce", "N\n"),
        ("/sys/module/ilk/version", &version),
        (
            "/sys/devices/system/clocksource/clocksource0/available_clocksource",
            "tsc hpet acpi_pm \n",
        ),
        (
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            "tsc\n",
        ),
        ("/etc/os-release", "PRETTY_NAME=\"Debian\"\nID=debian\n"),
        (&build, ""),
    ];
    for (path, text) in files {
        write(root, path, text);
    }
}

fn write(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn remove(root: &Path, path: &str) {
    let path = root.join(path.trim_start_matches('/'));
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
}

/// Returns the findings on a healthy machine with one change that are not fine.
fn after(change: impl FnOnce(&Path)) -> Vec<Finding> {
    let root = tempfile::tempdir().unwrap();
    healthy(root.path());
    change(root.path());
    let mut findings = examine(&Machine::at(root.path()));
    findings.retain(|finding| !matches!(finding.judgement, Judgement::Fine(_)));
    findings
}

/// Asserts that one finding is not fine, and returns its sentences.
#[track_caller]
fn single(findings: &[Finding], subject: &str, is_fault: bool) -> String {
    let [finding] = findings else {
        panic!("{findings:#?}");
    };
    assert_eq!(finding.subject, subject, "{finding:?}");
    assert_eq!(finding.judgement.is_fault(), is_fault, "{finding:?}");
    format!(
        "{}\n{}",
        finding.judgement.text(),
        finding.judgement.mend().join("\n")
    )
}

#[test]
fn a_healthy_machine_has_no_finding() {
    assert_eq!(after(|_| {}), []);
}

#[test]
fn an_empty_root_is_all_faults_and_no_panic() {
    let root = tempfile::tempdir().unwrap();
    let findings = examine(&Machine::at(root.path()));
    assert!(
        findings
            .iter()
            .filter(|finding| finding.judgement.is_fault())
            .count()
            >= 4,
        "{findings:#?}"
    );
}

#[test]
fn missing_headers_name_the_package_of_the_distribution() {
    for (id, command) in [
        (
            "ID=debian",
            "sudo apt-get install linux-headers-6.1.0-56-amd64",
        ),
        (
            "ID=linuxmint\nID_LIKE=\"ubuntu debian\"",
            "sudo apt-get install linux-headers-6.1.0-56-amd64",
        ),
        (
            "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"",
            "sudo dnf install kernel-devel-6.1.0-56-amd64",
        ),
        ("ID=arch", "sudo pacman -S linux-headers"),
        (
            "ID=opensuse-leap\nID_LIKE=\"suse opensuse\"",
            "sudo zypper install kernel-default-devel",
        ),
    ] {
        let findings = after(|root| {
            remove(root, "/lib/modules/6.1.0-56-amd64/build");
            remove(root, "/sys/module/ilk");
            write(
                root,
                "/lib/modules/6.1.0-56-amd64/updates/dkms/ilk.ko.xz",
                "",
            );
            write(root, "/etc/os-release", id);
        });
        let headers = findings
            .iter()
            .find(|finding| finding.subject == "headers")
            .unwrap();
        assert_eq!(headers.judgement.mend().first().unwrap(), command);
    }
}

#[test]
fn a_locked_down_kernel_is_a_fault_with_secure_boot_named() {
    let lock = |root: &Path| {
        write(
            root,
            "/sys/kernel/security/lockdown",
            "none [integrity] confidentiality\n",
        );
    };
    let text = single(&after(lock), "lockdown", true);
    assert!(
        text.contains("(integrity)") && text.contains("lockdown=") && !text.contains("mokutil"),
        "{text}"
    );
    let text = single(
        &after(|root| {
            lock(root);
            let variable =
                "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
            write(root, variable, [6, 0, 0, 0, 1]);
        }),
        "lockdown",
        true,
    );
    assert!(
        text.contains("Secure Boot is on") && text.contains("mokutil --disable-validation"),
        "{text}"
    );
}

#[test]
fn a_kernel_without_a_symbol_is_a_fault_that_names_it() {
    let text = single(
        &after(|root| {
            let path = root.join("proc/kallsyms");
            let symbols = fs::read_to_string(&path).unwrap();
            fs::write(&path, symbols.replace(" kprobe_mutex\n", " kprobe_mutes\n")).unwrap();
        }),
        "symbols",
        true,
    );
    assert!(text.contains("no kprobe_mutex,"), "{text}");
}

#[test]
fn an_older_name_of_a_symbol_serves() {
    let findings = after(|root| {
        let path = root.join("proc/kallsyms");
        let symbols = fs::read_to_string(&path).unwrap();
        fs::write(
            &path,
            symbols.replace("smp_text_poke_batch_add", "text_poke_queue"),
        )
        .unwrap();
    });
    assert_eq!(findings, []);
}

#[test]
fn a_clock_that_the_kernel_distrusts_is_a_fault() {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let text = single(
        &after(|root| {
            write(
                root,
                &format!("{folder}/available_clocksource"),
                "hpet acpi_pm \n",
            );
            write(root, &format!("{folder}/current_clocksource"), "hpet\n");
        }),
        "clock",
        true,
    );
    assert!(text.contains("its clock is hpet"), "{text}");
    let text = single(
        &after(|root| {
            write(
                root,
                "/proc/cpuinfo",
                "flags\t: lm constant_tsc hypervisor\n",
            );
        }),
        "clock",
        false,
    );
    assert!(
        text.contains("nonstop_tsc") && text.contains("+invtsc"),
        "{text}"
    );
}

#[test]
fn another_version_of_the_module_is_a_fault_as_is_none() {
    let text = single(
        &after(|root| write(root, "/sys/module/ilk/version", "1u\n")),
        "module",
        true,
    );
    assert!(
        text.contains(&format!("interface 1, this program needs {ABI_VERSION}")),
        "{text}"
    );
    let text = single(
        &after(|root| remove(root, "/sys/module/ilk")),
        "module",
        true,
    );
    assert!(
        text.contains("cp -r") && text.contains("dkms install") && text.contains("modprobe ilk"),
        "{text}"
    );
    let text = single(
        &after(|root| {
            remove(root, "/sys/module/ilk");
            write(root, "/usr/src/ilk-0.1.0/dkms.conf", "");
        }),
        "module",
        true,
    );
    assert!(
        !text.contains("cp -r") && text.contains("dkms install"),
        "{text}"
    );
    let text = single(
        &after(|root| {
            remove(root, "/sys/module/ilk");
            write(
                root,
                "/lib/modules/6.1.0-56-amd64/updates/dkms/ilk.ko.xz",
                "",
            );
        }),
        "module",
        true,
    );
    assert!(text.contains("is not loaded\nsudo modprobe ilk"), "{text}");
}

#[test]
fn signatures_addresses_types_patches_memory_and_kernels_are_judged() {
    let enforced = after(|root| write(root, "/sys/module/module/parameters/sig_enforce", "Y\n"));
    assert!(single(&enforced, "signatures", false).contains("mokutil --import"));
    let disabled = after(|root| write(root, "/proc/sys/kernel/modules_disabled", "1\n"));
    assert!(single(&disabled, "signatures", true).contains("modules_disabled"));
    let hidden = after(|root| write(root, "/proc/sys/kernel/kptr_restrict", "2\n"));
    assert!(single(&hidden, "addresses", true).contains("sysctl kernel.kptr_restrict=1"));
    let no_core = after(|root| remove(root, "/proc/kcore"));
    assert!(single(&no_core, "addresses", true).contains("CONFIG_PROC_KCORE"));
    let no_types = after(|root| remove(root, "/sys/kernel/btf"));
    assert!(single(&no_types, "types", false).contains("CONFIG_DEBUG_INFO_BTF"));
    let patched = after(|root| {
        write(root, "/sys/kernel/livepatch/fix_1/enabled", "1\n");
        write(root, "/sys/kernel/livepatch/fix_2/enabled", "0\n");
    });
    assert!(single(&patched, "live patches", false).starts_with("active: fix_1."));
    let small = after(|root| write(root, "/proc/meminfo", "MemAvailable:   100000 kB\n"));
    assert!(single(&small, "memory", false).starts_with("102 MB available"));
    let other = after(|root| {
        write(root, "/proc/sys/kernel/osrelease", "6.10.1-arch1\n");
        write(root, "/lib/modules/6.10.1-arch1/build/Makefile", "");
    });
    assert!(single(&other, "kernel", false).contains("unknown-kernel"));
    let arm = after(|root| write(root, "/proc/cpuinfo", "Features : fp asimd\n"));
    assert!(
        arm.iter()
            .any(|finding| finding.subject == "processor" && finding.judgement.is_fault())
    );
}
