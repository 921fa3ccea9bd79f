//! The module: its headers, its signature, its file, its version.

use super::machine::Family;
use super::{Judgement, Machine};
use crate::agent::abi::ABI_VERSION;

/// The command that builds the module for the running kernel and installs it.
const INSTALL: &str = "sudo dkms install ilk/0.1.0";

/// The kernel loads unsigned modules, or a key of the machine's owner is enrolled.
pub(super) fn signatures(machine: &Machine) -> Option<Judgement> {
    if !machine.exists("/proc/modules") {
        return Some(Judgement::fault(
            "the kernel was built without CONFIG_MODULES: ilk.ko cannot be loaded",
            &["# no command mends this: boot a kernel of your distribution"],
        ));
    }
    let forbidden = machine
        .text("/proc/sys/kernel/modules_disabled")
        .is_some_and(|text| text == "1");
    if forbidden {
        return Some(Judgement::fault(
            "kernel.modules_disabled is 1: no module can be loaded until the next start",
            &["sudo reboot"],
        ));
    }
    let enforced = machine
        .text("/sys/module/module/parameters/sig_enforce")
        .is_some_and(|text| text == "Y");
    if !enforced {
        return Some(Judgement::fine("not required of modules"));
    }
    let key = match machine.family() {
        Family::Debian => "/var/lib/dkms/mok.pub",
        _ => "/var/lib/dkms/mok.pub   # dkms makes it at its first build",
    };
    Some(Judgement::warning(
        "the kernel loads signed modules only; dkms signs ilk.ko with a key that must be enrolled once",
        &[&format!("sudo mokutil --import {key}"), "sudo reboot"],
    ))
}

/// The headers of the running kernel are installed.
pub(super) fn headers(machine: &Machine) -> Option<Judgement> {
    let release = machine.release()?;
    let build = format!("/lib/modules/{release}/build");
    if machine.exists(&format!("{build}/Makefile"))
        || (!machine.is_this() && machine.exists(&build))
    {
        return Some(Judgement::fine(build));
    }
    if is_loaded(machine) {
        return Some(Judgement::warning(
            format!("{build} does not exist: the module cannot be built again for this kernel"),
            &[],
        ));
    }
    let command = match machine.family() {
        Family::Debian => format!("sudo apt-get install linux-headers-{release}"),
        Family::Fedora => format!("sudo dnf install kernel-devel-{release}"),
        Family::Suse => "sudo zypper install kernel-default-devel".to_owned(),
        Family::Arch => "sudo pacman -S linux-headers".to_owned(),
        Family::Other => {
            format!("install the headers of Linux {release} by your distribution's means")
        }
    };
    let what = format!(
        "{build}/Makefile does not exist: the headers of the running kernel are not installed"
    );
    Some(Judgement::fault(
        what,
        &[
            &command,
            "# if there is no such package: the kernel was updated since the last start; reboot first",
        ],
    ))
}

fn is_loaded(machine: &Machine) -> bool {
    machine.exists("/sys/module/ilk")
}

/// The module is loaded, and of this program's version.
pub(super) fn module(machine: &Machine) -> Option<Judgement> {
    let release = machine.release()?;
    if is_loaded(machine) {
        // The module gives the constant of its header, with the suffix of its type.
        let version = machine.text("/sys/module/ilk/version").unwrap_or_default();
        let version = version.trim_end_matches('u').to_owned();
        return Some(if version == ABI_VERSION.to_string() {
            Judgement::fine(format!("loaded, interface {version}"))
        } else {
            let version = if version.is_empty() {
                "an older one".to_owned()
            } else {
                version
            };
            Judgement::fault(
                format!(
                    "the loaded ilk.ko has interface {version}, this program needs {ABI_VERSION}"
                ),
                &["sudo rmmod ilk", INSTALL, "sudo modprobe ilk"],
            )
        });
    }
    let is_module = |name: &str| name == "ilk.ko" || name.starts_with("ilk.ko.");
    let file = machine.find(&format!("/lib/modules/{release}"), &is_module);
    Some(match file {
        Some(file) => Judgement::fault(
            format!("{} is not loaded", file.display()),
            &["sudo modprobe ilk"],
        ),
        None => {
            let copy = "sudo cp -r ilk-driver/kmod /usr/src/ilk-0.1.0";
            // The package ilk-dkms has brought the sources.
            let is_packaged = machine.exists("/usr/src/ilk-0.1.0/dkms.conf");
            let commands = [copy, INSTALL, "sudo modprobe ilk"];
            Judgement::fault(
                format!("no ilk.ko is installed for Linux {release}"),
                commands
                    .get(usize::from(is_packaged)..)
                    .unwrap_or(&commands),
            )
        }
    })
}
