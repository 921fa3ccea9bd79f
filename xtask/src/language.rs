//! `cargo xtask language`: refuses the words that CODE_STYLE.md replaces.
//!
//! Comments, string literals, identifiers and Markdown of every tracked file are read. The rules stand in
//! [`words`]; what a file may say all the same stands there too, with its reason.

mod docs;
mod tokens;
mod types;
mod words;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::tool;
use tokens::Syntax;

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    message: String,
}

/// Checks the tracked files below `paths`, or all of them.
pub(crate) fn check(paths: &[String]) -> Result<()> {
    let mut files = Vec::new();
    for path in tracked()? {
        let syntax = Syntax::of(&path);
        if let (Some(syntax), Ok(text)) = (syntax, fs::read_to_string(tool::root().join(&path))) {
            files.push((path, syntax, text));
        }
    }
    let findings = find(&files);
    let chosen: Vec<&Finding> = findings
        .iter()
        .filter(|finding| {
            paths.is_empty() || paths.iter().any(|path| is_below(&finding.path, path))
        })
        .collect();
    let mut report = String::new();
    for finding in &chosen {
        let _ = writeln!(
            report,
            "{}:{}: {}",
            finding.path, finding.line, finding.message
        );
    }
    // A reader that has seen enough may close the pipe.
    let _ = io::stdout().write_all(report.as_bytes());
    if chosen.is_empty() {
        return Ok(());
    }
    Err(Fail::new(format!(
        "{} places do not follow CODE_STYLE.md",
        chosen.len()
    )))
}

fn is_below(path: &str, folder: &str) -> bool {
    Path::new(path).starts_with(folder.trim_start_matches("./"))
}

/// Returns the files that git tracks or would add.
fn tracked() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(tool::root());
    let list = tool::output(&mut git)
        .ok_or_else(|| Fail::new("git ls-files failed: is this a git checkout?"))?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// Returns all findings, sorted by path and line.
fn find(files: &[(String, Syntax, String)]) -> Vec<Finding> {
    let mut findings = BTreeSet::new();
    let mut used = BTreeSet::new();
    for (path, syntax, text) in files {
        let pieces = tokens::pieces(text, *syntax);
        words::check(path, &pieces, &mut used, &mut findings);
        if *syntax == Syntax::Rust {
            docs::check(path, text, &mut findings);
        }
    }
    let rust = files
        .iter()
        .filter(|(_, syntax, _)| *syntax == Syntax::Rust)
        .map(|(path, _, text)| (path.as_str(), text.as_str()));
    types::check(rust, &mut findings);
    words::check_allowances(&used, &mut findings);
    findings.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let syntax = Syntax::of(path).unwrap();
        find(&[(path.to_owned(), syntax, text.to_owned())])
            .into_iter()
            .filter(|finding| finding.path == path)
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        found(path, text)
            .into_iter()
            .map(|(line, _)| line)
            .collect()
    }

    #[test]
    fn a_refused_word_is_found_in_comments_strings_and_identifiers() {
        let text = "// The page behind it.\nfn f() { g(\"nobody is here\"); }\nlet behind = 1;\n";
        assert_eq!(lines("a/src/a.rs", text), [1, 2, 3]);
        assert_eq!(lines("a/src/a.c", "/* a\n * behind b */\n"), [2]);
        assert_eq!(lines("docs/a.md", "The page\nbehind it.\n"), [2]);
        assert_eq!(lines("a/b.gilk", "// Nobody.\nentry { @n++ }\n"), [1]);
    }

    #[test]
    fn code_in_prose_is_not_prose() {
        assert!(
            lines(
                "docs/a.md",
                "The field `behind` holds it.\n```\nbehind\n```\n"
            )
            .is_empty()
        );
        assert!(lines("a/src/a.rs", "/// Returns `told`.\nfn f() {}\n").is_empty());
        assert!(lines("a/src/a.rs", "fn f() { let c = '\"'; g(\"a\"); }\n").is_empty());
        assert!(lines("a/src/a.rs", "fn f<'a>(x: &'a str) -> &'a str { x }\n").is_empty());
    }

    #[test]
    fn a_phrase_is_found_across_lines_but_not_across_sentences() {
        assert_eq!(lines("a/src/a.rs", "// Control goes\n// on there.\n"), [1]);
        assert!(lines("a/src/a.rs", "// So it goes. On this CPU.\n").is_empty());
    }

    #[test]
    fn people_may_be_called_who() {
        assert!(lines("docs/a.md", "Users who press Run see it.\n").is_empty());
        assert_eq!(lines("docs/a.md", "Who is interrupted returns.\n"), [1]);
    }

    #[test]
    fn doc_comments_begin_with_a_verb_or_a_noun_and_say_more_than_the_name() {
        assert_eq!(
            lines("a/src/a.rs", "/// Whether it ends.\nfn ends() {}\n"),
            [1]
        );
        assert_eq!(lines("a/src/a.rs", "/// The end.\npub struct End;\n"), [1]);
        let text = "/// Returns whether it ends.\nfn ends() {}\n/// The end of a run, exclusive.\nend: u64,\n";
        assert!(lines("a/src/a.rs", text).is_empty());
    }

    #[test]
    fn a_type_is_defined_once_in_a_crate() {
        let file = |path: &str, text: &str| (path.to_owned(), Syntax::Rust, text.to_owned());
        let findings = find(&[
            file("a/src/a.rs", "struct Site;\n"),
            file("a/src/b.rs", "\npub(crate) enum Site {}\n"),
            file("a/src/bin/tool/c.rs", "struct Site;\n"),
            file(
                "b/src/a.rs",
                "struct Site;\nimpl Iterator for Site {\n    type Item = u8;\n}\n",
            ),
        ]);
        let places: Vec<(&str, usize)> = findings
            .iter()
            .filter(|finding| finding.path.ends_with(".rs") && finding.message.contains("Site"))
            .map(|finding| (finding.path.as_str(), finding.line))
            .collect();
        assert_eq!(places, [("a/src/b.rs", 2)]);
    }
}
