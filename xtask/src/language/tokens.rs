//! Splits a file into comments, string literals and code, by line.

/// The reading of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Rust: nested comments, raw strings, lifetimes.
    Rust,
    /// C, assembly and instruments: `//`, `/* */` and strings.
    C,
    /// Shell: `#` to the end of the line; strings are code.
    Shell,
    /// Markdown: all of it is prose but code.
    Markdown,
}

impl Syntax {
    /// Returns how to read a file by its name, or `None` where nothing of it is checked.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let (_, ending) = path.rsplit_once('.')?;
        match ending {
            "rs" => Some(Self::Rust),
            "c" | "h" | "S" | "gilk" => Some(Self::C),
            "sh" => Some(Self::Shell),
            "md" => Some(Self::Markdown),
            _ => None,
        }
    }
}

/// Kinds of pieces of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A comment, or Markdown's text.
    Prose,
    /// A string literal.
    Text,
    /// Everything else.
    Code,
}

/// Text of one kind on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

/// Returns the pieces of a file, in order.
pub(crate) fn pieces(text: &str, syntax: Syntax) -> Vec<Piece> {
    match syntax {
        Syntax::Markdown => markdown(text),
        Syntax::Shell => shell(text),
        Syntax::Rust | Syntax::C => Scanner::new(text, syntax == Syntax::Rust).run(),
    }
}

fn markdown(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            pieces.push(Piece {
                line: index + 1,
                kind: Kind::Prose,
                text: line.to_owned(),
            });
        }
    }
    pieces
}

fn shell(text: &str) -> Vec<Piece> {
    let comment = |(index, line): (usize, &str)| {
        line.trim_start().strip_prefix('#').map(|text| Piece {
            line: index + 1,
            kind: Kind::Prose,
            text: text.to_owned(),
        })
    };
    text.lines().enumerate().filter_map(comment).collect()
}

/// A reader of Rust or C.
struct Scanner {
    rest: std::iter::Peekable<std::vec::IntoIter<char>>,
    is_rust: bool,
    line: usize,
    kind: Kind,
    text: String,
    pieces: Vec<Piece>,
}

impl Scanner {
    fn new(text: &str, is_rust: bool) -> Self {
        Self {
            rest: text.chars().collect::<Vec<_>>().into_iter().peekable(),
            is_rust,
            line: 1,
            kind: Kind::Code,
            text: String::new(),
            pieces: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<Piece> {
        while let Some(next) = self.take() {
            match next {
                '/' if self.next_is('/') => self.line_comment(),
                '/' if self.next_is('*') => self.block_comment(),
                '"' => self.string(),
                'r' if self.is_rust && self.begins_raw() => self.raw_string(),
                '\'' => self.quote(),
                _ => self.push(next),
            }
        }
        self.turn_to(Kind::Code);
        self.pieces
    }

    fn take(&mut self) -> Option<char> {
        self.rest.next()
    }

    fn next_is(&mut self, expected: char) -> bool {
        self.rest.peek() == Some(&expected)
    }

    /// Adds a character to the current piece; a newline ends the piece.
    fn push(&mut self, next: char) {
        if next == '\n' {
            self.flush();
            self.line += 1;
        } else {
            self.text.push(next);
        }
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.trim().is_empty() {
            self.pieces.push(Piece {
                line: self.line,
                kind: self.kind,
                text,
            });
        }
    }

    fn turn_to(&mut self, kind: Kind) {
        self.flush();
        self.kind = kind;
    }

    fn line_comment(&mut self) {
        self.turn_to(Kind::Prose);
        while let Some(next) = self.take() {
            if next == '\n' {
                self.turn_to(Kind::Code);
                self.line += 1;
                return;
            }
            self.push(next);
        }
        self.turn_to(Kind::Code);
    }

    fn block_comment(&mut self) {
        self.turn_to(Kind::Prose);
        self.take();
        let mut depth = 1;
        while let Some(next) = self.take() {
            match next {
                '*' if self.next_is('/') => {
                    self.take();
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                '/' if self.is_rust && self.next_is('*') => {
                    self.take();
                    depth += 1;
                }
                _ => self.push(next),
            }
        }
        self.turn_to(Kind::Code);
    }

    fn string(&mut self) {
        self.turn_to(Kind::Text);
        while let Some(next) = self.take() {
            match next {
                '"' => break,
                '\\' => match self.take() {
                    // A line that is continued is one sentence with the next; other escapes part words.
                    Some('\n') => self.push('\n'),
                    _ => self.push(' '),
                },
                _ => self.push(next),
            }
        }
        self.turn_to(Kind::Code);
    }

    /// Returns whether the `r` that was read begins a raw string: not the end of a longer name.
    fn begins_raw(&mut self) -> bool {
        let within_name = |last: char| last.is_alphanumeric() || last == '_';
        let follows_name = self
            .text
            .strip_suffix('b')
            .unwrap_or(&self.text)
            .ends_with(within_name);
        if follows_name {
            return false;
        }
        let mut ahead = self.rest.clone().skip_while(|next| *next == '#');
        ahead.next() == Some('"')
    }

    fn raw_string(&mut self) {
        self.turn_to(Kind::Text);
        let mut hashes = 0;
        while self.next_is('#') {
            self.take();
            hashes += 1;
        }
        self.take();
        while let Some(next) = self.take() {
            if next == '"' && self.rest.clone().take(hashes).all(|next| next == '#') {
                for _ in 0..hashes {
                    self.take();
                }
                break;
            }
            self.push(next);
        }
        self.turn_to(Kind::Code);
    }

    /// Reads a character literal, or leaves a lifetime to the code.
    fn quote(&mut self) {
        let mut ahead = self.rest.clone();
        let first = ahead.next();
        let second = ahead.next();
        if first == Some('\\') {
            self.take();
            self.take();
            while let Some(next) = self.take() {
                if next == '\'' {
                    break;
                }
            }
        } else if second == Some('\'') {
            self.take();
            self.take();
        }
        self.push(' ');
    }
}
