//! Syntax highlighting of instructions.

use egui::Color32;

use crate::theme::Tokens;

/// Kind of a token of an instruction's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// The mnemonic and its prefixes.
    Mnemonic,
    /// A register of the processor.
    Register,
    /// An immediate or displacement.
    Number,
    /// A symbol of the kernel.
    Symbol,
    /// A remark about operands, in the terms of the kernel's sources.
    Remark,
    /// Anything else: brackets, commas, operand sizes.
    Plain,
}

impl TokenKind {
    /// Returns its colour.
    #[must_use]
    pub const fn color(self, tokens: &Tokens) -> Color32 {
        match self {
            Self::Mnemonic => tokens.mnemonic,
            Self::Register => tokens.register,
            Self::Number => tokens.number,
            Self::Symbol => tokens.symbol,
            Self::Remark => tokens.remark,
            Self::Plain => tokens.weak,
        }
    }
}

const PREFIXES: [&str; 8] = [
    "lock", "rep", "repe", "repne", "notrack", "bnd", "xacquire", "xrelease",
];
const SIZES: [&str; 13] = [
    "byte", "word", "dword", "qword", "xmmword", "ymmword", "zmmword", "fword", "tbyte", "ptr",
    "short", "near", "far",
];

/// Splits an instruction into tokens in order; their concatenation is `text`.
#[must_use]
pub fn parts(text: &str) -> Vec<(TokenKind, &str)> {
    let mut parts: Vec<(TokenKind, &str)> = Vec::new();
    let mut rest = text;
    let mut mnemonic_seen = false;
    while let Some(first) = rest.chars().next() {
        let wordy = is_word(first);
        let end = rest
            .find(|letter| is_word(letter) != wordy)
            .unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        let part = match (wordy, mnemonic_seen) {
            (false, _) => TokenKind::Plain,
            (true, false) => {
                mnemonic_seen = !PREFIXES.contains(&piece);
                TokenKind::Mnemonic
            }
            (true, true) => word(piece),
        };
        match parts.last_mut() {
            // `a+b` in a symbol reference stays separate, but runs of plain tokens are joined.
            Some((kind, joined)) if *kind == part && part == TokenKind::Plain => {
                let start = text.len() - rest.len() - joined.len();
                if let Some(wider) = text.get(start..start + joined.len() + piece.len()) {
                    *joined = wider;
                }
            }
            _ => parts.push((part, piece)),
        }
        rest = after;
    }
    parts
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '.' | '$' | '@')
}

fn word(word: &str) -> TokenKind {
    if word.starts_with(|first: char| first.is_ascii_digit()) {
        TokenKind::Number
    } else if is_register(word) {
        TokenKind::Register
    } else if SIZES.contains(&word) {
        TokenKind::Plain
    } else {
        TokenKind::Symbol
    }
}

fn is_register(word: &str) -> bool {
    const NAMED: [&str; 43] = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "eax", "ebx", "ecx", "edx",
        "esi", "edi", "ebp", "esp", "eip", "ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "al",
        "bl", "cl", "dl", "ah", "bh", "ch", "dh", "sil", "dil", "bpl", "spl", "cs", "ds", "es",
        "fs", "gs",
    ];
    if NAMED.contains(&word) || word == "ss" {
        return true;
    }
    let numbered = |stem: &str| {
        word.strip_prefix(stem).is_some_and(|rest| {
            let digits = rest.trim_end_matches(['d', 'w', 'b']);
            !digits.is_empty()
                && rest.len() - digits.len() <= 1
                && digits.chars().all(|c| c.is_ascii_digit())
        })
    };
    ["r", "xmm", "ymm", "zmm", "cr", "dr", "st", "mm", "k"]
        .into_iter()
        .any(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str, kind: TokenKind) -> Vec<&str> {
        parts(text)
            .into_iter()
            .filter(|(part, _)| *part == kind)
            .map(|(_, piece)| piece)
            .collect()
    }

    #[test]
    fn tokens_are_classified() {
        let text = "lock cmpxchg qword ptr [rdi+r9d*8+0x10],rax";
        assert_eq!(of(text, TokenKind::Mnemonic), ["lock", "cmpxchg"]);
        assert_eq!(of(text, TokenKind::Register), ["rdi", "r9d", "rax"]);
        assert_eq!(of(text, TokenKind::Number), ["8", "0x10"]);
        assert_eq!(
            of("call copy_process.isra.0+0x5", TokenKind::Symbol),
            ["copy_process.isra.0"]
        );
        assert_eq!(of("mov rax,gs:[pcpu_hot]", TokenKind::Symbol), ["pcpu_hot"]);
        assert_eq!(of("jmp raw_spin", TokenKind::Symbol), ["raw_spin"]);
    }

    proptest! {
        #[test]
        fn tokens_cover_the_whole_text(text in "[a-z0-9_+,:\\[\\] *x.]{0,40}|\\PC{0,20}") {
            let joined: String = parts(&text).into_iter().map(|(_, piece)| piece).collect();
            prop_assert_eq!(joined, text);
        }
    }
}
