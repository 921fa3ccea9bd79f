//! The functions that live patches replace (`Documentation/ABI/testing/sysfs-kernel-livepatch`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use super::kernel;
use crate::protocol::{Refusal, RefusalKind};

const LIVE_PATCHES: &str = "/sys/kernel/livepatch";
/// The folder of a live patch for functions of the kernel itself; others have the name of a module.
const KERNEL: &str = "vmlinux";

/// The replaced functions, by symbol, after that of its module and a colon. Of several that share a name, all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replaced(BTreeSet<String>);

impl Replaced {
    /// Reads which functions the loaded live patches replace.
    ///
    /// # Errors
    /// A refusal that names what cannot be read.
    pub(super) fn read() -> Result<Self, Refusal> {
        Self::under(Path::new(LIVE_PATCHES)).map_err(|error| {
            Refusal::new(
                RefusalKind::Read,
                format!(
                    "The functions that live patches replace cannot be read on {} ({LIVE_PATCHES}: {error}).",
                    kernel::host()
                ),
            )
        })
    }

    #[cfg(test)]
    pub(super) fn of<const N: usize>(functions: [&str; N]) -> Self {
        Self(functions.map(str::to_owned).into())
    }

    /// A live patch has a folder for each object, and in it one for each function: `NAME,POSITION`.
    fn under(folder: &Path) -> io::Result<Self> {
        let mut functions = BTreeSet::new();
        for patch in folders(folder)? {
            for object in folders(&patch)? {
                let name = name_of(&object);
                for function in folders(&object)? {
                    let function = name_of(&function);
                    let symbol = function
                        .rsplit_once(',')
                        .map_or(&*function, |(symbol, _)| symbol);
                    functions.insert(match &*name {
                        KERNEL => symbol.to_owned(),
                        module => format!("{module}:{symbol}"),
                    });
                }
            }
        }
        Ok(Self(functions))
    }

    /// Returns whether the old code of a function does not execute; `name` may have an address after an `@`. A part
    /// that the compiler moved out of a function (`NAME.cold`) is replaced with it.
    pub(super) fn contains(&self, name: &str) -> bool {
        let symbol = name.split('@').next().unwrap_or(name);
        let whole = symbol.split(".cold").next().unwrap_or(symbol);
        self.0.contains(symbol) || self.0.contains(whole)
    }
}

/// Returns the folders in a folder, none if it is gone.
fn folders(folder: &Path) -> io::Result<Vec<std::path::PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_all_patches_are_replaced_with_their_parts() {
        let root = tempfile::tempdir().unwrap();
        for function in [
            "fix_1/vmlinux/vfs_read,1",
            "fix_2/vmlinux/cmdline_proc_show,0",
            "fix_2/tun/tun_chr_open,0",
        ] {
            fs::create_dir_all(root.path().join(function)).unwrap();
        }
        fs::write(root.path().join("fix_1/enabled"), "1\n").unwrap();
        let replaced = Replaced::under(root.path()).unwrap();
        for name in [
            "vfs_read",
            "vfs_read@0xffffffff81234560",
            "vfs_read.cold",
            "cmdline_proc_show",
            "tun:tun_chr_open",
        ] {
            assert!(replaced.contains(name), "{name}");
        }
        for name in ["vfs_readv", "tun_chr_open", "tap:tun_chr_open"] {
            assert!(!replaced.contains(name), "{name}");
        }
        let none = Replaced::under(&root.path().join("absent")).unwrap();
        assert_eq!(none, Replaced::default());
    }
}
