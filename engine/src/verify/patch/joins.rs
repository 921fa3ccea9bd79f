//! The nodes where paths of a patch meet: the joined abstract state of each, and the proof that no cycle
//! of paths is the patch's own.

use super::phase::{BrokenRule, Node};
use super::state::AbstractState;
use crate::Addr;
use crate::ids::{Ids, id};
use crate::verify::hash::Map;
use crate::verify::reason::Reason;
use crate::verify::symbolic::value::SymValues;

id!(
    /// A node of [`Joins`].
    pub(crate) NodeId
);

/// The nodes of one patch that branches target. The allocations are reused from patch to patch.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    by_node: Map<Node, NodeId>,
    nodes: Ids<NodeId, (Node, AbstractState)>,
    /// Nodes whose state has changed since their last visit.
    worklist: Vec<NodeId>,
    /// Edges between nodes, except those of failed reservations and of the original code.
    edges: Vec<(NodeId, NodeId)>,
}

impl Joins {
    /// Empties it for the next patch.
    pub(crate) fn clear(&mut self) {
        self.by_node.clear();
        self.nodes.clear();
        self.worklist.clear();
        self.edges.clear();
    }

    /// Joins a state into a node. `from` is the node that control comes from, unless the edge may be part
    /// of a permitted loop.
    ///
    /// # Errors
    /// If the depth of the stack depends on the path.
    pub(crate) fn enter(
        &mut self,
        from: Option<NodeId>,
        node: Node,
        state: AbstractState,
        values: &mut SymValues,
    ) -> Result<(), BrokenRule> {
        let id = match self.by_node.get(&node) {
            None => {
                let id = self.nodes.push((node, state));
                self.by_node.insert(node, id);
                self.worklist.push(id);
                id
            }
            Some(&id) => {
                let (_, present) = &mut self.nodes[id];
                let joined = present
                    .join(&state, values, node.0)
                    .ok_or((Addr(node.0), Reason::StackDepth))?;
                if joined != *present {
                    *present = joined;
                    self.worklist.push(id);
                }
                id
            }
        };
        if let Some(from) = from
            && self.edges.last() != Some(&(from, id))
        {
            self.edges.push((from, id));
        }
        Ok(())
    }

    /// Takes a node from the worklist.
    pub(crate) fn next(&mut self) -> Option<(NodeId, Node, AbstractState)> {
        let id = self.worklist.pop()?;
        let (node, state) = &self.nodes[id];
        Some((id, *node, state.clone()))
    }

    /// Proves that every loop contains the edge of a failed reservation or is one of the original code: the
    /// graph without those edges has a topological order.
    ///
    /// # Errors
    /// The lowest address on or after a cycle.
    pub(crate) fn no_loops(&mut self) -> Result<(), BrokenRule> {
        // A node that was visited twice has its edges twice.
        self.edges.sort_unstable();
        self.edges.dedup();
        let mut predecessors = Ids::<NodeId, usize>::like(&self.nodes, 0);
        for &(_, to) in &self.edges {
            predecessors[to] += 1;
        }
        // Kahn's algorithm: what remains is on a cycle, or reached from one only.
        let mut ready: Vec<NodeId> = predecessors
            .keys()
            .filter(|&id| predecessors[id] == 0)
            .collect();
        while let Some(id) = ready.pop() {
            let first = self.edges.partition_point(|edge| edge.0 < id);
            let out = self.edges.iter().skip(first);
            for &(_, to) in out.take_while(|edge| edge.0 == id) {
                predecessors[to] -= 1;
                if predecessors[to] == 0 {
                    ready.push(to);
                }
            }
        }
        let looping = predecessors.iter().filter(|(_, remaining)| **remaining > 0);
        match looping.map(|(id, _)| self.nodes[id].0.0).min() {
            Some(at) => Err((Addr(at), Reason::Loops)),
            None => Ok(()),
        }
    }
}
