//! Analysis of a whole kernel: `GILK_IMAGE=file cargo bench -p gilk-engine --bench analysis`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gilk_engine::Image;
use gilk_engine::cfg::Cfg;
use gilk_engine::image::LiveParts;
use gilk_engine::liveness::{Arguments, Liveness};

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

fn analysis(criterion: &mut Criterion) {
    let Some(parts) = saved() else { return };
    let image = match Image::from_live(&parts) {
        Ok(image) => image,
        Err(error) => {
            eprintln!("{error}");
            return;
        }
    };
    let mut group = criterion.benchmark_group("whole kernel");
    group.sample_size(10);
    group.bench_function("image", |bencher| {
        bencher.iter(|| Image::from_live(black_box(&parts)));
    });
    let graphs = || {
        image
            .functions()
            .iter()
            .map(|function| Cfg::of(&image, function.id))
    };
    group.bench_function("graphs", |bencher| {
        bencher.iter(|| {
            graphs()
                .map(|cfg| black_box(cfg).blocks.len())
                .sum::<usize>()
        });
    });
    let all: Vec<Cfg> = graphs().collect();
    group.bench_function("liveness", |bencher| {
        bencher.iter(|| {
            all.iter()
                .for_each(|cfg| drop(black_box(Liveness::of(&image, cfg))));
        });
    });
    group.bench_function("arguments", |bencher| {
        bencher.iter(|| {
            all.iter()
                .for_each(|cfg| drop(black_box(Arguments::of(&image, cfg))));
        });
    });
    group.finish();
}

criterion_group!(benches, analysis);
criterion_main!(benches);
