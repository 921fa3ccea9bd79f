//! The module's own unwinder in this process, with the tables of a kernel's file, and stacks of that kernel: return
//! addresses after calls in its text, each frame as large as the kernel's row says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gilk_engine::kernel::FileParts;
use gilk_engine::{Addr, Image};
use iced_x86::{Code as Op, Decoder, DecoderOptions};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use super::host::Mapping;
use super::numbers::Random;
use super::target::{SHIFT, TEXT, TEXT_BYTES};
use super::trees::FTRACE_NOP;

/// The address that the unwinder is linked at.
const UNWINDER: u64 = 0x2800_0000;
/// Bytes of text for each entry of the lookup table (`LOOKUP_BLOCK_SIZE` of arch/x86/include/asm/orc_lookup.h).
const LOOKUP_BLOCK: u64 = 256;
/// The function in whose place the hooked one is: many call it.
const CALLED: &str = "kfree";
/// Frames of each stack, the called function's included.
pub(crate) const FRAMES: usize = 34;
/// Bytes of a frame that is found by rbp, whose size no row has.
const FRAME_OF_RBP: u64 = 96;
/// Memory of a stack: for the frames, and below them for what the hooked function and the unwinder push.
const STACK_BYTES: usize = 64 << 10;
const BELOW: u64 = 16 << 10;

/// Numbers of registers in rows (arch/x86/include/asm/orc_types.h).
const BY_UNDEFINED: i64 = 0;
const BY_END: i64 = 1;
const BY_RBP: i64 = 4;
const BY_RSP: i64 = 5;

/// The unwinder of `ilk-driver/kmod/stack.c`, and a kernel's tables.
#[derive(Debug)]
pub(crate) struct Unwinder {
    /// The code that generated code calls (`ilk_stack_entry`), in this process.
    pub(crate) entry: u64,
    begin: u64,
    row: u64,
    stack: u64,
    words: Box<[u64; 7]>,
    image: Image,
    _code: Mapping,
    _rows: Mapping,
    _lookup: Box<[u32]>,
}

/// A stack, as the function finds it that is called last.
#[derive(Debug)]
pub(crate) struct Stack {
    /// The address of the function's call, in this process.
    pub(crate) call: u64,
    /// rsp and rbp before the call.
    pub(crate) rsp: u64,
    pub(crate) rbp: u64,
    /// The hooked instruction, which follows the tracer's nop at the function's entry, and the return addresses.
    pub(crate) frames: Vec<u64>,
    _memory: Mapping,
}

/// Stacks that end in calls of one function.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// The address of the function, in the plan.
    pub(crate) function: u64,
    pub(crate) stacks: Vec<Stack>,
}

/// A row of the unwinder's table for code that was called in the usual way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    end_by: i64,
    end_offset: i64,
    rbp_by: i64,
    rbp_offset: i64,
}

impl Unwinder {
    /// Builds the unwinder with the headers of the kernel that `GILK_VMLINUZ` names, if it does, and maps its tables.
    pub(crate) fn of_environment() -> Option<Self> {
        let vmlinuz = PathBuf::from(std::env::var_os("GILK_VMLINUZ")?);
        let bytes = fs::read(&vmlinuz).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let code = built(&headers(&vmlinuz), folder.path());
        let code = object::File::parse(&*code).unwrap();
        let address = |name: &str| {
            let mut symbols = code.symbols();
            let found = symbols.find(|symbol| symbol.name() == Ok(name));
            found
                .unwrap_or_else(|| panic!("the unwinder has no {name}"))
                .address()
        };
        let image = Image::from_file(&bytes).unwrap();
        let tables = Tables::of(&bytes);
        let rows = tables.mapped();
        let lookup = tables.lookup(&image);
        let first = lookup.as_ptr() as u64;
        let words = Box::new([
            image.text().start.0 - SHIFT,
            tables.text_end - SHIFT,
            tables.ip.at - SHIFT,
            tables.ip.at - SHIFT + tables.ip.bytes.len() as u64,
            tables.orc.at - SHIFT,
            first,
            first + 4 * lookup.len() as u64,
        ]);
        let mut unwinder = Self {
            entry: address("ilk_stack_entry"),
            begin: address("unwinder_begin"),
            row: address("unwinder_row"),
            stack: address("unwinder_stack"),
            words,
            image,
            _code: mapped(&code),
            _rows: rows,
            _lookup: lookup,
        };
        unwinder.forget();
        Some(unwinder)
    }

    /// Forgets the stacks that were seen.
    pub(crate) fn forget(&mut self) {
        #[allow(unsafe_code, reason = "calls the unwinder")]
        // SAFETY: `mapped` has the function at its address, and the words are those of its structure.
        unsafe {
            let begin: extern "C" fn(*const u64) = std::mem::transmute(self.begin as *const ());
            begin(self.words.as_ptr());
        }
    }

    /// Returns the frames of the stack that was seen as the `place`th new one.
    pub(crate) fn seen(&self, place: u32) -> Option<Vec<u64>> {
        #[allow(unsafe_code, reason = "calls the unwinder")]
        // SAFETY: `mapped` has the function at its address. It returns the address of struct ilk_stack of ilk_abi.h: a
        // number, a count of 32 bits, as many of others, a process, and the frames.
        unsafe {
            let stack: extern "C" fn(u32) -> *const u64 =
                std::mem::transmute(self.stack as *const ());
            let stack = stack(place);
            let count = stack.as_ref().map(|_| *stack.add(1) as u32 as usize)?;
            Some((0..count).map(|frame| *stack.add(3 + frame)).collect())
        }
    }

    /// Returns the row of an address of the plan.
    fn row(&self, at: u64) -> Option<Row> {
        let mut row = [0_i64; 4];
        #[allow(unsafe_code, reason = "calls the unwinder")]
        // SAFETY: `mapped` has the function at its address; it writes four words.
        let found = unsafe {
            let read: extern "C" fn(u64, *mut i64) -> i32 =
                std::mem::transmute(self.row as *const ());
            read(at - SHIFT, row.as_mut_ptr())
        };
        let [end_by, end_offset, rbp_by, rbp_offset] = row;
        (found != 0).then_some(Row {
            end_by,
            end_offset,
            rbp_by,
            rbp_offset,
        })
    }

    /// Makes so many stacks, whose callers are different functions.
    pub(crate) fn stacks(&self, count: usize) -> Stacks {
        let function = self.image.function_named(CALLED).unwrap().span.start.0;
        let calls = CallGraph::of(self.calls());
        let mut random = Random(1);
        let mut callers = calls.callers(function, FRAMES - 2);
        shuffle(&mut callers, &mut random);
        let mut used = Vec::new();
        let mut stacks = Vec::new();
        for call in callers {
            if stacks.len() == count {
                break;
            }
            if used.contains(&call.caller) {
                continue;
            }
            let mut way = Vec::new();
            // A way that ends in many short ones is left for another soon.
            if (0..8).any(|_| {
                way = vec![call];
                calls.lengthen(function, &mut way, &mut 1024, &mut random)
            }) {
                used.push(call.caller);
                stacks.push(self.stack(function, &way));
            }
        }
        assert_eq!(stacks.len(), count, "stacks of {CALLED}");
        Stacks { function, stacks }
    }

    /// Returns the calls in the kernel's text of each function that the unwinder can step over, by the function.
    fn calls(&self) -> BTreeMap<u64, Vec<Call>> {
        let mut calls: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
        let end = TEXT + TEXT_BYTES as u64;
        for function in self.image.functions() {
            let bytes = self.image.bytes(function.span).unwrap();
            let start = function.span.start.0;
            for one in Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
                let entered = self.image.function_at(Addr(one.near_branch64()));
                let is_entry = entered.is_some_and(|entered| {
                    entered.span.start.0 == one.near_branch64() && entered.span.start.0 != start
                });
                let is_call = one.code() == Op::Call_rel32_64 && is_entry && one.next_ip() < end;
                let row = if is_call {
                    self.row(one.next_ip() - 1)
                } else {
                    None
                };
                if row.is_some_and(Row::is_usual) {
                    let callee = calls.entry(one.near_branch64()).or_default();
                    callee.push(Call {
                        caller: start,
                        at: one.ip(),
                    });
                }
            }
        }
        calls
    }

    /// Lays out the frames of calls, the innermost first.
    fn stack(&self, function: u64, way: &[Call]) -> Stack {
        let mut memory = Mapping::anywhere(STACK_BYTES);
        let base = memory.start();
        let top = base + STACK_BYTES as u64;
        let hooked = function + FTRACE_NOP.len() as u64;
        let entry = self.row(hooked).unwrap();
        assert_eq!((entry.end_by, entry.end_offset), (BY_RSP, 8), "{CALLED}");
        let frames = way.iter().map(|call| call.at + CALL_BYTES - SHIFT);
        let frames: Vec<u64> = std::iter::once(hooked - SHIFT).chain(frames).collect();
        let rsp = base + BELOW;
        let (mut end, mut first_rbp) = (rsp, 0);
        // The word that the frame's rbp was read from; `None` while that is the register.
        let mut saved: Option<u64> = None;
        for call in way {
            // The return address into the caller is below `end`.
            let row = self.row(call.at + CALL_BYTES - 1).unwrap();
            memory.write(
                end - 8 - base,
                &(call.at + CALL_BYTES - SHIFT).to_le_bytes(),
            );
            let start = end;
            if row.end_by == BY_RSP {
                end = start.wrapping_add_signed(row.end_offset);
            } else {
                end = start + FRAME_OF_RBP;
                let rbp = end.wrapping_add_signed(-row.end_offset);
                match saved {
                    Some(at) => memory.write(at - base, &rbp.to_le_bytes()),
                    None => first_rbp = rbp,
                }
            }
            assert!(end > start && end < top, "{row:?}");
            if row.rbp_by == BY_END {
                saved = Some(end.wrapping_add_signed(row.rbp_offset));
            }
        }
        Stack {
            call: way[0].at - SHIFT,
            rsp,
            rbp: first_rbp,
            frames,
            _memory: memory,
        }
    }
}

/// Bytes of a call of a function.
pub(crate) const CALL_BYTES: u64 = 5;

/// A call: the function that it is in, and its address.
#[derive(Clone, Copy, Debug)]
struct Call {
    caller: u64,
    at: u64,
}

/// Calls of functions, and which of them have how many callers above each other.
struct CallGraph {
    calls: BTreeMap<u64, Vec<Call>>,
    /// By number: functions that are called by one that is called, and so on, so many times.
    called: Vec<BTreeSet<u64>>,
}

impl CallGraph {
    fn of(calls: BTreeMap<u64, Vec<Call>>) -> Self {
        let mut called: Vec<BTreeSet<u64>> = Vec::new();
        for _ in 0..FRAMES {
            let is_called = |caller: &u64| called.last().is_none_or(|set| set.contains(caller));
            let functions = calls.iter();
            let functions =
                functions.filter(|(_, calls)| calls.iter().any(|call| is_called(&call.caller)));
            called.push(functions.map(|(function, _)| *function).collect());
        }
        Self { calls, called }
    }

    /// Returns calls of a function by functions that have so many callers above each other.
    fn callers(&self, function: u64, further: usize) -> Vec<Call> {
        let calls = self.calls.get(&function).into_iter().flatten().copied();
        let is_called = |call: &Call| match further.checked_sub(1) {
            None => true,
            Some(number) => self.called[number].contains(&call.caller),
        };
        calls.filter(is_called).collect()
    }

    /// Appends callers of callers, each function once, until the stack has its frames. Returns whether it has.
    fn lengthen(
        &self,
        function: u64,
        way: &mut Vec<Call>,
        steps: &mut u32,
        random: &mut Random,
    ) -> bool {
        let Some(further) = (FRAMES - 1 - way.len()).checked_sub(1) else {
            return true;
        };
        let mut callers = self.callers(way.last().unwrap().caller, further);
        shuffle(&mut callers, random);
        for call in callers {
            let again = call.caller == function || way.iter().any(|one| one.caller == call.caller);
            if again || *steps == 0 {
                continue;
            }
            *steps -= 1;
            way.push(call);
            if self.lengthen(function, way, steps, random) {
                return true;
            }
            way.pop();
        }
        false
    }
}

impl Row {
    /// Returns whether frames of it can be laid out: most are found by rsp, and some by rbp.
    fn is_usual(self) -> bool {
        let by_rsp = self.end_by == BY_RSP && self.end_offset >= 16;
        let saved_below = self.rbp_by == BY_END && self.rbp_offset <= -16;
        (by_rsp || self.end_by == BY_RBP) && (self.rbp_by == BY_UNDEFINED || saved_below)
    }
}

impl Stacks {
    /// Returns the number of a stack of which so many frames are read (`ilk_stack_hash` of `ilk.h`).
    pub(crate) fn number(frames: &[u64]) -> u64 {
        let number = frames.iter().fold(0, |hash: u64, frame| {
            let hash = (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^ hash >> 32
        });
        number.max(1)
    }
}

fn shuffle<T>(list: &mut [T], random: &mut Random) {
    for last in (1..list.len()).rev() {
        list.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// A table, at its address in the plan.
struct Table {
    at: u64,
    bytes: Vec<u8>,
}

/// The kernel's tables for its unwinder.
struct Tables {
    ip: Table,
    orc: Table,
    text_end: u64,
}

impl Tables {
    fn of(vmlinuz: &[u8]) -> Self {
        let file = FileParts::vmlinux(vmlinuz).unwrap();
        let file = object::File::parse(&*file).unwrap();
        let symbols = FileParts::read(vmlinuz).unwrap().parts.kallsyms;
        let symbol = |wanted: &str| {
            let line = symbols.lines().find_map(|line| {
                let mut words = line.split_whitespace();
                let address = words.next()?;
                (words.nth(1) == Some(wanted)).then_some(address)
            });
            let address = line.unwrap_or_else(|| panic!("the kernel has no {wanted}"));
            u64::from_str_radix(address, 16).unwrap()
        };
        let table = |name: &str| {
            let at = symbol(&format!("__start_{name}"));
            let len = symbol(&format!("__stop_{name}")) - at;
            let mut segments = file.segments();
            let bytes = segments.find_map(|segment| segment.data_range(at, len).ok().flatten());
            let bytes = bytes.unwrap_or_else(|| panic!("the kernel's file has no {name}"));
            Table {
                at,
                bytes: bytes.to_vec(),
            }
        };
        Self {
            ip: table("orc_unwind_ip"),
            orc: table("orc_unwind"),
            text_end: symbol("_etext"),
        }
    }

    /// Maps the tables, which are next to each other, as far below their addresses as all else.
    fn mapped(&self) -> Mapping {
        let tables = [&self.ip, &self.orc];
        let start = tables.iter().map(|table| table.at).min().unwrap() & !0xfff;
        let ends = tables
            .iter()
            .map(|table| table.at + table.bytes.len() as u64);
        let len = ends.max().unwrap() - start;
        let mut mapping = Mapping::fixed(start - SHIFT, usize::try_from(len).unwrap());
        for table in tables {
            mapping.write(table.at - start, &table.bytes);
        }
        mapping
    }

    /// Returns the kernel's index of the rows of each block of text, as it fills it at boot.
    fn lookup(&self, image: &Image) -> Box<[u32]> {
        let (words, _) = self.ip.bytes.as_chunks::<4>();
        let addresses = words.iter().zip((self.ip.at..).step_by(4));
        let addresses: Vec<u64> = addresses
            .map(|(word, at)| at.wrapping_add_signed(i32::from_le_bytes(*word).into()))
            .collect();
        let row = |at: u64| addresses.partition_point(|start| *start <= at).max(1) - 1;
        let start = image.text().start.0;
        let blocks = (start..self.text_end).step_by(LOOKUP_BLOCK as usize);
        let blocks = blocks.chain([self.text_end]);
        blocks.map(|at| u32::try_from(row(at)).unwrap()).collect()
    }
}

/// Returns the folder of headers next to a kernel's file, as packages of Debian have it.
fn headers(vmlinuz: &Path) -> PathBuf {
    let name = vmlinuz.file_name().unwrap().to_str().unwrap();
    let release = name.strip_prefix("vmlinuz-").unwrap();
    let package = vmlinuz.parent().and_then(Path::parent).unwrap();
    let headers = package.join(format!("usr/src/linux-headers-{release}"));
    fs::canonicalize(&headers).unwrap_or_else(|error| panic!("{}: {error}", headers.display()))
}

/// Builds the unwinder as the module is built, and links it at its address.
fn built(headers: &Path, folder: &Path) -> Vec<u8> {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ilk-driver");
    for (home, names) in [
        (
            "kmod",
            &["stack.c", "stack_entry.S", "ilk.h", "ilk_abi.h"][..],
        ),
        ("rivals/unwinder", &["unwinder.c", "Kbuild"]),
    ] {
        for name in names {
            fs::copy(driver.join(home).join(name), folder.join(name)).unwrap();
        }
    }
    let mut make = Command::new("make");
    for inherited in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
        make.env_remove(inherited);
    }
    make.arg("-C").arg(headers);
    make.arg(format!("M={}", folder.display()));
    run(make.args(["unwinder.o", "stack_entry.o"]));
    let product = folder.join("unwinder");
    let mut link = Command::new("ld");
    // What only requests of the module call is not there.
    link.args(["-static", "-nostdlib", "--unresolved-symbols=ignore-all"]);
    link.args(["--no-warn-rwx-segments", "--entry=0"]);
    link.arg(format!("-Ttext-segment={UNWINDER:#x}"));
    link.arg("-o").arg(&product).current_dir(folder);
    run(link.args(["unwinder.o", "stack_entry.o"]));
    fs::read(product).unwrap()
}

fn run(command: &mut Command) {
    let done = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        done.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Maps a linked program at its addresses.
fn mapped(code: &object::File<'_>) -> Mapping {
    let ends = code.segments().map(|one| one.address() + one.size());
    let len = ends.max().unwrap() - UNWINDER;
    let mut mapping = Mapping::fixed(UNWINDER, usize::try_from(len).unwrap());
    for segment in code.segments() {
        mapping.write(segment.address() - UNWINDER, segment.data().unwrap());
    }
    mapping
}
