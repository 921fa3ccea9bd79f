//! `ilk help`: topics, and the help of commands.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::bail;
use clap::{Args, Command};
use gilk_instruments::nearest;
use gilk_instruments::source::words::{WORDS, WordKind};

use crate::{pager, reference};

/// Explain a topic (probes, language, reference, recipes, exit) or a command.
#[derive(Args)]
pub(crate) struct Help {
    /// The topic or the command. Default: the list of commands.
    topic: Option<String>,
}

/// The topic that is the whole reference of the language.
pub(crate) const REFERENCE: &str = "reference";

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
  fs/read_write.c:450        before the block of a source line (needs debug information)

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

`ilk process -p PID 'parse_*'` counts the calls of functions of a process on this machine, without the kernel's module.
";

const EXIT: &str = "\
The exit status of every command:

  0    done; what a run, a script or a recipe starts ended with status 0, or was ended with it
  1    an error, which is printed after `ilk:`; also a program that could not start or was killed by a signal
  2    the command line is wrong
  n    the status of the program that a run, a script (-c) or a recipe (-c) starts

What is lost or left out is counted in the output and is no error. A command that fails has changed none of its
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
        if let Some(found) = command.find_subcommand_mut(&topic) {
            let mut found = found.clone().bin_name(format!("ilk {topic}"));
            writeln!(out, "{}", found.render_long_help())?;
            return Ok(out.flush()?);
        }
        let names = command.get_subcommands().map(Command::get_name);
        let topics = TOPICS.iter().map(|(name, _)| *name);
        let topics = topics.chain([REFERENCE]);
        match nearest(&topic, topics.chain(names)) {
            Some(near) => bail!("There is no topic {topic:?}; try `ilk help {near}`."),
            None => bail!(
                "There is no topic {topic:?}; try `ilk help probes`, `ilk help language`, \
                 `ilk help recipes` or `ilk help exit`."
            ),
        }
    }
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
    fn the_words_of_the_language_are_listed() {
        let text = words();
        for word in ["nsecs", "hist", "thread", "u64"] {
            assert!(text.contains(&format!("  {word} ")), "{word}");
        }
    }
}
