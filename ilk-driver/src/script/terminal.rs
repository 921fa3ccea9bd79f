//! Blocks that run in the terminal: at the beginning, at intervals, and at the end.

use gilk_instruments::program::Span;
use gilk_instruments::{Fault, nearest};

/// A statement of a block that runs in the terminal.
#[derive(Clone, Debug, PartialEq)]
pub enum TerminalAction {
    /// Prints an aggregate.
    Print(String),
    /// Prints text.
    Text(String),
    /// Prints the time of day in UTC, by a format of [`time_of_day`].
    Time(String),
    /// Counts an aggregate from zero again.
    Clear(String),
    /// Ends the run.
    Exit,
}

/// The blocks of a script for the terminal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terminal {
    /// Actions when everything is in place.
    pub begin: Vec<TerminalAction>,
    /// Actions at intervals, with the interval in seconds.
    pub intervals: Vec<(f64, Vec<TerminalAction>)>,
    /// Actions after the end. Without any, every aggregate is printed.
    pub end: Vec<TerminalAction>,
    /// True if the script has a block for the end.
    pub has_end: bool,
}

impl Terminal {
    /// Returns every action.
    pub fn actions(&self) -> impl Iterator<Item = &TerminalAction> {
        let intervals = self.intervals.iter().flat_map(|(_, actions)| actions);
        self.begin.iter().chain(intervals).chain(&self.end)
    }
}

const WORDS: [&str; 5] = ["print", "printf", "time", "clear", "exit"];
/// The format of `time()`.
const TIME: &str = "%H:%M:%S\n";

/// Formats the time of day of seconds since 1970, in UTC: `%H`, `%M`, `%S` and `%%`. `None` for another conversion.
#[must_use]
pub fn time_of_day(format: &str, unix_seconds: u64) -> Option<String> {
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let part = match letters.next()? {
            'H' => unix_seconds / 3600 % 24,
            'M' => unix_seconds / 60 % 60,
            'S' => unix_seconds % 60,
            '%' => {
                out.push('%');
                continue;
            }
            _ => return None,
        };
        out.push_str(&format!("{part:02}"));
    }
    Some(out)
}

/// Parses the statements of a block; `start` is the position of its text in the script.
pub(super) fn actions(body: &str, start: u32) -> Result<Vec<TerminalAction>, Fault> {
    let mut actions = Vec::new();
    let mut at = 0;
    for statement in split(body) {
        let (from, end) = (at, at + statement.len());
        at = end + 1;
        let text = statement.trim();
        if text.is_empty() {
            continue;
        }
        let indent = statement.len() - statement.trim_start().len();
        let position =
            |offset: usize| start.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX));
        let span = Span {
            start: position(from + indent),
            end: position(from + indent + text.len()),
        };
        actions.push(action(text, span)?);
    }
    Ok(actions)
}

/// Splits at semicolons outside of strings.
fn split(body: &str) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    body.split(|c| {
        if escaped {
            escaped = false;
        } else if c == '\\' && quoted {
            escaped = true;
        } else if c == '"' {
            quoted = !quoted;
        }
        c == ';' && !quoted
    })
    .collect()
}

fn action(text: &str, span: Span) -> Result<TerminalAction, Fault> {
    let help = "Write `print(@name)`, `printf(\"text\")`, `time()`, `clear(@name)` or `exit()`.";
    let unknown = || Fault::new(span, format!("`{text}` does not run in the terminal.")).help(help);
    let (word, rest) = text.split_once('(').ok_or_else(unknown)?;
    let argument = rest.strip_suffix(')').ok_or_else(unknown)?.trim();
    let word = word.trim();
    let name = |argument: &str| argument.strip_prefix('@').map(str::to_owned);
    match word {
        "print" => match name(argument) {
            Some(name) => Ok(TerminalAction::Print(name)),
            None => Ok(TerminalAction::Text(quoted(argument).ok_or_else(unknown)?)),
        },
        "clear" | "zero" => Ok(TerminalAction::Clear(name(argument).ok_or_else(unknown)?)),
        "exit" if argument.is_empty() => Ok(TerminalAction::Exit),
        "printf" => {
            let help = "There are no values in the terminal: write `printf(\"text\")`, or `print(@name)` for an aggregate.";
            let text = quoted(argument).ok_or_else(|| unknown().help(help))?;
            let parts: Vec<&str> = text.split("%%").collect();
            if parts.iter().any(|part| part.contains('%')) {
                return Err(unknown().help(help));
            }
            Ok(TerminalAction::Text(parts.join("%")))
        }
        "time" => {
            let format = match argument {
                "" => TIME.to_owned(),
                text => quoted(text).ok_or_else(unknown)?,
            };
            match time_of_day(&format, 0) {
                Some(_) => Ok(TerminalAction::Time(format)),
                None => Err(unknown()
                    .help("`time` has `%H`, `%M` and `%S`, in UTC; samples have their times in a recording.")),
            }
        }
        _ => Err(match nearest(word, WORDS) {
            Some(near) => unknown().help(format!("Did you mean `{near}`?")),
            None => unknown(),
        }),
    }
}

/// The text of a string.
fn quoted(text: &str) -> Option<String> {
    let inside = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = String::new();
    let mut letters = inside.chars();
    while let Some(letter) = letters.next() {
        out.push(match letter {
            '\\' => match letters.next()? {
                'n' => '\n',
                't' => '\t',
                other => other,
            },
            '"' => return None,
            letter => letter,
        });
    }
    Some(out)
}
