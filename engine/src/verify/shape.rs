//! Where the ways of a patch meet: what is known there, and that none of them is a loop of its own.

use super::hash::Map;
use super::state::State;
use super::value::Values;
use super::walk::Wrong;
use super::way::Node;
use crate::Addr;

/// The number of a node.
pub(super) type Number = usize;

/// Nodes of one patch that control may come to by a branch. One is used for patch after patch, so that
/// its room is.
#[derive(Debug, Default)]
pub(super) struct Shape {
    known: Map<Node, Number>,
    nodes: Vec<(Node, State)>,
    /// Those whose state has changed since they were looked at.
    to_do: Vec<Number>,
    /// Ways between nodes that are neither a failed reservation's nor the original code's.
    ways: Vec<(Number, Number)>,
}

impl Shape {
    /// Begins another patch.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.nodes.clear();
        self.to_do.clear();
        self.ways.clear();
    }

    /// Control comes to a node, from another unless the way may be part of a loop.
    ///
    /// # Errors
    /// If what is on the stack depends on the way.
    pub(super) fn enter(
        &mut self,
        from: Option<Number>,
        node: Node,
        state: State,
        values: &mut Values,
    ) -> Result<(), Wrong> {
        let number = match self.known.get(&node) {
            None => {
                let number = self.nodes.len();
                self.known.insert(node, number);
                self.nodes.push((node, state));
                self.to_do.push(number);
                number
            }
            Some(&number) => {
                if let Some((_, known)) = self.nodes.get_mut(number) {
                    let joined = known.join(&state, values, node.0).ok_or((
                        Addr(node.0),
                        String::from("ways meet here with different words on the stack"),
                    ))?;
                    if joined != *known {
                        *known = joined;
                        self.to_do.push(number);
                    }
                }
                number
            }
        };
        if let Some(from) = from
            && self.ways.last() != Some(&(from, number))
        {
            self.ways.push((from, number));
        }
        Ok(())
    }

    /// A node that is to be looked at.
    pub(super) fn next(&mut self) -> Option<(Number, Node, State)> {
        let number = self.to_do.pop()?;
        let (node, state) = self.nodes.get(number)?;
        Some((number, *node, state.clone()))
    }

    /// Every loop goes through a failed reservation or is one of the original code: without those ways
    /// there is none.
    ///
    /// # Errors
    /// The lowest address from which control may come back to itself.
    pub(super) fn no_loops(&mut self) -> Result<(), Wrong> {
        // A node looked at twice has its ways twice.
        self.ways.sort_unstable();
        self.ways.dedup();
        let mut ways_in = vec![0_usize; self.nodes.len()];
        for &(_, to) in &self.ways {
            if let Some(ways_in) = ways_in.get_mut(to) {
                *ways_in += 1;
            }
        }
        // What is left when everything that nothing leads to has been taken away, again and again, is loops.
        let mut free: Vec<Number> = (0..)
            .zip(&ways_in)
            .filter(|(_, ways_in)| **ways_in == 0)
            .map(|(number, _)| number)
            .collect();
        while let Some(number) = free.pop() {
            let first = self.ways.partition_point(|way| way.0 < number);
            let out = self.ways.iter().skip(first);
            for &(_, to) in out.take_while(|way| way.0 == number) {
                if let Some(left) = ways_in.get_mut(to) {
                    *left -= 1;
                    if *left == 0 {
                        free.push(to);
                    }
                }
            }
        }
        let looping = self.nodes.iter().zip(&ways_in);
        let looping = looping.filter(|(_, left)| **left > 0);
        match looping.map(|((node, _), _)| node.0).min() {
            Some(at) => Err((Addr(at), "the code may loop for ever here".into())),
            None => Ok(()),
        }
    }
}
