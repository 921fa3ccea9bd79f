//! The hookable share of kernels, by tactic.

use gilk_engine::Image;
use gilk_engine::cfg::Cfg;
use gilk_engine::placement::coverage::{Counts, Coverage, of_function};
use gilk_engine::placement::options;
use ilk_driver::client::Connection;
use ilk_driver::lab::{Lab, Options, prepare};
use ilk_driver::spread::{spread, threads};

use crate::How;
use crate::guest::Guest;
use crate::table::Tables;

/// A quick run covers one function of so many.
const ONE_OF: usize = 16;

/// Fills a column of the table for each kernel: the guest's, and for Debian's own also its
/// real-time flavour.
pub(crate) fn measure(guest: &mut Guest, tables: &mut Tables, how: &How) -> anyhow::Result<()> {
    note(&guest.image, tables, how);
    if guest.series.is_none() && !how.quick {
        let options = Options {
            flavour: Some("rt".into()),
            ..Options::default()
        };
        let lab = Lab::boot(&prepare(&options, &mut |_| ())?, &mut |_| ())?;
        let mut connection = Connection::connect(lab.socket())?;
        let image = Image::from_live(&connection.live_parts(&mut |_, _| ())?)?;
        note(&image, tables, how);
    }
    Ok(())
}

fn note(image: &Image, tables: &mut Tables, how: &How) {
    let step = if how.quick { ONE_OF } else { 1 };
    let functions: Vec<_> = image.functions().iter().step_by(step).collect();
    let each = spread(&functions, threads(), &mut |_| (), |function| {
        let cfg = Cfg::of(image, function.id);
        of_function(image, &cfg, &options(image, &cfg))
    });
    let mut all = Coverage::default();
    each.iter().for_each(|one| all.merge(one));
    let release = image.release();
    let mut row = |what: &str, figure: f64| tables.add("", what, release, figure);
    row("functions", all.functions as f64);
    row("blocks", all.pre.all() as f64);
    for (kind, counts) in [
        ("pre-hooks", &all.pre),
        ("post-hooks", &all.post),
        ("any instruction", &all.instructions),
    ] {
        let share = |count: u64| 100.0 * count as f64 / counts.all().max(1) as f64;
        row(
            &format!("{kind}: cannot be hooked, %"),
            share(counts.all() - counts.reached()),
        );
        row(
            &format!("{kind}: or by a trap only, %"),
            share(counts.all() - without_trap(counts)),
        );
        for (tactic, &count) in &counts.by_tactic {
            row(&format!("{kind}: {}", tactic.name()), count as f64);
        }
        for (rule, &count) in &counts.by_rule {
            row(&format!("{kind}: refused, {rule}"), count as f64);
        }
    }
}

fn without_trap(counts: &Counts) -> u64 {
    let traps = counts
        .by_tactic
        .iter()
        .filter(|(tactic, _)| tactic.name() == "int3");
    counts.reached() - traps.map(|(_, count)| count).sum::<u64>()
}
