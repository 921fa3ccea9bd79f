//! Damaged files: an error that names the damage, or an image, and never a panic.

use gilk_engine::Image;
use gilk_engine::cfg::Cfg;
use gilk_engine::elf::ElfParts;

use crate::random::Random;
use crate::set;

fn read(file: &[u8]) -> bool {
    match Image::from_elf(&ElfParts::of_file("damaged", file)) {
        Ok(image) => {
            for function in image.functions().iter().take(40) {
                let cfg = Cfg::of(&image, function.id);
                assert!(cfg.refusal.is_some() || !cfg.blocks.is_empty());
            }
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("The ELF file cannot be used: "), "{text}");
            false
        }
    }
}

/// Returns a file that is cut off, or words of which are overwritten, at places that are chosen for its length.
pub(super) fn damage(
    random: &mut Random,
    whole: &[u8],
    place: impl Fn(&mut Random, u64) -> u64,
) -> Vec<u8> {
    let mut file = whole.to_vec();
    if random.below(4) == 0 {
        file.truncate(random.below(whole.len() as u64) as usize);
    }
    for _ in 0..=random.below(6) {
        let at = place(random, (file.len() as u64).max(1));
        let word = match random.below(4) {
            0 => random.next(),
            1 => u64::MAX,
            2 => random.below(0x1_0000),
            _ => 0,
        };
        let bytes = 1 << random.below(4);
        let places = file.iter_mut().skip(at as usize);
        for (byte, new) in places.zip(&word.to_le_bytes()[..bytes]) {
            *byte = *new;
        }
    }
    file
}

/// `GILK_DAMAGED` files, 50 otherwise, by the seed `GILK_SEED`: cut off, or with words overwritten, most of
/// them in headers and tables.
#[test]
fn damaged_files_are_refused_or_read() {
    let whole = std::fs::read("/usr/bin/true").unwrap();
    let mut random = Random(set("GILK_SEED", 1));
    let (mut read_all, mut refused) = (0, 0);
    for _ in 0..set("GILK_DAMAGED", 50) {
        let file = damage(&mut random, &whole, |random, len| match random.below(4) {
            0 => random.below(len),
            1 => random.below(1024.min(len)),
            // Section headers are at the end.
            2 => len.saturating_sub(1 + random.below(2048)),
            _ => random.below(0x3000.min(len)),
        });
        match read(&file) {
            true => read_all += 1,
            false => refused += 1,
        }
    }
    println!("{read_all} read, {refused} refused");
    assert!(
        read_all > 10 && refused > 10,
        "{read_all} read, {refused} refused"
    );
}

/// A number of the file, little-endian.
fn number(file: &[u8], at: usize, bytes: usize) -> u64 {
    let bytes = file[at..at + bytes].iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Offsets of the headers of a table of the file, by the fields of its header (System V ABI, 4): the offset of
/// the table, and of the size and number of entries.
fn headers(file: &[u8], [table, size, count]: [usize; 3]) -> Vec<usize> {
    let (table, size) = (number(file, table, 8), number(file, size, 2));
    let headers = 0..number(file, count, 2);
    headers.map(|n| (table + n * size) as usize).collect()
}

#[test]
fn what_the_headers_promise_and_the_file_lacks_is_named() {
    let refused = |file: &[u8], reason: &str| {
        let error = Image::from_elf(&ElfParts::of_file("damaged", file)).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    };
    let whole = std::fs::read("/usr/bin/true").unwrap();

    // The last loaded segment has eight bytes in the file.
    let programs = headers(&whole, [0x20, 0x36, 0x38]);
    let loaded = programs.iter().filter(|&&at| number(&whole, at, 4) == 1);
    let mut file = whole.clone();
    let filled = *loaded.max().unwrap() + 0x20;
    file[filled..filled + 8].copy_from_slice(&8_u64.to_le_bytes());
    refused(&file, "are not loaded");

    // A relocation by a symbol (R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT) names one after the last.
    let sections = headers(&whole, [0x28, 0x3a, 0x3c]);
    let tables = sections
        .iter()
        .filter(|&&at| number(&whole, at + 4, 4) == 4);
    let relocations = tables.flat_map(|&at| {
        let [start, len] = [0x18, 0x20].map(|field| number(&whole, at + field, 8));
        (start..start + len).step_by(24)
    });
    let by_symbol = relocations
        .map(|at| at as usize)
        .find(|&at| matches!(number(&whole, at + 8, 4), 6 | 7));
    let mut file = whole.clone();
    let symbol = by_symbol.unwrap() + 12;
    file[symbol..symbol + 4].copy_from_slice(&0xff_ffff_u32.to_le_bytes());
    refused(&file, "its relocations are damaged");
}

#[test]
fn other_files_are_refused_by_name() {
    for (file, reason) in [
        (&b"hello"[..], "not an ELF file"),
        (b"\x7fELF\x01\x01", "not an ELF file of 64 bits"),
        (b"\x7fELF\x02\x01", "header is damaged"),
    ] {
        let error = Image::from_elf(&ElfParts::of_file("other", file)).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}
