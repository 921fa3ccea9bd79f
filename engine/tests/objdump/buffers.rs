//! Differences between the decoder and objdump on bytes that no compiler writes, with their reasons.

use iced_x86::{Code, CpuidFeature, Instruction, Mnemonic};

/// A known difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    /// `lock` in front of what does not take it raises #UD (Intel's manual, LOCK); objdump prints it.
    Lock,
    /// Segment register 6 or 7, or `mov cs`, raises #UD (MOV); objdump prints `?`, or `cs`.
    NoSegment,
    /// A REX prefix in front of another prefix is ignored (Intel's manual, 2.2.1); objdump prints it alone,
    /// as an instruction.
    IdleRex,
    /// `fwait` is an instruction of its own; objdump prints it and the next as one.
    Wait,
    /// An encoding that processors run although no manual lists it, or that is reserved as a nop.
    Undocumented,
    /// A branch with an operand-size prefix has a target of 32 bits on Intel's processors, of 16 on
    /// AMD's, as which objdump reads it.
    ShortBranch,
    /// VEX, EVEX and XOP after REX, 66, f2, f3 or lock raise #UD; objdump continues. So do fields of them
    /// that must have one value.
    Vector,
    /// 66, f2 or f3 in front of an opcode for which the manual says NP (no prefix). One of the two refuses
    /// it, the other reads over it.
    Prefix,
    /// Operands that raise #UD: registers that are not there, memory where only registers may stand.
    Operand,
    /// An instruction that came after binutils 2.40.
    Newer,
    /// An instruction that came after the decoder, as binutils 2.44 knows: REX2 of Intel's APX, and MOVRS.
    Later,
    /// `frstpm` of the 80287, which objdump still knows.
    Obsolete,
    /// VIA's PadLock, of which objdump knows some, and those only without other prefixes.
    PadLock,
}

/// Objdump's output for a buffer.
pub(crate) struct Said<'a> {
    pub(crate) len: usize,
    pub(crate) text: &'a str,
}

impl Said<'_> {
    pub(crate) fn bad(&self) -> bool {
        self.text.contains("(bad)") || self.text.starts_with(".byte") || self.text.is_empty()
    }
}

/// Extensions that binutils 2.40 does not know.
const NEWER: [CpuidFeature; 7] = [
    CpuidFeature::AVX_VNNI_INT16,
    CpuidFeature::SHA512,
    CpuidFeature::SM3,
    CpuidFeature::SM4,
    CpuidFeature::LKGS,
    CpuidFeature::FRED,
    CpuidFeature::AMX_COMPLEX,
];

/// Returns whether binutils 2.40 does not know the instruction.
pub(crate) fn newer(instruction: &Instruction) -> bool {
    instruction.code() == Code::Pbndkb
        || instruction
            .cpuid_features()
            .iter()
            .any(|feature| NEWER.contains(feature))
}

fn is_legacy_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

fn is_rex(byte: u8) -> bool {
    byte & 0xf0 == 0x40
}

/// The prefixes of a buffer, and the rest.
fn prefixes(bytes: &[u8]) -> (&[u8], &[u8]) {
    let count = bytes
        .iter()
        .take_while(|&&byte| is_legacy_prefix(byte) || is_rex(byte))
        .count();
    bytes.split_at(count)
}

/// The buffer without REX prefixes that are ignored, if it has any.
pub(crate) fn without_idle_rex(bytes: &[u8]) -> Option<Vec<u8>> {
    let (prefixes, rest) = prefixes(bytes);
    let last = prefixes.len().checked_sub(1)?;
    let used = |&(number, &byte): &(usize, &u8)| !is_rex(byte) || number == last;
    let mut kept: Vec<u8> = prefixes
        .iter()
        .enumerate()
        .filter(used)
        .map(|(_, &byte)| byte)
        .collect();
    if kept.len() == prefixes.len() {
        return None;
    }
    kept.extend(rest);
    Some(kept)
}

/// Returns the reason why the two may differ over these bytes, if there is one.
pub(crate) fn difference(
    bytes: &[u8],
    ours: &Instruction,
    theirs: &Said<'_>,
) -> Option<Difference> {
    let (before, opcode) = prefixes(bytes);
    if without_idle_rex(bytes).is_some() {
        return Some(Difference::IdleRex);
    }
    if ours.is_invalid() {
        let prefixed = before.iter().any(|byte| matches!(byte, 0x66 | 0xf2 | 0xf3));
        let vector = matches!(opcode, [0xc4 | 0xc5 | 0x62, ..] | [0x8f, ..]);
        return match opcode {
            _ if vector => Some(Difference::Vector),
            _ if before.contains(&0xf0) => Some(Difference::Lock),
            [0x8c | 0x8e, ..] => Some(Difference::NoSegment),
            [0xd5, ..] | [0x0f, 0x38, 0x8a | 0x8b, ..] => Some(Difference::Later),
            [0x0f, 0xa6 | 0xa7, ..] => Some(Difference::PadLock),
            [0xdb, 0xe5, ..] => Some(Difference::Obsolete),
            // Control registers 1, 5, 6, 7 …, debug registers above 7.
            [0x0f, 0x20..=0x23, ..] => Some(Difference::Operand),
            [0x0f, ..] if prefixed => Some(Difference::Prefix),
            _ if theirs.text.contains('?') => Some(Difference::Operand),
            _ => None,
        };
    }
    if ours.mnemonic() == Mnemonic::Wait {
        return Some(Difference::Wait);
    }
    if theirs.bad() {
        let prefixed = before.iter().any(|byte| matches!(byte, 0x66 | 0xf2 | 0xf3));
        let unused = matches!(ours.code(), Code::Wbinvd | Code::Vmmcall);
        return match opcode {
            [0x0f, 0xa6 | 0xa7, ..] => Some(Difference::PadLock),
            _ if newer(ours) => Some(Difference::Newer),
            _ if undocumented(ours) => Some(Difference::Undocumented),
            _ if prefixed && unused => Some(Difference::Prefix),
            _ => None,
        };
    }
    let branch = ours.near_branch_target() != 0 || matches!(ours.code(), Code::Xbegin_rel32);
    (branch && before.contains(&0x66)).then_some(Difference::ShortBranch)
}

fn undocumented(instruction: &Instruction) -> bool {
    let name = format!("{:?}", instruction.code());
    let x87 = [
        "_DFD0", "_DFD8", "_DFC8", "_DDC8", "_DCD0", "_DCD8", "_DED0",
    ];
    x87.iter().any(|tail| name.ends_with(tail))
        || instruction.code() == Code::Fstpnce_sti
        || name.starts_with("Reservednop")
        || ["Lfence_", "Mfence_", "Sfence_"]
            .iter()
            .any(|fence| name.starts_with(fence))
}
