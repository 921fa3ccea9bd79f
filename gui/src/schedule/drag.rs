//! Effect of dragging a bar on launch and splash.

use crate::document::EditedSession;
use crate::seconds::SHORTEST;

/// The dragged part of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grip {
    /// Its left end: launch.
    Launch,
    /// Its right end: splash.
    Splash,
    /// The whole bar.
    Whole,
}

/// A drag: the dragged part, and the original times.
#[derive(Clone, Debug, PartialEq)]
pub struct Drag {
    /// Key of the row on which it began.
    pub key: u64,
    /// The dragged part.
    pub grip: Grip,
    /// Seconds at the pointer when it began.
    pub from: f64,
    /// Indices of the placements in the session, with their original launch and splash.
    pub bars: Vec<(usize, f64, f64)>,
    /// Seconds to which ends snap, in order.
    pub marks: Vec<f64>,
}

impl Drag {
    /// Returns the times when the pointer is at `to`; ends within `reach` seconds of a mark snap to
    /// it.
    #[must_use]
    pub fn times(&self, to: f64, duration: f64, reach: f64) -> Vec<(usize, f64, f64)> {
        let first = self
            .bars
            .iter()
            .map(|bar| bar.1)
            .fold(f64::INFINITY, f64::min);
        let last = self.bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
        let moved = to - self.from;
        let marks = self.marks.as_slice();
        let by = match self.grip {
            Grip::Launch => snapped(first + moved, marks, reach).max(0.0) - first,
            Grip::Splash => snapped(last + moved, marks, reach).min(duration) - last,
            Grip::Whole => {
                // The end nearer to a mark snaps.
                let left = snapped(first + moved, marks, reach) - first;
                let right = snapped(last + moved, marks, reach) - last;
                let off = |by: f64| {
                    if by == moved {
                        f64::INFINITY
                    } else {
                        (by - moved).abs()
                    }
                };
                let by = if off(left) <= off(right) { left } else { right };
                by.clamp(-first, (duration - last).max(-first))
            }
        };
        let shift = |&(place, launch, splash): &(usize, f64, f64)| match self.grip {
            Grip::Launch => (
                place,
                rounded((launch + by).clamp(0.0, splash - SHORTEST)),
                splash,
            ),
            Grip::Splash => (
                place,
                launch,
                rounded((splash + by).clamp(launch + SHORTEST, duration)),
            ),
            Grip::Whole => (place, rounded(launch + by), rounded(splash + by)),
        };
        self.bars.iter().map(shift).collect()
    }
}

/// Rounds to microseconds, so that a drag adds no meaningless digits.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn snapped(at: f64, marks: &[f64], reach: f64) -> f64 {
    let first = marks.partition_point(|mark| *mark < at - reach);
    let near = marks.iter().copied().skip(first);
    let near = near.take_while(|mark| mark - at <= reach);
    near.min_by(|a, b| (a - at).abs().total_cmp(&(b - at).abs()))
        .unwrap_or(at)
}

/// Returns the snap marks: every launch and splash but those of the placements that are dragged, whose indices are in
/// order, the session's start and end,
/// and the start of its program.
#[must_use]
pub fn marks(session: &EditedSession, held: &[usize]) -> Vec<f64> {
    let mut marks = vec![0.0, session.duration];
    marks.extend(session.workload.as_ref().map(|workload| workload.start));
    marks.extend(session.placements.times_without(held));
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    marks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grip() -> impl Strategy<Value = Grip> {
        prop_oneof![Just(Grip::Launch), Just(Grip::Splash), Just(Grip::Whole)]
    }

    proptest! {
        #[test]
        fn dragged_bars_stay_inside_the_session(
            grip in grip(),
            bars in prop::collection::vec((0.0f64..9.0, 0.002f64..1.0), 1..6),
            from in 0.0f64..10.0,
            to in -30.0f64..40.0,
            marks in prop::collection::vec(0.0f64..10.0, 0..5),
        ) {
            let bars: Vec<_> = bars
                .iter()
                .enumerate()
                .map(|(place, &(launch, width))| (place, rounded(launch), rounded(launch + width)))
                .collect();
            let mut marks = marks;
            marks.sort_by(f64::total_cmp);
            let drag = Drag { key: 0, grip, from, bars: bars.clone(), marks };
            for ((_, launch, splash), (_, before, after)) in drag.times(to, 10.0, 0.05).into_iter().zip(bars) {
                prop_assert!(launch >= -1e-9 && splash <= 10.0 + 1e-9, "{launch} {splash}");
                prop_assert!(splash - launch >= SHORTEST - 2e-6);
                if grip == Grip::Whole {
                    prop_assert!((splash - launch - (after - before)).abs() < 3e-6);
                }
            }
        }
    }

    #[test]
    fn ends_snap_to_marks_within_reach() {
        let drag = |grip, marks: &[f64]| Drag {
            key: 0,
            grip,
            from: 2.0,
            bars: vec![(0, 1.0, 3.0)],
            marks: marks.to_vec(),
        };
        assert_eq!(
            drag(Grip::Launch, &[0.5, 2.5]).times(3.46, 10.0, 0.05),
            [(0, 2.5, 3.0)]
        );
        assert_eq!(
            drag(Grip::Launch, &[2.5]).times(3.3, 10.0, 0.05),
            [(0, 2.3, 3.0)]
        );
        assert_eq!(
            drag(Grip::Whole, &[5.0]).times(3.97, 10.0, 0.05),
            [(0, 3.0, 5.0)]
        );
        assert_eq!(
            drag(Grip::Splash, &[]).times(99.0, 10.0, 0.05),
            [(0, 1.0, 10.0)]
        );
    }
}
