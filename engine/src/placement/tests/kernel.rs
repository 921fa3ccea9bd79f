//! Solutions for a whole real kernel, walked through.

use std::collections::BTreeMap;

use super::super::family::families;
use super::super::*;
use super::bytes::{bytes, hidden, order};
use super::walk::{Double, Walks, all_ways};
use crate::cfg::Cfg;
use crate::extent::number;
use crate::{Addr, Image, Rule};

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
    let (hidden, remaining) = hidden(&image, &graphs, &placement);
    println!(
        "{} of {remaining} remaining instructions are on no boundary",
        hidden.len()
    );
    for at in hidden.iter().take(5) {
        println!("  {:?}", image.symbol_at(*at));
    }
    assert!(hidden.len() * 1000 < remaining);
    // A function's and its parts' share of it at a time: of every twenty-fourth function, or in long runs of all.
    let step = number("GILK_PART", 24);
    for family in families(&image, &graphs).into_iter().step_by(step) {
        let by_index: BTreeMap<usize, &Cfg> = (family.given.iter())
            .map(|&index| (index, graphs[index]))
            .collect();
        let mut sites: Vec<u32> = Vec::new();
        let mut hooks: Vec<usize> = Vec::new();
        for (&index, cfg) in &by_index {
            let before = |end: Addr| {
                let sites = &placement.sites;
                sites.partition_point(|site| site.displaced.start < end) as u32
            };
            sites.extend(before(cfg.span.start)..before(cfg.span.end));
            let from = wanted.partition_point(|wanted| wanted.graph < index);
            hooks.extend(from..wanted.partition_point(|wanted| wanted.graph <= index));
        }
        let number = |site: SiteIndex| {
            let number = sites.iter().position(|&by_index| by_index == site.0);
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
        let part = Solution {
            sites: (sites.iter())
                .map(|&site| placement.sites[site as usize].clone())
                .collect(),
            bounces: Vec::new(),
            hooks: renamed.collect(),
        };
        let wanted: Vec<Wanted> = hooks.iter().map(|&hook| wanted[hook]).collect();
        let cfgs: Vec<&Cfg> = by_index.values().copied().collect();
        let walks = Walks::of(&image, &cfgs);
        let name = cfgs.first().map_or("", |cfg| &cfg.name);
        let seed = family.given[0] as u64;
        let mut double = Double::new(&walks, &by_index, &wanted, &part, |_| true);
        all_ways(&mut double).unwrap_or_else(|why| panic!("{name}: {why}"));
        let third = |hook| hook as u64 % 3 == seed % 3;
        let mut double = Double::new(&walks, &by_index, &wanted, &part, third);
        all_ways(&mut double).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

/// Every hook of a function, the function alone in a session and relocated whole, in either style.
#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn functions_relocated_whole_count_each_hit_once() {
    let image = image();
    let every = number("GILK_EVERY", 23);
    let mut why: BTreeMap<Rule, u32> = BTreeMap::new();
    let (mut functions, mut whole, mut cheaper) = (0, 0, 0);
    let mut sums = [StyleCost::default(); 2];
    for function in image.functions().iter().step_by(every) {
        let cfg = Cfg::of(&image, function.id);
        let wanted = coverage::wanted(0, &image, &cfg);
        if cfg.refusal.is_some() || wanted.is_empty() {
            continue;
        }
        functions += 1;
        let styled = place_in_styles(&image, &[&cfg], &[Style::Whole], &wanted);
        let comparison = styled.compared[0].as_ref().unwrap();
        match &comparison.whole {
            Err(refusal) => *why.entry(refusal.rule).or_default() += 1,
            Ok(cost) => {
                whole += 1;
                let is_cheaper = comparison.cheaper() == Style::Whole;
                cheaper += u32::from(is_cheaper);
                if is_cheaper {
                    for (sum, one) in sums.iter_mut().zip([&comparison.in_place, cost]) {
                        sum.jumps += one.jumps;
                        sum.ns += one.ns;
                        sum.sites += one.sites;
                        sum.bounces += one.bounces;
                        sum.written += one.written;
                        sum.copied += one.copied;
                        sum.points += one.points;
                        sum.waits += one.waits;
                    }
                }
            }
        }
        let fail = |why| panic!("{}: {why}", cfg.name);
        let sites = &styled.solution.sites;
        let family = families(&image, &[&cfg]).remove(0);
        let graphs: Vec<&Cfg> = family.graphs.iter().map(|cfg| &**cfg).collect();
        let inside = |at: Addr| graphs.iter().any(|cfg| cfg.span.contains(at));
        // Donors are in functions whose graphs are not here.
        if sites.iter().all(|site| inside(site.displaced.start)) {
            bytes(&image, &graphs, &styled.solution).unwrap_or_else(fail);
        }
        let walks = Walks::of(&image, &graphs);
        let own = BTreeMap::from([(0, &cfg)]);
        for active in [1, 3] {
            let some = |hook: usize| hook.is_multiple_of(active);
            let mut double = Double::new(&walks, &own, &wanted, &styled.solution, some);
            all_ways(&mut double).unwrap_or_else(fail);
        }
    }
    println!(
        "{functions} functions, {whole} can be relocated whole, {cheaper} cheaper so; not: {why:?}"
    );
    println!("those in place: {}\n         whole: {}", sums[0], sums[1]);
    assert!(
        whole > functions as u32 / 2,
        "most functions can be relocated whole"
    );
}
