//! The drivers of the agent's port: those that this kernel has as modules, in load order.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host::{StepResult, failed, on, output};

/// Modules needed by the lab; their dependencies are read from them.
const WANTED: [&str; 2] = ["virtio_pci", "virtio_console"];

/// A module for a plain insmod.
pub(super) struct Driver {
    /// `virtio_pci.ko`.
    pub(super) file: String,
    /// The module, decompressed.
    pub(super) bytes: Vec<u8>,
}

/// Returns the modules needed by the port and the `further` ones, each after its dependencies,
/// without built-in ones.
pub(super) fn needed(
    modules: Option<&Path>,
    release: &str,
    further: &[String],
) -> StepResult<Vec<Driver>> {
    let Some(modules) = modules else {
        return Err(failed(format!(
            "there is no directory of modules for {release}: neither next to its headers, nor next to its image, nor in /lib/modules"
        )));
    };
    let builtin = builtin(&modules.join("modules.builtin"))?;
    let home = modules.join("kernel");
    let mut loading = Loading {
        files: files(&home)?,
        home,
        builtin,
        visited: BTreeSet::new(),
        drivers: Vec::new(),
    };
    for name in WANTED {
        loading.add(name, "the lab needs it")?;
    }
    for name in further {
        loading.add(&name.replace('-', "_"), "--load names it")?;
    }
    Ok(loading.drivers)
}

struct Loading {
    /// The folder of the kernel's modules.
    home: PathBuf,
    files: Vec<PathBuf>,
    builtin: BTreeSet<String>,
    visited: BTreeSet<String>,
    drivers: Vec<Driver>,
}

impl Loading {
    /// Adds a module and its dependencies; `needed_by` ends the sentence that it does not exist.
    fn add(&mut self, name: &str, needed_by: &str) -> StepResult<()> {
        if self.builtin.contains(name) || !self.visited.insert(name.to_owned()) {
            return Ok(());
        }
        let file = self
            .files
            .iter()
            .find(|path| module_name(path).as_deref() == Some(name))
            .cloned();
        let file = file.ok_or_else(|| {
            failed(format!(
                "the kernel has no module {name}, neither built in nor under {}, and {needed_by}",
                self.home.display()
            ))
        })?;
        let bytes = decompressed(&file)?;
        for dependency in dependencies(&bytes) {
            self.add(&dependency, &format!("{name} needs it"))?;
        }
        self.drivers.push(Driver {
            file: format!("{name}.ko"),
            bytes,
        });
        Ok(())
    }
}

/// Parses the names in `modules.builtin`.
fn builtin(list: &Path) -> StepResult<BTreeSet<String>> {
    let text = fs::read_to_string(list).map_err(on("read", list))?;
    Ok(text
        .lines()
        .filter_map(|line| module_name(Path::new(line)))
        .collect())
}

/// Returns all modules under a directory: their subfolders differ between versions.
fn files(directory: &Path) -> StepResult<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let mut worklist = vec![directory.to_path_buf()];
    while let Some(directory) = worklist.pop() {
        // A kernel may have no such folder; the list must not be empty in the end.
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                worklist.push(path);
            } else if module_name(&path).is_some() {
                paths.push(path);
            }
        }
    }
    if paths.is_empty() {
        Err(failed(format!(
            "there are no modules under {}",
            directory.display()
        )))
    } else {
        Ok(paths)
    }
}

/// Returns a module's name, `virtio_pci` for `…/virtio-pci.ko.xz`: the kernel writes dashes as
/// underscores.
fn module_name(path: &Path) -> Option<String> {
    let (name, _) = path.file_name()?.to_str()?.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

fn decompressed(path: &Path) -> StepResult<Vec<u8>> {
    let tool = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).map_err(on("read", path)),
    };
    output(Command::new(tool).arg("-dc").arg(path))
}

/// Parses the names after `depends=` in a module's `.modinfo`, a sequence of zero-terminated texts.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let list: Vec<u8> = module
        .iter()
        .skip(at + KEY.len())
        .copied()
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8_lossy(&list)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(directory: &Path, name: &str, depends: &str) {
        fs::write(
            directory.join(format!("{name}.ko")),
            format!("\x7fELF\0license=GPL\0depends={depends}\0name={name}\0"),
        )
        .unwrap();
    }

    #[test]
    fn a_driver_is_loaded_once_and_after_its_dependencies() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("kernel/drivers/virtio");
        fs::create_dir_all(&home).unwrap();
        module(&home, "virtio_console", "virtio,virtio_ring");
        module(&home, "virtio-pci", "virtio_ring,virtio");
        module(&home, "virtio", "virtio_ring");
        module(&home, "unrelated", "");
        let systems = root.path().join("kernel/fs/xfs");
        fs::create_dir_all(&systems).unwrap();
        module(&systems, "xfs", "");
        fs::write(
            root.path().join("modules.builtin"),
            "kernel/drivers/virtio/virtio_ring.ko\n",
        )
        .unwrap();
        let files: Vec<_> = needed(Some(root.path()), "test", &[String::from("xfs")])
            .map_err(|failure| failure.to_string())
            .unwrap()
            .into_iter()
            .map(|driver| driver.file)
            .collect();
        let expected = ["virtio.ko", "virtio_pci.ko", "virtio_console.ko", "xfs.ko"];
        assert_eq!(files, expected);
    }

    #[test]
    fn a_kernel_without_a_driver_is_refused_with_its_name() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("kernel/drivers");
        fs::create_dir_all(&home).unwrap();
        module(&home, "other", "");
        fs::write(root.path().join("modules.builtin"), "").unwrap();
        let failure = needed(Some(root.path()), "test", &[])
            .err()
            .unwrap()
            .to_string();
        assert!(
            failure.contains("virtio_pci") && failure.contains("the lab needs it"),
            "{failure}"
        );
        for name in WANTED {
            module(&home, name, "");
        }
        let failure = needed(Some(root.path()), "test", &[String::from("null-blk")]);
        let failure = failure.err().unwrap().to_string();
        assert!(
            failure.contains("null_blk") && failure.contains("--load names it"),
            "{failure}"
        );
    }
}
