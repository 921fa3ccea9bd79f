//! The lab: a stock kernel in QEMU with the module, the agent and the workload in it.
//!
//! [`prepare`] gets or makes everything that a lab is made of and keeps it in a cache, so that
//! nothing is done twice; [`Lab::boot`] boots it; `client::Connection::connect` to
//! [`Lab::socket`] talks to its agent. Nothing here needs root, and nothing touches the host's
//! own kernel.
//!
//! | file | its job |
//! |---|---|
//! | `debs`, `kernel` | which kernel, and where its headers and modules are |
//! | `module`, `agent` | builds `ilk.ko`; builds the static `ilk` and the workloads |
//! | `drivers`, `cpio`, `initramfs`, `init.sh` | the lab's file system and its first process |
//! | `accelerator`, `qemu`, `runtime`, `boot` | KVM or emulation; the process; its files; from start to answer |
//! | `cache`, `host`, `steps` | what is kept; the host's tools; what is told meanwhile |

mod accelerator;
mod agent;
mod boot;
mod cache;
mod cpio;
mod debs;
mod drivers;
mod host;
mod initramfs;
mod kernel;
mod module;
mod qemu;
mod runtime;
mod snapshot;
mod steps;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;
pub use accelerator::Accelerator;
pub use boot::Lab;
use steps::{At, Reporter};
pub use steps::{STEPS, Step};

/// What lab is wanted. [`Options::default`] is the one that `cargo xtask run` boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// gilk's source tree: the module, the agent and the workloads are built from it. `GILK_SOURCE`, else
    /// where this program was built.
    pub source: PathBuf,
    /// Where everything made is kept: `GILK_CACHE`, else `.cache` in the source tree, else the user's cache.
    pub cache: PathBuf,
    /// A kernel image of your own instead of Debian's: `GILK_KERNEL`, if set. Needs `headers`.
    pub kernel: Option<PathBuf>,
    /// The headers that belong to `kernel`: `GILK_HEADERS`, if set.
    pub headers: Option<PathBuf>,
    /// Which of Debian's kernels, like `6.12`, where it has several: `GILK_SERIES`, if set; else its
    /// release's own.
    pub series: Option<String>,
    /// Which of its flavours: `cloud`, `full` or `rt`: `GILK_FLAVOUR`, if set; else `cloud`.
    pub flavour: Option<String>,
    /// CPUs of the lab. Two show most races, and a laptop has them.
    pub cpus: u32,
    /// Memory of the lab, in MiB.
    pub memory_mib: u32,
    /// How QEMU runs it; `None`: KVM where a trial boot passes, else emulation.
    pub accelerator: Option<Accelerator>,
    /// Whether what ilk is measured beside is packed too: `/lab/rivals.ko` and `/bin/rivals`.
    pub rivals: bool,
    /// Further modules of the kernel that are loaded, each with what it needs; they stay in `/lab`.
    pub drivers: Vec<String>,
    /// Whether `ilk.ko` is loaded. Without it the agent answers that it is missing.
    pub load_module: bool,
    /// Further words for the kernel's command line.
    pub append: Vec<String>,
    /// Further arguments for QEMU.
    pub arguments: Vec<String>,
    /// Further files of the lab's file system, each with its path there, and all of them programs. If one is
    /// `lab/run`, it is run instead of the agent, and with its end the lab ends.
    pub files: Vec<(String, PathBuf)>,
    /// How long a boot may take before it counts as failed.
    pub boot_limit: Duration,
    /// Restores a snapshot in the cache instead of booting, where that makes no difference to tests; a boot saves
    /// one. `GILK_LAB_SNAPSHOT`, if set.
    pub snapshot: bool,
}

impl Default for Options {
    fn default() -> Self {
        let set = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let source = set("GILK_SOURCE").unwrap_or_else(built_from);
        Self {
            cache: cache::default_directory(&source),
            source,
            kernel: set("GILK_KERNEL"),
            headers: set("GILK_HEADERS"),
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

/// The workspace this program was built in.
fn built_from() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// Everything that a boot needs.
#[derive(Clone, Debug)]
pub struct Prepared {
    options: Options,
    image: PathBuf,
    initramfs: PathBuf,
    release: String,
    headers: PathBuf,
    modules: Option<PathBuf>,
}

impl Prepared {
    /// `uname -r` of the lab's kernel.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// What modules for this kernel are built against.
    #[must_use]
    pub fn headers(&self) -> &Path {
        &self.headers
    }

    /// The kernel's own modules, where it has a directory of them.
    #[must_use]
    pub fn modules(&self) -> Option<&Path> {
        self.modules.as_deref()
    }

    /// The options it was prepared with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The same kernel and files with other words on the kernel's command line, another
    /// accelerator, or without the module: whatever of the options only a boot looks at.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }
}

/// Downloads and unpacks kernel and headers, builds `ilk.ko`, the static agent and the workloads, and packs
/// the initramfs. What is in the cache and still fits is not made again.
///
/// # Errors
/// [`crate::Error::Lab`] with the step, the reason and what a failed tool said: no network and nothing cached,
/// a missing tool, a compiler's error, a kernel and headers that do not belong together.
pub fn prepare(options: &Options, progress: &mut dyn FnMut(&Step)) -> Result<Prepared> {
    let mut reporter = Reporter::new(progress);
    let _lock = cache::lock(&options.cache).map_err(|trouble| trouble.stopped("use its cache"))?;
    reporter.tell(At::Kernel, "looking for a kernel", None);
    let kernel = kernel::locate(options, &mut reporter)
        .map_err(|trouble| trouble.stopped("get a kernel"))?;
    reporter.done(At::Kernel, format!("Linux {}", kernel.release));
    reporter.tell(At::Module, "building ilk.ko", None);
    let sources = options.source.join("ilk-driver/kmod");
    let module = module::built(options, &kernel, &sources, "ilk", &mut reporter)
        .map_err(|trouble| trouble.stopped("build the module"))?;
    let rivals = options.rivals.then(|| {
        let sources = options.source.join("ilk-driver/rivals/module");
        module::built(options, &kernel, &sources, "rivals", &mut reporter)
            .map_err(|trouble| trouble.stopped("build the module rivals"))
    });
    let rivals = rivals.transpose()?;
    reporter.done(At::Module, "ilk.ko is built");
    reporter.tell(At::Agent, "building the agent", None);
    let agent = agent::built(options, &mut reporter)
        .map_err(|trouble| trouble.stopped("build the agent"))?;
    let workloads = agent::workloads(options, &mut reporter)
        .map_err(|trouble| trouble.stopped("build the workloads"))?;
    reporter.done(At::Agent, "the agent is built");
    reporter.tell(At::Initramfs, "packing", None);
    let contents = initramfs::Contents {
        module: &module,
        rivals: rivals.as_deref(),
        agent: &agent,
        workloads: &workloads,
    };
    let initramfs = initramfs::packed(options, &kernel, &contents)
        .map_err(|trouble| trouble.stopped("pack its file system"))?;
    reporter.done(At::Initramfs, "packed");
    Ok(Prepared {
        options: options.clone(),
        image: kernel.image,
        initramfs,
        release: kernel.release,
        headers: kernel.headers,
        modules: kernel.modules,
    })
}
