//! Properties of the layout that hold for any graph.

use egui::{Rect, Vec2, vec2};
use proptest::prelude::*;

use super::layout::{Layout, Link, layout};

fn graph() -> impl Strategy<Value = (Vec<Vec2>, Vec<Link>)> {
    (1usize..40).prop_flat_map(|nodes| {
        let sizes = prop::collection::vec(
            (60f32..400.0, 30f32..300.0).prop_map(|(x, y)| vec2(x.round(), y.round())),
            nodes,
        );
        let link = (0..nodes, 0..nodes).prop_map(|(from, to)| Link { from, to });
        (sizes, prop::collection::vec(link, 0..80))
    })
}

/// Generates a graph like a function's: mostly short forward edges, some loops, few distant exits.
fn function(nodes: usize) -> (Vec<Vec2>, Vec<Link>) {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    let sizes = (0..nodes)
        .map(|_| vec2(120.0 + random(300) as f32, 40.0 + random(200) as f32))
        .collect();
    let mut links = Vec::new();
    for from in 0..nodes {
        if from + 1 < nodes && random(10) > 0 {
            links.push(Link { from, to: from + 1 });
        }
        match random(10) {
            0..=5 => links.push(Link {
                from,
                to: (from + 2 + random(12)).min(nodes - 1),
            }),
            6 => links.push(Link {
                from,
                to: from.saturating_sub(random(20)),
            }),
            7 => links.push(Link {
                from,
                to: nodes - 1 - random(nodes.min(8)),
            }),
            _ => {}
        }
    }
    (sizes, links)
}

fn check(sizes: &[Vec2], links: &[Link], laid: &Layout) -> Result<(), TestCaseError> {
    prop_assert_eq!(laid.boxes.len(), sizes.len());
    prop_assert_eq!(laid.routes.len(), links.len());
    let all = Rect::from_min_size(egui::Pos2::ZERO, laid.size);
    for (at, (rect, size)) in laid.boxes.iter().zip(sizes).enumerate() {
        prop_assert!(
            (rect.size() - *size).length() < 0.1,
            "box {} has another size",
            at
        );
        prop_assert!(
            all.expand(0.5).contains_rect(*rect),
            "box {} is outside",
            at
        );
        prop_assert!(
            at == 0 || rect.top() > laid.boxes[0].top(),
            "box {} is not below the entry",
            at
        );
        for (other_at, other) in laid.boxes.iter().enumerate().skip(at + 1) {
            prop_assert!(
                !rect.shrink(0.1).intersects(*other),
                "boxes {} and {} overlap",
                at,
                other_at
            );
        }
    }
    for (link, route) in links.iter().zip(&laid.routes) {
        let (from, to) = (laid.boxes[link.from], laid.boxes[link.to]);
        let (first, last) = (route.points[0], route.points[route.points.len() - 1]);
        prop_assert!(
            (first.y - from.bottom()).abs() < 0.1 && from.x_range().contains(first.x),
            "{:?} begins elsewhere",
            link
        );
        prop_assert!(
            (last.y - to.top()).abs() < 0.1 && to.x_range().expand(0.6).contains(last.x),
            "{:?} ends elsewhere",
            link
        );
        for pair in route.points.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            prop_assert!(
                a.x == b.x || a.y == b.y,
                "{:?} has a leg from {:?} to {:?}",
                link,
                a,
                b
            );
            let leg = Rect::from_two_pos(a, b);
            for (at, rect) in laid.boxes.iter().enumerate() {
                prop_assert!(
                    !rect.shrink(0.6).intersects(leg),
                    "{:?} runs through box {}",
                    link,
                    at
                );
            }
        }
        if !route.back {
            prop_assert!(to.top() > from.bottom(), "{:?} runs upwards", link);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn layouts_of_random_graphs_are_valid((sizes, links) in graph()) {
        check(&sizes, &links, &layout(&sizes, &links))?;
    }

    #[test]
    fn layout_is_deterministic((sizes, links) in graph()) {
        prop_assert_eq!(layout(&sizes, &links), layout(&sizes, &links));
    }
}

#[test]
fn layouts_of_function_like_graphs_are_valid() {
    for nodes in [1, 2, 7, 60, 250] {
        let (sizes, links) = function(nodes);
        check(&sizes, &links, &layout(&sizes, &links)).unwrap();
    }
}

#[test]
fn layout_of_a_large_function_is_fast() {
    let (sizes, links) = function(2000);
    // CPU time, because the machine may be busy.
    let processor = || {
        let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let nanoseconds = schedstat
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        std::time::Duration::from_nanos(nanoseconds)
    };
    let began = processor();
    let laid = layout(&sizes, &links);
    let took = processor() - began;
    println!(
        "2000 blocks, {} edges: {took:?}, {:?}",
        links.len(),
        laid.size
    );
    assert!(took.as_secs() < 10, "{took:?}");
}

#[test]
fn edges_of_a_chain_are_straight() {
    let sizes = vec![vec2(100.0, 40.0), vec2(300.0, 40.0), vec2(60.0, 40.0)];
    let links = [Link { from: 0, to: 1 }, Link { from: 1, to: 2 }];
    let laid = layout(&sizes, &links);
    for route in &laid.routes {
        assert_eq!(route.points.len(), 2, "{:?}", route.points);
    }
}

#[test]
fn edges_to_missing_boxes_are_empty() {
    let laid = layout(&[vec2(100.0, 40.0)], &[Link { from: 0, to: 9 }]);
    assert!(laid.routes[0].points.is_empty());
    assert!(layout(&[], &[Link { from: 0, to: 0 }]).boxes.is_empty());
}
