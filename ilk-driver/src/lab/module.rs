//! Builds modules for the lab's kernel.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use super::cache::{Fingerprint, is_fresh, mark_fresh};
use super::host::{StepResult, failed, on, run};
use super::kernel::LabKernel;
use super::options::Options;
use super::steps::{At, Reporter};

/// A variable of the module's makefile. The lab's kernel is for tests; that of a package is built without what makes
/// requests fail.
const TESTING: &str = "ILK_TESTING=y";

/// Builds the module `name` if its sources or the headers have changed.
///
/// It is built in the cache, so that the source tree stays clean and modules for several kernels
/// can coexist.
pub(super) fn build(
    options: &Options,
    kernel: &LabKernel,
    source: &Path,
    name: &str,
    reporter: &mut Reporter<'_>,
) -> StepResult<PathBuf> {
    let sources = sources(source)?;
    let folder = if name == "ilk" {
        kernel.release.clone()
    } else {
        format!("{}-{name}", kernel.release)
    };
    let home = options.cache.join("module").join(folder);
    let product = home.join(format!("{name}.ko"));
    let fingerprint = fingerprint(&sources, kernel)?;
    if is_fresh(&product, &fingerprint) {
        return Ok(product);
    }
    for folder in [&home, &kernel.headers] {
        if folder.to_string_lossy().contains([' ', ':', '\t']) {
            return Err(failed(format!(
                "the kernel's makefiles cannot work in {}, whose path has a space or a colon; name another cache with GILK_CACHE",
                folder.display()
            )));
        }
    }
    if home.exists() {
        fs::remove_dir_all(&home).map_err(on("empty", &home))?;
    }
    fs::create_dir_all(&home).map_err(on("create", &home))?;
    for source in &sources {
        let copy = home.join(source.file_name().unwrap_or_default());
        fs::copy(source, &copy).map_err(on("copy", source))?;
    }
    run(make(kernel, &home).arg(TESTING), &mut |line| {
        reporter.report(At::Module, line.trim(), None);
    })?;
    if !product.is_file() {
        return Err(failed(format!(
            "make succeeded but did not create {}",
            product.display()
        )));
    }
    mark_fresh(&product, &fingerprint)?;
    Ok(product)
}

/// Builds the modules of a folder with a Kbuild file, and writes the makefile that starts Kbuild there.
pub(super) fn build_in(kernel: &LabKernel, folder: &Path, variables: &[&str]) -> StepResult<()> {
    /// Kbuild itself is started with the file of its own makefile.
    const MAKEFILE: &str =
        "modules:\n\t$(MAKE) -C $(HEADERS) M=$(CURDIR) CONFIG_DEBUG_INFO_BTF_MODULES= $@\n";
    let makefile = folder.join("GNUmakefile");
    fs::write(&makefile, MAKEFILE).map_err(on("write", &makefile))?;
    run(make(kernel, folder).args(variables), &mut |_| ())
}

/// Returns the command that builds in `home`: in the kernel's build root, if it has one,
/// with the headers and the sources mounted there.
fn make(kernel: &LabKernel, home: &Path) -> Command {
    /// Mounts in a namespace of its own, so that nothing stays mounted.
    const IN_ROOT: &str = r#"set -e
root=$1 kernel=$2 home=$3; shift 3
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
mount --bind "$kernel/usr/src" "$root/usr/src"
for kbuild in "$kernel"/usr/lib/linux-kbuild-*; do
    mkdir -p "$root/usr/lib/${kbuild##*/}"
    mount --bind "$kbuild" "$root/usr/lib/${kbuild##*/}"
done
mount --bind "$home" "$root/module"
exec chroot "$root" make -C /module "$@""#;
    let Some((root, packages)) = &kernel.build_root else {
        let mut assignment = std::ffi::OsString::from("HEADERS=");
        assignment.push(&kernel.headers);
        let mut make = Command::new("make");
        make.arg("-C").arg(home).arg(assignment);
        return modules(make);
    };
    let mut make = Command::new("unshare");
    make.arg("--mount");
    let is_root = fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
    if !is_root {
        make.args(["--user", "--map-root-user"]);
    }
    make.args(["sh", "-c", IN_ROOT, "sh"])
        .args([root.as_path(), packages, home])
        .arg(format!("HEADERS=/usr/src/linux-headers-{}", kernel.release));
    modules(make)
}

/// Completes a command of make, which ignores the job server and the flags of an outer make.
fn modules(mut make: Command) -> Command {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    make.env_remove("MAKEFLAGS")
        .env_remove("MFLAGS")
        .env_remove("MAKELEVEL")
        .env("LC_ALL", "C")
        .arg(format!("-j{jobs}"))
        .arg("modules");
    make
}

fn sources(directory: &Path) -> StepResult<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .map_err(on("find the module's sources in", directory))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file() && is_source(path))
        .collect();
    files.sort();
    Ok(files)
}

fn is_source(path: &Path) -> bool {
    let named = |name: &str| path.file_name().is_some_and(|file| file == name);
    let ends = |extension: &str| path.extension().is_some_and(|actual| actual == extension);
    // kbuild creates NAME.mod.c in a source tree that was built in place.
    let generated = path.to_string_lossy().ends_with(".mod.c");
    (named("Makefile") || named("Kbuild") || ends("c") || ends("h") || ends("S")) && !generated
}

fn fingerprint(sources: &[PathBuf], kernel: &LabKernel) -> StepResult<String> {
    let mut fingerprint = Fingerprint::default();
    fingerprint
        .text(TESTING)
        .text(&kernel.release)
        .text(&kernel.headers.to_string_lossy());
    for source in sources {
        fingerprint.contents_of(source)?;
    }
    for name in [".config", "Module.symvers"] {
        let file = kernel.headers.join(name);
        if file.is_file() {
            fingerprint.state_of(&file)?;
        }
    }
    Ok(fingerprint.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of the module's Kbuild with headers that have a line, and a configuration.
    fn refused(declared: &str, configuration: &[&str]) -> String {
        let headers = tempfile::tempdir().unwrap();
        let folder = headers.path().join("include/linux");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("ftrace.h"), declared).unwrap();
        let output = Command::new("make")
            .args([
                "-f",
                concat!(env!("CARGO_MANIFEST_DIR"), "/kmod/Kbuild"),
                "objtree=/headers",
            ])
            .arg(format!("srctree={}", headers.path().display()))
            .args(configuration)
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    }

    #[test]
    fn headers_without_what_the_module_needs_are_refused_by_name() {
        let declared = "int ftrace_set_filter_ips(void);\n";
        let trees = ["CONFIG_MODULES=y", "CONFIG_INTERVAL_TREE=y"];
        assert!(refused("", &trees).contains("ilk.ko needs Linux 5.18 or later"));
        let text = refused(declared, &trees[..1]);
        assert!(text.contains("ilk.ko needs CONFIG_INTERVAL_TREE"), "{text}");
        // There are no targets: Kbuild is read by the kernel's own makefiles. `make clean` reads no configuration.
        for accepted in [&trees[..], &[]] {
            let text = refused(declared, accepted);
            assert!(!text.contains("ilk.ko needs"), "{text}");
        }
    }
}
