//! A small kernel as a file, whole and damaged.

use std::io::Write as _;

use iced_x86::code_asm::rdi;
use proptest::prelude::*;

use super::super::fixture::{Fixture, TEXT};
use super::FileParts;
use crate::code::Why;
use crate::kernel::ModuleParts;
use crate::{Addr, Image, Span};

/// The address of the tables that boot frees, and of the symbols.
const INIT: u64 = 0xffff_ffff_8300_0000;

/// The address of a notifier of traps.
const NOTIFIER: u64 = 0xffff_ffff_8280_0000;

/// Two functions, with an alternative and a return in the first, and the second on the blacklist; one that registers
/// notifiers of traps, its caller, and a notifier.
fn fixture() -> Fixture {
    Fixture::new()
        .bytes("f", &[0x0f, 0x1f, 0x44, 0, 0, 0x0f, 0xae, 0xe8, 0xc3])
        .bytes("g", &[0xc3])
        .bytes("register_die_notifier", &[0xc3])
        .asm("subscribes", |a| {
            a.mov(rdi, NOTIFIER)?;
            a.jmp(Fixture::address(2))
        })
        .bytes("notified", &[0xc3])
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// The forms of the tables of scripts/kallsyms.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Up to Linux 6.3: addresses precede the names.
    Before,
    /// Up to 6.19: addresses follow the index of the tokens.
    After,
    /// Since 7.0: tables have less padding, and an address is a distance from itself.
    Itself,
}

/// The tables of scripts/kallsyms.c at `at`, with every letter standing for itself.
fn tables(symbols: &[(u64, String)], form: Form, at: u64) -> Vec<u8> {
    let padded = |mut bytes: Vec<u8>| {
        let align = if form == Form::Itself { 4 } else { 8 };
        bytes.resize(bytes.len().next_multiple_of(align), 0);
        bytes
    };
    let letters = |byte: u8| if byte.is_ascii_graphic() { byte } else { b'?' };
    let (mut texts, mut index) = (Vec::new(), Vec::new());
    for byte in 0..=u8::MAX {
        index.extend((texts.len() as u16).to_le_bytes());
        texts.extend([letters(byte), 0]);
    }
    let (mut names, mut marks) = (Vec::new(), Vec::new());
    for (number, (_, name)) in symbols.iter().enumerate() {
        if number % 256 == 0 {
            marks.extend((names.len() as u32).to_le_bytes());
        }
        names.push(name.len() as u8);
        names.extend(name.as_bytes());
    }
    if form == Form::Itself {
        let count = (symbols.len() as u32).to_le_bytes().to_vec();
        let mut tables = [count, padded(names), padded(marks), padded(texts), index].concat();
        for (address, _) in symbols {
            let here = at + tables.len() as u64;
            tables.extend((address.wrapping_sub(here) as u32).to_le_bytes());
        }
        return tables;
    }
    let addresses: Vec<u8> = symbols
        .iter()
        .flat_map(|(at, _)| ((TEXT - 1).wrapping_sub(*at) as u32).to_le_bytes())
        .collect();
    let addresses = [padded(addresses), TEXT.to_le_bytes().to_vec()].concat();
    let count = (symbols.len() as u64).to_le_bytes().to_vec();
    let names = [count, padded(names), padded(marks), padded(texts), index].concat();
    let order = if form == Form::After {
        [names, addresses]
    } else {
        [addresses, names]
    };
    order.concat()
}

/// An ELF file of these segments.
fn elf(segments: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = vec![0_u8; 64 + 56 * segments.len()];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..20].copy_from_slice(&[2, 0, 62, 0]); // ET_EXEC, EM_X86_64
    file[20] = 1;
    file[32] = 64;
    file[52] = 64;
    file[54] = 56;
    file[56] = segments.len() as u8;
    for (number, (at, bytes)) in segments.iter().enumerate() {
        let here = 64 + 56 * number;
        let offset = file.len() as u64;
        let len = bytes.len() as u64;
        let fields = [1 | 5 << 32, offset, *at, 0, len, len, 4096];
        for (field, value) in fields.into_iter().enumerate() {
            file[here + 8 * field..here + 8 * field + 8].copy_from_slice(&value.to_le_bytes());
        }
        file.extend(bytes);
    }
    file
}

fn vmlinux(form: Form) -> Vec<u8> {
    let parts = fixture().parts();
    let mut symbols: Vec<(u64, String)> = parts
        .kallsyms
        .lines()
        .map(|line| {
            let (at, name) = line.split_once(' ').unwrap();
            let at = u64::from_str_radix(at, 16).unwrap();
            (at, name.replacen(' ', "", 1))
        })
        .collect();
    let mut init = b"Linux version %s\0\0\0\0\0\0\0\0Linux version 6.1.0-test (x@y) #1\0".to_vec();
    init = padded(init);
    let mut table = |symbols: &mut Vec<(u64, String)>, start: &str, end: &str, bytes: &[u8]| {
        symbols.push((INIT + init.len() as u64, format!("D{start}")));
        init.extend(bytes);
        symbols.push((INIT + init.len() as u64, format!("D{end}")));
        init = padded(std::mem::take(&mut init));
        INIT + init.len() as u64
    };
    let g = Fixture::address(1).to_le_bytes();
    let next = table(
        &mut symbols,
        "__start_kprobe_blacklist",
        "__stop_kprobe_blacklist",
        &g,
    );
    let distance = |from: u64, to: u64| (to.wrapping_sub(from) as u32).to_le_bytes();
    let alternative = [
        distance(next, TEXT + 5).to_vec(),
        distance(next + 4, TEXT + 5).to_vec(),
        vec![1, 0, 0, 0, 3, 0],
    ];
    let next = table(
        &mut symbols,
        "__alt_instructions",
        "__alt_instructions_end",
        &alternative.concat(),
    );
    table(
        &mut symbols,
        "__return_sites",
        "__return_sites_end",
        &distance(next, TEXT + 8),
    );
    let mut filler = INIT + 0x10_0000;
    symbols.push((filler, "D_end".to_owned()));
    symbols.push((filler, "?__nosave_begin".to_owned()));
    while symbols.len() < 700 {
        filler += 8;
        symbols.push((filler, format!("dfiller{filler:x}")));
    }
    symbols.sort_by_key(|(at, _)| *at);
    // A table of the last form begins where no eight bytes do.
    init.extend([0; 4].repeat(usize::from(form == Form::Itself)));
    init.extend(tables(&symbols, form, INIT + init.len() as u64));
    let memory = parts.memory.into_iter().map(|(at, bytes)| (at.0, bytes));
    let mut segments: Vec<(u64, Vec<u8>)> = memory.collect();
    let notifier = [Fixture::address(4), 0, i32::MAX as u64].map(u64::to_le_bytes);
    segments.push((NOTIFIER, notifier.concat()));
    segments.push((INIT, init));
    elf(&segments)
}

/// Boot code with this payload, and the size it unpacks to.
fn bzimage(mut payload: Vec<u8>, size: usize) -> Vec<u8> {
    payload.extend((size as u32).to_le_bytes());
    let mut image = vec![0; 1024];
    image[0x1f1] = 1;
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
    image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    image.extend(payload);
    image
}

/// LZ4's older format, without anything compressed.
fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut block = vec![0xf0];
    let mut rest = bytes.len() - 15;
    while rest >= 255 {
        block.push(255);
        rest -= 255;
    }
    block.push(rest as u8);
    block.extend(bytes);
    let mut packed = vec![0x02, 0x21, 0x4c, 0x18];
    packed.extend((block.len() as u32).to_le_bytes());
    packed.extend(block);
    packed
}

fn vmlinuz() -> Vec<u8> {
    let kernel = vmlinux(Form::After);
    bzimage(
        zstd::encode_all(kernel.as_slice(), 3).unwrap(),
        kernel.len(),
    )
}

fn refused(bytes: &[u8]) -> String {
    Image::from_file(bytes).unwrap_err().to_string()
}

#[test]
fn a_kernel_is_read_from_every_form_of_file() {
    let kernel = vmlinux(Form::Before);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&kernel).unwrap();
    let mut gzip = gzip.finish().unwrap();
    gzip.truncate(gzip.len() - 4); // the size is its own last field
    let files = [
        kernel.clone(),
        vmlinux(Form::After),
        vmlinux(Form::Itself),
        vmlinuz(),
        bzimage(gzip, kernel.len()),
        bzimage(lz4(&kernel), kernel.len()),
    ];
    for file in files {
        let image = Image::from_file(&file).unwrap();
        assert!(!image.is_live());
        assert_eq!(image.release(), "6.1.0-test");
        let names: Vec<&str> = image.functions().iter().map(|f| f.name.as_str()).collect();
        assert_eq!(
            names,
            ["f", "g", "register_die_notifier", "subscribes", "notified"]
        );
        let rewritten: Vec<Span> = image
            .fixed()
            .iter()
            .filter(|site| site.why == Why::Alternative)
            .map(|site| site.span)
            .collect();
        let replaced = Span::new(Addr(TEXT + 5), 3);
        assert_eq!(rewritten, [replaced, Span::new(Addr(TEXT + 8), 1)]);
        let forbidden: [bool; 5] = std::array::from_fn(|number| {
            let at = Addr(Fixture::address(number));
            image.fixed().forbidden().any(|span| span.contains(at))
        });
        assert_eq!(forbidden, [false, true, false, false, true]);
    }
}

#[test]
fn files_that_are_no_such_kernel_have_errors_of_their_own() {
    assert!(refused(b"").contains("neither"));
    assert!(refused(b"#!/bin/sh\n").contains("neither"));
    let of = |at: usize, to: u8| {
        let mut file = vmlinux(Form::After);
        file[at] = to;
        refused(&file)
    };
    assert!(of(4, 1).contains("64 bits"));
    assert!(of(18, 183).contains("another processor"));
    assert!(of(16, 1).contains("module"));
    let size = vmlinux(Form::After).len();
    assert!(refused(&bzimage(b"BZh9".to_vec(), size)).contains("bzip2"));
    assert!(refused(&bzimage(lz4(&[7; 99]), usize::MAX)).contains("no kernel has"));
    let nothing = elf(&[(INIT, vec![0; 4096])]);
    assert!(refused(&nothing).contains("CONFIG_KALLSYMS"));
    // Few bytes that claim to be many: no more is unpacked than was said.
    let zeros = vec![0; 64 << 20];
    let bomb = bzimage(zstd::encode_all(zeros.as_slice(), 1).unwrap(), 4096);
    assert!(refused(&bomb).contains("size"));
}

#[test]
fn a_file_that_is_cut_off_is_refused() {
    for whole in [vmlinux(Form::After), vmlinux(Form::Itself), vmlinuz()] {
        for len in (0..whole.len()).step_by(23) {
            let error = Image::from_file(&whole[..len]).err();
            assert!(
                error.is_some(),
                "{len} of {} bytes were enough",
                whole.len()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn damage_is_refused_or_harmless(
        form in prop::sample::select(vec![Form::Before, Form::After, Form::Itself]),
        packed in any::<bool>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..6),
    ) {
        let mut file = if packed { vmlinuz() } else { vmlinux(form) };
        for (at, bit) in &flips {
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
        }
        // Either is right; it must not panic.
        let _ = FileParts::read(&file).map(|parts| super::build::build(&parts.parts, &ModuleParts::default(), Some(parts.boot)));
    }
}
