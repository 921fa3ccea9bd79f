//! Measures the time of the engine for a whole kernel and its peak memory in each stage, next to
//! objdump.
//!
//! `cargo run --release --example whole-kernel -- FILE` with a kernel saved by `ilk dump`. `cargo
//! xtask bench` runs this.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gilk_engine::cfg::Cfg;
use gilk_engine::code::FunctionId;
use gilk_engine::kernel::LiveParts;
use gilk_engine::layout::{
    CounterBank, Inputs, Owner, RingOwner, Rings, RuntimeLayout, SegmentOffset,
};
use gilk_engine::liveness::{Analysis, Liveness};
use gilk_engine::placement::options;
use gilk_engine::session::{Placement, Session};
use gilk_engine::verify::verify;
use gilk_engine::{Addr, HookType, Image, Span, plan};
use gilk_instruments::Library;
use ilk_driver::memory;
use ilk_driver::spread::{spread, threads};

fn main() -> anyhow::Result<()> {
    memory::give_back();
    let mut arguments = std::env::args_os().skip(1);
    let file = arguments
        .next()
        .context("Name a kernel that `ilk dump` saved")?;
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(&file)?)
        .with_context(|| format!("{} is not a saved kernel", file.display()))?;
    let (image, time) = timed(|| Image::from_live(&parts));
    let image = image?;
    if let Some(which) = arguments.next() {
        drop(parts);
        let known = PLANS.iter().find(|known| which == known.name);
        return everything(&image, known.context("No plan has that name")?);
    }
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
    drop(image);
    // Each in a process of its own, so that its peak memory includes nothing of the others.
    for known in &PLANS {
        let mut own = Command::new(std::env::current_exe()?);
        let status = own.arg(&file).arg(known.name).status()?;
        if !status.success() {
            bail!("The plan of {} ended with {status}", known.name);
        }
    }
    Ok(())
}

/// A kind of plan of every block at once.
struct Known {
    /// Command-line argument of its process.
    name: &'static str,
    instrument: &'static str,
    types: &'static [HookType],
    verified: bool,
}

const PLANS: [Known; 3] = [
    Known {
        name: "counted",
        instrument: "counter",
        types: &[HookType::Pre],
        verified: false,
    },
    Known {
        name: "before",
        instrument: "timestamp",
        types: &[HookType::Pre],
        verified: true,
    },
    Known {
        name: "both",
        instrument: "timestamp",
        types: &[HookType::Pre, HookType::Post],
        verified: false,
    },
];

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
        let analysis = Analysis::new(image);
        let ((), time) = timed(|| {
            spread(&cfgs, count, &mut |_| (), |cfg| {
                drop(Liveness::of(&analysis, cfg));
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
}

/// Plans the instrument at every hook of these types that can have one, for the whole session.
fn everything(image: &Image, tables: &Known) -> anyhow::Result<()> {
    let session = session(image, tables);
    let count = session.placements.len();
    let library = Library::builtin()?;
    let before = on_cpu();
    let (plan, time) = timed(|| {
        let watch = &mut memory::between_stages();
        plan::plan_watched(image, &session, &library, &layout(), watch)
    });
    let (plan, took) = (plan?, on_cpu() - before);
    let names: Vec<String> = tables.types.iter().map(HookType::to_string).collect();
    row(
        &format!(
            "plan of all at once ({} {}): {count} hooks, {} patches, {:.3} s of one core",
            tables.instrument,
            names.join(" and "),
            plan.patches.len(),
            took.as_secs_f64()
        ),
        time,
    );
    if !tables.verified {
        return Ok(());
    }
    let (verified, time) = timed(|| verify(image, plan));
    row("its verification", time);
    if let Err(violations) = verified {
        for violation in violations.iter().take(20) {
            eprintln!("{violation}");
        }
        bail!(
            "The plan failed its verification in {} places",
            violations.len()
        );
    }
    Ok(())
}

fn session(image: &Image, tables: &Known) -> Session {
    let instrument: Arc<str> = tables.instrument.into();
    let ids: Vec<FunctionId> = image.functions().iter().map(|one| one.id).collect();
    // In one thread: memory freed by other threads is never returned to the system.
    let of_functions = ids.iter().map(|&id| {
        let cfg = Cfg::of(image, id);
        let function: Arc<str> = format!("{}@{:#x}", cfg.name, cfg.span.start.0).into();
        let one = |block: u32, hook: HookType| Placement {
            function: Arc::clone(&function),
            block,
            hook,
            instrument: Arc::clone(&instrument),
            launch: 0.0,
            splash: 1.0,
        };
        let mut placements = Vec::new();
        for option in options(image, &cfg) {
            for &hook in tables.types {
                let choice = match hook {
                    HookType::Pre => &option.pre,
                    HookType::Post => &option.post,
                    HookType::Taken | HookType::Untaken => continue,
                };
                placements.extend(choice.as_ref().ok().map(|_| one(option.block.0, hook)));
            }
        }
        placements
    });
    let mut placements: Vec<Placement> = of_functions.flatten().collect();
    placements.shrink_to_fit();
    Session {
        placements,
        ..Session::empty()
    }
}

/// Disassembles the same text from a raw file, so that objdump decodes exactly the same bytes.
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

/// Returns the CPU time of this thread (proc(5), `schedstat`).
fn on_cpu() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = schedstat
        .split(' ')
        .next()
        .and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Runs a stage after a reset of the peak memory, and measures its time.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    memory::reset_peak();
    let begin = Instant::now();
    let result = work();
    (result, begin.elapsed())
}

/// Prints the time of a stage and the peak memory of this process in it, including memory allocated
/// before.
fn row(what: &str, time: Duration) {
    let peak = memory::peak().map_or(0, |bytes| bytes / 1_000_000);
    println!("  {:>8.3} s  {peak:>5} MB  {what}", time.as_secs_f64());
}

/// Returns a layout with an arena large enough for everything, in the modules' range.
fn layout() -> RuntimeLayout {
    let arena = Addr(0xffff_ffff_c000_0000);
    RuntimeLayout {
        arena: Span::new(arena, 512 << 20),
        // The module allocates an arena of that size.
        unwinds: true,
        faults: 1 << 16,
        rings: Rings {
            per: RingOwner::Cpu,
            base: Addr(0xffff_c900_1234_0000),
            stride_log2: 21,
            slots_log2: 16,
            head: SegmentOffset(0x3_1000),
            limit: SegmentOffset(0x3_1008),
            lost_full: SegmentOffset(0x3_1010),
        },
        owner: Owner::kernel(SegmentOffset(0x1_fb80)),
        inputs: Inputs::supposed(SegmentOffset(0x1_fb80)),
        counters: vec![CounterBank {
            base: SegmentOffset(0x4_0000),
            slots: 1 << 20,
        }],
        timers: Addr(0xffff_c900_5678_0000),
        timers_log2: 12,
        shared: RuntimeLayout::supposed_shared(1),
        ..RuntimeLayout::supposed(arena)
    }
}
