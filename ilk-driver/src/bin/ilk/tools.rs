//! The scripts of `instruments/tools`, which are built in.

use std::fmt::Write as _;

use gilk_instruments::nearest;

/// A script that is built in.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

const fn tool(name: &'static str, text: &'static str) -> Tool {
    Tool { name, text }
}

/// All tools, by name.
pub(crate) const TOOLS: [Tool; 30] = [
    tool(
        "biolatency",
        include_str!("../../../../instruments/tools/biolatency.ilk"),
    ),
    tool(
        "biosnoop",
        include_str!("../../../../instruments/tools/biosnoop.ilk"),
    ),
    tool(
        "bitesize",
        include_str!("../../../../instruments/tools/bitesize.ilk"),
    ),
    tool(
        "capable",
        include_str!("../../../../instruments/tools/capable.ilk"),
    ),
    tool(
        "cpuwalk",
        include_str!("../../../../instruments/tools/cpuwalk.ilk"),
    ),
    tool(
        "dcsnoop",
        include_str!("../../../../instruments/tools/dcsnoop.ilk"),
    ),
    tool(
        "execsnoop",
        include_str!("../../../../instruments/tools/execsnoop.ilk"),
    ),
    tool(
        "fsdist",
        include_str!("../../../../instruments/tools/fsdist.ilk"),
    ),
    tool(
        "killsnoop",
        include_str!("../../../../instruments/tools/killsnoop.ilk"),
    ),
    tool(
        "mdflush",
        include_str!("../../../../instruments/tools/mdflush.ilk"),
    ),
    tool(
        "naptime",
        include_str!("../../../../instruments/tools/naptime.ilk"),
    ),
    tool(
        "oomkill",
        include_str!("../../../../instruments/tools/oomkill.ilk"),
    ),
    tool(
        "opensnoop",
        include_str!("../../../../instruments/tools/opensnoop.ilk"),
    ),
    tool(
        "pidpersec",
        include_str!("../../../../instruments/tools/pidpersec.ilk"),
    ),
    tool(
        "runqlat",
        include_str!("../../../../instruments/tools/runqlat.ilk"),
    ),
    tool(
        "runqlen",
        include_str!("../../../../instruments/tools/runqlen.ilk"),
    ),
    tool(
        "setuids",
        include_str!("../../../../instruments/tools/setuids.ilk"),
    ),
    tool(
        "statsnoop",
        include_str!("../../../../instruments/tools/statsnoop.ilk"),
    ),
    tool(
        "swapin",
        include_str!("../../../../instruments/tools/swapin.ilk"),
    ),
    tool(
        "syncsnoop",
        include_str!("../../../../instruments/tools/syncsnoop.ilk"),
    ),
    tool(
        "syscount",
        include_str!("../../../../instruments/tools/syscount.ilk"),
    ),
    tool(
        "tcpaccept",
        include_str!("../../../../instruments/tools/tcpaccept.ilk"),
    ),
    tool(
        "tcpconnect",
        include_str!("../../../../instruments/tools/tcpconnect.ilk"),
    ),
    tool(
        "tcplife",
        include_str!("../../../../instruments/tools/tcplife.ilk"),
    ),
    tool(
        "tcpretrans",
        include_str!("../../../../instruments/tools/tcpretrans.ilk"),
    ),
    tool(
        "tcpsynbl",
        include_str!("../../../../instruments/tools/tcpsynbl.ilk"),
    ),
    tool(
        "threadsnoop",
        include_str!("../../../../instruments/tools/threadsnoop.ilk"),
    ),
    tool(
        "vfscount",
        include_str!("../../../../instruments/tools/vfscount.ilk"),
    ),
    tool(
        "vfsstat",
        include_str!("../../../../instruments/tools/vfsstat.ilk"),
    ),
    tool(
        "writeback",
        include_str!("../../../../instruments/tools/writeback.ilk"),
    ),
];

/// Returns the tool of a name.
///
/// # Errors
/// The nearest name, or how to list them.
pub(crate) fn find(name: &str) -> anyhow::Result<&'static Tool> {
    let found = TOOLS.iter().find(|tool| tool.name == name);
    found.ok_or_else(|| {
        let names = TOOLS.iter().map(|tool| tool.name);
        match nearest(name, names) {
            Some(near) => {
                anyhow::anyhow!("There is no file or tool {name:?}; try `ilk script {near}`.")
            }
            None => {
                anyhow::anyhow!("There is no file or tool {name:?}; `ilk script` lists the tools.")
            }
        }
    })
}

/// Returns a line per tool: its name, and the first sentence of its comment.
pub(crate) fn list() -> String {
    let mut out = String::new();
    for tool in &TOOLS {
        // Writing to a String cannot fail.
        let _infallible = writeln!(out, "{:<14}{}", tool.name, tool.about());
    }
    out
}

impl Tool {
    /// Returns the first sentence of its comment, without its name.
    fn about(&self) -> String {
        let comments = self.text.lines().map_while(|line| line.strip_prefix("// "));
        let comment = comments.collect::<Vec<_>>().join(" ");
        let about = comment
            .split_once(": ")
            .map_or(&*comment, |(_, about)| about);
        let sentence = about.split_once(". ").map_or(about, |(first, _)| first);
        format!("{}.", sentence.trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use gilk_engine::Addr;
    use gilk_engine::layout::RuntimeLayout;
    use gilk_engine::plan::plan_possible;
    use gilk_instruments::Library;
    use gilk_instruments::source::words::WORDS;
    use ilk_driver::script::{Filter, KINDS, NOT_HERE, Script, resolve};

    use super::*;

    /// Tools of modules that the stock kernel's image has not loaded.
    const OF_MODULES: [&str; 1] = ["mdflush"];

    #[test]
    fn every_file_of_the_folder_is_a_tool_with_a_sentence() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../instruments/tools");
        let files = std::fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<String> = files.collect();
        let known: BTreeSet<String> = TOOLS
            .iter()
            .map(|tool| format!("{}.ilk", tool.name))
            .collect();
        assert_eq!(files, known);
        for tool in &TOOLS {
            assert!(
                tool.text.starts_with(&format!("// {}: ", tool.name)),
                "{}",
                tool.name
            );
            assert!(tool.about().len() > 10, "{}", tool.name);
            Script::parse(tool.text).unwrap_or_else(|faults| panic!("{}: {faults}", tool.name));
        }
        assert!(
            find("opensnop")
                .unwrap_err()
                .to_string()
                .contains("ilk script opensnoop")
        );
    }

    /// Checks that every tool finds its code in the stock kernel, with the types of its arguments, and has placements
    /// that no rule refuses.
    #[test]
    #[ignore = "needs GILK_IMAGE, a saved kernel; cargo xtask test makes one"]
    fn every_tool_stands_on_the_stock_kernel() {
        let file = std::env::var_os("GILK_IMAGE").expect("GILK_IMAGE");
        let image = ilk_driver::saved::open(Path::new(&file)).unwrap();
        let layout = RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000));
        let library = Library::builtin().unwrap();
        let filter = Filter {
            duration: 1.0,
            pid: None,
        };
        let mut wrong = Vec::new();
        for tool in TOOLS.iter().filter(|tool| !OF_MODULES.contains(&tool.name)) {
            let script = Script::parse(tool.text).unwrap();
            let query = match resolve(&script, &image, filter, None) {
                Ok(query) => query,
                Err(faults) => {
                    wrong.push(format!("{}: {faults}", tool.name));
                    continue;
                }
            };
            // A tool may name a function of another line of kernels beside its own.
            for absent in query.absent.iter().filter(|one| one.reason != NOT_HERE) {
                wrong.push(format!(
                    "{}: {}: {}",
                    tool.name, absent.function, absent.reason
                ));
            }
            let watch = &mut ilk_driver::memory::between_stages();
            match plan_possible(&image, &query.session, &library, &layout, watch) {
                Ok(possible) if possible.left_out.len() * 10 > query.session.placements.len() => {
                    wrong.push(format!("{}: {:?}", tool.name, possible.left_out));
                }
                Ok(_) => {}
                Err(error) => wrong.push(format!("{}: {error}", tool.name)),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Checks that the comparison with bpftrace names each word of the language, each kind of probe and each tool.
    #[test]
    fn the_comparison_with_bpftrace_is_complete() {
        let text = include_str!("../../../../docs/bpftrace.md");
        let words: BTreeSet<&str> = text
            .split('`')
            .skip(1)
            .step_by(2)
            .flat_map(|code| {
                code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
            })
            .collect();
        let known = WORDS.iter().map(|word| word.word);
        let known = known.chain(KINDS.iter().map(|(kind, _)| *kind));
        let known = known.chain(TOOLS.iter().map(|tool| tool.name));
        let absent: Vec<&str> = known.filter(|word| !words.contains(word)).collect();
        assert!(
            absent.is_empty(),
            "docs/bpftrace.md does not name {absent:?}"
        );
    }
}
