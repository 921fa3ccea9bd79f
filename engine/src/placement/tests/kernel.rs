//! Placements of a whole real kernel, walked through.

use std::collections::BTreeMap;

use super::super::family::families;
use super::super::*;
use super::walk::{Double, Walks, bytes, order, walk};
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
    order(&placement).unwrap();
    // A function's and its parts' share of it at a time.
    for family in families(&image, &graphs) {
        let own: BTreeMap<usize, &Cfg> = (family.given.iter())
            .map(|&index| (index, graphs[index]))
            .collect();
        let mut sites: Vec<u32> = Vec::new();
        let mut hooks: Vec<usize> = Vec::new();
        for (&index, cfg) in &own {
            let behind = |end: Addr| {
                let sites = &placement.sites;
                sites.partition_point(|site| site.displaced.start < end) as u32
            };
            sites.extend(behind(cfg.span.start)..behind(cfg.span.end));
            let from = wanted.partition_point(|wanted| wanted.graph < index);
            hooks.extend(from..wanted.partition_point(|wanted| wanted.graph <= index));
        }
        let number = |site: SiteIndex| {
            let number = sites.iter().position(|&own| own == site.0);
            SiteIndex(number.expect("a site of the family") as u32)
        };
        let renamed = hooks.iter().map(|&hook| {
            placement.hooks[hook].clone().map(|mut reached| {
                for (site, _) in &mut reached.points {
                    *site = number(*site);
                }
                for site in &mut reached.needs {
                    *site = number(*site);
                }
                reached
            })
        });
        let part = Placement {
            sites: (sites.iter())
                .map(|&site| placement.sites[site as usize].clone())
                .collect(),
            bounces: Vec::new(),
            hooks: renamed.collect(),
        };
        let wanted: Vec<Wanted> = hooks.iter().map(|&hook| wanted[hook]).collect();
        let cfgs: Vec<&Cfg> = own.values().copied().collect();
        let walks = Walks::of(&image, &cfgs);
        let name = cfgs.first().map_or("", |cfg| &cfg.name);
        let seed = family.given[0] as u64;
        let mut double = Double::new(&walks, &own, &wanted, &part, |_| true);
        walk(&mut double, 2, 120, seed).unwrap_or_else(|why| panic!("{name}: {why}"));
        let third = |hook| hook as u64 % 3 == seed % 3;
        let mut double = Double::new(&walks, &own, &wanted, &part, third);
        walk(&mut double, 1, 120, seed).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}
