//! Names of functions with that of their object, `object:function`, where there is little room: the name of the object is
//! cut, and not that of the function, since the functions of a library differ there.

use std::borrow::Cow;
use std::sync::Arc;

use egui::{Color32, FontId, Galley, Painter, Ui};

use crate::widgets;

/// The mark in the place of what is left out.
pub(crate) const LEFT_OUT: char = '…';

/// The part of a name that is left out: characters of the name of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Characters before it.
    pub(crate) from: usize,
    /// Characters before its end.
    pub(crate) to: usize,
}

impl Cut {
    /// Returns the part to leave out of a name so that it has so many characters; nothing if it fits, or has no object. A
    /// function whose name is longer is to be cut at its end.
    pub(crate) fn of(name: &str, most: usize) -> Self {
        let letters = name.chars().count();
        let Some(object) = object(name).filter(|_| letters > most) else {
            return Self::default();
        };
        let object = object.chars().count();
        // With the colon and the mark.
        let function = letters - object;
        Self {
            from: most.saturating_sub(function + 1).min(object),
            to: object,
        }
    }

    /// Returns whether all of the name is shown.
    pub(crate) const fn is_empty(self) -> bool {
        self.from >= self.to
    }

    /// Returns the name without that part.
    fn applied(self, name: &str) -> Cow<'_, str> {
        if self.is_empty() {
            return name.into();
        }
        let mut shown: String = name.chars().take(self.from).collect();
        shown.push(LEFT_OUT);
        shown.extend(name.chars().skip(self.to));
        shown.into()
    }
}

/// Returns the object of a name, if it has one.
pub(crate) fn object(name: &str) -> Option<&str> {
    let (object, function) = name.split_once(':')?;
    // Not that of `std::sort`.
    (!function.starts_with(':')).then_some(object)
}

/// Returns as much of the name of a function as there is room for.
pub(crate) fn fitting<'n>(
    painter: &Painter,
    name: &'n str,
    font: &FontId,
    room: f32,
) -> Cow<'n, str> {
    let width = |text: &str| {
        let galley = painter.layout_no_wrap(text.to_owned(), font.clone(), Color32::WHITE);
        galley.size().x
    };
    let all = width(name);
    let letters = name.chars().count();
    if all <= room || object(name).is_none() {
        return name.into();
    }
    // The letters of some fonts differ in width.
    let mut most = (room / all * letters as f32) as usize;
    loop {
        let cut = Cut::of(name, most);
        let shown = cut.applied(name);
        if most == 0 || cut.from == 0 || width(&shown) <= room {
            return shown;
        }
        most -= 1;
    }
}

/// Returns as much of the name of a function as there is room for in the rest of a line.
pub(crate) fn fitting_here(ui: &Ui, name: &str, font: &FontId) -> String {
    fitting(ui.painter(), name, font, ui.available_width()).into_owned()
}

/// Lays the name of a function out in a line; one that is too long is cut at its end, too.
pub(crate) fn laid_out(
    painter: &Painter,
    name: &str,
    font: FontId,
    color: Color32,
    room: f32,
) -> Arc<Galley> {
    let shown = fitting(painter, name, &font, room).into_owned();
    widgets::truncated(painter, shown, font, color, room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_of_a_function_is_cut_and_its_own_name_is_not() {
        let shown = |name, most| Cut::of(name, most).applied(name).into_owned();
        let name = "libpython3.11.so.1.0:dict_get";
        assert_eq!(shown(name, 40), name);
        assert_eq!(shown(name, 29), name);
        assert_eq!(shown(name, 28), "libpython3.11.so.1…:dict_get");
        assert_eq!(shown(name, 12), "li…:dict_get");
        assert_eq!(shown(name, 10), "…:dict_get");
        // The end is cut by the layout.
        assert_eq!(shown(name, 4), "…:dict_get");
        assert_eq!(shown("PyDict_GetItem", 4), "PyDict_GetItem");
        assert_eq!(shown("std::sort", 4), "std::sort");
        assert_eq!(shown("libé.so:f", 6), "lib…:f");
    }
}
