//! Layout of the calls: an icicle.

use gilk_samples::calls::{CallId, CallTree};

/// A call's place, in shares of the width from 0 to 1 and in rows from the top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallPlace {
    /// Its node in the tree.
    pub call: CallId,
    /// Its row: the number of its callers.
    pub row: usize,
    /// Its left end.
    pub from: f64,
    /// Its right end.
    pub to: f64,
}

/// Returns the places of the calls when `top` has the full width: its callers above it, which have the full width
/// too, and below it the calls at least as wide as `narrow`.
#[must_use]
pub fn places(tree: &CallTree, top: CallId, narrow: f64) -> Vec<CallPlace> {
    let way = tree.way_to(top);
    let mut places: Vec<CallPlace> = (0..)
        .zip(&way)
        .map(|(row, &call)| CallPlace {
            call,
            row,
            from: 0.0,
            to: 1.0,
        })
        .collect();
    let all = tree[top].total_ns.max(1) as f64;
    let mut open: Vec<CallPlace> = places.last().copied().into_iter().collect();
    while let Some(place) = open.pop() {
        let mut from = place.from;
        for &call in &tree[place.call].callees {
            let to = from + tree[call].total_ns as f64 / all;
            if to - from >= narrow {
                let row = place.row + 1;
                let callee = CallPlace {
                    call,
                    row,
                    from,
                    to,
                };
                places.push(callee);
                open.push(callee);
            }
            from = to;
        }
    }
    places
}
