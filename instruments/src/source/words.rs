//! The words of the language, each with one sentence: for completion, for suggestions, and for the
//! test that the reference leaves none out.

use gilk_samples::Meaning;

use crate::program::{Hook, Scope, Width};

/// The use of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordKind {
    /// Begins a statement of its own, or is a part of the first one.
    Keyword,
    /// A kind of hook.
    Hook,
    /// A value of the machine.
    Input,
    /// An aggregate's function, or another word before brackets.
    Function,
    /// A type to cast to.
    Type,
}

/// A word of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its text.
    pub word: &'static str,
    /// Its use.
    pub kind: WordKind,
    /// One sentence for a person.
    pub says: &'static str,
}

const fn word(word: &'static str, kind: WordKind, says: &'static str) -> Word {
    Word { word, kind, says }
}

/// Words that add up.
pub const AGGREGATES: [&str; 8] = [
    "count", "sum", "min", "max", "avg", "hist", "lhist", "values",
];

/// All words.
pub const WORDS: &[Word] = &[
    word(
        "instrument",
        WordKind::Keyword,
        "Begins the first statement: name and summary.",
    ),
    word(
        "unit",
        WordKind::Keyword,
        "The unit of the values, in the first statement.",
    ),
    word(
        "event",
        WordKind::Keyword,
        "The samples are moments: ticks on a lane.",
    ),
    word(
        "count",
        WordKind::Function,
        "How often: @n = count(). In the first statement: the samples are a running total.",
    ),
    word(
        "value",
        WordKind::Keyword,
        "The samples are quantities: points.",
    ),
    word(
        "duration",
        WordKind::Keyword,
        "The samples are times in ticks that end there: slices.",
    ),
    word(
        "level",
        WordKind::Keyword,
        "The samples are a number that holds until the next one: steps, and an average over time.",
    ),
    word(
        "block",
        WordKind::Input,
        "The index of the block. In the first statement: the samples are such indices.",
    ),
    word(
        "once",
        WordKind::Keyword,
        "The placement is taken out once it has been hit.",
    ),
    word(
        "shared",
        WordKind::Keyword,
        "Before a declaration: one variable for all instruments of the session.",
    ),
    word(
        "global",
        WordKind::Keyword,
        "Declares variables of which there is one.",
    ),
    word(
        "cpu",
        WordKind::Input,
        "The number of the processor. Before a declaration: one variable a processor.",
    ),
    word(
        "thread",
        WordKind::Keyword,
        "Declares variables of which there is one a thread.",
    ),
    word(
        "call",
        WordKind::Keyword,
        "Declares variables of which there is one a call of the function.",
    ),
    word(
        "hit",
        WordKind::Hook,
        "At the hook where the instrument is placed.",
    ),
    word("pre", WordKind::Hook, "Before the block."),
    word(
        "post",
        WordKind::Hook,
        "After the block, before its branch.",
    ),
    word(
        "entry",
        WordKind::Hook,
        "Before the function's first instruction.",
    ),
    word(
        "return",
        WordKind::Hook,
        "Before every return to the function's caller, also of functions that it tail-calls.",
    ),
    word(
        "leave",
        WordKind::Hook,
        "Before every instruction that leaves the function: returns, and jumps to other functions.",
    ),
    word(
        "taken",
        WordKind::Hook,
        "Where the block's conditional branch is taken.",
    ),
    word(
        "untaken",
        WordKind::Hook,
        "Where the block's conditional branch is not taken.",
    ),
    word(
        "sample",
        WordKind::Function,
        "Delivers a sample with this value: a number, comm or str(pointer).",
    ),
    word(
        "printf",
        WordKind::Function,
        "Delivers a line of text, formatted where it is read: printf(\"%s %d\", comm, arg1).",
    ),
    word(
        "ksym",
        WordKind::Function,
        "An address of the kernel, shown by %s of printf as its function: ksym(arg0).",
    ),
    word(
        "unroll",
        WordKind::Function,
        "Repeats statements: unroll(4) { @n = sum(arg1) }.",
    ),
    word(
        "delete",
        WordKind::Function,
        "Sets a variable to 0, which frees the entry of a thread's: delete(@start[tid]).",
    ),
    word(
        "retval",
        WordKind::Input,
        "What the function returns, in a return hook.",
    ),
    word(
        "reg",
        WordKind::Function,
        "A register as the code at the hook has it: reg(\"ax\").",
    ),
    word("pid", WordKind::Input, "The number of the process."),
    word("tid", WordKind::Input, "The number of the thread."),
    word(
        "comm",
        WordKind::Input,
        "The name of the thread, as a key, in samples and lines, or to be compared with a string.",
    ),
    word(
        "kstack",
        WordKind::Input,
        "The kernel's stack at the hook, for a key or a variable: @by[kstack] = count(); kstack(5) has 5 frames at most.",
    ),
    word(
        "ustack",
        WordKind::Input,
        "The stack of the running process, for a key or a variable, by its frame pointers, or with a process as the target by its unwind tables: @by[ustack] = count(); ustack(5) has 5 frames at most.",
    ),
    word(
        "usym",
        WordKind::Function,
        "An address of the running process, as a key, in samples and lines, where it is shown as its symbol: usym(address).",
    ),
    word(
        "uptr",
        WordKind::Function,
        "An address of the running process: str(uptr(arg1)), *(u64 *)uptr(arg1).",
    ),
    word(
        "str",
        WordKind::Function,
        "Text in memory, as a key, in samples and lines, or to be compared with a string: str(pointer).",
    ),
    word(
        "nsecs",
        WordKind::Input,
        "The kernel's monotonic clock, in nanoseconds.",
    ),
    word("tsc", WordKind::Input, "The time-stamp counter, in ticks."),
    word(
        "id",
        WordKind::Input,
        "The instrument's identifier at this hook, as in samples.",
    ),
    word(
        "curtask",
        WordKind::Input,
        "The running thread's struct task_struct.",
    ),
    word(
        "cycles",
        WordKind::Input,
        "The processor's counter of its cycles.",
    ),
    word(
        "instructions",
        WordKind::Input,
        "The processor's counter of instructions.",
    ),
    word(
        "ref_cycles",
        WordKind::Input,
        "The processor's counter of cycles of its steady clock.",
    ),
    word(
        "cache_references",
        WordKind::Input,
        "The processor's counter of accesses to the last level of cache.",
    ),
    word(
        "cache_misses",
        WordKind::Input,
        "The processor's counter of accesses that the cache did not have.",
    ),
    word(
        "branches",
        WordKind::Input,
        "The processor's counter of branches.",
    ),
    word(
        "branch_misses",
        WordKind::Input,
        "The processor's counter of branches that it foresaw wrongly.",
    ),
    word("sum", WordKind::Function, "Adds up values: @s = sum(arg1)."),
    word("min", WordKind::Function, "Keeps the smallest value."),
    word("max", WordKind::Function, "Keeps the largest value."),
    word("avg", WordKind::Function, "Keeps the mean of the values."),
    word(
        "hist",
        WordKind::Function,
        "Counts values by powers of two.",
    ),
    word(
        "lhist",
        WordKind::Function,
        "Counts values by equal steps: lhist(value, from, to, step).",
    ),
    word(
        "values",
        WordKind::Function,
        "Counts each value: values(expression) or values(expression, room).",
    ),
    word(
        "struct",
        WordKind::Type,
        "A structure of the kernel: (struct file *)arg0.",
    ),
    word("union", WordKind::Type, "A union of the kernel."),
    word(
        "enum",
        WordKind::Type,
        "An enumeration of the kernel, for the names of values: (enum req_op)arg1.",
    ),
    word("void", WordKind::Type, "What void * points to."),
    word("u8", WordKind::Type, "Eight bits without sign."),
    word("u16", WordKind::Type, "Sixteen bits without sign."),
    word("u32", WordKind::Type, "Thirty-two bits without sign."),
    word("u64", WordKind::Type, "Sixty-four bits without sign."),
    word("s8", WordKind::Type, "Eight bits with a sign."),
    word("s16", WordKind::Type, "Sixteen bits with a sign."),
    word("s32", WordKind::Type, "Thirty-two bits with a sign."),
    word("s64", WordKind::Type, "Sixty-four bits with a sign."),
];

/// The word's entry.
pub(crate) fn find(text: &str) -> Option<&'static Word> {
    WORDS.iter().find(|word| word.word == text)
}

/// Returns the words that complete a beginning, without arguments (`arg0`…) and names of the kernel's types.
pub fn complete(beginning: &str) -> impl Iterator<Item = &'static Word> {
    WORDS
        .iter()
        .filter(move |word| word.word.starts_with(beginning))
}

pub(crate) fn hook(text: &str) -> Option<Hook> {
    Hook::ALL.into_iter().find(|hook| hook.word() == text)
}

pub(crate) fn scope(text: &str) -> Option<Scope> {
    match text {
        "global" => Some(Scope::Global),
        "cpu" => Some(Scope::Cpu),
        "thread" => Some(Scope::Thread),
        "call" => Some(Scope::Call),
        _ => None,
    }
}

pub(crate) fn meaning(text: &str) -> Option<Meaning> {
    match text {
        "event" => Some(Meaning::Event),
        "count" => Some(Meaning::Count),
        "value" => Some(Meaning::Value),
        "duration" => Some(Meaning::Duration),
        "block" => Some(Meaning::Block),
        "level" => Some(Meaning::Level),
        _ => None,
    }
}

/// The width of an integer type's name, and whether it has a sign.
pub(crate) fn integer(text: &str) -> Option<(Width, bool)> {
    let signed = match text.get(..1)? {
        "s" => true,
        "u" => false,
        _ => return None,
    };
    let width = match text.get(1..)? {
        "8" => Width::B1,
        "16" => Width::B2,
        "32" => Width::B4,
        "64" => Width::B8,
        _ => return None,
    };
    Some((width, signed))
}

/// Returns the language's name for an integer type of C.
pub(crate) fn integer_of_c(text: &str) -> Option<&'static str> {
    Some(match text {
        "char" | "int8_t" | "__s8" => "s8",
        "short" | "int16_t" | "__s16" => "s16",
        "int" | "signed" | "int32_t" | "__s32" | "pid_t" => "s32",
        "long" | "int64_t" | "__s64" | "ssize_t" | "loff_t" | "off_t" => "s64",
        "bool" | "uint8_t" | "__u8" => "u8",
        "uint16_t" | "__u16" => "u16",
        "unsigned" | "uint" | "uint32_t" | "__u32" | "gfp_t" => "u32",
        "ulong" | "uint64_t" | "__u64" | "size_t" | "uintptr_t" => "u64",
        _ => return None,
    })
}
