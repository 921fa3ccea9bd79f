//! `ilk coverage`: the hooks of every block of a kernel, counted by tactic and by rule.

mod table;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use gilk_engine::Image;
use gilk_engine::cfg::Cfg;
use gilk_engine::code::FunctionId;
use gilk_engine::placement::coverage::{self, Coverage};
use gilk_engine::placement::{Wanted, options, place};
use ilk_driver::spread::{spread, threads};

use crate::progress::Progress;
use crate::target::{ImageArgs, TargetArgs};
use table::Table;

/// Count a kernel's hooks: by tactic, or by the rule that refuses them.
#[derive(Args)]
pub(crate) struct CoverageCommand {
    /// A kernel that `ilk dump` saved, a vmlinux or a vmlinuz. Default: the running kernel of --socket or --lab.
    #[arg(conflicts_with_all = ["socket", "lab"])]
    image: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// Progress that is shown only after a second.
struct DelayedProgress {
    progress: Progress,
    begun: Instant,
}

impl CoverageCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let (image, _) = ImageArgs::of(self.target, self.image).image()?;
        let table = table(&image);
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

fn table(image: &Image) -> Table {
    let mut progress = DelayedProgress {
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
            progress.share(done as f32 / all as f32, "analysing every block");
        },
        |&id| {
            let cfg = Cfg::of(image, id);
            let coverage = coverage::of_function(image, &cfg, &options(image, &cfg));
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
    progress.share(1.0, "placing every hook at once");
    let placement = place(image, &graphs, &wanted);
    let (pre, post) = coverage::of_placement(&wanted, &placement);
    Table {
        release: image.release().to_owned(),
        live: image.is_live(),
        alone,
        pre,
        post,
        sites: placement.sites.len() as u64,
        bounces: placement.bounces.len() as u64,
    }
}

impl DelayedProgress {
    fn share(&mut self, share: f32, what: &str) {
        if self.begun.elapsed() > Duration::from_secs(1) {
            self.progress.share(share, what);
        }
    }
}
