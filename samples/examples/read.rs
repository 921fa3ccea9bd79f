//! Opens a recording and prints its lanes: samples, mean value, and activity over time.
//!
//! `cargo run -p gilk-samples --example read -- RECORDING`; without an argument the example records
//! a second of two made-up instruments first.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gilk_samples::index::{Column, Index};
use gilk_samples::metadata::{Clock, Delivers, InstrumentInfo, Metadata};
use gilk_samples::recording::{Recording, Writer};
use gilk_samples::{Batch, HookType, InstrumentId, Meaning, Sample};

/// Width of a lane in characters.
const COLUMNS: usize = 60;
/// Eighths of a character's height.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => made_up(directory.path())?,
    };
    let recording = Recording::open(&path)?;
    if let Some(missing) = recording.recovered() {
        println!("{missing}");
    }
    let metadata = recording.metadata();
    println!(
        "{} samples on {} CPUs of Linux {}",
        recording.samples(),
        metadata.cpus,
        metadata.kernel
    );
    let (index, damaged) = Index::of(&recording, |_| ControlFlow::Continue(()));
    for error in damaged {
        println!("{error}");
    }
    let Some((first, last)) = index.span() else {
        return Ok(());
    };
    for lane in index.lanes() {
        let info = metadata.instruments.iter().find(|info| info.id == lane.id);
        let label = info.map_or("unknown instrument", |info| info.label.as_str());
        let columns = index.view(lane.id, first, last.saturating_add(1), COLUMNS);
        println!(
            "{label:40} {} {:8} samples, mean {:.1}",
            bars(&columns),
            lane.total.count,
            lane.total.mean().unwrap_or(f64::NAN),
        );
    }
    Ok(())
}

/// Draws the number of samples in each column.
fn bars(columns: &[Column]) -> String {
    let most = columns.iter().map(|column| column.count).max();
    let most = most.unwrap_or(0).max(1);
    let steps = BARS.len() as u64 - 1;
    let bar = |column: &Column| (column.count * steps).div_ceil(most) as usize;
    columns
        .iter()
        .filter_map(|column| BARS.get(bar(column)))
        .collect()
}

/// Records a second of two instruments on two CPUs, and returns the file.
fn made_up(directory: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let hz = 1_000_000_000;
    let id = |major| InstrumentId::new(major, HookType::Pre, 0, 0).map(InstrumentId::pack);
    let instrument = |major, name: &str, meaning| -> Result<InstrumentInfo, Box<dyn Error>> {
        Ok(InstrumentInfo {
            id: id(major).ok_or("the major number exceeds its bits")?,
            label: format!("{name} pre function_{major} block 0"),
            instrument: name.to_owned(),
            meaning,
            unit: String::new(),
            launch: 0.0,
            splash: 1.0,
            placed: None,
            delivers: Delivers::Samples,
        })
    };
    let metadata = Metadata {
        kernel: "6.1.0-example".to_owned(),
        cpus: 2,
        clock: Clock {
            hz,
            start: 0,
            start_unix_ns: 0,
        },
        instruments: vec![
            instrument(0, "timestamp", Meaning::Event)?,
            instrument(1, "argument", Meaning::Value)?,
        ],
        ..Metadata::default()
    };
    let path = directory.join("example.arrow");
    let mut writer = Writer::create(&path, &metadata)?;
    for cpu in 0..2 {
        // A CPU's samples must be in order of time, also from one call of `write` to the next.
        let mut samples = Vec::new();
        for millisecond in 0..1000 {
            let is_busy = millisecond / 250 % 2 == u64::from(cpu);
            for info in &metadata.instruments {
                if is_busy || millisecond.is_multiple_of(4) {
                    samples.push(Sample {
                        id: info.id,
                        value: millisecond,
                        tsc: millisecond * hz / 1000,
                    });
                }
            }
        }
        writer.write(&Batch { cpu, samples })?;
    }
    writer.finish()?;
    Ok(path)
}
