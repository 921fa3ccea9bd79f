//! The texts that iced and objdump make of one instruction, compared word by word.

use iced_x86::{Code, Formatter, Instruction, IntelFormatter, MemorySizeOptions, Mnemonic, OpKind};

/// iced's text, as near to objdump's as its options allow.
pub(crate) struct Writer {
    formatter: IntelFormatter,
    out: String,
}

impl Writer {
    pub(crate) fn new() -> Self {
        let mut formatter = IntelFormatter::new();
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_show_branch_size(false);
        options.set_rip_relative_addresses(true);
        options.set_always_show_scale(true);
        options.set_memory_size_options(MemorySizeOptions::Always);
        Self {
            formatter,
            out: String::new(),
        }
    }

    pub(crate) fn text(&mut self, instruction: &Instruction) -> &str {
        self.out.clear();
        self.formatter.format(instruction, &mut self.out);
        &self.out
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Number(u64),
    Mark(char),
}

fn word(text: &str) -> Token {
    Token::Word(text.to_owned())
}

/// The words, numbers and marks of a text, without what only one of the two writes: `ptr`, segments that
/// mean nothing in 64-bit mode, displacements of zero.
fn tokens(text: &str) -> Vec<Token> {
    let lower = text.to_ascii_lowercase();
    let mut rest = lower.as_str();
    let mut tokens: Vec<Token> = Vec::new();
    while let Some(first) = rest.chars().next() {
        let len = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .unwrap_or(rest.len());
        if len == 0 {
            if first != ' ' {
                tokens.push(Token::Mark(first));
            }
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (piece, tail) = rest.split_at(len);
        rest = tail;
        // Targets of branches have no 0x in objdump's text.
        let digits = piece.strip_prefix("0x").or_else(|| {
            let bare = first.is_ascii_digit() || piece.len() >= 8;
            (bare && piece.bytes().all(|b| b.is_ascii_hexdigit())).then_some(piece)
        });
        let token = match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            Some(number) => match tokens.last() {
                Some(Token::Mark('-')) => {
                    tokens.pop();
                    tokens.push(Token::Mark('+'));
                    Token::Number(number.wrapping_neg())
                }
                _ => Token::Number(number),
            },
            None if piece == "ptr" => continue,
            None => word(piece),
        };
        tokens.push(token);
        if matches!(tokens.as_slice(), [.., Token::Mark('+'), Token::Number(0)]) {
            tokens.truncate(tokens.len() - 2);
        }
    }
    without_segments(&tokens)
}

fn without_segments(tokens: &[Token]) -> Vec<Token> {
    let idle = |token: &Token| matches!(token, Token::Word(w) if ["cs", "ds", "es", "ss"].contains(&w.as_str()));
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    // In front of the mnemonic, they are prefixes, and so are data16 and a REX of which nothing is used.
    while let [first, following @ ..] = rest {
        let unused = matches!(first, Token::Word(w) if w == "data16" || w.starts_with("rex"));
        if !(idle(first) || unused) || following.is_empty() {
            break;
        }
        rest = following;
    }
    while let [first, following @ ..] = rest {
        match following {
            // objdump writes an address without brackets where there is no register in it.
            [Token::Mark(':'), number @ Token::Number(_), tail @ ..] => {
                if !idle(first) {
                    kept.extend([first.clone(), Token::Mark(':')]);
                }
                kept.extend([Token::Mark('['), number.clone(), Token::Mark(']')]);
                rest = tail;
            }
            [Token::Mark(':'), tail @ ..] if idle(first) => rest = tail,
            _ => {
                kept.push(first.clone());
                rest = following;
            }
        }
    }
    kept
}

/// A difference of notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notation {
    /// Nowhere.
    Same,
    /// String instructions: iced puts the size after the name (`movsd`), objdump only before the operands.
    StringSize,
    /// `movabs`, `pushf`, `popf`, `retfq`, `sysretd`: other names.
    Name,
    /// `imul r, r, n` with one register twice: iced writes it once.
    TwiceTheSame,
    /// To and from segment registers, those of tables too: objdump names the register by the size of the operand, iced by
    /// the 16 bits of it that count.
    SegmentRegister,
    /// Instructions whose memory has no size, or one that is called otherwise: tables' registers, caches,
    /// 16 bytes and more.
    MemorySize,
    /// iced writes an operand that the opcode implies.
    Implied,
}

/// Returns the notation by which two texts of an instruction are equal, if they are.
pub(crate) fn alike(instruction: &Instruction, iced: &str, objdump: &str) -> Option<Notation> {
    let (mut ours, mut theirs) = (tokens(iced), tokens(objdump));
    if ours == theirs {
        return Some(Notation::Same);
    }
    let notation = notation(instruction)?;
    match notation {
        Notation::StringSize => {
            let name = ours.iter_mut().find_map(|token| match token {
                Token::Word(name) if !name.starts_with("rep") => Some(name),
                _ => None,
            })?;
            name.pop();
            // objdump writes the register that the opcode implies.
            let implied = ["al", "ax", "eax", "rax"].map(word);
            for tokens in [&mut ours, &mut theirs] {
                tokens.retain(|token| !implied.contains(token) && *token != Token::Mark(','));
            }
        }
        Notation::Name => {
            for token in ours.iter_mut().chain(theirs.iter_mut()) {
                if let Token::Word(name) = token {
                    let same = match name.as_str() {
                        "movabs" => "mov",
                        "pushf" => "pushfq",
                        "popf" => "popfq",
                        "sysret" => "sysretd",
                        "retf" => "ret",
                        _ => continue,
                    };
                    *name = same.to_owned();
                }
            }
            let far: Vec<Token> = ["data64", "ret", "far"].map(word).into();
            if ours == far {
                ours = vec![word("retfq")];
            }
            ours.retain(|token| *token != word("far"));
        }
        Notation::TwiceTheSame => {
            if let [_, one, _, two, ..] = theirs.as_slice()
                && one == two
            {
                theirs.drain(1..3);
            }
        }
        Notation::SegmentRegister => {
            let narrow = |token: &mut Token| {
                if let Token::Word(name) = token {
                    *name = low_half(name).to_owned();
                }
            };
            ours.iter_mut().chain(theirs.iter_mut()).for_each(narrow);
        }
        Notation::MemorySize => {
            let sizes = [
                "oword", "xmmword", "ymmword", "zmmword", "fword", "byte", "qword", "dword",
                "word", "tbyte", "fpuenv", "fpustate", "xmm", "mib",
            ];
            let sized = |token: &Token| matches!(token, Token::Word(name) if sizes.contains(&name.as_str()));
            ours.retain(|token| !sized(token));
            theirs.retain(|token| !sized(token));
        }
        Notation::Implied => {
            let implied = [word("far"), word("st"), word("rax"), Token::Mark(',')];
            for tokens in [&mut ours, &mut theirs] {
                tokens.retain(|token| !implied.contains(token));
            }
        }
        Notation::Same => {}
    }
    (ours == theirs).then_some(notation)
}

fn notation(instruction: &Instruction) -> Option<Notation> {
    if instruction.is_string_instruction() {
        return Some(Notation::StringSize);
    }
    let segment = (0..instruction.op_count()).any(|n| {
        instruction.op_kind(n) == OpKind::Register
            && instruction.op_register(n).is_segment_register()
    });
    let selector = matches!(instruction.mnemonic(), Mnemonic::Ltr | Mnemonic::Lldt);
    if selector || segment && instruction.mnemonic() == Mnemonic::Mov {
        return Some(Notation::SegmentRegister);
    }
    Some(match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Pushfq | Mnemonic::Popfq | Mnemonic::Sysret | Mnemonic::Retf => {
            Notation::Name
        }
        Mnemonic::Imul => Notation::TwiceTheSame,
        Mnemonic::Fild | Mnemonic::Pvalidate => Notation::Implied,
        Mnemonic::Jmp if instruction.code() == Code::Jmp_m1632 => Notation::Implied,
        Mnemonic::Lgdt
        | Mnemonic::Lidt
        | Mnemonic::Sgdt
        | Mnemonic::Sidt
        | Mnemonic::Invpcid
        | Mnemonic::Invlpg
        | Mnemonic::Wrussd
        | Mnemonic::Wrussq
        | Mnemonic::Cmpxchg16b => Notation::MemorySize,
        _ => return None,
    })
}

fn low_half(name: &str) -> &str {
    match name {
        "eax" | "rax" => "ax",
        "ebx" | "rbx" => "bx",
        "ecx" | "rcx" => "cx",
        "edx" | "rdx" => "dx",
        "esi" | "rsi" => "si",
        "edi" | "rdi" => "di",
        "ebp" | "rbp" => "bp",
        "esp" | "rsp" => "sp",
        other => other.trim_end_matches(['d', 'w']),
    }
}
