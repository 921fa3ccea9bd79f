//! What the agent says of its kernel's modules: where each has its sections.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const MODULES: &str = "/proc/modules";
const SYSFS: &str = "/sys/module";

/// A line for each section of each module: the module, the bytes it has in all, the section, its
/// address. And a note for a person where that cannot be read.
pub(super) fn sections() -> (Vec<u8>, String) {
    match fs::read_to_string(MODULES) {
        Ok(modules) => (
            listed(&modules, Path::new(SYSFS)).into_bytes(),
            String::new(),
        ),
        // A kernel without loadable modules has none.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => (Vec::new(), String::new()),
        Err(e) => {
            let note = format!(
                "The kernel's modules cannot be read ({MODULES}: {e}); their functions are left out."
            );
            (Vec::new(), note)
        }
    }
}

fn listed(modules: &str, sysfs: &Path) -> String {
    let mut list = String::new();
    for line in modules.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(module), Some(size)) = (fields.next(), fields.next()) else {
            continue;
        };
        // A module that is unloaded meanwhile is one that is not there.
        let Ok(sections) = fs::read_dir(sysfs.join(module).join("sections")) else {
            continue;
        };
        let mut lines: Vec<String> = sections
            .flatten()
            .filter_map(|section| {
                let address = fs::read_to_string(section.path()).ok()?;
                let name = section.file_name();
                Some(format!("{} {}", name.to_str()?, address.trim()))
            })
            .collect();
        lines.sort_unstable();
        for line in lines {
            // Writing to a string does not fail.
            let _ = writeln!(list, "{module} {size} {line}");
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_of_every_module_is_listed() {
        let root = tempfile::tempdir().unwrap();
        let sections = root.path().join("virtio/sections");
        fs::create_dir_all(&sections).unwrap();
        fs::write(sections.join(".text"), "0xffffffffc0001000\n").unwrap();
        fs::write(sections.join("__bug_table"), "0xffffffffc0002000\n").unwrap();
        let modules =
            "virtio 16384 1 virtio_net, Live 0xffffffffc0001000\ngone 4096 0 - Live 0x0\n";
        assert_eq!(
            listed(modules, root.path()),
            "virtio 16384 .text 0xffffffffc0001000\nvirtio 16384 __bug_table 0xffffffffc0002000\n"
        );
    }
}
