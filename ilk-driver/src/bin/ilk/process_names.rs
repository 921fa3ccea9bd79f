//! Names of objects and functions that a process has not, or not yet, and of those that a person may mean.

use std::collections::BTreeSet;

use gilk_engine::Image;
use gilk_instruments::nearest;
use ilk_driver::note;
use ilk_driver::process::{Object, hint_of_libraries, objects};
use ilk_driver::script::{is_pattern, matches};

/// Names that are offered since they contain the wanted one, at most.
const LONGER: usize = 3;

/// Returns a sentence about functions that a pattern may mean which none matches, after a space; empty if there is none.
pub(crate) fn names_like(pid: u32, image: &Image, pattern: &str) -> String {
    if is_pattern(pattern) {
        return String::new();
    }
    let of_libraries = match pattern.contains(':') {
        true => String::new(),
        false => hint_of_libraries(pid, pattern),
    };
    if !of_libraries.is_empty() {
        return format!(" {of_libraries}");
    }
    let names = || image.functions().iter();
    if let Some(near) = nearest(pattern, names().map(|function| function.name.as_str())) {
        return format!(" Did you mean {near}?");
    }
    // Symbols of C++ and Rust have the name within, with their types around it.
    let name = pattern.rsplit(':').next().unwrap_or(pattern);
    let longer = names().filter(|function| name.len() > 1 && function.name.contains(name));
    let mut longer: Vec<&str> = longer.map(|function| function.name.as_str()).collect();
    longer.sort_by_key(|name| name.len());
    longer.truncate(LONGER);
    match longer.is_empty() {
        true => String::new(),
        false => format!(" Names that contain it: {}.", longer.join(", ")),
    }
}

/// Reports the objects that a process has not mapped, and that are instrumented later.
pub(crate) fn note_awaited(pid: u32, awaited: &[String]) -> anyhow::Result<()> {
    if awaited.is_empty() {
        return Ok(());
    }
    let objects = objects(pid)?;
    let names: Vec<&str> = objects.iter().map(Object::name).collect();
    note!(
        "It has not mapped {}, {} instrumented when loaded; it has mapped {}.",
        awaited.join(", "),
        if awaited.len() == 1 {
            "which is"
        } else {
            "which are"
        },
        names.join(", ")
    );
    for (name, file) in versions(awaited, &names) {
        note!("The file of {name} is {file}: write {file}, or '{name}*'.");
    }
    Ok(())
}

/// Reports the objects that a process has not loaded to the end: nothing was counted in them.
pub(crate) fn note_never_loaded(pid: u32, awaited: &[String], loaded: &BTreeSet<String>) {
    let is_missing = |pattern: &&String| !loaded.iter().any(|object| matches(pattern, object));
    let missing: Vec<&str> = awaited
        .iter()
        .filter(is_missing)
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        note!(
            "ilk: Process {pid} has not loaded {}: nothing was counted there.",
            missing.join(", ")
        );
    }
}

/// Returns the awaited names of which a mapped file has a longer version: `libz.so.1` of `libz.so.1.3`.
fn versions<'n>(awaited: &'n [String], mapped: &[&'n str]) -> Vec<(&'n str, &'n str)> {
    let file = |name: &'n String| {
        let is_version = |file: &&&str| {
            let version = file.strip_prefix(name.as_str());
            name.contains(".so") && version.is_some_and(|version| version.starts_with('.'))
        };
        let file = mapped.iter().find(is_version)?;
        Some((name.as_str(), *file))
    };
    awaited.iter().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::versions;

    #[test]
    fn a_name_without_the_whole_version_is_that_of_a_mapped_file() {
        let awaited = ["libz.so.1", "libc.so", "libq.so.3", "prog"].map(str::to_owned);
        let mapped = ["prog.so.2", "libz.so.11", "libz.so.1.3", "libc.so.6"];
        let found = versions(&awaited, &mapped);
        assert_eq!(
            found,
            [("libz.so.1", "libz.so.1.3"), ("libc.so", "libc.so.6")]
        );
    }
}
