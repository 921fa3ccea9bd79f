//! `cargo xtask circles`: refuses files of a crate that import each other in a circle.
//!
//! An import is a `use` of this crate's modules. One of a re-exported item counts as an import of the file
//! that defines it, and a module's own re-exports are no imports. Tests are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::fail::{Fail, Result};
use crate::tool;

const CRATES: [&str; 5] = ["engine", "instruments", "samples", "ilk-driver", "gui"];

/// Circles that may be: a crate and the files or folders that have all of their files, with the reason.
const ALLOWED: [(&str, &[&str], &str); 2] = [
    (
        "engine",
        &["patch"],
        "the compiler of programs and the code around them call each other",
    ),
    (
        "instruments",
        &["definition", "native"],
        "a definition may be native code, and reading native code gives a definition",
    ),
];

/// Checks every crate.
pub(crate) fn check() -> Result<()> {
    let mut refused = String::new();
    let mut used = BTreeSet::new();
    for name in CRATES {
        let files = read(&tool::root().join(name).join("src"));
        for circle in circles(&imports(&files)) {
            let named =
                |file: &String, places: &[&str]| places.iter().any(|place| is_below(file, place));
            let allowed = ALLOWED.iter().position(|(package, places, _)| {
                *package == name && circle.iter().all(|file| named(file, places))
            });
            match allowed {
                Some(index) => used.extend([index]),
                None => refused.push_str(&format!("\n  {name}: {}", circle.join(", "))),
            }
        }
    }
    let unused = (0..ALLOWED.len()).find(|index| !used.contains(index));
    if let Some((package, places, _)) = unused.and_then(|index| ALLOWED.get(index)) {
        return Err(Fail::new(format!(
            "the circle of {package}: {} is gone: remove it from xtask/src/circles.rs and ARCHITECTURE.md",
            places.join(", ")
        )));
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(Fail::new(format!(
        "these files import each other in a circle:{refused}\nMove the common part into a file below them, or name the circle and its reason in xtask/src/circles.rs."
    )))
}

fn is_below(module: &str, folder: &str) -> bool {
    folder.is_empty()
        || module == folder
        || module
            .strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with("::"))
}

/// The text of each module's file, by path of the module.
fn read(root: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Some(module) = path.strip_prefix(root).ok().and_then(Path::to_str) else {
                continue;
            };
            let Some(module) = module.strip_suffix(".rs") else {
                continue;
            };
            let module = module.strip_suffix("/mod").unwrap_or(module);
            let module = if module == "lib" { "" } else { module };
            if module.split('/').any(|part| part.contains("tests")) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            let end = text.find("#[cfg(test)]\nmod tests {");
            let text = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
            files.insert(module.replace('/', "::"), text.to_owned());
        }
    }
    files
}

/// A `use`: whether it re-exports, and the paths, absolute in the crate.
type Use = (bool, Vec<Vec<String>>);

/// The uses of this crate's modules in a module's text.
fn uses(module: &str, text: &str, is_module: impl Fn(&str) -> bool) -> Vec<Use> {
    let mut imports = Vec::new();
    let mut statement = String::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let starts = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
        if statement.is_empty() && !starts.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        statement.push_str(line);
        statement.push(' ');
        if !line.ends_with(';') {
            continue;
        }
        let whole = std::mem::take(&mut statement);
        let Some((visibility, tree)) = whole.split_once("use ") else {
            continue;
        };
        let module_path: Vec<String> = module
            .split("::")
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect();
        let paths = expand(tree.trim().trim_end_matches(';')).into_iter();
        let absolute = paths.filter_map(|path| {
            let mut parts: Vec<String> = path.split("::").map(str::to_owned).collect();
            let mut base = module_path.clone();
            match parts.first().map(String::as_str) {
                Some("crate") => base.clear(),
                Some("super") => {
                    while parts.first().is_some_and(|part| part == "super") {
                        base.pop();
                        parts.remove(0);
                    }
                    base.append(&mut parts);
                    return Some(base);
                }
                Some("self") => {}
                Some(first)
                    if is_module(&[&module_path[..], &[first.to_owned()]].concat().join("::")) =>
                {
                    base.append(&mut parts);
                    return Some(base);
                }
                _ => return None,
            }
            base.extend(parts.into_iter().skip(1));
            Some(base)
        });
        imports.push((!visibility.trim().is_empty(), absolute.collect()));
    }
    imports
}

/// The paths of a tree of imports: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![
            path.chars()
                .filter(|letter| !letter.is_whitespace())
                .collect(),
        ];
    };
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let (mut depth, mut start) = (0_usize, 0);
    let mut branches = Vec::new();
    for (at, letter) in body.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                branches.extend(body.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    branches.extend(body.get(start..));
    let branches = branches
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty());
    branches
        .flat_map(|branch| expand(&format!("{}{branch}", prefix.trim())))
        .map(|path| path.trim_end_matches("::self").to_owned())
        .collect()
}

/// The modules that each module imports.
fn imports(files: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let is_module = |path: &str| files.contains_key(path);
    // The longest prefix that is a module, and the item in it.
    let resolve = |path: &[String]| {
        let module = |len: usize| {
            path.iter()
                .take(len)
                .cloned()
                .collect::<Vec<_>>()
                .join("::")
        };
        let longest = (0..=path.len())
            .rev()
            .find(|&len| is_module(&module(len)))?;
        Some((module(longest), path.get(longest).cloned()))
    };
    let all: BTreeMap<&String, Vec<Use>> = files
        .iter()
        .map(|(module, text)| (module, uses(module, text, is_module)))
        .collect();
    let mut exported = BTreeMap::new();
    for (module, uses) in &all {
        for path in uses
            .iter()
            .filter(|(exports, _)| *exports)
            .flat_map(|(_, paths)| paths)
        {
            if let (Some((target, _)), Some(item)) = (resolve(path), path.last()) {
                exported.insert(((*module).clone(), item.clone()), target);
            }
        }
    }
    let defining = |mut module: String, item: Option<String>| {
        let Some(item) = item else { return module };
        for _ in 0..8 {
            match exported.get(&(module.clone(), item.clone())) {
                Some(next) if *next != module => module.clone_from(next),
                _ => break,
            }
        }
        module
    };
    let graph = all.iter().map(|(module, uses)| {
        let paths = uses
            .iter()
            .filter(|(exports, _)| !exports)
            .flat_map(|(_, paths)| paths);
        let targets = paths
            .filter_map(|path| resolve(path))
            .map(|(target, item)| defining(target, item));
        let targets: BTreeSet<String> = targets.filter(|target| target != *module).collect();
        ((*module).clone(), targets)
    });
    graph.collect()
}

/// The strongly connected components of more than one module.
fn circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> = graph
        .keys()
        .map(|start| {
            let mut visited = BTreeSet::new();
            let mut worklist = vec![start];
            while let Some(module) = worklist.pop() {
                for next in graph.get(module).into_iter().flatten() {
                    if visited.insert(next) {
                        worklist.push(next);
                    }
                }
            }
            (start, visited)
        })
        .collect();
    let reaches =
        |from: &String, to: &String| reachable.get(from).is_some_and(|all| all.contains(to));
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for start in graph.keys() {
        let mutual = graph
            .keys()
            .filter(|other| reaches(start, other) && reaches(other, start));
        let component: Vec<String> = mutual.cloned().collect();
        if component.len() > 1 {
            circles.insert(component);
        }
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(module, text): &(&str, &str)| ((*module).to_owned(), (*text).to_owned());
        texts.iter().map(owned).collect()
    }

    #[test]
    fn a_circle_through_a_reexport_is_found() {
        let round = files(&[
            ("", "mod a;\nmod b;"),
            ("a", "mod inner;\npub use inner::Item;"),
            ("a::inner", "use crate::b::{\n    Other, more::Thing,\n};"),
            ("b", "use crate::a::Item;"),
        ]);
        let expected = vec![vec!["a::inner".to_owned(), "b".to_owned()]];
        assert_eq!(circles(&imports(&round)), expected);
    }

    #[test]
    fn arrows_one_way_are_no_circle() {
        let straight = files(&[
            ("", "pub use a::Item;"),
            ("a", "use super::b::Other;"),
            ("b", "// use crate::a::Item;"),
        ]);
        assert!(circles(&imports(&straight)).is_empty());
    }

    #[test]
    fn trees_of_imports_expand() {
        let paths = expand("crate::a::{self, b::{C, D as E}, f::*}");
        assert_eq!(
            paths,
            [
                "crate::a",
                "crate::a::b::C",
                "crate::a::b::D",
                "crate::a::f::*"
            ]
        );
    }

    #[test]
    fn the_tree_has_no_circle_but_those_that_are_named() {
        check().unwrap();
    }
}
