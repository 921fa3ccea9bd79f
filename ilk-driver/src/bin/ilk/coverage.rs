//! `ilk coverage`: the hooks of every block of a kernel, counted by tactic and by refusing rule.

mod folders;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use gilk_engine::Image;
use gilk_engine::cfg::Cfg;
use gilk_engine::code::{FunctionId, Origin};
use gilk_engine::placement::coverage::{self, Coverage};
use gilk_engine::placement::{Tactic, Tactics, Wanted, options_with, place_with};
use ilk_driver::saved;
use ilk_driver::spread::{spread, threads};

use crate::progress::Progress;
use crate::target::{ImageArgs, TargetArgs};
use folders::Programs;
use table::{Files, Table};

/// Bytes of a megabyte.
const MEGABYTE: u64 = 1 << 20;

/// Count the blocks of a kernel that can be hooked, by tactic, and those that are refused, by rule.
#[derive(Args)]
pub(crate) struct CoverageCommand {
    /// A kernel that `ilk dump` saved, a vmlinux or a vmlinuz; a program or a library; or folders, of which all programs
    /// and libraries are counted in one table. Left out: the running kernel of --socket or --lab.
    #[arg(conflicts_with_all = ["socket", "lab"])]
    images: Vec<PathBuf>,
    /// Leave out files of folders that have more megabytes.
    #[arg(long, value_name = "MB")]
    largest: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Switch a tactic off, and count what the others reach without it. May be repeated.
    #[arg(long, value_name = "TACTIC")]
    without: Vec<Tactic>,
    #[command(flatten)]
    target: TargetArgs,
}

/// Progress that is shown once it takes longer than a second.
struct Patience {
    progress: Progress,
    begun: Instant,
}

impl CoverageCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let tactics = self.without.iter();
        let tactics = tactics.fold(Tactics::ALL, |set, &tactic| set.without(tactic));
        let table = match self.images.as_slice() {
            [folder, ..] if folder.is_dir() => {
                let largest = self
                    .largest
                    .map_or(u64::MAX, |most| most.saturating_mul(MEGABYTE));
                of_programs(
                    &Programs::in_folders(&self.images, largest)?,
                    tactics,
                    &self.without,
                )?
            }
            [_, _, ..] => bail!("Name one file, or folders."),
            _ => {
                let image = self.images.into_iter().next();
                let (image, _) = ImageArgs::of(self.target, image).image()?;
                table(&image, tactics, self.without)
            }
        };
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &table.json())?;
            writeln!(out)?;
        } else {
            out.write_all(table.text().as_bytes())?;
        }
        Ok(out.flush()?)
    }
}

fn table(image: &Image, tactics: Tactics, without: Vec<Tactic>) -> Table {
    let mut patience = Patience {
        progress: Progress::new(),
        begun: Instant::now(),
    };
    let ids: Vec<FunctionId> = image
        .functions()
        .iter()
        .map(|function| function.id)
        .collect();
    let all = ids.len();
    let each = spread(
        &ids,
        threads(),
        &mut |done| {
            patience.share(done as f32 / all as f32, "placing every hook alone");
        },
        |&id| {
            let cfg = Cfg::of(image, id);
            let options = options_with(image, tactics, &cfg);
            let coverage = coverage::of_function_with(image, tactics, &cfg, &options);
            (cfg, coverage)
        },
    );
    let mut alone = Coverage::default();
    each.iter().for_each(|(_, coverage)| alone.merge(coverage));
    let graphs: Vec<&Cfg> = each.iter().map(|(cfg, _)| cfg).collect();
    let wanted: Vec<Wanted> = graphs
        .iter()
        .enumerate()
        .flat_map(|(graph, cfg)| coverage::wanted(graph, image, cfg))
        .collect();
    patience.share(1.0, "placing every hook at once");
    let solution = place_with(image, tactics, &graphs, &wanted);
    let (pre, post) = coverage::of_solution(&wanted, &solution);
    Table {
        title: image.title(),
        boots: image.origin() == Origin::Kernel,
        release: image.release().to_owned(),
        live: image.is_live(),
        without,
        alone,
        pre,
        post,
        sites: solution.sites.len() as u64,
        bounces: solution.bounces.len() as u64,
        files: None,
    }
}

/// The table of all programs and libraries, each by itself.
fn of_programs(programs: &Programs, tactics: Tactics, without: &[Tactic]) -> anyhow::Result<Table> {
    let mut progress = Progress::new();
    let (mut sum, mut unread): (Option<Table>, Vec<String>) = (None, Vec::new());
    let all = programs.files.len();
    for (number, path) in programs.files.iter().enumerate() {
        progress.share(number as f32 / all as f32, &path.display().to_string());
        match saved::open(path) {
            Ok(image) => {
                let table = table(&image, tactics, without.to_owned());
                match &mut sum {
                    Some(sum) => sum.merge(&table),
                    None => sum = Some(table),
                }
            }
            Err(error) => unread.push(error.to_string()),
        }
    }
    drop(progress);
    let mut table =
        sum.with_context(|| format!("{} has no program that can be read.", programs.title))?;
    table.title = format!(
        "{} programs and libraries of {}",
        all - unread.len(),
        programs.title
    );
    table.release.clone_from(&programs.title);
    table.files = Some(Files {
        read: all - unread.len(),
        large: programs.large,
        unread,
    });
    Ok(table)
}

impl Patience {
    fn share(&mut self, share: f32, what: &str) {
        if self.begun.elapsed() > Duration::from_secs(1) {
            self.progress.share(share, what);
        }
    }
}
