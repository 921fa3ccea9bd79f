//! The options of a lab.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::accelerator::Accelerator;
use super::cache;
use super::host::{StepResult, failed};

/// Where the lab's parts come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// gilk's source tree, from which all of them are built.
    Tree(PathBuf),
    /// A folder of an installed package: `agent`, the static agent; `workload`, the workloads; and `kmod`,
    /// the sources of the module, which is built for the lab's kernel.
    Installed(PathBuf),
}

impl Source {
    /// Returns the tree that this program was built from if it is there, otherwise its package's folder if
    /// there is one.
    fn of_this_program() -> Self {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tree = package.parent().unwrap_or(package);
        let installed = || {
            let program = std::env::current_exe().ok()?;
            let folder = program.parent()?.parent()?.join("lib/gilk");
            folder.join("agent").is_file().then_some(folder)
        };
        match installed() {
            Some(folder) if !Self::is_tree(tree) => Self::Installed(folder),
            _ => Self::Tree(tree.to_path_buf()),
        }
    }

    /// Returns whether a folder holds gilk's sources.
    pub(super) fn is_tree(folder: &Path) -> bool {
        folder.join("Cargo.toml").is_file()
    }

    /// Returns the folder with the module's sources.
    pub(super) fn module(&self) -> PathBuf {
        match self {
            Self::Tree(tree) => tree.join("ilk-driver/kmod"),
            Self::Installed(folder) => folder.join("kmod"),
        }
    }

    /// Returns the source tree, from which alone some parts can be built.
    ///
    /// # Errors
    /// A sentence that names the part if a package was installed instead.
    pub(super) fn tree(&self, part: &str) -> StepResult<&Path> {
        let (Self::Tree(folder) | Self::Installed(folder)) = self;
        if Self::is_tree(folder) {
            return Ok(folder);
        }
        Err(failed(format!(
            "{part} is built from gilk's sources, and there are none at {}; run from the source tree, or name it with GILK_SOURCE",
            folder.display()
        )))
    }
}

/// The options of a lab. [`Options::default`] is the lab of `cargo xtask run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the module, the agent and the workloads come from: the tree `GILK_SOURCE`, otherwise the tree
    /// that this program was built from, otherwise the package that it was installed by.
    pub source: Source,
    /// The cache of built products: `GILK_CACHE`, otherwise `.cache` in the source tree, otherwise
    /// the user's cache.
    pub cache: PathBuf,
    /// A kernel image to use instead of Debian's: `GILK_KERNEL`, if set. Needs `headers`.
    pub kernel: Option<PathBuf>,
    /// The headers of `kernel`: `GILK_HEADERS`, if set.
    pub headers: Option<PathBuf>,
    /// A suite of Debian other than the host's, like `trixie-backports`, whose kernel is used and with
    /// whose tools modules are built: `GILK_SUITE`, if set.
    pub suite: Option<String>,
    /// The series of Debian's kernels, like `6.12`, if there are several: `GILK_SERIES`, if set;
    /// otherwise the release's own.
    pub series: Option<String>,
    /// Its flavour: `cloud`, `full` or `rt`: `GILK_FLAVOUR`, if set; otherwise `cloud`.
    pub flavour: Option<String>,
    /// Number of CPUs. Two show most races, and a laptop has them.
    pub cpus: u32,
    /// Memory of the virtual machine, in MiB.
    pub memory_mib: u32,
    /// The accelerator; `None` chooses KVM if a trial boot passes, otherwise emulation.
    pub accelerator: Option<Accelerator>,
    /// Packs ilk's rivals for measurements: `/lab/rivals.ko` and `/bin/rivals`.
    pub rivals: bool,
    /// Further modules of the kernel to load, each with its dependencies; they stay in `/lab`.
    pub drivers: Vec<String>,
    /// Loads `ilk.ko`. Without it the agent answers that it is missing.
    pub load_module: bool,
    /// Further words of the kernel's command line.
    pub append: Vec<String>,
    /// Further arguments for QEMU.
    pub arguments: Vec<String>,
    /// Further executable files of the lab's file system, each with its path there. `lab/run` is
    /// executed instead of the agent, and the lab ends with it.
    pub files: Vec<(String, PathBuf)>,
    /// Time limit of a boot.
    pub boot_limit: Duration,
    /// Restores a snapshot from the cache instead of booting, if tests cannot observe the difference; a boot
    /// saves one. `GILK_LAB_SNAPSHOT`, if set.
    pub snapshot: bool,
}

impl Default for Options {
    fn default() -> Self {
        let set = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let source = set("GILK_SOURCE").map_or_else(Source::of_this_program, Source::Tree);
        Self {
            cache: cache::default_directory(&source),
            source,
            kernel: set("GILK_KERNEL"),
            headers: set("GILK_HEADERS"),
            suite: set("GILK_SUITE").map(|suite| suite.to_string_lossy().into_owned()),
            series: set("GILK_SERIES").map(|series| series.to_string_lossy().into_owned()),
            flavour: set("GILK_FLAVOUR").map(|flavour| flavour.to_string_lossy().into_owned()),
            cpus: 2,
            memory_mib: 1024,
            accelerator: None,
            rivals: false,
            drivers: Vec::new(),
            load_module: true,
            append: Vec::new(),
            arguments: Vec::new(),
            files: Vec::new(),
            boot_limit: Duration::from_secs(180),
            snapshot: set("GILK_LAB_SNAPSHOT").is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_all_parts_but_those_for_measurements() {
        let folder = tempfile::tempdir().unwrap();
        let installed = Source::Installed(folder.path().to_owned());
        assert_eq!(installed.module(), folder.path().join("kmod"));
        let refused = format!("{:?}", installed.tree("the module rivals").unwrap_err());
        assert!(
            refused.contains("the module rivals is built from gilk's sources"),
            "{refused}"
        );
        let options = Options {
            cache: folder.path().join("cache"),
            source: installed,
            ..Options::default()
        };
        std::fs::create_dir(folder.path().join("workload")).unwrap();
        std::fs::write(folder.path().join("workload/pulsar"), "").unwrap();
        let mut quiet = |_: &super::super::Step| {};
        let mut reporter = super::super::steps::Reporter::new(&mut quiet);
        let agent = super::super::agent::build(&options, &mut reporter).unwrap();
        assert_eq!(agent, folder.path().join("agent"));
        let workloads = super::super::agent::workloads(&options, &mut reporter).unwrap();
        let paths: Vec<_> = workloads.iter().map(|found| &found.path).collect();
        assert_eq!(paths, [&folder.path().join("workload/pulsar")]);
    }

    #[test]
    fn programs_of_the_tree_use_the_tree() {
        let Source::Tree(tree) = Source::of_this_program() else {
            panic!("a test runs in the tree");
        };
        assert_eq!(Source::Tree(tree.clone()).tree("it").unwrap(), tree);
    }
}
