//! Programs executed one instruction at a time: every address is that of an instruction of a block, and
//! every way that control takes is in the graph.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::code::FunctionId;
use gilk_engine::elf::ElfParts;
use gilk_engine::{Addr, Image};
use iced_x86::{FlowControl, Instruction};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::set;
use crate::tracee::{Mapping, Tracee};

/// An object of the program.
struct Loaded {
    mapping: Mapping,
    image: Image,
    graphs: HashMap<FunctionId, Walked>,
}

/// A graph, with its instructions.
struct Walked {
    cfg: Cfg,
    instructions: HashMap<u64, (Instruction, BlockIndex)>,
}

/// The place of an executed instruction.
#[derive(Clone, Copy)]
struct Visit {
    function: FunctionId,
    block: BlockIndex,
    instruction: Instruction,
    /// The object's number.
    object: usize,
}

#[derive(Default)]
struct Judge {
    objects: Vec<Loaded>,
    steps: u64,
    branches: u64,
    /// Through registers and memory, within a function.
    tables: u64,
    /// In code that no function has, and in refused functions.
    outside: BTreeMap<String, u64>,
    refused: u64,
    wrong: Vec<String>,
}

/// The distance from the addresses in a file to those in a process.
fn slide(file: &[u8], mapping: &Mapping) -> u64 {
    use object::LittleEndian as Endian;
    let header = object::elf::FileHeader64::<Endian>::parse(file).unwrap();
    let all = header.program_headers(Endian, file).unwrap();
    let page = |number: u64| number & !0xfff;
    let code = all.iter().find(|program| {
        program.p_type(Endian) == object::elf::PT_LOAD
            && program.p_flags(Endian).contains(object::elf::PF_X)
            && page(program.p_offset(Endian)) == mapping.offset
    });
    let code = code.unwrap_or_else(|| panic!("{} has no such segment", mapping.name));
    mapping.start.wrapping_sub(page(code.p_vaddr(Endian)))
}

impl Judge {
    /// Reads the object that `ip` lies in, as it is in the process.
    fn object(&mut self, tracee: &Tracee, ip: u64) -> Option<usize> {
        let within = |loaded: &Loaded| (loaded.mapping.start..loaded.mapping.end).contains(&ip);
        if let Some(known) = self.objects.iter().position(within) {
            return Some(known);
        }
        let mut all = tracee.mappings().into_iter();
        let mapping = all.find(|mapping| (mapping.start..mapping.end).contains(&ip))?;
        let len = usize::try_from(mapping.end - mapping.start).unwrap();
        let bytes = tracee.read(mapping.start, len);
        let image = if mapping.name == "[vdso]" {
            let parts = ElfParts {
                slide: mapping.start,
                ..ElfParts::of_file("vdso", &bytes)
            };
            Image::from_elf(&parts).unwrap()
        } else {
            let file = std::fs::read(&mapping.name).unwrap();
            let parts = ElfParts {
                slide: slide(&file, &mapping),
                live: vec![(Addr(mapping.start), bytes)],
                ..ElfParts::of_file(&mapping.name, &file)
            };
            Image::from_elf(&parts).unwrap()
        };
        let graphs = HashMap::new();
        self.objects.push(Loaded {
            mapping,
            image,
            graphs,
        });
        Some(self.objects.len() - 1)
    }

    fn visit(&mut self, tracee: &Tracee, ip: u64) -> Option<Visit> {
        self.steps += 1;
        let Some(object) = self.object(tracee, ip) else {
            self.wrong.push(format!("{ip:#x} is in no object"));
            return None;
        };
        let loaded = &mut self.objects[object];
        let Some(function) = loaded.image.function_at(Addr(ip)) else {
            *self.outside.entry(loaded.mapping.name.clone()).or_default() += 1;
            self.wrong.push(format!(
                "{ip:#x} of {} is in no function",
                loaded.mapping.name
            ));
            return None;
        };
        let walked = loaded.graphs.entry(function.id).or_insert_with(|| {
            let cfg = Cfg::of(&loaded.image, function.id);
            let blocks = cfg.blocks.iter();
            let instructions = blocks
                .flat_map(|block| block.instructions.iter().map(|each| (each, block.index)))
                .map(|(each, block)| (each.ip(), (each, block)))
                .collect();
            Walked { cfg, instructions }
        });
        if walked.cfg.refusal.is_some() {
            self.refused += 1;
            return None;
        }
        // A branch may skip the `lock` prefix of the instruction.
        let skipped = || {
            let found = walked.instructions.get(&ip.checked_sub(1)?)?;
            walked.cfg[found.1].skipped.then_some(found)
        };
        let found = walked.instructions.get(&ip).or_else(skipped);
        let Some(&(instruction, block)) = found else {
            self.wrong.push(format!(
                "{ip:#x} of {} in {} is no instruction",
                loaded.mapping.name, walked.cfg.name
            ));
            return None;
        };
        Some(Visit {
            function: function.id,
            block,
            instruction,
            object,
        })
    }

    /// Judges the way from one instruction to the next.
    fn way(&mut self, from: Visit, to: Visit) {
        let cfg = |visit: Visit| &self.objects[visit.object].graphs[&visit.function].cfg;
        let (source, target) = (from.instruction, to.instruction);
        let here = Addr(target.ip());
        let block = cfg(to).block(to.block).unwrap();
        let starts = block.span.start == here;
        let same = from.object == to.object && from.function == to.function;
        let edge = || {
            let mut edges = cfg(from).successors(from.block);
            starts && edges.any(|edge| edge.to == to.block)
        };
        let last = cfg(from).block(from.block).unwrap().span.end.0 == source.next_ip();
        // A jump to itself counts as a branch.
        let next = source.next_ip() == target.ip();
        let right = match source.flow_control() {
            FlowControl::Next if source.ip() == target.ip() => {
                source.has_rep_prefix() || source.has_repne_prefix()
            }
            FlowControl::Next if same => next && (edge() || !last && from.block == to.block),
            // Assembly falls through into the next symbol.
            FlowControl::Next => next && last && starts,
            FlowControl::Call | FlowControl::IndirectCall if next => true,
            FlowControl::Call | FlowControl::IndirectCall => starts && block.entered,
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                self.branches += 1;
                if same {
                    edge()
                } else {
                    starts && block.entered
                }
            }
            FlowControl::IndirectBranch => {
                self.tables += u64::from(same);
                let mut drawn = cfg(from).tables.iter();
                let drawn = drawn.any(|edge| (edge.from, edge.to) == (from.block, to.block));
                let image = &self.objects[from.object].image;
                let is_pointer = image.table_targets(Addr(source.ip())).is_empty();
                starts && block.entered && block.open && (is_pointer || !same || drawn)
            }
            // After a call, of any block; or a pushed address.
            FlowControl::Return => true,
            _ => next,
        };
        if !right {
            self.wrong.push(format!(
                "{}: {:#x} {source} in {} to {:#x} in {} {:?}",
                self.objects[to.object].mapping.name,
                source.ip(),
                cfg(from).name,
                target.ip(),
                cfg(to).name,
                (starts, block.entered, block.open, last)
            ));
        }
    }
}

/// A program whose jumps go by a table: those of a distribution may need none in their first instructions.
const CHOOSING: &str = "
__attribute__((noipa)) static int chosen(unsigned which, int value) {
    switch (which) {
    case 0: return value * 3; case 1: return value + 7; case 2: return value << 2; case 3: return value - 9;
    case 4: return value ^ 5; case 5: return value | 8; case 6: return value / 3; case 7: return value % 7;
    }
    return 1;
}
void _start(void) {
    int value = 1;
    for (unsigned round = 0; round < 900; round++)
        value = chosen(round % 9, value);
    __asm__ volatile(\"syscall\" :: \"a\"(60), \"D\"(value & 1));
    __builtin_unreachable();
}
";

fn choosing(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("choosing.c"), folder.join("choosing"));
    std::fs::write(&source, CHOOSING).unwrap();
    let compiled = Command::new("cc")
        .args(["-O2", "-nostdlib", "-static-pie", "-o"])
        .args([&program, &source])
        .status();
    assert!(compiled.unwrap().success());
    program
}

/// Up to `GILK_STEPS` instructions of each, 25,000 otherwise.
#[test]
fn every_step_of_real_programs_is_in_their_graphs() {
    let most = set("GILK_STEPS", 25_000);
    let mut judge = Judge::default();
    let folder = tempfile::tempdir().unwrap();
    let choosing = choosing(folder.path());
    let mut installed = 0;
    for (program, arguments) in [
        (choosing.to_str().unwrap(), &[][..]),
        ("/usr/bin/gzip", &["-c", "/etc/passwd"][..]),
        (
            "/usr/bin/perl",
            &[
                "-e",
                "my %h; $h{$_ % 7} .= $_ for 1..99; print sort values %h;
                 my $t = join ',', map { sprintf '%-5s|%05.2f|%x', $_, $_ / 3, $_ } 1..20;
                 $t =~ s/(\\d+)\\s*\\|0*(?:[1-9]\\d*\\.(\\d))?/$2-$1/g; local $_ = $t;
                 eval { die [1] } or print ref $@, scalar(tr/1-3//), m/^(.+?)([^|]*),(?=\\d)/;",
            ],
        ),
        (
            "/usr/bin/bash",
            &[
                "-c",
                "for i in 1 2 3; do x=$((i * 2)); [[ $x == *4 ]] && echo $x; done",
            ],
        ),
        (
            "/usr/bin/sqlite3",
            &[
                ":memory:",
                "create table t(a); insert into t values(3),(1); select sum(a) from t order by a",
            ],
        ),
    ] {
        if !std::path::Path::new(program).exists() {
            println!("{program} is not installed");
            continue;
        }
        installed += u64::from(program.starts_with("/usr/bin/"));
        judge.objects.clear();
        let tracee = Tracee::start(program, arguments);
        let mut last = judge.visit(&tracee, tracee.ip());
        for _ in 0..most {
            let Some(ip) = tracee.step() else { break };
            let next = judge.visit(&tracee, ip);
            if let (Some(from), Some(to)) = (last, next) {
                judge.way(from, to);
            }
            last = next;
            assert!(judge.wrong.len() < 50, "{:#?}", judge.wrong);
        }
    }
    println!(
        "{} steps, {} branches, {} jumps by tables; {} in refused functions, outside: {:?}",
        judge.steps, judge.branches, judge.tables, judge.refused, judge.outside
    );
    assert!(judge.wrong.is_empty(), "{:#?}", judge.wrong);
    // Those of Debian's minimal installation, 25,000 steps of each.
    assert!(installed >= 3, "{installed}");
    assert!(judge.steps > 25_000 * installed, "{}", judge.steps);
    assert!(judge.tables >= 800, "{}", judge.tables);
    // The C library's string functions, written by hand, have tables that are not proven.
    assert!(judge.refused * 4 < judge.steps, "most is not refused");
}
