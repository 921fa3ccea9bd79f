//! A field for seconds. Numbers with a unit are accepted; a time that is not possible is refused
//! below the field with the reason, and the value stays as it was.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use egui::accesskit::Role;
use egui::{Area, DragValue, Frame, Id, Order, Rect, RichText, Stroke, StrokeKind, Ui, vec2};

use crate::theme::Tokens;
use crate::widgets;

/// A refused text: the reason, and the frame in which it was typed.
#[derive(Clone, Debug)]
struct Refusal {
    why: String,
    frame: u64,
}

/// Draws a field for seconds. `refuse` returns the reason why a time is not possible; `drag` is the
/// range of the drag. Returns whether the value changed.
pub(crate) fn seconds(
    ui: &mut Ui,
    value: &mut f64,
    drag: RangeInclusive<f64>,
    name: &str,
    refuse: impl Fn(f64) -> Option<String>,
) -> bool {
    let refused = RefCell::new(None);
    let parse = |text: &str| {
        let parsed = parsed(text).and_then(|seconds| match refuse(seconds) {
            Some(why) => Err(why),
            None => Ok(seconds),
        });
        match parsed {
            Ok(seconds) => Some(seconds),
            Err(why) => {
                *refused.borrow_mut() = Some(why);
                None
            }
        }
    };
    let field = DragValue::new(value)
        .range(drag)
        // A value of a file is shown as it is.
        .clamp_existing_to_range(false)
        .speed(0.05)
        .max_decimals(3)
        .suffix(" s")
        .custom_parser(parse)
        .update_while_editing(false);
    let response = ui.add(field);
    let changed = response.changed();
    let frame = ui.ctx().cumulative_frame_nr();
    let id = Id::unique("refused time").with(name);
    if let Some(why) = refused.into_inner() {
        ui.data_mut(|data| data.insert_temp(id, Refusal { why, frame }));
    }
    let Some(refusal) = ui.data(|data| data.get_temp::<Refusal>(id)) else {
        widgets::named(response, Role::SpinButton, name);
        return changed;
    };
    // The reason stays until the next click or a change.
    let clicked = ui.input(|input| input.pointer.any_pressed()) && frame > refusal.frame + 1;
    if changed || clicked || response.gained_focus() {
        ui.data_mut(|data| data.remove::<Refusal>(id));
    } else {
        show(ui, id, response.rect, &refusal.why);
    }
    widgets::named(response, Role::SpinButton, name);
    changed
}

fn show(ui: &Ui, id: Id, field: Rect, why: &str) {
    let tokens = Tokens::of(ui);
    let line = Stroke::new(1.5, tokens.bad);
    ui.painter()
        .rect_stroke(field, 4.0, line, StrokeKind::Outside);
    let at = field.left_bottom() + vec2(0.0, 4.0);
    let area = Area::new(id).order(Order::Tooltip).fixed_pos(at);
    area.interactable(false).show(ui.ctx(), |ui| {
        Frame::popup(ui.style())
            .fill(tokens.bad_fill)
            .show(ui, |ui| {
                ui.set_max_width(280.0);
                let shown = ui.label(RichText::new(why).small().color(tokens.text));
                widgets::named(shown, Role::Label, &format!("refused: {why}"));
            });
    });
}

/// Parses seconds, with an optional unit.
fn parsed(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let unit = text.find(|letter: char| letter.is_alphabetic() && letter != 'e' && letter != 'E');
    let (number, unit) = text.split_at(unit.unwrap_or(text.len()));
    let factor = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong(text)),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong(text))?;
    let seconds = number * factor;
    // Whole microseconds, so that 250 ms is 0.25 s and not a sum of powers of two.
    match seconds.is_finite() {
        true if seconds.abs() < 1e9 => Ok((seconds * 1e6).round() / 1e6),
        true => Ok(seconds),
        false => Err(wrong(text)),
    }
}

fn wrong(text: &str) -> String {
    format!("{text:?} is not a time. Write seconds, or a number with a unit: 250 ms, 2 min.")
}

/// Returns the reason why a launch is not possible.
pub(crate) fn refused_launch(launch: f64, splash: f64) -> Option<String> {
    if launch < 0.0 {
        return Some("The session starts at 0 s.".to_owned());
    }
    (launch + SHORTEST > splash + ROUNDING).then(|| {
        format!("The launch must be at least 1 ms before the splash, which is at {splash} s.")
    })
}

/// Returns the reason why a splash is not possible.
pub(crate) fn refused_splash(splash: f64, launch: f64, duration: f64) -> Option<String> {
    if splash > duration {
        return Some(format!("The session ends at {duration} s."));
    }
    (splash + ROUNDING < launch + SHORTEST).then(|| {
        format!("The splash must be at least 1 ms after the launch, which is at {launch} s.")
    })
}

/// Minimum time between launch and splash, in seconds.
pub(crate) const SHORTEST: f64 = 0.001;
/// Tolerance of comparisons, in seconds.
const ROUNDING: f64 = 1e-7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_wrong_ones_are_refused() {
        assert_eq!(parsed("250ms"), Ok(0.25));
        assert_eq!(parsed(" 2 min "), Ok(120.0));
        assert_eq!(parsed("1e-3"), Ok(0.001));
        assert_eq!(parsed("7 s"), Ok(7.0));
        for text in ["abc", "", "3 parsecs", "inf", "nan", "1e999"] {
            assert!(parsed(text).is_err(), "{text}");
        }
        assert!(refused_launch(4.0, 4.0).is_some() && refused_launch(3.999, 4.0).is_none());
        assert!(refused_splash(10.5, 0.0, 10.0).is_some());
    }
}
