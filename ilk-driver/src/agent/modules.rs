//! The sections of the kernel's modules.

use std::fs;
use std::path::Path;

const MODULES: &str = "/proc/modules";
const SYSFS: &str = "/sys/module";

/// Returns a line for each section of each module: the module, its size, the section, its address.
/// The second text is a note for the user if they cannot be read.
pub(super) fn sections() -> (Vec<u8>, String) {
    match fs::read_to_string(MODULES) {
        Ok(modules) => (list(&modules, Path::new(SYSFS)).into_bytes(), String::new()),
        // A kernel without loadable modules has no such file.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => (Vec::new(), String::new()),
        Err(e) => {
            let note = format!(
                "The kernel's modules cannot be read ({MODULES}: {e}); their functions are left out."
            );
            (Vec::new(), note)
        }
    }
}

fn list(modules: &str, sysfs: &Path) -> String {
    let mut lines = String::new();
    for line in modules.lines() {
        let mut fields = line.split_ascii_whitespace();
        // The kernel writes both fields on every line.
        let (Some(module), Some(size)) = (fields.next(), fields.next()) else {
            debug_assert!(false, "{MODULES} has the line {line:?}");
            continue;
        };
        // A module unloaded since the list was read counts as not loaded.
        let Ok(sections) = fs::read_dir(sysfs.join(module).join("sections")) else {
            continue;
        };
        let mut module_lines: Vec<String> = sections
            .flatten()
            .filter_map(|section| {
                let address = fs::read_to_string(section.path()).ok()?;
                let name = section.file_name();
                Some(format!("{} {}", name.to_str()?, address.trim()))
            })
            .collect();
        module_lines.sort_unstable();
        for line in module_lines {
            lines.push_str(&format!("{module} {size} {line}\n"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sections_of_all_loaded_modules_are_listed() {
        let root = tempfile::tempdir().unwrap();
        let sections = root.path().join("virtio/sections");
        fs::create_dir_all(&sections).unwrap();
        fs::write(sections.join(".text"), "0xffffffffc0001000\n").unwrap();
        fs::write(sections.join("__bug_table"), "0xffffffffc0002000\n").unwrap();
        let modules =
            "virtio 16384 1 virtio_net, Live 0xffffffffc0001000\ngone 4096 0 - Live 0x0\n";
        assert_eq!(
            list(modules, root.path()),
            "virtio 16384 .text 0xffffffffc0001000\nvirtio 16384 __bug_table 0xffffffffc0002000\n"
        );
    }
}
