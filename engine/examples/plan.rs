//! Plans a session on a saved image, verifies the plan, and prints its report.
//!
//! `cargo run -p gilk-engine --example plan -- [SESSION [IMAGE]]`: SESSION is a RON file as `ilk` and
//! the window save it; without one, a counter before each block of a small function.

use std::error::Error;
use std::path::PathBuf;

use gilk_engine::cfg::Cfg;
use gilk_engine::kernel::LiveParts;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::placement::options;
use gilk_engine::plan::{plan, report::report};
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{Addr, HookType, Image, Session};
use gilk_instruments::Library;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let session = arguments.next();
    let path = arguments.next().map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/data/fork.image"
            ))
        },
        PathBuf::from,
    );
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(path)?)?;
    let image = Image::from_live(&parts)?;

    let session = match session {
        Some(path) => Session::from_ron(&std::fs::read_to_string(path)?)?,
        None => counters(&image, "mmput_async")?,
    };

    // The layout says where generated code finds its words on a target: the arena, the rings, the
    // counters. A plan on a supposed layout can be read and verified, but is never sent.
    let layout = RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000));
    let plan = plan(&image, &session, &Library::builtin()?, &layout)?;
    println!("{}", report(&image, &plan));

    // An independent reader proves the plan. Only its result, a `VerifiedPlan`, can be sent.
    match verify(&image, plan) {
        Ok(verified) => println!("verified: {} patches", verified.plan().patches.len()),
        Err(violations) => println!("not verified: {violations:#?}"),
    }
    Ok(())
}

/// Returns a session with a counter before each block of a function that has such a hook.
fn counters(image: &Image, name: &str) -> Result<Session, Box<dyn Error>> {
    let cfg = Cfg::of(image, image.function_named(name)?.id);
    let placements = options(image, &cfg)
        .iter()
        .filter(|block| block.pre.is_ok())
        .map(|block| Placement {
            function: name.into(),
            block: block.block.0,
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch: 0.0,
            splash: 1.0,
        })
        .collect();
    Ok(Session {
        placements,
        ..Session::empty()
    })
}
