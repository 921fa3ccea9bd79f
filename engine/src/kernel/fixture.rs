//! A small kernel for tests: functions of a few instructions, with every table an image needs.

use iced_x86::IcedError;
use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, ecx, qword_ptr, rax, rcx, rdi, rsi};

use super::LiveParts;
use crate::{Addr, Image, Result};

/// The first byte of its text.
pub(crate) const TEXT: u64 = 0xffff_ffff_8100_0000;
/// The first byte of its read-only data.
pub(crate) const DATA: u64 = 0xffff_ffff_8200_0000;
/// From the start of one function to that of the next.
pub(crate) const STRIDE: u64 = 0x400;
/// The five bytes at the start of every compiled function.
pub(crate) const FTRACE_NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];

/// The parts of the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fixture {
    functions: Vec<(String, Vec<u8>)>,
    /// Further symbols: address, letter, name.
    pub(crate) symbols: Vec<(u64, char, String)>,
    /// Jump labels: code and target.
    pub(crate) jumps: Vec<(u64, u64)>,
    /// Keys of the first jump labels, with flags; the others have none.
    pub(crate) jump_keys: Vec<u64>,
    /// Static call sites.
    pub(crate) static_calls: Vec<u64>,
    /// Keys of the first static call sites, with flags.
    pub(crate) static_call_keys: Vec<u64>,
    /// Exceptions: instruction and fixup.
    pub(crate) exceptions: Vec<(u64, u64)>,
    /// The handlers of the first exceptions; of the others they are of no known kind.
    pub(crate) handlers: Vec<u8>,
    /// `ud2`s: address, and whether it is a `WARN`.
    pub(crate) bugs: Vec<(u64, bool)>,
    /// The length of the bug table's entries: 8, 12 or 16.
    pub(crate) bug_bytes: usize,
    /// The kernel's type data.
    pub(crate) types: Vec<u8>,
    /// Values in read-only data.
    pub(crate) pointers: Vec<u64>,
    /// Blacklisted spans.
    pub(crate) blacklist: Vec<(u64, u64)>,
}

/// Code that exchanges a value until it succeeds; where `skips` is set it does so without the `lock` prefix while
/// there is one thread, as the C library does.
pub(crate) fn exchange(a: &mut CodeAssembler, skips: bool) -> std::result::Result<(), IcedError> {
    let (mut again, mut locked, mut past) = (a.create_label(), a.create_label(), a.create_label());
    a.set_label(&mut again)?;
    a.mov(eax, dword_ptr(rdi))?;
    a.lea(ecx, dword_ptr(rax + 1))?;
    a.cmp(dword_ptr(rsi), 0)?;
    a.je(if skips { past } else { locked })?;
    a.set_label(&mut locked)?;
    a.db(&[0xf0])?;
    a.set_label(&mut past)?;
    a.cmpxchg(dword_ptr(rdi), ecx)?;
    a.jne(again)?;
    a.lea(rax, qword_ptr(rdi + 16))?;
    a.add(rax, rcx)?;
    a.ret()
}

impl Fixture {
    /// A kernel with no function yet.
    pub(crate) fn new() -> Self {
        Self {
            bug_bytes: 12,
            ..Self::default()
        }
    }

    /// The address of the function that was added as number `number`.
    pub(crate) fn address(number: usize) -> u64 {
        TEXT + STRIDE * number as u64
    }

    /// Adds a function of these bytes.
    pub(crate) fn bytes(mut self, name: &str, bytes: &[u8]) -> Self {
        assert!((bytes.len() as u64) < STRIDE, "{name} is too long");
        self.functions.push((name.to_owned(), bytes.to_vec()));
        self
    }

    /// Adds a function, assembled at its address.
    pub(crate) fn asm(
        self,
        name: &str,
        write: impl FnOnce(&mut CodeAssembler) -> std::result::Result<(), IcedError>,
    ) -> Self {
        let mut assembler = CodeAssembler::new(64).unwrap();
        write(&mut assembler).unwrap();
        self.written(name, assembler)
    }

    fn written(self, name: &str, mut assembler: CodeAssembler) -> Self {
        let bytes = assembler
            .assemble(Self::address(self.functions.len()))
            .unwrap();
        self.bytes(name, &bytes)
    }

    /// Adds a function that begins with an ftrace site: the rest is assembled after it.
    pub(crate) fn compiled(
        self,
        name: &str,
        write: impl FnOnce(&mut CodeAssembler) -> std::result::Result<(), IcedError>,
    ) -> Self {
        let mut assembler = CodeAssembler::new(64).unwrap();
        assembler.db(&FTRACE_NOP).unwrap();
        write(&mut assembler).unwrap();
        self.written(name, assembler)
    }

    /// The data that would be read from it.
    pub(crate) fn parts(&self) -> LiveParts {
        let end = TEXT + STRIDE * self.functions.len() as u64;
        let mut text = vec![0xcc; (end - TEXT) as usize];
        let mut kallsyms = String::new();
        let mut symbol = |at: u64, kind: char, name: &str| {
            kallsyms.push_str(&format!("{at:016x} {kind} {name}\n"));
        };
        symbol(TEXT, 'T', "_text");
        symbol(TEXT, 'T', "_stext");
        for (number, (name, bytes)) in self.functions.iter().enumerate() {
            let at = STRIDE as usize * number;
            text[at..at + bytes.len()].copy_from_slice(bytes);
            symbol(TEXT + at as u64, 'T', name);
        }
        symbol(end, 'T', "_etext");

        let mut data = Vec::new();
        let at = |data: &[u8]| DATA + data.len() as u64;
        let distance = |from: u64, to: u64| (to.wrapping_sub(from) as i32).to_le_bytes();
        symbol(DATA, 'D', "__start_rodata");
        data.extend(
            self.pointers
                .iter()
                .flat_map(|pointer| pointer.to_le_bytes()),
        );
        symbol(at(&data), 'D', "__start___jump_table");
        for (number, &(code, target)) in self.jumps.iter().enumerate() {
            let here = at(&data);
            data.extend(distance(here, code));
            data.extend(distance(here + 4, target));
            let key = self.jump_keys.get(number).copied().unwrap_or(here + 8);
            data.extend(key.wrapping_sub(here + 8).to_le_bytes());
        }
        symbol(at(&data), 'D', "__stop___jump_table");
        symbol(at(&data), 'D', "__start_static_call_sites");
        for (number, &site) in self.static_calls.iter().enumerate() {
            let here = at(&data);
            data.extend(distance(here, site));
            let key = self.static_call_keys.get(number).copied();
            data.extend(distance(here + 4, key.unwrap_or(here + 4)));
        }
        symbol(at(&data), 'D', "__stop_static_call_sites");
        symbol(at(&data), 'D', "__start___ex_table");
        for (number, &(instruction, fixup)) in self.exceptions.iter().enumerate() {
            let here = at(&data);
            let handler = self.handlers.get(number).copied().unwrap_or(0);
            data.extend(distance(here, instruction));
            data.extend(distance(here + 4, fixup));
            data.extend([handler, 0, 0, 0]);
        }
        symbol(at(&data), 'D', "__stop___ex_table");
        symbol(at(&data), 'D', "__start___bug_table");
        for &(bug, warn) in &self.bugs {
            let here = at(&data);
            data.extend(distance(here, bug));
            // Places of the format and of the source file and its line; the flags follow.
            let (places, padding): (&[u8], usize) = match self.bug_bytes {
                8 => (&[], 2),
                12 => (&[0, 0, 0, 0, 1, 0], 0),
                _ => (&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0),
            };
            data.extend(places);
            data.extend([u8::from(warn), 0]);
            data.extend(vec![0; padding]);
        }
        symbol(at(&data), 'D', "__stop___bug_table");
        data.extend([0; 16]);
        if !self.types.is_empty() {
            symbol(at(&data), 'D', "__start_BTF");
            data.extend(&self.types);
            symbol(at(&data), 'D', "__stop_BTF");
        }
        symbol(at(&data), 'D', "__end_rodata");
        for (at, kind, name) in &self.symbols {
            symbol(*at, *kind, name);
        }
        let mut blacklist = String::from("0xffffffff80000000-0xffffffff80000010\tforbidden\n");
        for (start, end) in &self.blacklist {
            blacklist.push_str(&format!("{start:#x}-{end:#x}\tforbidden\n"));
        }
        LiveParts {
            release: "6.1.0-test".to_owned(),
            kallsyms,
            blacklist,
            memory: vec![(Addr(TEXT), text), (Addr(DATA), data)],
        }
    }

    /// Reads the image; an error if the kernel is damaged.
    pub(crate) fn try_image(&self) -> Result<Image> {
        Image::from_live(&self.parts())
    }

    /// Reads the image of an intact kernel.
    pub(crate) fn image(&self) -> Image {
        self.try_image().unwrap()
    }
}
