//! Placements of a whole real kernel, walked through.

use super::super::*;
use super::walk::{Double, Walks, bytes, walk};
use crate::Image;
use crate::cfg::Cfg;

fn image() -> Image {
    let path = std::env::var_os("GILK_IMAGE")
        .expect("GILK_IMAGE must name a saved live image; cargo xtask test makes one");
    Image::from_live(&postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap()).unwrap()
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn every_hook_of_a_kernel_at_once_counts_each_hit_once() {
    let image = image();
    let graphs: Vec<Cfg> = image
        .functions()
        .iter()
        .map(|function| Cfg::of(&image, function.id))
        .collect();
    let graphs: Vec<&Cfg> = graphs.iter().collect();
    let wanted: Vec<Wanted> = graphs
        .iter()
        .enumerate()
        .flat_map(|(index, cfg)| coverage::wanted(index, &image, cfg))
        .collect();
    let placement = place(&image, &graphs, &wanted);
    bytes(&image, &graphs, &placement).unwrap();
    // One function's part of it at a time.
    for (index, cfg) in graphs.iter().enumerate() {
        let behind = |end: Addr| {
            placement
                .sites
                .partition_point(|site| site.displaced.start < end) as u32
        };
        let (low, high) = (behind(cfg.span.start), behind(cfg.span.end));
        let own = |site: SiteIndex| SiteIndex(site.0.wrapping_sub(low));
        let part = Placement {
            sites: placement.sites[low as usize..high as usize].to_vec(),
            bounces: Vec::new(),
            hooks: Vec::new(),
        };
        let from = wanted.partition_point(|wanted| wanted.graph < index);
        let to = wanted.partition_point(|wanted| wanted.graph <= index);
        let hooks = placement.hooks[from..to].iter().cloned().map(|hook| {
            hook.map(|mut reached| {
                reached
                    .points
                    .iter_mut()
                    .for_each(|point| point.0 = own(point.0));
                reached.needs.iter_mut().for_each(|site| *site = own(*site));
                reached
            })
        });
        let part = Placement {
            hooks: hooks.collect(),
            ..part
        };
        let walks = Walks::of(&image, cfg);
        let mut double = Double::new(&walks, index, &wanted[from..to], &part, |_| true);
        walk(&mut double, 2, 120, index as u64).unwrap_or_else(|why| panic!("{}: {why}", cfg.name));
        let mut double = Double::new(&walks, index, &wanted[from..to], &part, |hook| {
            hook % 3 == index % 3
        });
        walk(&mut double, 1, 120, index as u64).unwrap_or_else(|why| panic!("{}: {why}", cfg.name));
    }
}
