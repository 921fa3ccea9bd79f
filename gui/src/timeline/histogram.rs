//! Bars of a histogram.

use egui::{Rect, Ui, pos2};
use gilk_samples::histogram::Histogram;

use crate::theme::Tokens;

/// Draws the bars of a histogram, on a logarithmic scale if the range of values is large.
pub(crate) fn bars(ui: &Ui, rect: Rect, histogram: &Histogram, least: u64, most: u64) {
    let tokens = Tokens::of(ui);
    let painter = ui.painter();
    painter.rect_filled(rect, 3.0, tokens.canvas);
    let far = most / least.max(1) > 50;
    let place = |value: f64| {
        let (low, high) = (least as f64, most as f64);
        if far {
            ((value.max(1.0).ln() - low.max(1.0).ln())
                / (high.max(1.0).ln() - low.max(1.0).ln()).max(1e-9)) as f32
        } else {
            ((value - low) / (high - low).max(1e-9)) as f32
        }
    };
    let slots = (rect.width() / 5.0).floor().max(1.0) as usize;
    let mut counts = vec![0u64; slots];
    for bucket in histogram.buckets() {
        let at = place((bucket.from as f64 + bucket.to as f64) / 2.0).clamp(0.0, 1.0);
        let slot = ((at * slots as f32) as usize).min(slots - 1);
        if let Some(count) = counts.get_mut(slot) {
            *count += bucket.count;
        }
    }
    let highest = counts.iter().copied().max().unwrap_or(1).max(1) as f32;
    for (slot, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (rect.height() - 6.0) * (count as f32 / highest).max(0.03);
        let left = rect.left() + slot as f32 * 5.0;
        let bar = Rect::from_min_max(
            pos2(left, rect.bottom() - height),
            pos2(left + 4.0, rect.bottom()),
        );
        painter.rect_filled(bar, 0.0, tokens.accent);
    }
}
