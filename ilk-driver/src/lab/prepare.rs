//! The preparation of a lab: kernel, module, agent and initramfs, in order.

use std::path::{Path, PathBuf};

use super::kernel::LabKernel;
use super::options::Options;
use super::steps::{At, Reporter, Step};
use super::{agent, cache, initramfs, kernel, module};
use crate::Result;

/// A prepared lab, ready to boot.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(super) options: Options,
    pub(super) initramfs: PathBuf,
    pub(super) kernel: LabKernel,
}

impl Prepared {
    /// Returns the kernel's release.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.kernel.release
    }

    /// Returns the headers for building modules.
    #[must_use]
    pub fn headers(&self) -> &Path {
        &self.kernel.headers
    }

    /// Returns the directory of the kernel's own modules, if it exists.
    #[must_use]
    pub fn modules(&self) -> Option<&Path> {
        self.kernel.modules.as_deref()
    }

    /// Builds the modules of a folder with a Kbuild file, with further variables of make, in the root that the
    /// kernel's own headers need if there is one.
    ///
    /// # Errors
    /// [`crate::Error::Lab`] with the output of a failed compiler.
    pub fn build_modules(&self, folder: &Path, variables: &[&str]) -> Result<()> {
        module::build_in(&self.kernel, folder, variables)
            .map_err(|failure| failure.at_step("build modules"))
    }

    /// Returns the options of the preparation.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Changes options that only take effect at boot: the kernel's command line, the accelerator,
    /// the module.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }
}

/// Returns the libraries that a program of this machine loads, and the loader, by the loader's own list.
///
/// # Errors
/// [`crate::Error::Lab`] if a library is missing, or the program loads none.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    agent::libraries(program).map_err(|failure| failure.at_step("list libraries"))
}

/// Downloads and unpacks kernel and headers, builds `ilk.ko` and the workloads, and packs the
/// initramfs with them and the agent. Fresh products in the cache are kept.
///
/// # Errors
/// [`crate::Error::Lab`] with the step, the reason and the output of a failed tool: no network and
/// an empty cache, a missing tool, a compiler's error, headers that do not match the kernel.
pub fn prepare(options: &Options, progress: &mut dyn FnMut(&Step)) -> Result<Prepared> {
    let mut reporter = Reporter::new(progress);
    let _lock = cache::lock(&options.cache).map_err(|failure| failure.at_step("use its cache"))?;
    reporter.report(At::Kernel, "looking for a kernel", None);
    let kernel = kernel::locate(options, &mut reporter)
        .map_err(|failure| failure.at_step("get a kernel"))?;
    reporter.done(At::Kernel, format!("Linux {}", kernel.release));
    reporter.report(At::Module, "building ilk.ko", None);
    let sources = options.source.module();
    let module = module::build(options, &kernel, &sources, "ilk", &mut reporter)
        .map_err(|failure| failure.at_step("build the module"))?;
    let rivals = options.rivals.then(|| {
        let tree = options.source.tree("the module rivals");
        tree.map(|tree| tree.join("ilk-driver/rivals/module"))
            .and_then(|sources| module::build(options, &kernel, &sources, "rivals", &mut reporter))
            .map_err(|failure| failure.at_step("build the module rivals"))
    });
    let rivals = rivals.transpose()?;
    reporter.done(At::Module, "ilk.ko is built");
    reporter.report(At::Agent, "building the agent", None);
    let agent = agent::build(options, &mut reporter)
        .map_err(|failure| failure.at_step("build the agent"))?;
    let workloads = agent::workloads(options, &mut reporter)
        .map_err(|failure| failure.at_step("build the workloads"))?;
    reporter.done(At::Agent, "the agent is built");
    reporter.report(At::Initramfs, "packing", None);
    let contents = initramfs::Contents {
        module: &module,
        rivals: rivals.as_deref(),
        agent: &agent,
        workloads: &workloads,
    };
    let initramfs = initramfs::pack(options, &kernel, &contents)
        .map_err(|failure| failure.at_step("pack its file system"))?;
    reporter.done(At::Initramfs, "packed");
    Ok(Prepared {
        options: options.clone(),
        initramfs,
        kernel,
    })
}
