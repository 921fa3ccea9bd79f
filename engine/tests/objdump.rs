//! The decoder against objdump (GNU binutils): over the text of a kernel, every word of every
//! instruction; over random bytes, where an instruction ends and whether it is one.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "objdump/buffers.rs"]
mod buffers;
#[path = "objdump/dump.rs"]
mod dump;
#[path = "objdump/normal.rs"]
mod normal;
#[path = "relocation/random.rs"]
mod random;

use std::collections::BTreeMap;

use buffers::{Difference, Said, difference, newer, without_idle_rex};
use gilk_engine::cfg::Cfg;
use gilk_engine::code::Function;
use gilk_engine::kernel::LiveParts;
use gilk_engine::{Addr, Image, Span};
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use normal::{Notation, Writer, alike};
use random::Random;

/// A number from the environment.
fn set(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number"))
    })
}

/// Tally of a comparison of text.
#[derive(Default)]
struct Compared {
    functions: usize,
    instructions: usize,
    notations: BTreeMap<Notation, usize>,
    /// Functions with an instruction that this objdump does not know, read up to there.
    cut: Vec<String>,
    different: Vec<String>,
}

/// Every instruction that the engine sees, and none else, in the same words. All of the text if
/// `GILK_WHOLE` is set, else a part of it.
#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn a_kernel_reads_as_objdump_reads_it() {
    let path = std::env::var_os("GILK_IMAGE").expect("GILK_IMAGE must name a saved live image");
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    let image = Image::from_live(&parts).unwrap();
    let taken = if std::env::var_os("GILK_WHOLE").is_some() {
        3000
    } else {
        250
    };
    let mut compared = Compared::default();
    for functions in image.functions().chunks(3000) {
        compare(
            &image,
            functions.get(..taken).unwrap_or(functions),
            &mut compared,
        );
    }
    println!(
        "{} functions, {} instructions: {:?}; read up to an instruction newer than objdump: {:?}",
        compared.functions, compared.instructions, compared.notations, compared.cut
    );
    assert!(
        compared.different.is_empty(),
        "{} differ: {:#?}",
        compared.different.len(),
        compared.different
    );
    assert!(compared.cut.len() < 10);
    assert!(compared.functions > 2000 && compared.instructions > 100_000);
    let same = compared
        .notations
        .get(&Notation::Same)
        .copied()
        .unwrap_or_default();
    assert!(same * 100 > compared.instructions * 99, "most need no rule");
}

fn compare(image: &Image, functions: &[Function], compared: &mut Compared) {
    let (Some(first), Some(last)) = (functions.first(), functions.last()) else {
        return;
    };
    let span = Span {
        start: first.span.start,
        end: last.span.end,
    };
    // What stands between functions is read on its own, too.
    let ends = functions
        .iter()
        .flat_map(|function| [function.span.start, function.span.end]);
    let mut starts: Vec<u64> = ends.map(|at| at.0 - span.start.0).collect();
    starts.pop();
    starts.dedup();
    let graphs: Vec<Cfg> = functions
        .iter()
        .map(|function| Cfg::of(image, function.id))
        .collect();
    let (mut writer, mut current, mut met) = (Writer::new(), 0, 0);
    dump::disassemble(span.start.0, image.bytes(span).unwrap(), &starts, |line| {
        while graphs
            .get(current)
            .is_some_and(|cfg| cfg.span.end.0 <= line.at)
        {
            current += 1;
            met = 0;
        }
        let Some(cfg) = graphs
            .get(current)
            .filter(|cfg| cfg.span.contains(Addr(line.at)))
        else {
            return;
        };
        if cfg.blocks.is_empty() || compared.cut.last() == Some(&cfg.name) {
            return;
        }
        if met == 0 {
            compared.functions += 1;
        }
        met += 1;
        let known = cfg.block_at(Addr(line.at)).map(|block| {
            let mut own = block.instructions.iter();
            own.find(|instruction| instruction.ip() == line.at)
        });
        let ours = match known {
            Some(Some(instruction)) => instruction,
            // Padding, which is in no block.
            None => {
                let rest = Span {
                    start: Addr(line.at),
                    end: cfg.span.end,
                };
                let bytes = image.bytes(rest).unwrap();
                Decoder::with_ip(64, bytes, line.at, DecoderOptions::NONE).decode()
            }
            Some(None) => {
                compared.different.push(format!(
                    "{:#x} in {}: objdump has {:?} in the middle of an instruction",
                    line.at, cfg.name, line.text
                ));
                return;
            }
        };
        if newer(&ours) {
            compared.cut.push(cfg.name.clone());
            return;
        }
        compared.instructions += 1;
        let text = writer.text(&ours);
        match alike(&ours, text, line.text).filter(|_| ours.len() == line.len) {
            Some(notation) => *compared.notations.entry(notation).or_default() += 1,
            None => compared.different.push(format!(
                "{:#x} in {}: {text:?} is {:?} for objdump, {} and {} bytes",
                line.at,
                cfg.name,
                line.text,
                ours.len(),
                line.len
            )),
        }
    });
}

/// 20,000 buffers of 15 random bytes, or as many as `GILK_BUFFERS` says, by the seed `GILK_SEED`: the
/// same decision, the same length, the same target of a branch, or a difference that is known.
#[test]
fn random_bytes_read_as_objdump_reads_them() {
    let (count, seed) = (set("GILK_BUFFERS", 20_000), set("GILK_SEED", 1));
    let mut random = Random(seed);
    let buffers: Vec<Vec<u8>> = (0..count)
        .map(|number| {
            let mut bytes: Vec<u8> = [random.next(), random.next()]
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            bytes.truncate(15);
            // Every second one begins as instructions of two and three opcode bytes, or of vectors, do.
            if number % 2 == 1 {
                let leads: [&[u8]; 8] = [
                    &[0x0f],
                    &[0x0f, 0x38],
                    &[0x0f, 0x3a],
                    &[0x66, 0x0f],
                    &[0xf3, 0x0f],
                    &[0x48, 0x0f],
                    &[0xc5],
                    &[0xc4],
                ];
                let lead = leads[random.below(8) as usize];
                bytes[..lead.len()].copy_from_slice(lead);
            }
            bytes
        })
        .collect();
    let mut tally: BTreeMap<Option<Difference>, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let again = judge(&buffers, &mut tally, &mut wrong);
    // Bytes that confuse objdump are removed, and the rest is read again.
    judge(&again, &mut tally, &mut wrong);
    println!("seed {seed}: {tally:?}");
    assert!(
        wrong.is_empty(),
        "seed {seed}: {} differ without a reason: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(60)]
    );
    let same = tally.get(&None).copied().unwrap_or_default();
    assert!(same * 100 > buffers.len() * 90, "{tally:?}");
}

/// Returns the buffers to read again.
fn judge(
    buffers: &[Vec<u8>],
    tally: &mut BTreeMap<Option<Difference>, usize>,
    wrong: &mut Vec<String>,
) -> Vec<Vec<u8>> {
    // A nop follows every buffer, so that it ends at a round address.
    const SLOT: usize = 16;
    let mut text = vec![0x90; buffers.len() * SLOT];
    for (slot, bytes) in text.chunks_mut(SLOT).zip(buffers) {
        slot[..bytes.len()].copy_from_slice(bytes);
    }
    let starts: Vec<u64> = (0..buffers.len())
        .map(|number| (number * SLOT) as u64)
        .collect();
    let base = 0xffff_ffff_8100_0000;
    let (mut again, mut seen) = (Vec::new(), 0);
    dump::disassemble(base, &text, &starts, |line| {
        let offset = (line.at - base) as usize;
        if !offset.is_multiple_of(SLOT) {
            return;
        }
        seen += 1;
        let bytes = &text[offset..offset + 15];
        let ours = Decoder::with_ip(64, bytes, line.at, DecoderOptions::NONE).decode();
        let theirs = Said {
            len: line.len,
            text: line.text,
        };
        if agree(&ours, &theirs) {
            *tally.entry(None).or_default() += 1;
            return;
        }
        match difference(bytes, &ours, &theirs) {
            Some(reason) => {
                *tally.entry(Some(reason)).or_default() += 1;
                again.extend(without_idle_rex(bytes));
            }
            None => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                wrong.push(format!(
                    "{hex}: {:?} of {} bytes, and {:?} of {}",
                    ours.code(),
                    ours.len(),
                    line.text,
                    line.len
                ));
            }
        }
    });
    assert_eq!(seen, buffers.len(), "objdump left some out");
    again
}

fn agree(ours: &Instruction, theirs: &Said<'_>) -> bool {
    if ours.is_invalid() || theirs.bad() {
        return ours.is_invalid() && theirs.bad();
    }
    let near = (0..ours.op_count()).any(|n| ours.op_kind(n) == OpKind::NearBranch64);
    let target = theirs.text.rsplit(' ').next().unwrap_or_default();
    ours.len() == theirs.len
        && (!near || u64::from_str_radix(target, 16) == Ok(ours.near_branch_target()))
}
