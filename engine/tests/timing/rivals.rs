//! The same instruments without a patch: compiled into the function, called from it, or by a trap.

use std::fs;
use std::process::Command;

use iced_x86::code_asm::{CodeAssembler, qword_ptr, r8, r9, r10, r11, rax, rcx, rdi, rdx, rsi};
use object::read::{Object, ObjectSection};

use super::target::{
    COUNTERS, Change, Changes, HEAD, LIMIT, LOST_FULL, RINGS, SHIFT, Target, WORDS,
};
use super::trees::{LEAF, LEAF_ROOM, Tree};
use super::tried::Tried;

/// An instrument of [`Leaf::Plain`](super::trees::Leaf::Plain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rival {
    /// A counter in the function's source.
    CompiledCounter,
    /// A sample with time in the function's source.
    CompiledSample,
    /// A call of code that saves registers and flags, and calls a counter.
    Called,
    /// An `int3`, and a signal handler that counts.
    Trap,
    /// A system call of no number, and a counter.
    SystemCall,
    /// A jump to a patch that was written by hand.
    Tried(Tried),
}

impl Rival {
    /// The changes of the leaf that place it.
    pub(crate) fn changes(self, target: &mut Target, tree: &Tree) -> Changes {
        let leaf = tree.functions.iter().find(|code| code.name == LEAF);
        let leaf = leaf.expect("the tree has a leaf");
        let at = leaf.at - SHIFT;
        let nop = leaf.bytes[..5].to_vec();
        let change = match self {
            Self::CompiledCounter | Self::CompiledSample => {
                let plain = compiled("");
                let action = if self == Self::CompiledCounter {
                    "COUNT += 1;"
                } else {
                    "sample();"
                };
                let after = compiled(action);
                Change {
                    at,
                    before: plain,
                    after,
                }
            }
            Self::Called => transfer(0xe8, target.stub(&saving()), at, nop),
            Self::Tried(tried) => {
                let stub = target.stub(&|a| tried.write(a, at + 5));
                transfer(0xe9, stub, at, nop)
            }
            Self::SystemCall => {
                let stub = target.stub(&|a| refused_call(a, at + 5));
                transfer(0xe9, stub, at, nop)
            }
            Self::Trap => {
                handle_traps();
                // An int3 and a nop of four bytes.
                let after = vec![0xcc, 0x0f, 0x1f, 0x40, 0x00];
                Change {
                    at,
                    before: nop,
                    after,
                }
            }
        };
        assert!(change.after.len() as u64 <= LEAF_ROOM);
        Changes(vec![change])
    }
}

/// Places a call of a stub, or a jump to it, over the function's first nop.
fn transfer(opcode: u8, stub: u64, at: u64, nop: Vec<u8>) -> Change {
    let displacement = i32::try_from(stub.cast_signed() - (at as i64 + 5)).unwrap();
    Change {
        at,
        before: nop,
        after: [&[opcode][..], &displacement.to_le_bytes()].concat(),
    }
}

/// Writes a system call of no number, which changes rax, rcx and r11, and a counter.
fn refused_call(a: &mut CodeAssembler, back: u64) -> Result<(), iced_x86::IcedError> {
    a.mov(rax, -1_i64)?;
    a.syscall()?;
    a.inc(qword_ptr(COUNTERS).gs())?;
    a.jmp(back)
}

/// Code that saves what a called function may change, and calls one that counts.
fn saving() -> impl Fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError> {
    |a| {
        let saved = [rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11];
        let mut counts = a.create_label();
        a.pushfq()?;
        for register in saved {
            a.push(register)?;
        }
        a.call(counts)?;
        for register in saved.into_iter().rev() {
            a.pop(register)?;
        }
        a.popfq()?;
        a.ret()?;
        a.set_label(&mut counts)?;
        a.inc(qword_ptr(COUNTERS).gs())?;
        a.ret()
    }
}

/// Compiles the leaf with an action at its start; the code does not depend on its address.
fn compiled(action: &str) -> Vec<u8> {
    let source = format!(
        "typedef unsigned long u64;
         #define WORD(at) (*(__seg_gs volatile u64 *)(at))
         #define COUNT (*(__seg_gs u64 *){COUNTERS:#x})
         static inline void sample(void) {{
             u64 head, seen, ticks; _Bool same;
             do {{
                 head = seen = WORD({HEAD:#x});
                 if (head == WORD({LIMIT:#x})) {{ WORD({LOST_FULL:#x}) += 1; return; }}
                 ticks = __builtin_ia32_rdtsc();
                 __asm__ volatile(\"cmpxchgq %2, %%gs:%c3\" : \"=@ccz\"(same), \"+a\"(seen)
                     : \"r\"(head + 0x10000), \"i\"({HEAD:#x}) : \"memory\");
             }} while (!same);
             u64 *slot = (u64 *)({RINGS:#x} + ((head >> 16 & 0xffff) << 5));
             slot[2] = ticks; slot[1] = ticks; slot[3] = 1;
             *(volatile u64 *)slot = head;
         }}
         u64 leaf(u64 a, u64 b) {{ {action} return (a + b) ^ 0x5a5a; }}"
    );
    let file = object_of_c(&source, &["-fno-reorder-blocks-and-partition"]);
    let file = object::File::parse(&*file).unwrap();
    let text = file.section_by_name(".text").unwrap();
    assert_eq!(text.relocations().count(), 0, "the code is complete");
    text.data().unwrap().to_vec()
}

/// Compiles a source in C as a kernel's is.
pub(crate) fn object_of_c(source: &str, options: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("code.c"), folder.path().join("code.o"));
    fs::write(&from, source).unwrap();
    let done = Command::new("cc")
        .args(["-O2", "-c", "-fno-pic", "-fcf-protection=none"])
        .args(["-fno-asynchronous-unwind-tables", "-fno-stack-protector"])
        .args(options)
        .arg("-o")
        .arg(&to)
        .arg(&from)
        .output()
        .unwrap_or_else(|error| panic!("cc: {error}"));
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    fs::read(&to).unwrap()
}

/// Has traps counted, for the whole process.
fn handle_traps() {
    extern "C" fn count(_: i32) {
        let word = (WORDS + COUNTERS) as *mut u64;
        #[allow(unsafe_code, reason = "counts in a mapped word")]
        // SAFETY: traps come only while a target runs, which has the word mapped, on this thread alone.
        unsafe {
            word.write_volatile(word.read_volatile() + 1);
        }
    }
    #[allow(unsafe_code, reason = "sets a signal handler")]
    // SAFETY: the handler is async-signal-safe; an action of zeroes has no flags and an empty mask.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut())
    };
    assert_eq!(set, 0);
}
