//! Instructions that can be run in this process, and the reasons for the others.

use iced_x86::{CpuidFeature, Instruction, Mnemonic, OpKind, Register};

/// Features that every x86-64 processor has in user space, for registers, flags and plain memory.
const FEATURES: [CpuidFeature; 18] = [
    CpuidFeature::INTEL8086,
    CpuidFeature::INTEL186,
    CpuidFeature::INTEL286,
    CpuidFeature::INTEL386,
    CpuidFeature::INTEL486,
    CpuidFeature::X64,
    CpuidFeature::CMOV,
    CpuidFeature::CPUID,
    CpuidFeature::CX8,
    CpuidFeature::CMPXCHG16B,
    CpuidFeature::POPCNT,
    CpuidFeature::MULTIBYTENOP,
    CpuidFeature::PAUSE,
    CpuidFeature::SSE,
    CpuidFeature::SSE2,
    CpuidFeature::CLFSH,
    // A nop where it is missing; so is lzcnt's prefix.
    CpuidFeature::PREFETCHW,
    CpuidFeature::LZCNT,
];

/// Returns whether the processor has an optional feature.
fn detected(feature: CpuidFeature) -> bool {
    match feature {
        CpuidFeature::BMI1 => std::arch::is_x86_feature_detected!("bmi1"),
        CpuidFeature::BMI2 => std::arch::is_x86_feature_detected!("bmi2"),
        CpuidFeature::SSSE3 => std::arch::is_x86_feature_detected!("ssse3"),
        CpuidFeature::AVX => std::arch::is_x86_feature_detected!("avx"),
        CpuidFeature::AVX2 => std::arch::is_x86_feature_detected!("avx2"),
        CpuidFeature::AVX512F => std::arch::is_x86_feature_detected!("avx512f"),
        CpuidFeature::AVX512VL => std::arch::is_x86_feature_detected!("avx512vl"),
        CpuidFeature::XSAVE => std::arch::is_x86_feature_detected!("xsave"),
        other => FEATURES.contains(&other),
    }
}

/// Returns whether the instruction can be run here with a result that only depends on the state.
pub(crate) fn runs_here(instruction: &Instruction) -> bool {
    let allowed = instruction
        .cpuid_features()
        .iter()
        .all(|&feature| detected(feature));
    let plain = (0..instruction.op_count()).all(|n| {
        let register = instruction.op_register(n);
        let segment = match (register, n) {
            // Empty, they mean nothing in 64-bit mode.
            (Register::DS | Register::ES, _) => true,
            (register, 1) => register.is_segment_register(),
            _ => false,
        };
        instruction.op_kind(n) != OpKind::Register
            || register.is_gpr()
            || register.is_vector_register()
            || segment
    });
    allowed
        && plain
        && system(instruction).is_none()
        && !instruction.is_privileged()
        && instruction.segment_prefix() != Register::FS
        && instruction.memory_base().size() != 4
        && instruction.memory_index().size() != 4
}

/// Returns the reason why a movable instruction cannot be run in user space.
pub(crate) fn system(instruction: &Instruction) -> Option<&'static str> {
    Some(match instruction.mnemonic() {
        Mnemonic::In
        | Mnemonic::Out
        | Mnemonic::Insb
        | Mnemonic::Insd
        | Mnemonic::Insw
        | Mnemonic::Outsb
        | Mnemonic::Outsd
        | Mnemonic::Outsw => "input and output",
        Mnemonic::Cli
        | Mnemonic::Stac
        | Mnemonic::Clac
        | Mnemonic::Invlpg
        | Mnemonic::Invpcid
        | Mnemonic::Wbinvd
        | Mnemonic::Rdmsr
        | Mnemonic::Rdpmc
        | Mnemonic::Xsetbv
        | Mnemonic::Xsaves
        | Mnemonic::Xsaves64
        | Mnemonic::Lkgs
        | Mnemonic::Encls
        | Mnemonic::Stgi
        | Mnemonic::Pvalidate
        | Mnemonic::Rmpadjust
        | Mnemonic::Wrussq
        | Mnemonic::Wrussd => "only the kernel may",
        Mnemonic::Mov if privileged_move(instruction) => "only the kernel may",
        Mnemonic::Sgdt | Mnemonic::Sidt | Mnemonic::Sldt | Mnemonic::Str | Mnemonic::Smsw => {
            "user-mode instruction prevention"
        }
        Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Rdrand | Mnemonic::Rdseed => {
            "gives something else every time"
        }
        Mnemonic::Rdfsbase
        | Mnemonic::Wrfsbase
        | Mnemonic::Rdgsbase
        | Mnemonic::Rdpkru
        | Mnemonic::Wrpkru => "the kernel may not have turned it on",
        Mnemonic::Ldmxcsr
        | Mnemonic::Fxrstor64
        | Mnemonic::Fxsave64
        | Mnemonic::Xrstor64
        | Mnemonic::Xsave64
        | Mnemonic::Xsaveopt64
        | Mnemonic::Emms
        | Mnemonic::Fild
        | Mnemonic::Fnclex
        | Mnemonic::Fninit
        | Mnemonic::Tilerelease => "it is about state that is not compared",
        Mnemonic::Clflushopt | Mnemonic::Clwb | Mnemonic::Serialize | Mnemonic::Tpause => {
            "few processors have it, and it changes nothing that is compared"
        }
        _ => return None,
    })
}

/// Control and debug registers, and segments that mean something in 64-bit mode.
fn privileged_move(instruction: &Instruction) -> bool {
    let (to, from) = (instruction.op0_register(), instruction.op1_register());
    let special = |register: Register| register.is_cr() || register.is_dr();
    special(to)
        || special(from)
        || to.is_segment_register() && !matches!(to, Register::DS | Register::ES)
}
