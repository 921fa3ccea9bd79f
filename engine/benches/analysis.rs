//! Analysis of a whole kernel: `GILK_IMAGE=file cargo bench -p gilk-engine --bench analysis`.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use gilk_engine::Image;
use gilk_engine::cfg::Cfg;
use gilk_engine::code::Function;
use gilk_engine::kernel::LiveParts;
use gilk_engine::liveness::{Analysis, Arguments, Liveness};

fn saved() -> Option<LiveParts> {
    let Some(path) = std::env::var_os("GILK_IMAGE") else {
        eprintln!(
            "The analysis of a kernel is not measured: set GILK_IMAGE to a saved live image (cargo xtask test makes one)."
        );
        return None;
    };
    let read = std::fs::read(&path).map_err(|error| error.to_string());
    match read.and_then(|bytes| postcard::from_bytes(&bytes).map_err(|error| error.to_string())) {
        Ok(parts) => Some(parts),
        Err(error) => {
            eprintln!(
                "The analysis of a kernel is not measured: {} cannot be read: {error}.",
                path.display()
            );
            None
        }
    }
}

/// The graphs of all functions, and their liveness if `live`.
fn whole(image: &Image, threads: usize, live: bool) -> Vec<(Cfg, Option<Liveness>)> {
    let analysis = Analysis::new(image);
    let measured = |function: &Function| {
        let cfg = Cfg::of(image, function.id);
        let live = live.then(|| Liveness::of(&analysis, &cfg));
        (cfg, live)
    };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        // A few hundred at a time, so that no thread is left with the long ones.
        while let Some(some) = image
            .functions()
            .chunks(256)
            .nth(next.fetch_add(1, Relaxed))
        {
            done.extend(some.iter().map(measured));
        }
        done
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for other in others {
            all.extend(other.join().unwrap_or_default());
        }
        all
    })
}

/// Seconds that objdump takes for the same bytes.
fn objdump(image: &Image) -> Option<f64> {
    let text = image.text();
    let path = std::env::temp_dir().join(format!("gilk-bench-{}.text", std::process::id()));
    std::fs::write(&path, image.bytes(text)?).ok()?;
    let begin = Instant::now();
    let run = Command::new("objdump")
        .args(["-D", "-b", "binary", "-m", "i386:x86-64"])
        .arg(format!("--adjust-vma={:#x}", text.start.0))
        .arg(&path)
        .stdout(Stdio::null())
        .status();
    let took = begin.elapsed().as_secs_f64();
    std::fs::remove_file(&path).ok()?;
    run.is_ok_and(|status| status.success()).then_some(took)
}

/// The most memory that this process has had, in MB.
fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes / 1024)
}

fn analysis(criterion: &mut Criterion) {
    let Some(parts) = saved() else { return };
    let image = match Image::from_live(&parts) {
        Ok(image) => image,
        Err(error) => {
            eprintln!("{error}");
            return;
        }
    };
    let begin = Instant::now();
    let all = whole(&image, 2, true);
    let took = begin.elapsed().as_secs_f64();
    let blocks: usize = all.iter().map(|(cfg, _)| cfg.blocks.len()).sum();
    println!(
        "{blocks} blocks with liveness in {took:.2} s on 2 threads; {} MB at most, all of it kept",
        most_memory().unwrap_or_default()
    );
    match objdump(&image) {
        Some(other) => println!(
            "objdump disassembles the same bytes in {other:.2} s, {:.1} times as long",
            other / took
        ),
        None => println!("objdump could not be run on the same bytes"),
    }

    let mut group = criterion.benchmark_group("whole kernel");
    group.sample_size(10);
    group.bench_function("image", |bencher| {
        bencher.iter(|| Image::from_live(black_box(&parts)));
    });
    for (name, live) in [("graphs", false), ("graphs and liveness", true)] {
        for threads in [1, 2] {
            group.bench_function(format!("{name}, threads: {threads}"), |bencher| {
                bencher.iter_with_large_drop(|| whole(&image, threads, live));
            });
        }
    }
    group.bench_function("arguments", |bencher| {
        bencher.iter(|| {
            all.iter()
                .for_each(|(cfg, _)| drop(black_box(Arguments::of(&image, cfg))));
        });
    });
    group.finish();
}

criterion_group!(benches, analysis);
criterion_main!(benches);
