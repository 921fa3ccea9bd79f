//! The origin of the lab's parts: a source tree, or an installed package.

use std::path::{Path, PathBuf};

use super::host::{StepResult, failed};

/// The origin of the lab's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// gilk's source tree, from which all of them are built.
    Tree(PathBuf),
    /// A folder of an installed package: `workload`, the workloads; and `kmod`, the sources of the module, which is
    /// built for the lab's kernel.
    Installed(PathBuf),
}

impl Source {
    /// Returns the tree that this program was built from if it is there, otherwise its package's folder if
    /// there is one.
    pub(super) fn of_this_program() -> Self {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tree = package.parent().unwrap_or(package);
        let installed = || {
            let program = std::env::current_exe().ok()?;
            let folder = program.parent()?.parent()?.join("lib/gilk");
            folder.join("workload").is_dir().then_some(folder)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::options::Options;

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
