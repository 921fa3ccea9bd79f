//! `ilk man` and `ilk completions`: manual pages and completions, made of the commands themselves.

use std::io::Write;

use anyhow::bail;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use gilk_instruments::nearest;

use crate::help;
use crate::reference::{self, Line};

/// Print a manual page, as its source: `ilk man run | man -l -`.
#[derive(Args)]
pub(crate) struct Manual {
    /// A command or a topic of `ilk help`. Default: ilk itself.
    page: Option<String>,
    /// List the pages instead, by the names of their files.
    #[arg(long, conflicts_with = "page")]
    list: bool,
}

/// Print the completions of a shell: `ilk completions bash > /etc/bash_completion.d/ilk`.
#[derive(Args)]
pub(crate) struct Completions {
    /// bash, zsh, fish, elvish or powershell.
    shell: Shell,
}

/// A manual page.
enum Page<'c> {
    /// `ilk` itself or one of its commands, in section 1.
    Command(Box<Command>),
    /// A topic of `ilk help`, in section 7.
    Topic(&'c str, String),
    /// The reference of the language, in section 7.
    Reference,
}

impl Page<'_> {
    /// Returns the name of its file.
    fn file(&self) -> String {
        match self {
            Self::Command(command) => format!("{}.1", command.get_display_name().unwrap_or("ilk")),
            Self::Topic(name, _) => format!("ilk-{name}.7"),
            Self::Reference => format!("ilk-{}.7", help::REFERENCE),
        }
    }

    fn render(&self, out: &mut dyn Write) -> std::io::Result<()> {
        match self {
            Self::Command(command) => Man::new(Command::clone(command)).manual("ilk").render(out),
            Self::Topic(name, text) => {
                let mut page = begun(name, &format!("{name} of ilk"));
                page.control("SH", ["DESCRIPTION"]);
                page.control("nf", []);
                for line in text.lines() {
                    page.text([roman(line)]);
                }
                ended(page, out)
            }
            Self::Reference => {
                let mut page = begun(help::REFERENCE, "the language of instruments and scripts");
                for line in reference::lines() {
                    match line {
                        Line::Heading(heading) => {
                            page.control("fi", []);
                            page.control("SH", [heading.to_uppercase().as_str()]);
                            page.control("nf", []);
                        }
                        Line::Text(text) => {
                            page.text([roman(text)]);
                        }
                    }
                }
                ended(page, out)
            }
        }
    }
}

/// Begins a page of section 7.
fn begun(name: &str, about: &str) -> Roff {
    let title = format!("ilk-{name}");
    let mut page = Roff::new();
    page.control(
        "TH",
        [
            title.as_str(),
            "7",
            "",
            concat!("ilk ", env!("CARGO_PKG_VERSION")),
        ],
    );
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{title} - {about}"))]);
    page
}

/// Ends a page whose lines are not filled.
fn ended(mut page: Roff, out: &mut dyn Write) -> std::io::Result<()> {
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("ilk(1)")]);
    page.to_writer(out)
}

/// Returns the name of a page that is called by it, by its file, or by the command: `ilk-count` of `count`.
fn named(page: &str) -> String {
    let page = page.trim_end_matches(".1").trim_end_matches(".7");
    let page = page.replace(' ', "-");
    match page.strip_prefix("ilk") {
        Some("") => page,
        Some(rest) if rest.starts_with('-') => page,
        _ => format!("ilk-{page}"),
    }
}

/// Returns the pages: `ilk`, its commands and theirs, and the topics.
fn pages(mut root: Command) -> Vec<Page<'static>> {
    root.build();
    let mut pages = Vec::new();
    let mut waiting = vec![root];
    while let Some(command) = waiting.pop() {
        let commands = command
            .get_subcommands()
            .filter(|found| !found.is_hide_set());
        waiting.extend(commands.cloned());
        pages.push(Page::Command(Box::new(command)));
    }
    pages.push(Page::Reference);
    pages.extend(help::topics().map(|(name, text)| Page::Topic(name, text)));
    pages.sort_by_key(Page::file);
    pages
}

impl Manual {
    pub(crate) fn run(self, root: Command) -> anyhow::Result<()> {
        let pages = pages(root);
        let mut out = std::io::stdout().lock();
        if self.list {
            for page in &pages {
                writeln!(out, "{}", page.file())?;
            }
            return Ok(out.flush()?);
        }
        let name = named(self.page.as_deref().unwrap_or("ilk"));
        let names: Vec<String> = pages.iter().map(|page| named(&page.file())).collect();
        match pages.iter().zip(&names).find(|(_, known)| **known == name) {
            Some((page, _)) => {
                page.render(&mut out)?;
                Ok(out.flush()?)
            }
            None => {
                let short = name.trim_start_matches("ilk-");
                let known = names.iter().map(|known| known.trim_start_matches("ilk-"));
                match nearest(short, known) {
                    Some(near) => bail!("There is no page {short:?}; try `ilk man {near}`."),
                    None => bail!("There is no page {short:?}; `ilk man --list` lists them."),
                }
            }
        }
    }
}

impl Completions {
    pub(crate) fn run(self, mut root: Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut root, "ilk", &mut script);
        let mut out = std::io::stdout().lock();
        out.write_all(&script)?;
        Ok(out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Ilk;

    fn text(page: &Page<'_>) -> String {
        let mut out = Vec::new();
        page.render(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_command_and_topic_has_a_page_of_its_own() {
        let pages = pages(Ilk::command());
        let files: Vec<String> = pages.iter().map(Page::file).collect();
        for file in [
            "ilk.1",
            "ilk-run.1",
            "ilk-instrument-check.1",
            "ilk-probes.7",
            "ilk-language.7",
            "ilk-reference.7",
        ] {
            assert!(
                files.iter().any(|found| found == file),
                "{file} of {files:?}"
            );
        }
        let mut once = files.clone();
        once.dedup();
        assert_eq!(once, files);
        for page in &pages {
            let text = text(page);
            assert!(text.contains(".TH ") && text.contains(".SH NAME"), "{text}");
        }
    }

    #[test]
    fn a_page_has_the_name_of_its_command_and_of_its_file() {
        for page in ["count", "ilk count", "ilk-count", "ilk-count.1"] {
            assert_eq!(named(page), "ilk-count", "{page}");
        }
        assert_eq!(["ilk", "ilk.1"].map(named), ["ilk", "ilk"]);
        assert_eq!(named("reference"), "ilk-reference");
    }

    #[test]
    fn a_line_of_a_topic_is_never_a_request() {
        let page = Page::Topic("odd", String::from(".TH evil\n'quote\nback\\slash\n"));
        let text = text(&page);
        assert_eq!(text.matches("\n.TH").count(), 1, "{text}");
        assert!(text.contains("back\\\\slash"), "{text}");
    }

    #[test]
    fn completions_know_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Ilk::command(), "ilk", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(
                script.contains("coverage") && script.contains("doctor"),
                "{shell}"
            );
        }
    }
}
