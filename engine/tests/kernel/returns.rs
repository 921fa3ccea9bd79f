//! Ends of calls of a real kernel's functions: a call that can be timed to its exits can be followed through its
//! tail calls, and the plan is verified.

use gilk_engine::cfg::{BlockEnd, Cfg};
use gilk_engine::code::Function;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::plan::{Plan, plan};
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{Addr, Error, HookType, Image, Rule, Session};
use gilk_instruments::Library;
use gilk_instruments::program::Hook;

/// `elapsed`, but only to where the function is left.
const LEFT: &str = "instrument left \"x.\" unit \"ticks\" duration; call @start; entry { @start = tsc }\n\
    leave / @start != 0 / { sample(tsc - @start); @start = 0 }";

fn session(functions: &[&Function], instrument: &str) -> Session {
    let placement = |function: &&Function| Placement {
        function: format!("{}@{:#x}", function.name, function.span.start.0).into(),
        block: 0,
        hook: HookType::Pre,
        instrument: instrument.into(),
        launch: 0.0,
        splash: 1.0,
    };
    Session {
        placements: functions.iter().map(placement).collect(),
        sources: [("left".into(), LEFT.into())].into(),
        ..Session::empty()
    }
}

fn planned(image: &Image, session: &Session) -> Result<Plan, Error> {
    let layout = RuntimeLayout::supposed(Addr(0xffff_ffff_c100_0000));
    plan(image, session, &Library::builtin().unwrap(), &layout)
}

fn probes(plan: &Plan, wanted: Hook) -> usize {
    let probed = plan.instruments.iter().filter_map(|one| one.probe.as_ref());
    let hooks = probed.filter_map(|probed| probed.probe().map(|probe| probe.hook));
    hooks.filter(|hook| *hook == wanted).count()
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn what_can_be_timed_is_timed_until_it_comes_back() {
    let image = super::saved::image();
    let graphs = super::saved::graphs(&image);
    let jumps = |cfg: &&Cfg| {
        cfg.blocks
            .iter()
            .any(|block| block.end == BlockEnd::TailCall)
    };
    let step = std::env::var("GILK_STEP").map_or(41, |step| step.parse().unwrap());
    let some: Vec<&Function> = graphs
        .iter()
        .filter(jumps)
        .filter_map(|cfg| image.function(cfg.function))
        .filter(|function| !function.is_part())
        .step_by(step)
        .collect();
    let (mut timed, mut followed, mut short, mut callees) = (0, 0, 0, 0);
    let (mut returns, mut never) = (0, 0);
    for function in &some {
        match planned(&image, &session(&[function], "elapsed")) {
            Ok(plan) => {
                timed += 1;
                followed += usize::from(probes(&plan, Hook::Onward) > 0);
                callees += probes(&plan, Hook::Back);
                short += usize::from(
                    plan.notes
                        .iter()
                        .any(|note| note.text.contains(" ends where ")),
                );
                if let Err(violations) = verify(&image, plan) {
                    panic!("{}: {:?}", function.name, violations.first());
                }
            }
            Err(refused) => {
                let left = planned(&image, &session(&[function], "left"));
                assert!(
                    left.is_err(),
                    "{} can be timed to where it leaves: {refused}",
                    function.name
                );
            }
        }
        // What is returned is known unless no way back is.
        match planned(&image, &session(&[function], "return-value")) {
            Ok(_) => returns += 1,
            Err(Error::Refused { refusal, .. }) if refusal.rule == Rule::ReturnUnknown => {
                // Without a note they jump to what never returns.
                let timed = planned(&image, &session(&[function], "elapsed"));
                never += usize::from(timed.is_ok_and(|plan| plan.notes.is_empty()));
            }
            Err(_) => {}
        }
    }
    println!(
        "{} functions that jump to others: {timed} timed, {followed} followed, by {callees} probes elsewhere; {short} end at a jump in part; {returns} say what they return, and {never} never do",
        some.len()
    );
    assert!(followed * 10 > some.len() * 8, "most calls are followed");
    assert!(never * 100 < some.len(), "{never} say nothing, and not why");
}
