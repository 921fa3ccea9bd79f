//! `ilk coverage`: the hooks of every block of a kernel, counted by tactic and by refusing rule.

mod table;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use gilk_engine::Image;
use gilk_engine::cfg::Cfg;
use gilk_engine::code::{FunctionId, Origin};
use gilk_engine::placement::coverage::{self, Coverage};
use gilk_engine::placement::{Tactic, Tactics, Wanted, options_with, place_with};
use ilk_driver::spread::{spread, threads};

use crate::progress::Progress;
use crate::target::{ImageArgs, TargetArgs};
use table::Table;

/// Count the blocks of a kernel that can be hooked, by tactic, and those that are refused, by rule.
#[derive(Args)]
pub(crate) struct CoverageCommand {
    /// A kernel that `ilk dump` saved, a vmlinux or a vmlinuz; a program or a library. Left out: the running kernel of --socket or --lab.
    #[arg(conflicts_with_all = ["socket", "lab"])]
    image: Option<PathBuf>,
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
        let (image, _) = ImageArgs::of(self.target, self.image).image()?;
        let tactics = self.without.iter();
        let tactics = tactics.fold(Tactics::ALL, |set, &tactic| set.without(tactic));
        let table = table(&image, tactics, self.without);
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
    }
}

impl Patience {
    fn share(&mut self, share: f32, what: &str) {
        if self.begun.elapsed() > Duration::from_secs(1) {
            self.progress.share(share, what);
        }
    }
}
