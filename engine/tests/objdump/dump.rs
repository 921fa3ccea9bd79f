//! Disassembly by objdump.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// An instruction as objdump prints it.
pub(crate) struct Line<'a> {
    pub(crate) at: u64,
    pub(crate) len: usize,
    /// Mnemonic and operands, without the symbols and addresses after them.
    pub(crate) text: &'a str,
}

/// Has objdump disassemble `text`, which begins at `base`, and start again at each of `starts` (offsets,
/// sorted); every instruction is given to `visit`.
pub(crate) fn disassemble(
    base: u64,
    text: &[u8],
    starts: &[u64],
    mut visit: impl FnMut(&Line<'_>),
) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("text.o");
    std::fs::write(&file, elf(text, starts)).unwrap();
    let mut child = Command::new("objdump")
        .args(["-d", "-z", "-w", "-M", "intel", "--insn-width=15"])
        .arg(format!("--adjust-vma={base:#x}"))
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("objdump (package binutils) is installed");
    let mut lines = BufReader::with_capacity(1 << 20, child.stdout.take().unwrap());
    let mut line = String::new();
    while lines.read_line(&mut line).unwrap() > 0 {
        if let Some(parsed) = parse(&line) {
            visit(&parsed);
        }
        line.clear();
    }
    assert!(child.wait().unwrap().success());
}

/// `  address:\tbytes \tmnemonic operands  # comment`
fn parse(line: &str) -> Option<Line<'_>> {
    let mut fields = line.trim_end().split('\t');
    let at = fields.next()?.trim().strip_suffix(':')?;
    let bytes = fields.next()?;
    let text = fields.next().unwrap_or_default();
    let text = text.split(['<', '#']).next().unwrap_or_default();
    Some(Line {
        at: u64::from_str_radix(at, 16).ok()?,
        len: bytes.split_ascii_whitespace().count(),
        text: text.trim(),
    })
}

/// A relocatable file (Tool Interface Standard, ELF-64) with one section of code and a symbol at each start.
fn elf(text: &[u8], starts: &[u64]) -> Vec<u8> {
    let names = b"\0.text\0.symtab\0.strtab\0f\0";
    let mut symbols = vec![0; 24];
    for start in starts {
        // Name "f", a function of this file, in section 1.
        symbols.extend(23_u32.to_le_bytes());
        symbols.extend([2, 0, 1, 0]);
        symbols.extend(start.to_le_bytes());
        symbols.extend([0; 8]);
    }
    let text_at = 64_u64;
    let symbols_at = (text_at + text.len() as u64).next_multiple_of(8);
    let names_at = symbols_at + symbols.len() as u64;
    let sections_at = (names_at + names.len() as u64).next_multiple_of(8);

    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [1_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [0, 0, sections_at] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0; 4]);
    for half in [64_u16, 0, 0, 64, 4, 3] {
        file.extend(half.to_le_bytes());
    }
    file.extend(text);
    file.resize(symbols_at as usize, 0);
    file.extend(&symbols);
    file.extend(names);
    file.resize(sections_at as usize, 0);
    // Name, type, flags, address, offset, size, link, info, alignment, size of an entry.
    let mut section =
        |name: u32, kind: u32, words: [u64; 4], link: u32, info: u32, rest: [u64; 2]| {
            file.extend(name.to_le_bytes());
            file.extend(kind.to_le_bytes());
            file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            file.extend(link.to_le_bytes());
            file.extend(info.to_le_bytes());
            file.extend(rest.iter().flat_map(|word| word.to_le_bytes()));
        };
    section(0, 0, [0; 4], 0, 0, [0; 2]);
    section(1, 1, [6, 0, text_at, text.len() as u64], 0, 0, [16, 0]);
    let locals = starts.len() as u32 + 1;
    section(
        7,
        2,
        [0, 0, symbols_at, symbols.len() as u64],
        3,
        locals,
        [8, 24],
    );
    section(15, 3, [0, 0, names_at, names.len() as u64], 0, 0, [1, 0]);
    file
}
