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

const WORDS: [&str; 3] = ["print", "clear", "exit"];

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
    let help = "Write `print(@name)`, `print(\"text\")`, `clear(@name)` or `exit()`.";
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
        "printf" => Err(unknown().help("Write `print(\"text\")` or `print(@name)`.")),
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
