//! The programs of the lab: the agent and the workloads. The agent is `ilk` itself with the libraries that it is
//! linked to; the workloads are linked statically, and are built from the source tree, or were by a package.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache::{Fingerprint, is_fresh, mark_fresh};
use super::host::{StepResult, failed, on, run};
use super::options::Options;
use super::source::Source;
use super::steps::{At, Reporter};
use crate::programs;

/// The program interpreter of x86-64 Linux (x86-64 psABI, "Program Interpreter").
const INTERPRETER: &str = "/lib64/ld-linux-x86-64.so.2";

/// The agent's program and what it needs to start.
pub(super) struct Agent {
    /// `ilk` without its symbols.
    pub(super) program: PathBuf,
    /// The interpreter and the libraries, at the same paths in the lab as on this machine.
    pub(super) libraries: Vec<PathBuf>,
}

/// Returns the agent.
pub(super) fn build(options: &Options, reporter: &mut Reporter<'_>) -> StepResult<Agent> {
    let program = program(options, reporter)?;
    let home = options.cache.join("agent");
    fs::create_dir_all(&home).map_err(on("create", &home))?;
    let stripped = home.join("ilk");
    let fingerprint = Fingerprint::default().state_of(&program)?.finish();
    if !is_fresh(&stripped, &fingerprint) {
        // Renamed into place: a lab that was prepared before may be reading the old one.
        let part = home.join("ilk.part");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&part).arg(&program);
        run(&mut strip, &mut |line| {
            reporter.report(At::Agent, line, None);
        })?;
        fs::rename(&part, &stripped).map_err(on("rename", &part))?;
        mark_fresh(&stripped, &fingerprint)?;
    }
    let libraries = libraries(&stripped)?;
    Ok(Agent {
        program: stripped,
        libraries,
    })
}

/// Returns the `ilk` that the lab carries: the one of the options, this program, or the one that belongs to it.
fn program(options: &Options, reporter: &mut Reporter<'_>) -> StepResult<PathBuf> {
    if let Some(program) = &options.agent {
        return Ok(program.clone());
    }
    let own = std::env::current_exe()
        .map_err(|error| failed(format!("cannot find this program's own file: {error}")))?;
    if own.file_name() == Some(OsStr::new("ilk")) {
        return Ok(own);
    }
    // The window, a test or an example.
    let folder = programs::folder(&own);
    if let Source::Installed(_) = options.source {
        return Ok(folder.join("ilk"));
    }
    let manifest = options.source.tree("the agent")?.join("Cargo.toml");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--package", "ilk-driver", "--bin", "ilk"])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(folder.parent().unwrap_or(folder))
        .env("CARGO_TERM_PROGRESS_WHEN", "never")
        .env("CARGO_TERM_COLOR", "never");
    if folder.file_name() == Some(OsStr::new("release")) {
        cargo.arg("--release");
    }
    run(&mut cargo, &mut |line| {
        reporter.report(At::Agent, line.trim(), None);
    })?;
    Ok(folder.join("ilk"))
}

/// Returns the files that the interpreter loads for a program, itself among them.
pub(super) fn libraries(program: &Path) -> StepResult<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    let mut wrong = None;
    let mut list = Command::new(INTERPRETER);
    list.arg("--list").arg(program);
    run(&mut list, &mut |line| match loaded(line) {
        Ok(path) => libraries.extend(path),
        Err(missing) => wrong = Some(missing),
    })?;
    match wrong {
        Some(missing) => Err(failed(format!(
            "{} needs the library {missing}, which is not on this machine",
            program.display()
        ))),
        None => Ok(libraries),
    }
}

/// Reads a line of the interpreter's list: `libc.so.6 => /lib/libc.so.6 (0x7f…)`, a path alone, or the kernel's own
/// object, which is no file.
fn loaded(line: &str) -> Result<Option<PathBuf>, String> {
    let (name, path) = line.split_once(" => ").unwrap_or((line, line));
    if path.trim() == "not found" {
        return Err(name.trim().to_owned());
    }
    let path = path.rsplit_once(" (").map_or(path, |(path, _)| path);
    Ok(path.trim().starts_with('/').then(|| path.trim().into()))
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
        let source = entry.map_err(on("list", &folder))?.path();
        let is_source = source.extension().is_some_and(|extension| extension == "c");
        let name = source
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if is_built {
            workloads.push(GuestProgram { name, path: source });
        } else if is_source {
            let path = home.join(&name);
            compile(&[source], &path, reporter)?;
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
    // Symbols stay: stacks of processes show them.
    gcc.args(["-O2", "-Wall", "-Wextra", "-static", "-Wl,--strip-debug"])
        .arg("-o")
        .arg(product)
        .args(
            sources
                .iter()
                .filter(|source| source.extension().is_some_and(|extension| extension == "c")),
        );
    run(&mut gcc, &mut |line| reporter.report(At::Agent, line, None))?;
    mark_fresh(product, &fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreters_list_is_read() {
        let path = |line| loaded(line).unwrap();
        let library = "\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f2f4a4f1000)";
        assert_eq!(
            path(library),
            Some("/lib/x86_64-linux-gnu/libm.so.6".into())
        );
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007fff2f3e9000)"), None);
        let interpreter = format!("\t{INTERPRETER} (0x00007f2f4a6e4000)");
        assert_eq!(path(&interpreter), Some(INTERPRETER.into()));
        let missing = loaded("\tlibzstd.so.1 => not found").unwrap_err();
        assert_eq!(missing, "libzstd.so.1");
    }

    #[test]
    fn a_programs_libraries_are_files() {
        let libraries = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(libraries.contains(&INTERPRETER.into()), "{libraries:?}");
        assert!(libraries.iter().all(|path| path.is_file()), "{libraries:?}");
    }
}
