use std::collections::BTreeSet;

use proptest::prelude::*;

use super::graph::{Arc, Graph};
use super::{Numbered, Paths};
use crate::cfg::BlockIndex;

fn weighted(edges: Vec<(u32, u32, u32)>) -> Vec<(BlockIndex, BlockIndex, u32)> {
    let weighted = |(from, to, weight)| (BlockIndex(from), BlockIndex(to), weight);
    edges.into_iter().map(weighted).collect()
}

/// Edges with weights between few blocks, forward ones only if `acyclic`.
fn graphs(acyclic: bool) -> impl Strategy<Value = Graph> {
    (2_u32..9).prop_flat_map(move |blocks| {
        let edges = proptest::collection::vec((0..blocks, 0..blocks, 1_u32..3), 0..16);
        let exits = proptest::collection::btree_set(0..blocks, 1..4);
        (edges, exits).prop_map(move |(mut edges, exits)| {
            // Control falls through to the next block, so that most are reachable.
            edges.extend((1..blocks).map(|block| (block - 1, block, 1)));
            if acyclic {
                edges.retain(|(from, to, _)| from < to);
            }
            edges.sort_unstable();
            edges.dedup_by_key(|(from, to, _)| (*from, *to));
            let exits: Vec<BlockIndex> = exits.into_iter().map(BlockIndex).collect();
            Graph::new(blocks as usize, &weighted(edges), &exits)
        })
    })
}

/// All paths from the start to the end.
fn all(graph: &Graph) -> Vec<Vec<Arc>> {
    let starts = graph.leaving(None);
    let mut open: Vec<Vec<Arc>> = starts.map(|(_, arc)| vec![*arc]).collect();
    let mut done = Vec::new();
    while let Some(path) = open.pop() {
        match path.last().and_then(|arc| arc.to) {
            None => done.push(path),
            Some(block) => open.extend(graph.leaving(Some(block)).map(|(_, arc)| {
                let mut longer = path.clone();
                longer.push(*arc);
                longer
            })),
        }
    }
    done
}

fn numbers_are_right(graph: &Graph) {
    let numbered = Numbered::of(graph.clone()).unwrap();
    let paths = all(graph);
    assert_eq!(numbered.count(), paths.len() as u64);
    let mut numbers = BTreeSet::new();
    for path in &paths {
        let increment = |arc: &Arc| {
            let mut all = numbered.increments();
            all.find(|(known, _)| *known == arc).unwrap().1
        };
        let add = |sum: u64, arc| sum.wrapping_add(increment(arc));
        let number = path.iter().fold(0, add);
        assert!(numbers.insert(number), "two paths have number {number}");
        assert_eq!(numbered.arcs(number).as_ref(), Some(path));
    }
    assert!(numbers.into_iter().eq(0..paths.len() as u64));
    assert_eq!(numbered.arcs(numbered.count()), None);
}

proptest! {
    #[test]
    fn every_path_has_one_number_and_increments_add_up_to_it(graph in graphs(true)) {
        prop_assert!(graph.arcs.values().iter().all(|arc| arc.is_real));
        numbers_are_right(&graph);
    }

    #[test]
    fn so_it_is_with_loops_cut(graph in graphs(false)) {
        numbers_are_right(&graph);
    }

    /// Control that wanders through the graph leaves the numbers of the paths it went.
    #[test]
    fn a_walk_has_its_paths_numbers(graph in graphs(false), choices in proptest::collection::vec(any::<prop::sample::Index>(), 1..200)) {
        let numbered = Numbered::of(graph).unwrap();
        let increments: Vec<(Arc, u64)> = numbered.increments().map(|(arc, n)| (*arc, n)).collect();
        let increment = |wanted: &dyn Fn(&Arc) -> bool| increments.iter().find(|(arc, _)| wanted(arc)).unwrap().1;
        let begin = |block: BlockIndex, real: bool| increment(&|arc| arc.from.is_none() && arc.to == Some(block) && arc.is_real == real);
        let mut at = BlockIndex(0);
        let mut number = begin(at, true);
        let (mut walked, mut numbers) = (vec![at], Vec::new());
        for choice in choices {
            let ways: Vec<&(Arc, u64)> = increments.iter().filter(|(arc, _)| arc.from == Some(at)).collect();
            if ways.is_empty() {
                // It never returns.
                break;
            }
            let (arc, add) = choice.get(&ways);
            number = number.wrapping_add(*add);
            match (arc.to, arc.loops) {
                (Some(to), _) => {
                    at = to;
                    walked.push(to);
                }
                (None, closes) => {
                    let path = numbered.arcs(number).unwrap();
                    numbers.extend(path.iter().filter_map(|arc| arc.to));
                    let entered = closes.map_or(BlockIndex(0), |(_, to)| to);
                    number = begin(entered, closes.is_none());
                    prop_assert_eq!(&numbers, &walked);
                    walked.push(entered);
                    at = entered;
                }
            }
        }
    }

    /// Arcs of the tree need nothing, and the tree has the heaviest.
    #[test]
    fn only_chords_have_increments(graph in graphs(true)) {
        let numbered = Numbered::of(graph.clone()).unwrap();
        let needed = numbered.increments().filter(|(arc, add)| arc.weight > 0 && *add != 0).count();
        let inner = graph.arcs.values().iter().filter(|arc| arc.weight > 0).count();
        let reached = graph.order.len();
        // A spanning tree of the blocks has one arc less than there are blocks.
        prop_assert!(needed <= inner - (reached - 1));
    }
}

#[test]
fn too_many_paths_are_refused() {
    // 60 diamonds in a row.
    let mut edges = Vec::new();
    for diamond in 0..60_u32 {
        let top = diamond * 3;
        edges.extend([
            (top, top + 1, 1),
            (top, top + 2, 1),
            (top + 1, top + 3, 1),
            (top + 2, top + 3, 1),
        ]);
    }
    let edges = weighted(edges);
    assert_eq!(
        Numbered::of(Graph::new(181, &edges, &[BlockIndex(180)])),
        None
    );
    let numbered = Numbered::of(Graph::new(91, &edges[..120], &[BlockIndex(90)])).unwrap();
    assert_eq!(numbered.count(), 1 << 30);
    assert!(numbered.count() <= Paths::MOST);
}
