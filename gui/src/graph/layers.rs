//! Back edges, and the layer of each box.

use super::grid::Link;
use super::table::Table;

/// Returns for each link whether it is a back edge: it closes a loop or returns to the entry. The
/// depth-first search has an explicit stack, because functions have paths of thousands of blocks.
pub(super) fn back_links(nodes: usize, links: &[Link]) -> Vec<bool> {
    #[derive(Clone, Copy, Default, PartialEq)]
    enum Visit {
        #[default]
        Not,
        OnPath,
        Done,
    }
    let mut out: Table<Vec<usize>> = Table::new(nodes);
    let mut back: Table<bool> = Table::new(links.len());
    for (index, link) in links.iter().enumerate() {
        if link.to == 0 || link.to == link.from {
            back[index] = true;
        } else {
            out[link.from].push(index);
        }
    }
    let mut visits: Table<Visit> = Table::new(nodes);
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..nodes {
        if visits[root] != Visit::Not {
            continue;
        }
        visits[root] = Visit::OnPath;
        path.push((root, 0));
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            let Some(&index) = out[node].get(*next) else {
                visits[node] = Visit::Done;
                path.pop();
                continue;
            };
            *next += 1;
            let Some(link) = links.get(index) else {
                debug_assert!(false, "link {index} of {}", links.len());
                continue;
            };
            match visits[link.to] {
                Visit::Not => {
                    visits[link.to] = Visit::OnPath;
                    path.push((link.to, 0));
                }
                Visit::OnPath => back[index] = true,
                Visit::Done => {}
            }
        }
    }
    back.into_vec()
}

/// Returns the layer of each box: the length of the longest path to it. Only the entry is on layer
/// 0; unreachable boxes are on the layer above their nearest successor.
pub(super) fn layers(nodes: usize, links: &[Link], back: &[bool]) -> Table<usize> {
    let forward = || {
        links
            .iter()
            .zip(back)
            .filter(|(_, back)| !**back)
            .map(|(link, _)| *link)
    };
    let mut out: Table<Vec<usize>> = Table::new(nodes);
    let mut waiting: Table<usize> = Table::new(nodes);
    for link in forward() {
        out[link.from].push(link.to);
        waiting[link.to] += 1;
    }
    let roots: Vec<usize> = (1..nodes).filter(|&node| waiting[node] == 0).collect();
    let mut layer: Table<usize> = Table::new(nodes);
    for &root in &roots {
        layer[root] = 1;
    }
    let mut ready: Vec<usize> = std::iter::once(0).chain(roots.iter().copied()).collect();
    while let Some(node) = ready.pop() {
        let below = layer[node] + 1;
        for &to in &out[node] {
            layer[to] = layer[to].max(below);
            waiting[to] = waiting[to].saturating_sub(1);
            if waiting[to] == 0 {
                ready.push(to);
            }
        }
    }
    for root in roots {
        if let Some(nearest) = out[root].iter().map(|&to| layer[to]).min() {
            layer[root] = nearest.saturating_sub(1).max(1);
        }
    }
    layer
}
