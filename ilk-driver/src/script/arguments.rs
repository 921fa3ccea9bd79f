//! Arguments of static probes in a script: `arg0` is the register or the number that the probe's note names.

use gilk_engine::code::{ProbeArgument, ProbeOperand};
use gilk_instruments::Fault;
use gilk_instruments::program::{Gpr, Span};

use super::comments::skipped;

/// A source with other text in place of some words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplacedText {
    pub(super) text: String,
    /// By position.
    edits: Vec<Edit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    /// The word, in the source.
    before: Span,
    /// The text in its place.
    after: Span,
}

impl ReplacedText {
    /// The source itself.
    pub(super) fn unchanged(text: String) -> Self {
        Self {
            text,
            edits: Vec::new(),
        }
    }

    /// Puts the arguments of a static probe in place of the words `arg0`, `arg1` and so on.
    ///
    /// # Errors
    /// The first word of an argument that the probe does not have, or that no program can read.
    pub(super) fn of(source: &str, arguments: &[ProbeArgument]) -> Result<Self, Fault> {
        let mut replaced = Self::default();
        let mut at = 0;
        while let Some(letter) = source.get(at..).and_then(|rest| rest.chars().next()) {
            let rest = source.get(at..).unwrap_or_default();
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let length = if let Some(length) = skipped(rest) {
                length
            } else if is_name(letter) || letter == '@' {
                let word = rest.get(1..).unwrap_or_default();
                1 + word.find(|c| !is_name(c)).unwrap_or(word.len())
            } else {
                letter.len_utf8()
            };
            let word = rest.get(..length).unwrap_or_default();
            let span = Span {
                start: position(at),
                end: position(at + length),
            };
            match number(word) {
                Some(number) => {
                    let start = position(replaced.text.len());
                    replaced.text.push_str(&written(number, arguments, span)?);
                    let end = position(replaced.text.len());
                    replaced.edits.push(Edit {
                        before: span,
                        after: Span { start, end },
                    });
                }
                None => replaced.text.push_str(word),
            }
            at += length;
        }
        Ok(replaced)
    }

    /// Returns faults of the text at their positions in the source.
    pub(super) fn original(&self, mut faults: Vec<Fault>) -> Vec<Fault> {
        for fault in &mut faults {
            let Span { start, end } = fault.span;
            fault.span = Span {
                start: self.position(start, false),
                end: self.position(end, true),
            };
        }
        faults
    }

    /// Returns the position in the source; inside a replaced word, its start or its end.
    fn position(&self, at: u32, is_end: bool) -> u32 {
        let after = self.edits.partition_point(|edit| edit.after.start < at);
        let Some(edit) = after.checked_sub(1).and_then(|last| self.edits.get(last)) else {
            return at;
        };
        match (at < edit.after.end, is_end) {
            (true, true) => edit.before.end,
            (true, false) => edit.before.start,
            (false, _) => edit.before.end + (at - edit.after.end),
        }
    }
}

fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Returns the number of an argument that a word names.
fn number(word: &str) -> Option<usize> {
    let digits = word.strip_prefix("arg")?;
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(usize::MAX))
}

/// Returns an argument as the language has it.
fn written(number: usize, arguments: &[ProbeArgument], span: Span) -> Result<String, Fault> {
    let Some(argument) = arguments.get(number) else {
        let what = match arguments.len() {
            0 => "The probe has no arguments.".to_owned(),
            1 => "The probe has one argument, arg0.".to_owned(),
            count => format!("The probe has {count} arguments, arg0 to arg{}.", count - 1),
        };
        return Err(Fault::new(span, what));
    };
    let name = |gpr: Gpr| {
        let mut names = Gpr::ALL.into_iter().zip(Gpr::NAMES);
        names.find_map(|(known, name)| (known == gpr).then_some(name))
    };
    let bits = 8 * u32::from(argument.bytes);
    let sign = if argument.signed { 's' } else { 'u' };
    let unread = |why: &str| {
        let what = format!("arg{number} of the probe is {why} (`{}`).", argument.text);
        Err(Fault::new(span, what).help("Leave it out: the probe's other arguments can be read."))
    };
    match argument.operand {
        ProbeOperand::Register(gpr) | ProbeOperand::SecondByte(gpr) => {
            let Some(register) = name(gpr) else {
                return unread("in a register without a name");
            };
            Ok(match argument.operand {
                ProbeOperand::SecondByte(_) => format!("(({sign}8)(reg(\"{register}\") >> 8))"),
                _ if bits == 64 && !argument.signed => format!("reg(\"{register}\")"),
                _ => format!("(({sign}{bits})reg(\"{register}\"))"),
            })
        }
        ProbeOperand::Constant(number) => {
            let unused = 64_u32.saturating_sub(bits);
            Ok(match argument.signed {
                true => format!("({})", (number << unused) >> unused),
                false => ((number.cast_unsigned() << unused) >> unused).to_string(),
            })
        }
        ProbeOperand::Memory(address) => {
            let mut sum = Vec::new();
            if let Some(base) = address.base {
                let Some(base) = name(base) else {
                    return unread("at a register without a name");
                };
                sum.push(format!("reg(\"{base}\")"));
            }
            if let Some((index, scale)) = address.index {
                let Some(index) = name(index) else {
                    return unread("at a register without a name");
                };
                sum.push(format!("reg(\"{index}\") * {scale}"));
            }
            if address.displacement != 0 || sum.is_empty() {
                sum.push(format!("({})", address.displacement));
            }
            Ok(format!("(*({sign}{bits} *)({}))", sum.join(" + ")))
        }
        ProbeOperand::Named => unread("in memory at an address that is not of registers alone"),
        ProbeOperand::Other => unread("not in a general register"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<ProbeArgument> {
        text.split(' ').map(ProbeArgument::parse).collect()
    }

    #[test]
    fn words_of_arguments_are_replaced_and_nothing_else_is() {
        let known = arguments("8@%rdi -4@%eax -1@$255 2@$-1 1@%ah -8@%r12");
        let text = "{ @arg0 = hist(arg0); x.arg10_; /* arg0 */ printf(\"arg0\"); arg1+arg2+arg3+arg4+arg5 }";
        let replaced = ReplacedText::of(text, &known).unwrap();
        assert_eq!(
            replaced.text,
            "{ @arg0 = hist(reg(\"di\")); x.arg10_; /* arg0 */ printf(\"arg0\"); \
             ((s32)reg(\"ax\"))+(-1)+65535+((u8)(reg(\"ax\") >> 8))+((s64)reg(\"r12\")) }"
        );
        let stored = arguments("-4@112(%rsp) 8@-24(%rbp,%rcx,8)");
        let replaced = ReplacedText::of("{ sample(arg0 + arg1) }", &stored).unwrap();
        assert_eq!(
            replaced.text,
            "{ sample((*(s32 *)(reg(\"sp\") + (112))) + (*(u64 *)(reg(\"bp\") + reg(\"cx\") * 8 + (-24)))) }"
        );
        for (text, expected) in [
            (
                "{ sample(arg6) }",
                "The probe has 6 arguments, arg0 to arg5.",
            ),
            (
                "{ sample(arg99999999999999999999) }",
                "The probe has 6 arguments, arg0 to arg5.",
            ),
        ] {
            let fault = ReplacedText::of(text, &known).unwrap_err();
            assert_eq!(fault.message, expected);
            assert_eq!(fault.span.start, 9);
        }
        for (argument, expected) in [
            ("4@counter(%rip)", "in memory at an address that is not"),
            ("8f@%xmm0", "not in a general register"),
        ] {
            let fault = ReplacedText::of("arg0", &arguments(argument)).unwrap_err();
            assert!(fault.message.contains(expected), "{}", fault.message);
            assert!(fault.message.contains(argument), "{}", fault.message);
        }
    }

    #[test]
    fn faults_are_at_the_words_of_the_source() {
        let replaced = ReplacedText::of("a arg0 b arg1 c", &arguments("8@%rdi -4@%eax")).unwrap();
        let at = |word: &str| position(replaced.text.find(word).unwrap());
        let fault = |start, end| Fault::new(Span { start, end }, "");
        let spans = |start, end| {
            let faults = replaced.original(vec![fault(start, end)]);
            let Span { start, end } = faults[0].span;
            (start, end)
        };
        assert_eq!(spans(0, 1), (0, 1));
        assert_eq!(spans(at("b "), at("b ") + 1), (7, 8));
        assert_eq!(spans(at("c"), at("c") + 1), (14, 15));
        // A part of a replaced word is the word.
        assert_eq!(spans(at("di"), at("di") + 2), (2, 6));
        assert_eq!(spans(at("ax"), at("c")), (9, 14));
    }
}
