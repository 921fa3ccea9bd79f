//! Arrows from the found call to the calls within it, and from its caller: by their times on one CPU,
//! or in one thread where lanes are split by thread.

use egui::accesskit::Role;
use egui::{Id, Painter, Pos2, Rect, Sense, Shape, Stroke, Ui, pos2, vec2};
use gilk_samples::Meaning;
use gilk_samples::index::{Index, Owner, Part, Point};
use gilk_samples::metadata::Clock;

use super::scale::Scale;
use super::search::Found;
use super::stack::LaneRow;
use crate::theme::Tokens;
use crate::widgets;

/// Maximum number of calls of a lane that are looked at.
const MOST: usize = 64;

/// A call: its lane's place among the visible ones, its start and its end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CallSpan {
    row: usize,
    start: u64,
    end: u64,
}

impl CallSpan {
    const fn of(row: usize, point: Point) -> Self {
        Self {
            row,
            start: point.tsc.saturating_sub(point.value),
            end: point.tsc,
        }
    }

    const fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end && self.row != other.row
    }
}

/// Draws the arrows between visible lanes.
pub(super) fn show(
    ui: &Ui,
    painter: &Painter,
    (index, clock): (&Index, Clock),
    found: &Found,
    rows: &[(LaneRow<'_>, Rect)],
    scale: &Scale,
) {
    let is_found = |of: &LaneRow<'_>| (of.index, of.owner) == (found.lane, found.owner);
    let Some(own) = rows.iter().position(|(of, _)| is_found(of)) else {
        return;
    };
    let is_call = |row: usize| {
        let of = rows.get(row).map(|(of, _)| of);
        of.is_some_and(|of| of.info.meaning == Meaning::Duration)
    };
    if !is_call(own) {
        return;
    }
    let call = CallSpan::of(own, found.point);
    let parts = rows.iter().enumerate().filter_map(|(row, (of, _))| {
        let part = match (found.owner, of.owner) {
            (Owner::All, Owner::All) => index.part(Some(found.point.cpu)),
            (mine, other) if mine == other => other.part(index),
            _ => return None,
        };
        (row != own && is_call(row)).then_some((row, of.info.id, part))
    });
    let parts: Vec<(usize, u64, Part<'_>)> = parts.collect();
    let (caller, callees) = around(call, &parts);
    let at = |call: &CallSpan| {
        let y = rows.get(call.row).map_or(0.0, |(_, row)| row.center().y);
        pos2(scale.x(clock.seconds(call.start)), y)
    };
    let tokens = Tokens::of(ui);
    let line = Stroke::new(1.5, tokens.accent);
    for callee in &callees {
        arrow(painter, at(&call), at(callee), line);
    }
    if let Some(caller) = &caller {
        arrow(painter, at(caller), at(&call), line);
    }
    let label = |call: &CallSpan| {
        rows.get(call.row)
            .map_or("", |(of, _)| of.info.label.as_str())
    };
    let mut words = widgets::counted(callees.len(), "call");
    words += " within the found one";
    if let Some(caller) = &caller {
        words += &format!(", which is within {}", label(caller));
    }
    let spot = Rect::from_center_size(at(&call), vec2(8.0, 8.0));
    let spot = ui.interact(spot, Id::unique("flow"), Sense::hover());
    widgets::named(spot, Role::Label, &words).on_hover_text(words);
}

/// Returns the innermost call around a call, and the outermost calls within it.
fn around(call: CallSpan, parts: &[(usize, u64, Part<'_>)]) -> (Option<CallSpan>, Vec<CallSpan>) {
    let mut caller: Option<CallSpan> = None;
    let mut callees: Vec<CallSpan> = Vec::new();
    for &(row, id, part) in parts {
        let longest = part.lane(id).map_or(0, |lane| lane.total.max);
        let until = call.end.saturating_add(longest).saturating_add(1);
        let points = part.samples_in(id, call.start, until, MOST);
        for other in points.into_iter().map(|point| CallSpan::of(row, point)) {
            if call.contains(&other) {
                callees.push(other);
            } else if other.contains(&call) && caller.is_none_or(|known| other.start >= known.start)
            {
                caller = Some(other);
            }
        }
    }
    let within = callees.clone();
    let is_outermost = |one: &CallSpan| {
        !within
            .iter()
            .any(|other| other.contains(one) && other != one)
    };
    callees.retain(is_outermost);
    callees.sort_by_key(|one| one.start);
    (caller, callees)
}

fn arrow(painter: &Painter, from: Pos2, to: Pos2, line: Stroke) {
    /// Length of the head in points.
    const HEAD: f32 = 6.0;
    let bend = pos2(from.x, to.y);
    let way = if from.y < to.y { -HEAD } else { HEAD };
    painter.add(Shape::line(vec![from, bend, to], line));
    // Calls that start at the same pixel have the head on the vertical part.
    let head = if (to.x - from.x).abs() > HEAD {
        let back = if to.x > from.x { -HEAD } else { HEAD };
        [
            to,
            to + vec2(back, -HEAD / 2.0),
            to + vec2(back, HEAD / 2.0),
        ]
    } else {
        [to, to + vec2(-HEAD / 2.0, way), to + vec2(HEAD / 2.0, way)]
    };
    let shape = Shape::convex_polygon(head.to_vec(), line.color, Stroke::NONE);
    painter.add(shape);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gilk_samples::{Batch, Sample};

    #[test]
    fn a_call_has_its_innermost_caller_and_its_outermost_callees() {
        // 1 from 0 to 100 calls 2 from 10 to 60, which calls 3 from 20 to 30; 3 runs again from 70 to 80.
        let mut index = Index::new();
        let call = |id, start: u64, end: u64| Sample {
            id,
            value: end - start,
            tsc: end,
        };
        let mut samples = vec![
            call(3, 20, 30),
            call(2, 10, 60),
            call(3, 70, 80),
            call(1, 0, 100),
        ];
        samples.sort_by_key(|sample| sample.tsc);
        index.append(&Batch { cpu: 0, samples });
        // Another CPU does the same meanwhile.
        let samples = vec![call(2, 12, 50)];
        index.append(&Batch { cpu: 1, samples });
        let part = index.part(Some(0));
        let of = |row: usize, start, end| CallSpan { row, start, end };
        let others = |own: usize| {
            let all = [(0, 1, part), (1, 2, part), (2, 3, part)];
            all.into_iter()
                .filter(|(row, ..)| *row != own)
                .collect::<Vec<_>>()
        };
        let (caller, callees) = around(of(0, 0, 100), &others(0));
        assert_eq!(
            (caller, callees),
            (None, vec![of(1, 10, 60), of(2, 70, 80)])
        );
        let (caller, callees) = around(of(1, 10, 60), &others(1));
        assert_eq!(
            (caller, callees),
            (Some(of(0, 0, 100)), vec![of(2, 20, 30)])
        );
        let (caller, callees) = around(of(2, 20, 30), &others(2));
        assert_eq!((caller, callees), (Some(of(1, 10, 60)), vec![]));
    }
}
