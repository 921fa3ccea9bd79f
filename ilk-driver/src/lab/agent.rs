//! The programs of the lab: the agent and the workloads, all linked statically. They are built from the source
//! tree, or were by a package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache::{Fingerprint, is_fresh, mark_fresh};
use super::host::{StepResult, on, run};
use super::options::Options;
use super::source::Source;
use super::steps::{At, Reporter};

/// The target with a C library that links statically; musl's is not available on every machine.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Returns a static `ilk` with the agent but without the client; builds it unless cargo finds it fresh.
pub(super) fn build(options: &Options, reporter: &mut Reporter<'_>) -> StepResult<PathBuf> {
    if let Source::Installed(folder) = &options.source {
        return Ok(folder.join("agent"));
    }
    let manifest = options.source.tree("the agent")?.join("Cargo.toml");
    let target = options.cache.join("agent");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "build",
        "--package",
        "ilk-driver",
        "--no-default-features",
        "--bin",
        "ilk",
        "--release",
        "--target",
        TARGET,
    ]);
    cargo
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target);
    // Settings of an outer cargo do not apply to this build.
    for name in [
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
    ] {
        cargo.env_remove(name);
    }
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    cargo
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    cargo
        .env("CARGO_TERM_PROGRESS_WHEN", "never")
        .env("CARGO_TERM_COLOR", "never");
    run(&mut cargo, &mut |line| {
        reporter.report(At::Agent, line.trim(), None);
    })?;
    Ok(target.join(TARGET).join("release/ilk"))
}

/// A program for the lab's file system.
pub(super) struct GuestProgram {
    /// Its name in the lab's `/bin`.
    pub(super) name: String,
    /// The static executable.
    pub(super) path: PathBuf,
}

/// Returns the workloads; compiles every C file that has changed into a static program.
pub(super) fn workloads(
    options: &Options,
    reporter: &mut Reporter<'_>,
) -> StepResult<Vec<GuestProgram>> {
    let home = options.cache.join("workload");
    fs::create_dir_all(&home).map_err(on("create", &home))?;
    let mut workloads = Vec::new();
    let (folder, is_built) = match &options.source {
        Source::Installed(folder) => (folder.join("workload"), true),
        Source::Tree(tree) => (tree.join("ilk-driver/workload"), false),
    };
    for entry in fs::read_dir(&folder).map_err(on("list", &folder))? {
        let found = entry.map_err(on("list", &folder))?.path();
        let is_source = found.extension().is_some_and(|extension| extension == "c");
        let name = found
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if is_built {
            workloads.push(GuestProgram { name, path: found });
        } else if is_source {
            let path = home.join(&name);
            compile(&[found], &path, reporter)?;
            workloads.push(GuestProgram { name, path });
        }
    }
    if options.rivals {
        let path = home.join("rivals");
        compile(&rivals(options)?, &path, reporter)?;
        workloads.push(GuestProgram {
            name: "rivals".into(),
            path,
        });
    }
    // The order of a directory is unspecified, and equal file systems should have equal bytes.
    workloads.sort_by(|first, second| first.name.cmp(&second.name));
    Ok(workloads)
}

/// Returns the sources and headers of the program that measures ilk's rivals.
fn rivals(options: &Options) -> StepResult<Vec<PathBuf>> {
    let home = options
        .source
        .tree("the program rivals")?
        .join("ilk-driver/rivals");
    let mut sources = vec![home.join("module/rivals.h")];
    let program = home.join("program");
    let entries = fs::read_dir(&program).map_err(on("list", &program))?;
    sources.extend(entries.flatten().map(|entry| entry.path()));
    sources.sort();
    Ok(sources)
}

/// Compiles sources into one program; headers only count for freshness.
fn compile(sources: &[PathBuf], product: &Path, reporter: &mut Reporter<'_>) -> StepResult<()> {
    let mut fingerprint = Fingerprint::default();
    for source in sources {
        fingerprint.contents_of(source)?;
    }
    let fingerprint = fingerprint.finish();
    if is_fresh(product, &fingerprint) {
        return Ok(());
    }
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-static", "-s", "-o"])
        .arg(product)
        .args(
            sources
                .iter()
                .filter(|source| source.extension().is_some_and(|extension| extension == "c")),
        );
    run(&mut gcc, &mut |line| reporter.report(At::Agent, line, None))?;
    mark_fresh(product, &fingerprint)
}
