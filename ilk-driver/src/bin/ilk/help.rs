//! `ilk help`: topics, and the help of commands.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;

use anyhow::bail;
use clap::{Args, Command};
use gilk_instruments::nearest;
use gilk_instruments::source::words::{WORDS, WordKind};

use crate::pager;
use crate::reference::{self, Line, entries};

/// Explain a topic (probes, language, reference, recipes, exit), a command, or a word of the language or of bpftrace.
#[derive(Args)]
pub(crate) struct Help {
    /// The topic, the command or the word: `ilk help hist`. Default: the list of commands.
    topic: Option<String>,
}

/// The topic that is the whole reference of the language.
pub(crate) const REFERENCE: &str = "reference";

/// Most names that are offered for an unknown one.
const NEAR: usize = 5;

/// Topics with their texts; that of the language is made of its words.
const TOPICS: [(&str, &str); 4] = [
    ("probes", PROBES),
    ("language", LANGUAGE),
    ("recipes", RECIPES),
    ("exit", EXIT),
];

const PROBES: &str = "\
A script has probes: `POINT, POINT / PREDICATE / { STATEMENTS }`. A point names the code that it stands on:

  entry:vfs_read             before the first instruction of a function
  return:vfs_read            before every return to its caller
  leave:vfs_read             before every instruction that leaves it
  pre:copy_process+0x71      before the block that begins there
  post:copy_process+0x71     after the block around that address
  block:kernel_clone:3       before a block, by its number in `ilk cfg kernel_clone`
  block:kernel_clone:*       before every block
  taken:kernel_clone:3       where the branch of a block is taken
  untaken:kernel_clone:3     where it is not
  edge:kernel_clone:3:5      on the edge from one block to another
  tracepoint:sched:sched_switch   at each event of a tracepoint; its arguments have their names
  usdt:python:gc__start           in a process (`ilk process`), at a static probe; arg0, arg1 … are the probe's
  fs/read_write.c:450        before the block of a source line (needs debug information: a package of the
                             distribution, or --debug VMLINUX)

`*` in a function's name stands for any letters, `?` for one: entry:tcp_*. Functions of modules have their module
before them: entry:tun:tun_chr_open. Of equal names, one is chosen by its address: name@0xffffffff81000000.

Blocks of the terminal:

  begin { print(\"ready\") }                            when everything is in place
  interval:1s { print(@calls); clear(@calls) }          at intervals
  end { print(@calls) }                                 at the end; without it everything is printed
  exit()                                                ends the run
  time(); printf(\"text\")                               print the time of day, in UTC, and text

A placement that a rule refuses is left out and named at the end; --strict refuses all.
";

const LANGUAGE: &str = "\
Variables are declared before the probes: `thread @start;` is one a thread, `call @start;` one a call of the function,
`cpu @n;` one a processor, `global @n;` one of all. Aggregates are not declared: `@calls = count()`. A wildcard gives
each function its own aggregate. `ilk help reference` has all of it, with examples.
";

const RECIPES: &str = "\
A recipe is a script of one word:

  ilk count 'vfs_*'          calls of each function, at the end
  ilk top '__x64_sys_*'      calls a second, refreshed; without a terminal a table at the end
  ilk trace vfs_open         a line for each call
  ilk latency vfs_read       a histogram of the time from entry to return
  ilk callers kfree          from where a function is called

  ilk script opensnoop       a script in a file, or a tool that is built in; without a name the tools are listed

Each takes the switches of -e: -c COMMAND, -p PID, --for 10s, --save FILE.ron, -o FILE, -v, --strict, --all.

`ilk process -p PID 'parse_*'` counts the calls of functions of a process on this machine, without the kernel's module;
with -e it runs a script there: arguments have their names and types (`request->length`) where the program has debug
information, and memory is the process's own.
";

const EXIT: &str = "\
The exit status of every command:

  0    done; what a run, a script or a recipe starts ended with status 0, or was ended with it
  1    an error, which is printed after `ilk:`; also a program that could not start or was killed by a signal
  2    the command line is wrong
  n    the status of the program that a run, a script (-c) or a recipe (-c) starts

A reader that is gone (`ilk functions | head`) ends a command quietly, with 0; a run is ended as by Ctrl-C, and its
recording is whole. What is lost or left out is counted in the output and is no error,
nor is a library that a process has not loaded, which is named at the end. A command that fails has changed none of its
outputs, but for a recording, which ends before the failure.
";

/// Returns the topics with their whole texts.
pub(crate) fn topics() -> impl Iterator<Item = (&'static str, String)> {
    TOPICS.iter().map(|(name, text)| {
        let words = if *name == "language" {
            words()
        } else {
            String::new()
        };
        (*name, format!("{text}{words}"))
    })
}

impl Help {
    pub(crate) fn run(self, mut command: Command) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let Some(topic) = self.topic else {
            let topics = TOPICS.map(|(topic, _)| topic).join(", ");
            let topics = format!("{topics}, {REFERENCE}");
            writeln!(out, "{}\nTopics: {topics}.", command.render_help())?;
            return Ok(out.flush()?);
        };
        if topic == REFERENCE {
            drop(out);
            return pager::print(&reference::text());
        }
        if let Some((_, text)) = topics().find(|(name, _)| *name == topic) {
            out.write_all(text.as_bytes())?;
            return Ok(out.flush()?);
        }
        drop(out);
        let mut text = String::new();
        if let Some(found) = command.find_subcommand_mut(&topic) {
            let mut found = found.clone().bin_name(format!("ilk {topic}"));
            text = format!("{}\n", found.render_long_help());
        }
        // As it may be copied: `@n`, `hist()`, `entry:`.
        let word = topic.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        text.push_str(&of_word(word));
        if !text.is_empty() {
            return pager::print(&text);
        }
        let commands = command.get_subcommands().map(Command::get_name);
        let topics = TOPICS.iter().map(|(name, _)| *name).chain([REFERENCE]);
        let words = WORDS.iter().map(|word| word.word).chain(entries::words());
        let known: BTreeSet<&str> = topics.chain(commands).chain(words).collect();
        let near = nearest(word, known.iter().copied());
        let longer = known.iter().copied();
        let longer = longer.filter(|known| word.len() > 1 && known.contains(word));
        // The shortest have the fewest other letters.
        let mut longer: Vec<&str> = longer.filter(|longer| Some(*longer) != near).collect();
        longer.sort_by_key(|known| known.len());
        let near: BTreeSet<&str> = near.into_iter().chain(longer).take(NEAR).collect();
        let near: Vec<String> = near
            .iter()
            .map(|near| format!("`ilk help {near}`"))
            .collect();
        match near.as_slice() {
            [] => bail!(
                "There is no topic, command or word {topic:?}; `ilk help` lists topics and commands, \
                 `ilk help language` words."
            ),
            near => bail!(
                "There is no topic, command or word {topic:?}; try {}.",
                near.join(", ")
            ),
        }
    }
}

/// Returns the entries of a word: its sentence, its places in the reference, and the lines of topics that begin with it.
/// Empty for an unknown word.
fn of_word(word: &str) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    if let Some(known) = WORDS.iter().find(|known| known.word == word) {
        let _infallible = writeln!(out, "{word}: {}", known.says);
    }
    for (topic, text) in TOPICS {
        let lines = text.lines().filter(|line| {
            let line = line.strip_prefix("  ");
            line.is_some_and(|line| {
                line.split(|c: char| !c.is_ascii_alphanumeric()).next() == Some(word)
            })
        });
        let lines: Vec<&str> = lines.collect();
        if !lines.is_empty() {
            let _infallible = writeln!(out, "\nilk help {topic}\n{}", lines.join("\n"));
        }
    }
    for found in entries::entries(word) {
        let _infallible = writeln!(out, "\n{}", found.section.to_uppercase());
        for line in found.lines {
            let (Line::Heading(text) | Line::Text(text)) = line;
            let _infallible = writeln!(out, "{text}");
        }
    }
    if !out.is_empty() {
        let _infallible = writeln!(out, "\nAll of the language: `ilk help {REFERENCE}`.");
    }
    out
}

/// Returns the words of the language by kind, a line each.
fn words() -> String {
    let mut out = String::new();
    for (kind, title) in [
        (WordKind::Input, "Values"),
        (WordKind::Function, "Functions"),
        (WordKind::Keyword, "Keywords"),
        (WordKind::Type, "Types"),
    ] {
        // Writing to a String cannot fail.
        let _infallible = writeln!(out, "\n{title}:");
        for word in WORDS.iter().filter(|word| word.kind == kind) {
            let _infallible = writeln!(out, "  {:<18}{}", word.word, word.says);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use ilk_driver::script::Script;

    use super::*;

    #[test]
    fn every_point_of_the_help_is_one_that_the_parser_reads() {
        let lines = PROBES.lines().filter_map(|line| line.strip_prefix("  "));
        let points: Vec<&str> = lines
            .filter(|line| !line.contains(['{', '(']))
            .chain(["fs/read_write.c:450"])
            .filter_map(|line| line.split_whitespace().next())
            .filter(|point| point.contains(':'))
            .collect();
        assert!(points.len() > 10, "{points:?}");
        for point in points {
            let script = format!("{point} {{ @n = count() }}");
            assert!(Script::parse(&script).is_ok(), "{point}");
        }
    }

    #[test]
    fn a_word_has_its_sentence_its_entry_and_its_example() {
        for (word, parts) in [
            (
                "hist",
                &[
                    "hist: Counts values by powers of two.",
                    "AGGREGATES",
                    "`lhist",
                ][..],
            ),
            (
                "printf",
                &["delivers a line of text", "    entry / count > 100 / {"],
            ),
            ("edge", &["ilk help probes", "edge:kernel_clone:3:5"]),
            ("kretprobe", &["return:f"]),
            ("counter", &["Counts the hits: one instruction"]),
        ] {
            let text = of_word(word);
            for part in parts {
                assert!(text.contains(part), "{word}: {part}\n{text}");
            }
            assert!(text.lines().count() < 60, "{text}");
        }
        assert_eq!(of_word("nothing_of_ours"), "");
    }

    #[test]
    fn an_unknown_word_offers_near_names() {
        use clap::CommandFactory as _;
        for (topic, near) in [
            ("kstac", "`ilk help kstack`"),
            ("stack", "`ilk help kstack`"),
            ("stack", "`ilk help ustack`"),
            ("exitt", "`ilk help exit`"),
            ("cache", "`ilk help cache_misses`"),
            ("zzzz", "`ilk help language`"),
        ] {
            let topic = Some(topic.to_owned());
            let error = Help { topic }.run(crate::Ilk::command()).unwrap_err();
            assert!(error.to_string().contains(near), "{error}");
        }
    }

    #[test]
    fn the_words_of_the_language_are_listed() {
        let text = words();
        for word in ["nsecs", "hist", "thread", "u64"] {
            assert!(text.contains(&format!("  {word} ")), "{word}");
        }
    }
}
