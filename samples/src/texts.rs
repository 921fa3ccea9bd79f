//! Samples that are read as text: lines of `printf`, names of an enumeration's values, stacks.
//!
//! Nothing is formatted in the target. A line is a sample whose value is the number of its format, and
//! [further words](Sample::is_word) after it, one or two for each argument; they are formatted by what reads them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::Sample;
use crate::totals::Totals;

/// Bytes of a text in two words, and the mark of one that is longer.
const TEXT_BYTES: usize = 16;
/// Last byte of a text that has more than 15.
pub const CUT: u8 = 0xff;

/// The texts of a recording's samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleTexts {
    kinds: Vec<Texts>,
    /// Index of the texts of an instrument, by its packed identifier.
    of: BTreeMap<u64, usize>,
}

/// The text of an instrument's samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Texts {
    /// Lines: the value is an index of these formats.
    Lines(Vec<PrintedLine>),
    /// Names of values.
    Names(ValueNames),
    /// The value is the number of a stack.
    Stacks,
}

/// A line of `printf`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedLine(pub Vec<PrintedPart>);

/// Text of a line, or an argument in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrintedPart {
    /// Text as it is.
    Text(String),
    /// The next argument.
    Argument(Argument),
}

/// An argument of a line, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Notation of its word.
    pub form: Form,
    /// The fewest characters.
    pub width: u16,
    /// True if they are filled on the right.
    pub left: bool,
    /// True if they are filled with zeroes.
    pub zeroes: bool,
}

impl Argument {
    /// Returns an argument without a width.
    #[must_use]
    pub const fn plain(form: Form) -> Self {
        Self {
            form,
            width: 0,
            left: false,
            zeroes: false,
        }
    }
}

/// The form of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// `%d`
    Signed,
    /// `%u`
    Unsigned,
    /// `%x`
    Hexadecimal,
    /// `%X`
    Capitals,
    /// `%o`
    Octal,
    /// `%p`
    Pointer,
    /// `%c`
    Character,
    /// `%s` of a text of [two words](text_of).
    Text,
    /// `%s` of an enumeration's value.
    Names(ValueNames),
    /// `%s` of a stack.
    Stack,
    /// `%s` of an address of the kernel's code.
    Symbol,
}

/// Names of the values of an enumeration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueNames(BTreeMap<i128, String>);

impl ValueNames {
    /// Most values that have names.
    const MOST: usize = 1024;

    /// Keeps the first name of each value.
    pub fn new<'n>(constants: impl Iterator<Item = (&'n str, i128)>) -> Self {
        let mut names = BTreeMap::new();
        for (name, value) in constants.take(Self::MOST) {
            names.entry(value).or_insert_with(|| name.to_owned());
        }
        Self(names)
    }

    /// Returns whether no value has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name of a value, or, in an enumeration of single bits, those of its bits: `A|B`.
    #[must_use]
    pub fn name(&self, value: i128) -> Option<String> {
        if let Some(name) = self.0.get(&value) {
            return Some(name.clone());
        }
        let single = |bit: &i128| *bit >= 0 && bit.count_ones() <= 1;
        if value <= 0 || !self.0.keys().all(single) {
            return None;
        }
        let bits = self.0.iter().filter(|(bit, _)| value & **bit != 0);
        let known: i128 = bits.clone().map(|(bit, _)| *bit).sum();
        let names: Vec<&str> = bits.map(|(_, name)| name.as_str()).collect();
        (known == value).then(|| names.join("|"))
    }

    /// Returns the name of 64 bits: of the number without a sign, or else of that with one.
    #[must_use]
    pub fn of_bits(&self, bits: u64) -> Option<String> {
        let name = self.name(bits.into());
        name.or_else(|| self.name(bits.cast_signed().into()))
    }
}

impl Form {
    /// Returns the number of its words.
    #[must_use]
    pub const fn words(&self) -> usize {
        match self {
            Self::Text => 2,
            _ => 1,
        }
    }

    /// Returns the text of an argument of one word.
    fn number(&self, bits: u64, totals: &Totals) -> String {
        match self {
            Self::Signed => bits.cast_signed().to_string(),
            Self::Unsigned | Self::Text => bits.to_string(),
            Self::Hexadecimal => format!("{bits:x}"),
            Self::Capitals => format!("{bits:X}"),
            Self::Octal => format!("{bits:o}"),
            Self::Pointer => format!("{bits:#x}"),
            Self::Character => shown(char::from(bits.to_le_bytes()[0])).to_string(),
            Self::Names(names) => {
                let name = names.of_bits(bits);
                name.unwrap_or_else(|| bits.cast_signed().to_string())
            }
            Self::Stack => {
                let stack = totals.stacks.line(bits.into());
                stack.unwrap_or_else(|| format!("{bits:#x}"))
            }
            Self::Symbol => {
                let symbol = totals.symbols.get(&bits).cloned();
                symbol.unwrap_or_else(|| format!("{bits:#x}"))
            }
        }
    }
}

impl PrintedLine {
    /// Returns the arguments in order.
    pub fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.0.iter().filter_map(|part| match part {
            PrintedPart::Argument(argument) => Some(argument),
            PrintedPart::Text(_) => None,
        })
    }

    /// Returns the number of words of all arguments.
    #[must_use]
    pub fn words(&self) -> usize {
        self.arguments().map(|argument| argument.form.words()).sum()
    }

    /// Returns the line of these words, with the names of symbols and stacks in `totals`. Missing words are 0.
    #[must_use]
    pub fn line(&self, words: &[u64], totals: &Totals) -> String {
        debug_assert_eq!(words.len(), self.words(), "a line has all of its words");
        let mut words = words.iter().copied();
        let mut line = String::new();
        for part in &self.0 {
            match part {
                PrintedPart::Text(text) => line.push_str(text),
                PrintedPart::Argument(argument) => {
                    let first = words.next().unwrap_or(0);
                    let text = match argument.form {
                        Form::Text => text_of([first, words.next().unwrap_or(0)]),
                        _ => argument.form.number(first, totals),
                    };
                    argument.pad(&text, &mut line);
                }
            }
        }
        line
    }
}

impl Argument {
    /// Appends a text of at least the argument's width.
    fn pad(&self, text: &str, line: &mut String) {
        let width = usize::from(self.width);
        // Writing to a String cannot fail.
        let _infallible = match (self.left, self.zeroes, text.strip_prefix('-')) {
            (true, ..) => write!(line, "{text:<width$}"),
            (false, true, Some(number)) => {
                write!(line, "-{number:0>width$}", width = width.saturating_sub(1))
            }
            (false, true, None) => write!(line, "{text:0>width$}"),
            (false, false, _) => write!(line, "{text:>width$}"),
        };
    }
}

/// Returns the text of two words: up to the first zero, with an ellipsis if more than 15 bytes of it are missing.
#[must_use]
pub fn text_of(words: [u64; 2]) -> String {
    let bytes = words.map(u64::to_le_bytes);
    let bytes = bytes.as_flattened();
    let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    let (name, cut) = match name {
        [name @ .., CUT] if name.len() + 1 == TEXT_BYTES => (name, "…"),
        name => (name, ""),
    };
    let text = String::from_utf8_lossy(name);
    // A letter that is cut in two is left out; no terminal is controlled by a name.
    let text = text.trim_end_matches(|c| c == char::REPLACEMENT_CHARACTER && !cut.is_empty());
    let mut text: String = text.chars().map(shown).collect();
    text.push_str(cut);
    text
}

/// Returns a character, or a replacement for one that would control a terminal.
fn shown(c: char) -> char {
    if c.is_control() {
        char::REPLACEMENT_CHARACTER
    } else {
        c
    }
}

impl SampleTexts {
    /// Returns whether no instrument's samples are text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Adds the texts of an instrument.
    pub fn insert(&mut self, id: u64, texts: Texts) {
        let known = self.kinds.iter().position(|kind| *kind == texts);
        let index = known.unwrap_or_else(|| {
            self.kinds.push(texts);
            self.kinds.len() - 1
        });
        self.of.insert(id, index);
    }

    /// Adds the texts of other instruments.
    pub fn extend(&mut self, other: &Self) {
        for (id, texts) in other.iter() {
            self.insert(id, texts.clone());
        }
    }

    /// Returns the texts of an instrument.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Texts> {
        self.kinds.get(*self.of.get(&id)?)
    }

    /// Returns the instruments with texts.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Texts)> {
        let all = self.of.iter();
        all.filter_map(|(id, index)| Some((*id, self.kinds.get(*index)?)))
    }

    /// Returns the number of words of a sample.
    #[must_use]
    pub fn words(&self, sample: &Sample) -> usize {
        self.format(sample).map_or(0, PrintedLine::words)
    }

    fn format(&self, sample: &Sample) -> Option<&PrintedLine> {
        let Some(Texts::Lines(formats)) = self.get(sample.id) else {
            return None;
        };
        formats.get(usize::try_from(sample.value).ok()?)
    }

    /// Returns the text of a sample with its words; `None` if it is a plain number.
    #[must_use]
    pub fn text(&self, sample: &Sample, words: &[u64], totals: &Totals) -> Option<String> {
        match self.get(sample.id)? {
            Texts::Lines(_) => Some(self.format(sample)?.line(words, totals)),
            Texts::Names(names) => names.of_bits(sample.value),
            Texts::Stacks => totals.stacks.line(sample.value.into()),
        }
    }

    /// Returns the words of a sample that are shown as symbols.
    pub fn addresses(&self, sample: &Sample, words: &[u64]) -> impl Iterator<Item = u64> {
        let arguments = self
            .format(sample)
            .into_iter()
            .flat_map(PrintedLine::arguments);
        let forms = arguments
            .map(|argument| &argument.form)
            .flat_map(|form| std::iter::repeat_n(form, form.words()));
        let all = forms.zip(words);
        all.filter_map(|(form, word)| matches!(form, Form::Symbol).then_some(*word))
    }
}

/// Puts samples and their words together, as they are in the rings of each CPU: one after the other.
#[derive(Debug, Default)]
pub struct LineReader {
    /// The sample of each CPU that waits for words, and those that it has.
    open: BTreeMap<u16, (Sample, Vec<u64>)>,
}

impl LineReader {
    /// Adds the next sample or word of a CPU; returns the sample that is complete with it, and its words. A word
    /// without its sample, which was overwritten, is left out.
    pub fn next(
        &mut self,
        cpu: u16,
        sample: &Sample,
        texts: &SampleTexts,
    ) -> Option<(Sample, Vec<u64>)> {
        let (head, words) = if sample.is_word() {
            let (head, mut words) = self.open.remove(&cpu)?;
            if (head.id, head.tsc) != (sample.without_mark().id, sample.tsc) {
                return None;
            }
            words.push(sample.value);
            (head, words)
        } else {
            // An incomplete one before it stays so.
            self.open.remove(&cpu);
            (*sample, Vec::new())
        };
        if words.len() >= texts.words(&head) {
            return Some((head, words));
        }
        self.open.insert(cpu, (head, words));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_stacks::KeptStacks;

    fn argument(form: Form, width: u16, left: bool, zeroes: bool) -> PrintedPart {
        PrintedPart::Argument(Argument {
            form,
            width,
            left,
            zeroes,
        })
    }

    fn words(text: &str) -> [u64; 2] {
        let mut bytes = [0; 16];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let half = |from: usize| u64::from_le_bytes(bytes[from..from + 8].try_into().unwrap());
        [half(0), half(8)]
    }

    #[test]
    fn a_line_has_its_arguments_in_their_forms() {
        let names = ValueNames::new([("BUSY", 7), ("BAD", -1)].into_iter());
        let parts = vec![
            argument(Form::Text, 6, true, false),
            PrintedPart::Text("|".to_owned()),
            argument(Form::Signed, 5, false, true),
            argument(Form::Unsigned, 0, false, false),
            PrintedPart::Text(" ".to_owned()),
            argument(Form::Hexadecimal, 4, false, true),
            argument(Form::Capitals, 0, false, false),
            argument(Form::Octal, 3, false, false),
            argument(Form::Character, 0, false, false),
            argument(Form::Pointer, 0, false, false),
            PrintedPart::Text(" ".to_owned()),
            argument(Form::Names(names.clone()), 0, false, false),
            argument(Form::Names(names), 0, false, false),
            PrintedPart::Text(" ".to_owned()),
            argument(Form::Stack, 0, false, false),
            PrintedPart::Text(" ".to_owned()),
            argument(Form::Symbol, 0, false, false),
        ];
        let totals = Totals {
            symbols: [(16, "vfs_read".to_owned())].into(),
            stacks: KeptStacks {
                frames: [(9, vec!["f+0x1".to_owned(), "g".to_owned()])].into(),
                ..KeptStacks::default()
            },
            ..Totals::default()
        };
        let format = PrintedLine(parts);
        let [first, second] = words("cat");
        let numbers = [0_u64.wrapping_sub(12), 8, 255, 255, 8, 0x41, 16];
        let mut all = vec![first, second];
        all.extend(numbers);
        all.extend([u64::MAX, 3, 9, 16]);
        assert_eq!(format.words(), all.len());
        let line = format.line(&all, &totals);
        assert_eq!(line, "cat   |-00128 00ffFF 10A0x10 BAD3 g;f vfs_read");
    }

    #[test]
    fn texts_end_at_zero_and_show_that_they_are_cut() {
        assert_eq!(text_of(words("passwd")), "passwd");
        let mut cut = words("a-very-long-nam");
        cut[1] |= u64::from(CUT) << 56;
        assert_eq!(text_of(cut), "a-very-long-nam…");
        assert_eq!(text_of(words("a\nb\x1b")), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn words_without_their_sample_are_left_out() {
        let mut texts = SampleTexts::default();
        let part = || argument(Form::Signed, 0, false, false);
        texts.insert(
            5,
            Texts::Lines(vec![
                PrintedLine::default(),
                PrintedLine(vec![part(), part()]),
            ]),
        );
        let sample = |value, tsc| Sample { id: 5, value, tsc };
        let word = |value, tsc| Sample { id: 5, value, tsc }.as_word();
        let mut reader = LineReader::default();
        let mut next = |cpu, sample| reader.next(cpu, &sample, &texts);
        // Its sample was overwritten.
        assert_eq!(next(0, word(1, 1)), None);
        assert_eq!(next(0, sample(0, 2)), Some((sample(0, 2), vec![])));
        assert_eq!(next(0, sample(1, 3)), None);
        assert_eq!(next(1, sample(1, 3)), None);
        assert_eq!(next(0, word(7, 3)), None);
        assert_eq!(next(0, word(8, 3)), Some((sample(1, 3), vec![7, 8])));
        // Of another sample.
        assert_eq!(next(1, word(7, 4)), None);
        assert_eq!(next(1, word(7, 3)), None);
    }
}
