#![allow(clippy::all, clippy::unwrap_used, missing_docs)]
use gilk_engine::{Image, Rule, cfg::Cfg, image::SiteKind, placement::options};
use std::collections::BTreeMap;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let rule = std::env::args().nth(2);
    let bytes = std::fs::read(&path).unwrap();
    let t = std::time::Instant::now();
    let image = Image::from_live(&postcard::from_bytes(&bytes).unwrap()).unwrap();
    eprintln!("image {:?}", t.elapsed());
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for s in image.sites().iter() {
        *kinds.entry(format!("{:?}", s.kind)).or_default() += 1;
    }
    println!("{} functions; sites {kinds:?}", image.functions().len());
    let mut refused: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut pre: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    let mut compiled = 0;
    let mut blocks = 0;
    for f in image.functions() {
        compiled += usize::from(image.is_compiled(f.span.start));
        let cfg = Cfg::of(&image, f.id);
        blocks += cfg.blocks.len();
        if let Some(r) = &cfg.refusal {
            refused
                .entry(r.rule.name())
                .or_default()
                .push(format!("{}: {r}", f.name));
            if r.rule == Rule::Blacklisted {
                continue;
            }
        }
        for o in options(&image, &cfg) {
            let n = match &o.pre {
                Ok(s) => s.tactic.name(),
                Err(r) => r.rule.name(),
            };
            let e = pre.entry(n).or_default();
            e.0 += 1;
            if rule.as_deref() == Some(n) && e.1.len() < 60 {
                e.1.push(format!(
                    "{} block {}: {}",
                    f.name,
                    o.block.0,
                    o.pre
                        .as_ref()
                        .err()
                        .map(|r| r.to_string())
                        .unwrap_or_default()
                ));
            }
        }
    }
    println!("{blocks} blocks, {compiled} compiled");
    for (r, l) in &refused {
        println!("FUNCTIONS {r}: {}", l.len());
        if *r != "blacklisted" || rule.as_deref() == Some("blacklisted-functions") {
            for x in l {
                println!("   {x}");
            }
        }
    }
    for (r, (n, l)) in &pre {
        println!("PRE {r}: {n} {:.2}%", 100.0 * *n as f64 / blocks as f64);
        for x in l {
            println!("   {x}");
        }
    }
    let _ = SiteKind::Ftrace;
}
