//! How long the engine takes for a whole kernel, how much memory, and objdump beside it.
//!
//! `cargo run --release --example whole-kernel -- FILE`, a kernel that `ilk dump` saved. `cargo xtask
//! bench` runs this.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gilk_engine::cfg::Cfg;
use gilk_engine::image::{FunctionId, LiveParts};
use gilk_engine::layout::{Gs, RuntimeLayout};
use gilk_engine::liveness::Liveness;
use gilk_engine::placement::options;
use gilk_engine::session::{Placement, Session};
use gilk_engine::verify::verify;
use gilk_engine::{Addr, HookType, Image, Span, plan};
use gilk_instruments::Library;
use ilk_driver::spread::{spread, threads};

fn main() -> anyhow::Result<()> {
    let file = std::env::args_os()
        .nth(1)
        .context("Name a kernel that `ilk dump` saved")?;
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(&file)?)
        .with_context(|| format!("{} is no saved kernel", file.display()))?;
    let (image, time) = timed(|| Image::from_live(&parts));
    let image = image?;
    let text: u64 = image.functions().iter().map(|one| one.span.len()).sum();
    println!(
        "Linux {}: {} functions, {:.1} MB of text",
        image.release(),
        image.functions().len(),
        text as f64 / 1e6
    );
    drop(parts);
    row("symbols, tables, one pass over the text", time);
    analysis(&image);
    objdump(&image)?;
    everything(&image)
}

fn analysis(image: &Image) {
    let ids: Vec<FunctionId> = image.functions().iter().map(|one| one.id).collect();
    let mut counts = vec![1];
    counts.extend((threads() > 1).then(threads));
    for count in counts {
        let (cfgs, time) = timed(|| spread(&ids, count, &mut |_| (), |&id| Cfg::of(image, id)));
        let blocks: usize = cfgs.iter().map(|cfg| cfg.blocks.len()).sum();
        row(
            &format!("decode, {blocks} blocks and edges, {count} threads"),
            time,
        );
        let ((), time) = timed(|| {
            spread(&cfgs, count, &mut |_| (), |cfg| {
                drop(Liveness::of(image, cfg));
            });
        });
        row(
            &format!("liveness of every function, {count} threads"),
            time,
        );
        let (_, time) =
            timed(|| spread(&cfgs, count, &mut |_| (), |cfg| options(image, cfg).len()));
        row(
            &format!("every hook of every block, one at a time, {count} threads"),
            time,
        );
    }
    memory("analysed");
}

/// A timestamp before every block that can have one, for the whole session.
fn everything(image: &Image) -> anyhow::Result<()> {
    let ids: Vec<FunctionId> = image.functions().iter().map(|one| one.id).collect();
    let placements = spread(&ids, threads(), &mut |_| (), |&id| {
        let cfg = Cfg::of(image, id);
        let function = format!("{}@{:#x}", cfg.name, cfg.span.start.0);
        let hooked = options(image, &cfg)
            .into_iter()
            .filter(|option| option.pre.is_ok());
        let one = |block: u32| Placement {
            function: function.clone(),
            block,
            hook: HookType::Pre,
            instrument: "timestamp".into(),
            launch: 0.0,
            splash: 1.0,
            timer: 0,
        };
        hooked.map(|option| one(option.block.0)).collect::<Vec<_>>()
    });
    let session = Session {
        placements: placements.into_iter().flatten().collect(),
        ..Session::empty()
    };
    let count = session.placements.len();
    let library = Library::builtin()?;
    let (plan, time) = timed(|| plan::plan(image, &session, &library, &layout()));
    let plan = plan?;
    row(
        &format!(
            "plan of all at once: {count} hooks, {} patches",
            plan.patches.len()
        ),
        time,
    );
    memory("planned");
    let (verified, time) = timed(|| verify(image, plan));
    row("its verification", time);
    memory("verified");
    if let Err(violations) = verified {
        for violation in violations.iter().take(20) {
            eprintln!("{violation}");
        }
        bail!("The plan is not right, in {} places", violations.len());
    }
    Ok(())
}

/// The same text from a raw file, so that it decodes the bytes that we decode and nothing else.
fn objdump(image: &Image) -> anyhow::Result<()> {
    let text = image.bytes(image.text()).context("The image has no text")?;
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text)?;
    let (status, time) = timed(|| {
        Command::new("objdump")
            .args(["-D", "-b", "binary", "-m", "i386:x86-64", "--adjust-vma"])
            .arg(format!("{:#x}", image.text().start.0))
            .arg(file.path())
            .stdout(Stdio::null())
            .status()
    });
    match status {
        Ok(status) if status.success() => row("objdump -D of the same bytes", time),
        _ => println!("  objdump could not be run; the package binutils has it"),
    }
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = work();
    (result, begin.elapsed())
}

fn row(what: &str, time: Duration) {
    println!("  {:>8.3} s  {what}", time.as_secs_f64());
}

/// The most memory that this process ever had.
fn memory(when: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    if let Some(kib) = most {
        println!(
            "  {:>8} MB at most, when that was {when}",
            kib * 1024 / 1_000_000
        );
    }
}

/// An arena with room for everything, where modules are.
fn layout() -> RuntimeLayout {
    RuntimeLayout {
        arena: Span::new(Addr(0xffff_ffff_c000_0000), 512 << 20),
        ring_base: Addr(0xffff_c900_1234_0000),
        stride_log2: 21,
        slots_log2: 16,
        head: Gs(0x3_1000),
        limit: Gs(0x3_1008),
        lost_full: Gs(0x3_1010),
        lost_unmatched: Gs(0x3_1018),
        current: Gs(0x1_fb80),
        counters: Vec::new(),
        timers: Addr(0xffff_c900_5678_0000),
        timers_log2: 12,
    }
}
