//! Functions of the kernel that `GILK_IMAGE` names, or of the trimmed one, relocated whole: every
//! hook of a sample of them.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/kernel.rs"]
mod kernel;

use std::collections::BTreeMap;

use gilk_engine::cfg::Cfg;
use gilk_engine::placement::{Comparison, Site, Splice, Style, coverage, place};
use gilk_engine::plan::{Plan, plan, report::report};
use gilk_engine::session::{Placement, Session};
use gilk_engine::verify::verify;
use gilk_engine::{Addr, Error, Image, Span};
use gilk_instruments::Library;
use iced_x86::FlowControl;
use kernel::{image, layout, name, step};

/// Every hook of the function that can be reached in place with all others, each with the instrument.
fn session(image: &Image, cfg: &Cfg, instrument: &str, style: Style) -> Session {
    let wanted = coverage::wanted(0, image, cfg);
    let placed = place(image, &[cfg], &wanted);
    let reached = wanted.iter().zip(placed.hooks);
    let reached = reached.filter_map(|(wanted, hook)| hook.is_ok().then_some(wanted));
    let placements = reached.map(|wanted| Placement {
        function: name(image, cfg).into(),
        block: wanted.block.0,
        hook: wanted.hook,
        instrument: instrument.into(),
        launch: 0.0,
        splash: 1.0,
    });
    Session {
        placements: placements.collect(),
        styles: BTreeMap::from([(name(image, cfg), style)]),
        ..Session::empty()
    }
}

fn planned(image: &Image, session: &Session) -> Result<Plan, Error> {
    plan(image, session, &Library::builtin().unwrap(), &layout())
}

fn passes(image: &Image, plan: &Plan) {
    if let Err(violations) = verify(image, plan.clone()) {
        let some: Vec<String> = violations.iter().take(4).map(ToString::to_string).collect();
        panic!(
            "{}: {some:#?}\n{}",
            plan.functions
                .first()
                .map_or("", |function| function.name.as_str()),
            report(image, plan)
        );
    }
}

/// All at one time, by three kinds of instrument.
#[test]
fn whole_functions_are_verified() {
    let image = image();
    let (mut functions, mut hooks, mut refused) = (0, 0, 0);
    let mut bytes = [0_usize; 2];
    for function in image.functions().iter().step_by(step(149)) {
        let cfg = Cfg::of(&image, function.id);
        for instrument in ["counter", "timestamp", "elapsed-stop"] {
            let whole = session(&image, &cfg, instrument, Style::Whole);
            if whole.placements.is_empty() || cfg.refusal.is_some() {
                continue;
            }
            functions += 1;
            let plan = match planned(&image, &whole) {
                Ok(plan) => plan,
                Err(Error::Refused { .. }) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{}: {error}", function.name),
            };
            assert!(plan.functions.iter().all(|one| one.style == Style::Whole));
            hooks += plan.instruments.len();
            passes(&image, &plan);
            let in_place = session(&image, &cfg, instrument, Style::InPlace);
            for (sum, plan) in bytes
                .iter_mut()
                .zip([planned(&image, &in_place).unwrap(), plan])
            {
                *sum += plan
                    .patches
                    .iter()
                    .map(|patch| patch.code.len())
                    .sum::<usize>();
            }
        }
    }
    eprintln!(
        "{functions} plans of {hooks} hooks, {refused} refused; bytes of patches in place and whole: {bytes:?}"
    );
    assert!(hooks > 0 && refused * 50 < functions);
}

/// Addresses of the calls that patches execute in place of the original code, one for each copy.
fn moved_calls(cfg: &Cfg, plan: &Plan) -> Vec<Addr> {
    let blocks = cfg.blocks.iter();
    let instructions = blocks.flat_map(|block| block.instructions.iter());
    let calls = instructions.filter(|one| one.flow_control() == FlowControl::Call);
    let calls: Vec<Addr> = calls.map(|one| Addr(one.ip())).collect();
    let copied = plan.sites.iter().flat_map(|site| {
        let continuations = site.continuations.iter();
        let mut spans: Vec<Span> = continuations.map(|one| one.copied).collect();
        // A call of the patch over a call is no moved one: its return address is the processor's.
        spans.extend((site.splice != Splice::Call).then_some(site.displaced));
        spans.sort_unstable();
        spans.dedup();
        spans
    });
    copied
        .flat_map(|span| calls.iter().filter(move |&&call| span.contains(call)))
        .copied()
        .collect()
}

/// A moved call leaves the processor's stack of return addresses one short, so that every outer return mispredicts.
#[test]
fn a_call_is_moved_only_where_a_site_displaces_its_bytes() {
    let image = image();
    let mut counts = [(0, 0); 2];
    let sampled = image.functions().iter().step_by(step(149));
    let large = (image.functions().iter()).filter(|function| &*function.name == "copy_process");
    for function in sampled.chain(large) {
        let cfg = Cfg::of(&image, function.id);
        for (count, style) in counts.iter_mut().zip([Style::InPlace, Style::Whole]) {
            let session = session(&image, &cfg, "counter", style);
            if session.placements.is_empty() || cfg.refusal.is_some() {
                continue;
            }
            let Ok(plan) = planned(&image, &session) else {
                continue;
            };
            let moved = moved_calls(&cfg, &plan);
            if &*function.name == "copy_process" {
                eprintln!("copy_process, {style}: {} moved calls", moved.len());
            }
            for &call in &moved {
                let displaces = |site: &Site| site.displaced.contains(call);
                assert!(
                    plan.sites.iter().any(displaces),
                    "{}, {style}: a patch copies the call at {call}, which stays in the original code",
                    function.name
                );
            }
            *count = (count.0 + plan.patches.len(), count.1 + moved.len());
        }
    }
    eprintln!("patches and moved calls, in place and whole: {counts:?}");
    assert!(counts.iter().all(|(patches, _)| *patches > 0));
}

/// Instruments that come and go at many times: sites, waits and versions are as good as in place.
#[test]
fn whole_functions_are_verified_at_all_times() {
    let image = image();
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        // Knuth's MMIX generator.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut pokes = 0;
    for function in image.functions().iter().skip(3).step_by(step(149)) {
        let cfg = Cfg::of(&image, function.id);
        if cfg.refusal.is_some() {
            continue;
        }
        let mut whole = session(&image, &cfg, "block-trace", Style::Whole);
        for one in &mut whole.placements {
            let (launch, length) = (random(6), random(3) + 1);
            one.launch = f64::from(launch as u32);
            one.splash = f64::from((launch + length) as u32);
        }
        match planned(&image, &whole) {
            Ok(plan) => {
                pokes += plan
                    .batches
                    .iter()
                    .map(|batch| batch.pokes.len())
                    .sum::<usize>();
                passes(&image, &plan);
            }
            Err(Error::Refused { .. }) => {}
            Err(error) => panic!("{}: {error}", function.name),
        }
    }
    assert!(pokes > 0);
}

/// Left the choice, a plan reaches all that it reaches in place, and is as cheap as the cheaper.
#[test]
fn the_choice_reaches_no_less() {
    let image = image();
    let mut taken = BTreeMap::<Style, u32>::new();
    for function in image.functions().iter().skip(11).step_by(step(149)) {
        let cfg = Cfg::of(&image, function.id);
        if cfg.refusal.is_some() {
            continue;
        }
        let auto = session(&image, &cfg, "counter", Style::Auto);
        if auto.placements.is_empty() {
            continue;
        }
        let plan = planned(&image, &auto).unwrap_or_else(|why| panic!("{}: {why}", function.name));
        passes(&image, &plan);
        for function in &plan.functions {
            *taken.entry(function.style).or_default() += 1;
            let looked = auto.placements.len() >= Comparison::FROM as usize;
            assert_eq!(function.compared.is_some(), looked);
            let cheaper = function
                .compared
                .as_deref()
                .map_or(Style::InPlace, Comparison::cheaper);
            assert_eq!(function.style, cheaper, "{}", function.name);
        }
    }
    eprintln!("{taken:?}");
    assert!(taken.len() == 2, "{taken:?}");
}
