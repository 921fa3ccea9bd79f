//! The function tracer's sites, static calls and traps.

use super::*;

/// The tracer site of `traced`, with the static call as its continuation.
fn traced(image: &Image) -> Plan {
    let start = Addr(Fixture::address(3));
    let site = Site {
        splice: Splice::Tracer,
        displaced: Span::new(start, 5),
        overwritten: 0,
        filled: 0,
        continuations: [Continuation {
            edge: InsnEdge {
                from: start,
                to: start.add(5),
            },
            copied: Span::new(start.add(5), 5),
        }]
        .into(),
    };
    let placements = vec![placement("traced", 0, HookType::Pre, "counter")];
    let points = vec![(SiteIndex(0), Point::Entry)];
    given(image, placements, &layout(), vec![site], &points)
}

#[test]
fn tracers_and_static_calls() {
    let image = fixture().image();
    let good = traced(&image);
    let code = good.patches[0].code.clone();
    let jump = code.iter().rposition(|&byte| byte == 0xe9).unwrap();
    let other = Fixture::address(5);
    refused(&image, &good, "OtherCallee", |plan| {
        let from = plan.patches[0].address.add(jump as u64 + 5);
        let to = (from.to(Addr(other)) as i32).to_le_bytes();
        plan.patches[0].code[jump + 1..jump + 5].copy_from_slice(&to);
    });
    let push = code.iter().rposition(|&byte| byte == 0x68).unwrap();
    for byte in 0..5 {
        refused(&image, &good, "NarrowMemory|Instruction: Patch", |plan| {
            plan.patches[0].code[push + byte] ^= 1;
        });
    }
    refused(
        &image,
        &good,
        "OverwrittenCount: are overwritten, and 0 are",
        |plan| {
            plan.sites[0].overwritten = 1;
        },
    );
    // Something else of five bytes, and something of the function's middle.
    for offset in [5, 10] {
        refused(&image, &good, "NotTracers", |plan| {
            plan.sites[0].displaced = Span::new(Addr(Fixture::address(3) + offset), 5);
        });
    }
    refused(&image, &good, "NotTracers", |plan| {
        plan.sites[0].displaced = Span::new(Addr(Fixture::address(4)), 5);
    });
    refused(
        &image,
        &good,
        "FixedSite: the function tracer's bytes is displaced",
        |plan| {
            plan.sites[0].splice = Splice::Jump;
        },
    );
    // The continuation is not the code at the target of its edge.
    refused(&image, &good, "ContinuationStart", |plan| {
        plan.sites[0].continuations[0].copied.start.0 += 5;
        plan.sites[0].continuations[0].copied.end.0 += 5;
    });
    refused(&image, &good, "NotWhole", |plan| {
        plan.sites[0].continuations[0].copied.end.0 -= 1;
    });
    // A kernel that says nothing of the call.
    let mut silent = fixture();
    silent.static_call_keys.clear();
    let violations = verify(&silent.image(), good).expect_err("nothing is known of the call");
    assert!(
        list(&violations).contains("[UndecidedSite]"),
        "{}",
        list(&violations)
    );
}

#[test]
fn traps() {
    let image = fixture().image();
    let site = Site {
        splice: Splice::Trap,
        displaced: Span::new(Addr(Fixture::address(7) + 5), 4),
        overwritten: 1,
        filled: 0,
        continuations: Box::default(),
    };
    let placements = vec![placement("trapped", 0, HookType::Pre, "counter")];
    let points = vec![(SiteIndex(0), Point::Entry)];
    let good = given(&image, placements, &layout(), vec![site], &points);
    passes(&image, &good);
    refused(&image, &good, "NotSplice", |plan| {
        plan.batches[0].pokes[0].write[0] = 0x90;
    });
    refused(&image, &good, "WritesOverlap", |plan| {
        plan.sites.push(plan.sites[0].clone());
    });
}
