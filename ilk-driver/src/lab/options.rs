//! The options of a lab.

use std::path::PathBuf;
use std::time::Duration;

use super::accelerator::Accelerator;
use super::cache;
use super::source::Source;

/// The options of a lab. [`Options::default`] is the lab of `cargo xtask run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The origin of the module and the workloads: the tree `GILK_SOURCE`, otherwise the tree
    /// that this program was built from, otherwise the package that it was installed by.
    pub source: Source,
    /// The cache of built products: `GILK_CACHE`, otherwise `.cache` in the source tree, otherwise
    /// the user's cache.
    pub cache: PathBuf,
    /// The `ilk` that the lab carries as its agent: `GILK_AGENT`, if set; otherwise this program if it is `ilk`, or
    /// the one that belongs to it.
    pub agent: Option<PathBuf>,
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
    /// Time limit of a boot, without the time for which the emulator waits for a processor of this machine.
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
            agent: set("GILK_AGENT"),
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
