//! `ilk coverage`: how every block of a kernel can be hooked, counted by method and by rule.

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

/// Count what of a kernel can be hooked: by which method, or refused by which rule.
#[derive(Args)]
pub(crate) struct CoverageCommand {
    /// A kernel that `ilk dump` saved, a vmlinux or a vmlinuz. Left out: the running kernel of --socket or --lab.
    #[arg(conflicts_with_all = ["socket", "lab"])]
    image: Option<PathBuf>,
    /// Print it for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// Says what is being done, once that takes longer than a second.
struct Patience {
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
    let mut patience = Patience {
        progress: Progress::new(),
        begun: Instant::now(),
    };
    let ids: Vec<FunctionId> = image.functions().iter().map(|one| one.id).collect();
    let all = ids.len();
    let each = spread(
        &ids,
        threads(),
        &mut |done| {
            patience.share(done as f32 / all as f32, "looking at every block");
        },
        |&id| {
            let cfg = Cfg::of(image, id);
            let coverage = coverage::of_function(image, &cfg, &options(image, &cfg));
            (cfg, coverage)
        },
    );
    let mut alone = Coverage::default();
    each.iter().for_each(|(_, one)| alone.merge(one));
    let graphs: Vec<&Cfg> = each.iter().map(|(cfg, _)| cfg).collect();
    let wanted: Vec<Wanted> = graphs
        .iter()
        .enumerate()
        .flat_map(|(graph, cfg)| coverage::wanted(graph, image, cfg))
        .collect();
    patience.share(1.0, "placing every hook at once");
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

impl Patience {
    fn share(&mut self, share: f32, what: &str) {
        if self.begun.elapsed() > Duration::from_secs(1) {
            self.progress.share(share, what);
        }
    }
}
