//! The position in the original code during a walk, and the instruments of its points.

use super::hit::{Expected, Progress};
use super::phase::{Aim, By, Phase};
use super::walk::Walk;
use crate::placement::{InsnEdge, Point, Splice};
use crate::verify::reason::Reason;
use crate::{Addr, Span};

/// Limit of consecutive jumps.
const MOST_JUMPS: usize = 64;

impl<'a> Walk<'a> {
    pub(crate) fn list(&self, point: Point) -> &'a [Expected] {
        let known = self.lists.binary_search_by_key(&point, |(point, _)| *point);
        known
            .ok()
            .and_then(|index| self.lists.get(index))
            .map_or(&[], |(_, list)| list)
    }

    /// Returns the original code of a copy.
    fn copied(&self, copy: usize) -> Option<Span> {
        match copy.checked_sub(1) {
            None => Some(self.site.displaced),
            Some(number) => self
                .site
                .continuations
                .get(number)
                .map(|run_on| run_on.copied),
        }
    }

    /// Takes an edge of the original code out of an instruction of a copy; returns the point on the
    /// edge and the position after it. `next` is whether it falls through.
    pub(crate) fn cross(&mut self, from: u64, to: u64, copy: usize, next: bool) -> (Point, Aim) {
        let edge = InsnEdge {
            from: Addr(from),
            to: Addr(to),
        };
        let run_on = || {
            let number = self
                .site
                .continuations
                .iter()
                .position(|run_on| run_on.edge == edge)?;
            Some(By::Copy(number + 1))
        };
        let inside = next
            && self
                .copied(copy)
                .is_some_and(|span| span.contains(Addr(to)));
        let by = if inside {
            Some(By::Copy(copy))
        } else {
            run_on()
        };
        let by = by.unwrap_or(By::Text { from });
        let leaves = matches!(by, By::Text { .. });
        if self.facts.edges.last() != Some(&(edge, leaves)) {
            self.facts.edges.push((edge, leaves));
        }
        (Point::On(edge), Aim { at: to, by })
    }

    /// Returns the phase after `done` instruments of a point, possibly that of the next point.
    /// Jumps and the bytes of the tracer, which are no steps of a patch, are skipped.
    pub(crate) fn settled(
        &mut self,
        mut point: Option<Point>,
        mut done: usize,
        progress: Progress,
        mut goal: Aim,
    ) -> Result<Phase, Reason> {
        let any = |point| !self.list(point).is_empty();
        let mut straight = !point.is_some_and(any);
        for _ in 0..MOST_JUMPS {
            match point {
                Some(at) if done < self.list(at).len() || !progress.is_nothing() => {
                    return Ok(Phase::Instruments {
                        point,
                        done,
                        progress,
                        goal,
                    });
                }
                Some(Point::On(_)) if matches!(goal.by, By::Copy(_)) => {
                    point = Some(Point::Before(Addr(goal.at)));
                }
                Some(_) => point = None,
                None => match self.passed(goal) {
                    Some((on, next)) => (point, goal) = (Some(on), next),
                    None if straight => return Ok(Phase::Straight(goal)),
                    None => {
                        return Ok(Phase::Instruments {
                            point,
                            done: 0,
                            progress,
                            goal,
                        });
                    }
                },
            }
            done = 0;
            straight &= point.is_none_or(|point| self.list(point).is_empty());
        }
        Err(Reason::JumpCircle)
    }

    /// Returns the position after a jump, or after the bytes of the tracer in its site, which have
    /// no other effect.
    fn passed(&mut self, goal: Aim) -> Option<(Point, Aim)> {
        let By::Copy(copy) = goal.by else { return None };
        if self.site.splice == Splice::Tracer && copy == 0 && goal.at == self.site.displaced.start.0
        {
            return Some(self.cross(goal.at, self.site.displaced.end.0, copy, true));
        }
        let (routine, original) = self.originals.instruction(goal.at)?;
        let jumps = original.instruction.is_jmp_short_or_near()
            && routine.sites_in(original.span()).next().is_none();
        let target = original.instruction.near_branch_target();
        jumps.then(|| self.cross(goal.at, target, copy, false))
    }
}
