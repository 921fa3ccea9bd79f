//! The shape of a patch's code, after it has been walked: no loops, no bytes that nobody accounts for.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use super::walk::Wrong;
use crate::{Addr, Span};

/// `int3`.
const INT3: u8 = 0xcc;

/// An address and whatever tells a node from others at that address.
type Node<P> = (u64, P);

/// Every loop goes through a failed reservation: without those ways (which `ways` does not have)
/// there is none.
///
/// # Errors
/// The lowest address from which control may come back to itself.
pub(super) fn no_loops<P: Copy + Eq + Hash>(
    nodes: impl Iterator<Item = Node<P>>,
    ways: &[(Node<P>, Node<P>)],
) -> Result<(), Wrong> {
    let mut ways_in: HashMap<Node<P>, usize> = HashMap::new();
    let mut ways_out: HashMap<Node<P>, Vec<Node<P>>> = HashMap::new();
    for &(from, to) in ways {
        // A node walked twice has its ways twice.
        let out = ways_out.entry(from).or_default();
        if !out.contains(&to) {
            out.push(to);
            *ways_in.entry(to).or_default() += 1;
        }
    }
    // What is left when everything that nothing leads to has been taken away, again and again, is loops.
    let mut free: Vec<Node<P>> = nodes.filter(|node| !ways_in.contains_key(node)).collect();
    while let Some(node) = free.pop() {
        for to in ways_out.remove(&node).unwrap_or_default() {
            if let Some(left) = ways_in.get_mut(&to) {
                *left -= 1;
                if *left == 0 {
                    ways_in.remove(&to);
                    free.push(to);
                }
            }
        }
    }
    match ways_in.keys().map(|node| node.0).min() {
        Some(at) => Err((Addr(at), "the code may loop for ever here".into())),
        None => Ok(()),
    }
}

/// Instructions walked (start and length) do not overlap, and everything else is int3.
///
/// # Errors
/// The first byte where it is not so.
pub(super) fn all_walked(
    span: Span,
    code: &[u8],
    walked: &BTreeMap<u64, usize>,
) -> Result<(), Wrong> {
    let offset = |at: u64| usize::try_from(at.saturating_sub(span.start.0)).unwrap_or(usize::MAX);
    let filler = |from: u64, to: u64| {
        let between = code.get(offset(from)..offset(to)).unwrap_or_default();
        match between.iter().position(|&byte| byte != INT3) {
            Some(first) => Err((
                Addr(from).add(first as u64),
                String::from("control never comes here, and it is not int3"),
            )),
            None => Ok(()),
        }
    };
    let mut end = span.start.0;
    for (&at, &len) in walked {
        if at < end {
            return Err((
                Addr(at),
                "control comes into the middle of an instruction".into(),
            ));
        }
        filler(end, at)?;
        end = at.saturating_add(len as u64);
    }
    filler(end, span.end.0)
}
