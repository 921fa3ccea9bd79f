//! The formatter. It works on tokens, so that it keeps comments and every bracket. Of the old layout only comments
//! on lines of their own and empty lines matter.

use super::token::{Kind, Token, tokens};
use super::words;

/// Columns that a probe on one line may have.
const COLUMNS: usize = 100;
const INDENT: &str = "    ";

pub(super) fn format(text: &str) -> String {
    let tokens = tokens(text);
    let mut writer = Writer {
        text,
        out: String::new(),
        last: 0,
    };
    let mut rest = tokens.as_slice();
    while let Some(first) = rest.first() {
        if first.kind == Kind::Comment {
            writer.comment(first, "");
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let (head, after) = until(rest, &[";", "{"]);
        rest = match after.split_first() {
            Some((open, after)) if open.is("{") => {
                let (inside, after) = block(after);
                writer.probe(head, open, inside, after.first());
                after.get(1..).unwrap_or_default()
            }
            Some((semicolon, after)) => {
                writer.statement(head, Some(semicolon), "");
                after
            }
            None => {
                writer.statement(head, None, "");
                after
            }
        };
    }
    if !writer.out.is_empty() {
        writer.out.push('\n');
    }
    writer.out
}

/// Splits before the first of the signs.
fn until<'a, 's>(tokens: &'a [Token<'s>], signs: &[&str]) -> (&'a [Token<'s>], &'a [Token<'s>]) {
    let at = tokens
        .iter()
        .position(|token| token.kind == Kind::Sign && signs.contains(&token.text))
        .unwrap_or(tokens.len());
    tokens.split_at(at)
}

/// Splits before the brace that closes a block.
fn block<'a, 's>(tokens: &'a [Token<'s>]) -> (&'a [Token<'s>], &'a [Token<'s>]) {
    let mut depth = 0_usize;
    let closes = |token: &Token<'_>| {
        if token.kind == Kind::Sign && token.text == "{" {
            depth += 1;
        } else if token.kind == Kind::Sign && token.text == "}" {
            match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return true,
            }
        }
        false
    };
    let at = tokens.iter().position(closes).unwrap_or(tokens.len());
    tokens.split_at(at)
}

struct Writer<'s> {
    text: &'s str,
    out: String,
    /// The end of the last token written, in the old text.
    last: u32,
}

impl Writer<'_> {
    /// Line ends between the last token written and this one in the old text.
    fn lines_before(&self, token: &Token<'_>) -> usize {
        self.text
            .get(self.last as usize..token.span.start as usize)
            .map_or(0, |between| between.matches('\n').count())
    }

    /// Begins a line for a token, after an empty one if there was one.
    fn line(&mut self, token: &Token<'_>, indent: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
            if self.lines_before(token) > 1 && !self.out.ends_with("{\n") {
                self.out.push('\n');
            }
        }
        self.out.push_str(indent);
    }

    fn comment(&mut self, comment: &Token<'_>, indent: &str) {
        let trails = !self.out.is_empty()
            && self.lines_before(comment) == 0
            && !self.ends_with_line_comment();
        if trails {
            self.out.push(' ');
        } else {
            self.line(comment, indent);
        }
        self.out.push_str(comment.text.trim_end());
        self.last = comment.span.end;
    }

    fn ends_with_line_comment(&self) -> bool {
        let last = self.out.rsplit('\n').next().unwrap_or_default();
        tokens(last)
            .last()
            .is_some_and(|token| token.text.starts_with("//"))
    }

    /// Writes a statement or declaration with its semicolon, and comments at its end after that.
    fn statement(&mut self, tokens: &[Token<'_>], semicolon: Option<&Token<'_>>, indent: &str) {
        let end = tokens
            .iter()
            .rposition(|token| token.kind != Kind::Comment)
            .map_or(0, |last| last + 1);
        let (code, comments) = tokens.split_at(end);
        if let (Some(first), Some(last)) = (code.first(), code.last()) {
            self.line(first, indent);
            self.out.push_str(&joined(code, indent));
            self.out.push(';');
            self.last = last.span.end;
        }
        for comment in comments {
            self.comment(comment, indent);
        }
        if let Some(semicolon) = semicolon {
            self.last = self.last.max(semicolon.span.end);
        }
    }

    fn probe(
        &mut self,
        head: &[Token<'_>],
        open: &Token<'_>,
        inside: &[Token<'_>],
        close: Option<&Token<'_>>,
    ) {
        let first = head.first().unwrap_or(open);
        self.line(first, "");
        let ends_line = head.last().is_some_and(|last| last.text.starts_with("//"));
        let head = joined(head, "") + if ends_line { "\n" } else { " " };
        let statements: Vec<&[Token<'_>]> = inside
            .split(|token| token.is(";"))
            .filter(|statement| !statement.is_empty())
            .collect();
        let commented = inside.iter().any(|token| token.kind == Kind::Comment);
        let line = match statements.as_slice() {
            [] => format!("{head}{{}}"),
            [one] => format!("{head}{{ {} }}", joined(one, "")),
            _ => String::new(),
        };
        let nested = inside.iter().any(|token| token.is("{"));
        let fits = !nested && line.chars().count() <= COLUMNS && !line.contains('\n');
        if !commented && statements.len() <= 1 && fits {
            self.out.push_str(&line);
        } else {
            self.out.push_str(&head);
            self.out.push('{');
            self.last = open.span.end;
            self.body(inside, INDENT);
            self.out.push_str("\n}");
        }
        self.last = close.map_or(self.last, |close| close.span.end);
    }

    fn body(&mut self, mut rest: &[Token<'_>], indent: &str) {
        while let Some(first) = rest.first() {
            if first.kind == Kind::Comment {
                self.comment(first, indent);
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let (statement, after) = until(rest, &[";", "{"]);
            let Some((open, inside)) = after.split_first().filter(|(sign, _)| sign.is("{")) else {
                self.statement(statement, after.first(), indent);
                rest = after.get(1..).unwrap_or_default();
                continue;
            };
            let (inside, after) = block(inside);
            self.line(first, indent);
            let ends_line = statement
                .last()
                .is_some_and(|last| last.text.starts_with("//"));
            self.out.push_str(&joined(statement, indent));
            self.out.push_str(if ends_line { "\n" } else { " " });
            self.out.push('{');
            self.last = open.span.end;
            self.body(inside, &format!("{indent}{INDENT}"));
            self.out.push('\n');
            self.out.push_str(indent);
            self.out.push('}');
            self.last = after.first().map_or(self.last, |close| close.span.end);
            rest = after.get(1..).unwrap_or_default();
        }
    }
}

/// The role of a token for the space before the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The first one.
    Nothing,
    /// Something that ends an operand.
    Operand,
    /// A sign of one operand: nothing may stand between.
    Prefix,
    /// An opening bracket, a dot, a colon of a probe: no space follows.
    Tight,
    /// The closing bracket of a cast.
    Cast,
    /// Anything else.
    Other,
}

/// The tokens on one line, or on several where a comment ends one.
fn joined(tokens: &[Token<'_>], indent: &str) -> String {
    let mut out = String::new();
    let mut before = Before::Nothing;
    let mut last: Option<&Token<'_>> = None;
    let mut in_type = false;
    let header = tokens
        .iter()
        .find(|token| token.kind != Kind::Comment)
        .is_some_and(|token| token.is("instrument"));
    let mut count = 0usize;
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1).map_or("", |next| next.text);
        if let Some(last) = last {
            let named = header && last.span.end == token.span.start && token.kind != Kind::Text;
            if last.text.starts_with("//") {
                out.push('\n');
                out.push_str(indent);
                out.push_str(INDENT);
            } else if !named && spaced(before, last, token, in_type, count) {
                out.push(' ');
            }
        }
        let comment = token.kind == Kind::Comment;
        out.push_str(if comment {
            token.text.trim_end()
        } else {
            token.text
        });
        last = Some(token);
        if comment {
            continue;
        }
        let opens_type = token.is("(") && types(next) && before != Before::Operand;
        before = match token.text {
            ")" if in_type => Before::Cast,
            "(" | "[" | "." | "->" => Before::Tight,
            ":" if count == 1 => Before::Tight,
            "-" | "~" | "!" | "*" | "&"
                if token.kind == Kind::Sign && before != Before::Operand && !in_type =>
            {
                Before::Prefix
            }
            ")" | "]" | "++" | "--" => Before::Operand,
            _ if token.kind == Kind::Sign => Before::Other,
            _ => Before::Operand,
        };
        in_type = opens_type || (in_type && !token.is(")"));
        count += 1;
    }
    out
}

/// Returns whether a word after an opening bracket begins a type.
fn types(next: &str) -> bool {
    matches!(next, "struct" | "union" | "enum" | "void") || words::integer(next).is_some()
}

/// Returns whether there is a space between two tokens of one statement.
fn spaced(
    before: Before,
    last: &Token<'_>,
    token: &Token<'_>,
    in_type: bool,
    count: usize,
) -> bool {
    if last.kind == Kind::Comment || token.kind == Kind::Comment {
        return true;
    }
    let sign = token.kind == Kind::Sign;
    match token.text {
        ")" | "]" | "," | "." | "->" | "++" | "--" if sign => false,
        ":" if sign && count == 1 => false,
        "[" if sign => before == Before::Other,
        "(" if sign && last.kind == Kind::Name => false,
        "*" if in_type => last.kind == Kind::Name,
        // Two signs that would become one.
        text if before == Before::Prefix => {
            matches!(
                (last.text, text),
                ("-", "-" | "--" | "->") | ("&", "&" | "&&")
            )
        }
        _ => !matches!(before, Before::Tight | Before::Cast),
    }
}
