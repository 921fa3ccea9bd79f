//! The analysis of a real kernel. Needs what was read from one: see `parts`.

use std::collections::BTreeMap;
use std::sync::Arc;

use gilk_engine::cfg::{Block, BlockEnd, Cfg, EdgeKind, dot, text};
use gilk_engine::code::Why;
use gilk_engine::kernel::{LiveParts, wanted};
use gilk_engine::liveness::{Analysis, Arguments, Liveness, RegisterSet};
use gilk_engine::remarks::Remarks;
use gilk_engine::{Error, Image, Rule, Span};
use gilk_instruments::{Context, Source, Types};
use iced_x86::{Code, FlowControl, Register};

use super::saved::{graphs, image, part_of_graphs, parts};

/// That `part` of `whole` lies between two shares, in percent.
#[track_caller]
fn share(what: &str, part: usize, whole: usize, percent: std::ops::RangeInclusive<f64>) {
    let found = 100.0 * part as f64 / whole as f64;
    assert!(
        percent.contains(&found),
        "{what}: {part} of {whole} is {found:.2} %, not in {percent:?}"
    );
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn the_kernel_has_about_the_blocks_that_were_counted() {
    let image = image();
    let graphs = graphs(&image);
    let blocks: Vec<&Block> = graphs.iter().flat_map(|cfg| &cfg.blocks).collect();
    let instructions: usize = blocks.iter().map(|block| block.instructions.len()).sum();
    let bytes: u64 = blocks.iter().map(|block| block.span.len()).sum();
    println!(
        "{} functions, {} blocks, {instructions} instructions, {bytes} bytes",
        graphs.len(),
        blocks.len()
    );
    // Counted over the debug symbols of Debian's 6.1 and 6.12: 46,349 and 52,927 functions, init text
    // included; 545,697 and 644,438 blocks, int3 after returns included; 19.6 and 19.7 bytes a block.
    assert!(
        (38_000..62_000).contains(&graphs.len()),
        "{} functions",
        graphs.len()
    );
    assert!(
        (450_000..720_000).contains(&blocks.len()),
        "{} blocks",
        blocks.len()
    );
    let average = bytes as f64 / blocks.len() as f64;
    assert!(
        (17.0..22.0).contains(&average),
        "{average:.2} bytes a block"
    );
    for (len, percent) in [
        (1, 0.05..=1.5),
        (2, 2.0..=4.0),
        (3, 0.8..=2.5),
        (4, 1.5..=3.5),
    ] {
        let count = blocks
            .iter()
            .filter(|block| block.span.len() == len)
            .count();
        share(
            &format!("blocks of {len} bytes"),
            count,
            blocks.len(),
            percent,
        );
    }
    let mut refused: BTreeMap<Rule, Vec<&str>> = BTreeMap::new();
    for cfg in &graphs {
        if let Some(refusal) = &cfg.refusal {
            assert!(refusal.rule == Rule::Blacklisted || cfg.blocks.is_empty());
            refused.entry(refusal.rule).or_default().push(&cfg.name);
        }
    }
    let black = refused.remove(&Rule::Blacklisted).unwrap_or_default();
    share(
        "functions that the kernel forbids",
        black.len(),
        graphs.len(),
        0.3..=3.0,
    );
    let undecoded: usize = refused.values().map(Vec::len).sum();
    assert!(
        undecoded <= 20,
        "functions that could not be read: {refused:?}"
    );
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn every_graph_is_whole() {
    let image = image();
    let (mut blocks, mut unreachable) = (0, 0);
    for cfg in graphs(&image).iter().filter(|cfg| !cfg.blocks.is_empty()) {
        let name = &cfg.name;
        let mut end = cfg.span.start;
        for block in &cfg.blocks {
            let gap = Span {
                start: end,
                end: block.span.start,
            };
            assert!(block.span.start >= end, "{name}: blocks overlap at {end}");
            if !gap.is_empty() {
                let padding =
                    gilk_engine::listing::disassemble(None, gap.start, image.bytes(gap).unwrap());
                assert!(
                    padding.iter().all(|line| line.text.starts_with("int3")
                        || line.text.starts_with("nop")
                        || line.text.starts_with("ud1")
                        || line.text == "xchg ax, ax"),
                    "{name}: {padding:?}"
                );
            }
            end = block.span.end;
            let last = block.instructions.last().unwrap();
            let jumps = matches!(
                last.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            );
            if jumps && last.op0_kind() == iced_x86::OpKind::NearBranch64 {
                let to = gilk_engine::Addr(last.near_branch_target());
                if cfg.span.contains(to) {
                    assert!(
                        cfg.block_at(to).is_some_and(|block| block.span.start == to),
                        "{name}: no block begins at {to}"
                    );
                    assert!(
                        cfg.successors(block.index).any(|edge| cfg
                            .block(edge.to)
                            .unwrap()
                            .span
                            .start
                            == to),
                        "{name}: {to}"
                    );
                }
            }
            let ways = cfg
                .successors(block.index)
                .filter(|edge| edge.kind != EdgeKind::Fixup)
                .count();
            match block.end {
                BlockEnd::Conditional => assert!(
                    ways == 2 || cfg.exits(block.index),
                    "{name}: {}",
                    block.span.start
                ),
                BlockEnd::Jump => assert_eq!(ways, 1, "{name}: {}", block.span.start),
                BlockEnd::FallThrough => assert!(ways <= 1),
                _ => assert_eq!(ways, 0, "{name}: {}", block.span.start),
            }
            blocks += 1;
            unreachable +=
                usize::from(!block.entered && cfg.predecessors(block.index).next().is_none());
        }
        for edge in &cfg.edges {
            assert!(cfg.block(edge.to).is_some() && cfg.block(edge.from).is_some());
        }
        for &at in image.entered(cfg.span) {
            assert!(
                cfg.block_at(at)
                    .is_some_and(|block| block.span.start == at && block.entered),
                "{name}: {at}"
            );
        }
    }
    // What the kernel patched away at boot: code for other processors.
    share(
        "blocks that nothing reaches",
        unreachable,
        blocks,
        0.0..=1.0,
    );
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn what_the_kernel_patches_is_known() {
    let image = image();
    let mut kinds: BTreeMap<Why, usize> = BTreeMap::new();
    for site in image.fixed().iter() {
        *kinds.entry(site.why).or_default() += 1;
        let Some(function) = image.function_at(site.span.start) else {
            continue;
        };
        let cfg = Cfg::of(&image, function.id);
        if cfg.blocks.is_empty() {
            continue;
        }
        let Some(block) = cfg.block_at(site.span.start) else {
            // In padding: only what was replaced at boot is there.
            assert!(
                matches!(site.why, Why::Exception { .. }),
                "{site:?} in {}",
                cfg.name
            );
            continue;
        };
        match site.why {
            Why::StaticKey => {
                let last = block.instructions.last().unwrap();
                assert_eq!(
                    last.ip(),
                    site.span.start.0,
                    "a static key ends its block: {} in {}",
                    site.span.start,
                    cfg.name
                );
                assert_eq!(last.len() as u64, site.span.len());
            }
            Why::Exception { .. } => {
                if let Some(to) = site.target.filter(|to| cfg.span.contains(*to)) {
                    assert!(
                        cfg.block_at(to)
                            .is_some_and(|block| block.span.start == to && block.entered)
                    );
                }
            }
            Why::Bug { warn: false } => {
                let last = block.instructions.last().unwrap();
                assert!(
                    last.ip() != site.span.start.0
                        || block.end == BlockEnd::NoReturn
                        || last.code() != Code::Ud2
                );
            }
            _ => {}
        }
    }
    println!("{kinds:?}");
    for (kind, least) in [
        (Why::Tracer, 30_000),
        (Why::StaticKey, 4_000),
        (Why::StaticCall, 3_000),
        (Why::Bug { warn: true }, 3_000),
        (Why::Bug { warn: false }, 1_000),
        (Why::Exception { handler: 3 }, 200),
    ] {
        assert!(
            kinds.get(&kind).is_some_and(|&count| count >= least),
            "{kind:?}: {kinds:?}"
        );
    }
    assert!(image.fixed().forbidden().count() > 10);
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn known_functions_are_analysed() {
    let image = image();
    for name in [
        "kernel_clone",
        "copy_process",
        "__x64_sys_clone",
        "vfs_read",
        "schedule",
    ] {
        let function = image
            .function_named(name)
            .unwrap_or_else(|error| panic!("{error}"));
        let cfg = Cfg::of(&image, function.id);
        assert_eq!(cfg.refusal, None, "{name}");
        assert!(
            image.keeps_convention(function.span.start),
            "{name} has an ftrace site"
        );
        assert!(!cfg.blocks.is_empty() && cfg.blocks[0].entered);
        assert!(
            cfg.blocks.iter().any(|block| cfg.exits(block.index)),
            "{name} comes to an end"
        );
        let listing = text::listing(&image, &cfg);
        assert_eq!(listing.matches("\nblock ").count(), cfg.blocks.len());
        assert_eq!(
            dot::dot(&image, &cfg).matches(" -> ").count(),
            cfg.edges.len()
        );
        let arguments = Arguments::of(&image, &cfg);
        assert!(
            arguments
                .intact(function.span.start)
                .contains(Register::RDI)
        );
        let again = image
            .function_named(&format!("{name}@{}", function.span.start))
            .unwrap();
        assert_eq!(again, function);
    }
    let clone = image.function_named("kernel_clone").unwrap();
    let listing = text::listing(&image, &Cfg::of(&image, clone.id));
    assert!(listing.contains("call copy_process"), "{listing}");
    assert!(
        matches!(image.function_named("kernel_clon"), Err(Error::NoFunction { hint, .. }) if hint.contains("kernel_clone"))
    );
    assert!(
        matches!(image.function_named("start_kernel"), Err(Error::NoFunction { hint, .. }) if hint.contains("frees"))
    );
    for black in [
        "do_nmi",
        "exc_nmi",
        "text_poke_bp_batch",
        "asm_exc_page_fault",
        "entry_SYSCALL_64",
    ] {
        if let Ok(function) = image.function_named(black) {
            let refusal = Cfg::of(&image, function.id).refusal;
            if black != "text_poke_bp_batch" {
                assert_eq!(
                    refusal.map(|refusal| refusal.rule),
                    Some(Rule::Blacklisted),
                    "{black}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn most_blocks_begin_with_something_dead() {
    let image = image();
    let scratch = RegisterSet::of(&[
        Register::RAX,
        Register::RCX,
        Register::RDX,
        Register::RSI,
        Register::RDI,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
    ]);
    let (mut blocks, mut flags, mut single) = (0, 0, 0);
    let analysis = Analysis::new(&image);
    for cfg in graphs(&image) {
        let liveness = Liveness::of(&analysis, &cfg);
        // Not the entry: everything is live at the function tracer's site, which hooks follow.
        for block in cfg.blocks.iter().skip(1) {
            let live = liveness.before(block.span.start);
            assert!(live.registers.contains(Register::RSP));
            blocks += 1;
            flags += usize::from(!live.flags);
            single += usize::from(!scratch.difference(live.registers).is_empty());
        }
    }
    println!(
        "of {blocks} block starts, flags are dead at {flags}, a caller-saved register at {single}"
    );
    share("blocks with dead flags", flags, blocks, 94.0..=100.0);
    share("blocks with a dead register", single, blocks, 80.0..=100.0);
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn the_kernels_own_types_are_in_its_memory() {
    let image = Image::from_live(&parts()).unwrap();
    let types = image
        .types()
        .expect("the kernel has no type data, or it was not read");
    let context = Context {
        types: Some(types),
        function: Some("vfs_read"),
        of_process: false,
    };
    let check = |text: &str| Source::parse(text).unwrap().check(&context);
    let program =
        check("entry / file->f_path.dentry->d_name.name == \"passwd\" / { sample(count) }");
    let program = program.unwrap_or_else(|faults| panic!("{faults}"));
    assert!(program.cost(&program.probes[0]).loads > 0);
    let faults = check("entry { sample(conut) }").unwrap_err().to_string();
    assert!(faults.contains("Did you mean count?"), "{faults}");

    // They serve another image of the kernel, and those of other data do not.
    let later = Image::from_live(&parts()).unwrap();
    assert!(later.indexed_types().is_none());
    let header = [0xeb9f_u32 | 1 << 16, 24, 0, 0, 0, 1].map(u32::to_le_bytes);
    let other = Types::read([header.as_flattened(), &[0]].concat()).unwrap();
    later.reuse_types(Arc::new(other));
    assert!(later.indexed_types().is_none());
    later.reuse_types(image.indexed_types().unwrap());
    assert!(std::ptr::eq(later.types().unwrap(), types));
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn no_more_is_read_than_is_needed() {
    let parts = parts();
    let spans = wanted(&parts.kallsyms).unwrap();
    let bytes: u64 = spans.iter().map(|span| span.len()).sum();
    println!("{bytes} bytes in {} spans", spans.len());
    assert!(bytes < 40 << 20 && spans.windows(2).all(|pair| pair[0].end < pair[1].start));
    // Exactly what is wanted is enough, and less is an error that says what is missing.
    let whole = Image::from_live(&parts).unwrap();
    let read = |span: &Span| (span.start, whole.bytes(*span).unwrap().to_vec());
    let tight = LiveParts {
        memory: spans.iter().map(read).collect(),
        ..parts
    };
    let image = Image::from_live(&tight).unwrap();
    assert_eq!(image.functions(), whole.functions());
    assert_eq!(image.entered(image.text()), whole.entered(whole.text()));
    for missing in 0..spans.len() {
        let mut less = tight.clone();
        less.memory.remove(missing);
        let error = Image::from_live(&less).unwrap_err().to_string();
        assert!(error.contains("was not read"), "{error}");
    }
    let error = Image::from_live(&LiveParts {
        blacklist: String::new(),
        ..tight
    })
    .unwrap_err()
    .to_string();
    assert!(error.contains("blacklist"), "{error}");
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn few_functions_are_in_doubt_on_a_kernel_that_was_not_compared() {
    let known = Image::from_live(&parts()).unwrap();
    let other = Image::from_live(&LiveParts {
        release: "6.6.0-other".to_owned(),
        ..parts()
    })
    .unwrap();
    let rule = |image: &Image, id| Cfg::of(image, id).refusal.map(|refusal| refusal.rule);
    let functions = other.functions().iter();
    let doubted: Vec<_> = functions
        .filter(|function| rule(&other, function.id) == Some(Rule::UnknownKernel))
        .filter(|function| rule(&known, function.id).is_none())
        .collect();
    let all = other.functions().len();
    let names: Vec<&str> = doubted.iter().map(|one| one.name.as_str()).collect();
    println!("{} of {all} functions are in doubt: {names:?}", names.len());
    assert!(names.len() * 8 < all, "{} of {all}", names.len());
    // Assembly that is not known to be harmless, and a function in C.
    assert!(names.contains(&"clear_page_orig") && !names.contains(&"vfs_read"));
    let insisted = other.clone().taken_as_known();
    for function in doubted {
        assert_eq!(rule(&insisted, function.id), None, "{}", function.name);
    }
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn disassemblies_name_fields_and_texts() {
    let image = image();
    let remarks = |name: &str| -> Vec<String> {
        let function = image.function_named(name).expect(name);
        let cfg = Cfg::of(&image, function.id);
        let all = Remarks::of(&image, &cfg);
        all.iter().map(|(_, text)| text.to_owned()).collect()
    };
    // What the sources of all kernels since 5.14 have these functions read.
    for (name, said) in [
        ("vfs_read", "file->f_mode"),
        ("vfs_read", "file_operations->read_iter"),
        ("ihold", "inode->i_count.counter"),
        ("wake_up_new_task", "task_struct->__state"),
        ("panic", "\"Kernel panic - not syncing: %s\\n\""),
    ] {
        let found = remarks(name);
        assert!(found.iter().any(|text| text == said), "{name}: {found:#?}");
    }
    let (mut functions, mut fields, mut texts) = (0, 0, 0);
    let start = std::time::Instant::now();
    let graphs = part_of_graphs(&image);
    let apart = start.elapsed();
    for cfg in &graphs {
        let all = Remarks::of(&image, cfg);
        let quoted = all.iter().filter(|(_, text)| text.starts_with('"')).count();
        texts += quoted;
        fields += all.iter().count() - quoted;
        functions += usize::from(all.iter().next().is_some());
    }
    println!(
        "{functions} of {} functions have remarks: {fields} on fields, {texts} on texts; {:?} after {apart:?} for the graphs",
        graphs.len(),
        start.elapsed() - apart,
    );
    share(
        "functions with remarks",
        functions,
        graphs.len(),
        30.0..=95.0,
    );
}
