//! Colours, distances and text sizes of the window. `tokens` has the colours of each theme.

mod tokens;

use egui::style::{Selection, WidgetVisuals};
use egui::{
    Color32, Context, CornerRadius, FontFamily, FontId, Shadow, Stroke, Style, TextStyle, Theme,
    ThemePreference, Visuals, vec2,
};
use serde::{Deserialize, Serialize};

pub use tokens::{Palette, Tokens};

/// Distances and sizes, in points.
pub mod space {
    use egui::Margin;

    /// Between lines of one item.
    pub const HAIR: f32 = 2.0;
    /// Between closely related items.
    pub const TIGHT: f32 = 4.0;
    /// Between rows of controls.
    pub const SNUG: f32 = 6.0;
    /// Between items of one group.
    pub const SMALL: f32 = 8.0;
    /// Between groups.
    pub const MEDIUM: f32 = 12.0;
    /// Between a dialog's edge and its contents.
    pub const LARGE: f32 = 20.0;
    /// Between a panel's edge and its contents.
    pub const PANEL: f32 = 12.0;
    /// The greatest width of forms and cards.
    pub const READABLE: f32 = 460.0;
    /// Corners of buttons, blocks and cards.
    pub const CORNER: u8 = 5;
    /// Height of a row in lists.
    pub const ROW: f32 = 22.0;
    /// Height of a panel's heading strip.
    pub const STRIP: f32 = 34.0;

    /// Returns margins of two of the distances: at the sides, and above and below.
    #[must_use]
    pub const fn margins(sides: f32, ends: f32) -> Margin {
        Margin::symmetric(sides as i8, ends as i8)
    }
}

/// Sizes of text, in points.
pub mod text {
    /// Code, names of symbols, numbers in tables.
    pub const CODE: f32 = 12.0;
    /// Most text of the window.
    pub const BODY: f32 = 13.5;
    /// Notes and captions.
    pub const SMALL: f32 = 11.5;
    /// Headings of panels.
    pub const HEADING: f32 = 15.0;
}

/// The font of code at `size` points.
#[must_use]
pub const fn code(size: f32) -> FontId {
    FontId::new(size, FontFamily::Monospace)
}

/// The font of prose at `size` points.
#[must_use]
pub const fn prose(size: f32) -> FontId {
    FontId::new(size, FontFamily::Proportional)
}

/// The user's choice of colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Colours {
    /// The desktop's colours.
    #[default]
    System,
    /// Dark text on a light background.
    Light,
    /// Light text on a dark background.
    Dark,
    /// White text on a black background, strong lines.
    Contrast,
}

impl Colours {
    /// Returns the next choice; `dark` is whether the desktop's colours are dark.
    #[must_use]
    pub const fn next(self, dark: bool) -> Self {
        match (self, dark) {
            (Self::Contrast, _) | (Self::System, true) => Self::Light,
            (Self::Light, _) | (Self::System, false) => Self::Dark,
            (Self::Dark, _) => Self::Contrast,
        }
    }
}

/// Applies colours to a context.
pub fn install(ctx: &Context, look: Colours) {
    let dark = if look == Colours::Contrast {
        Palette::Contrast
    } else {
        Palette::Dark
    };
    for (theme, palette) in [(Theme::Dark, dark), (Theme::Light, Palette::Light)] {
        ctx.style_mut_of(theme, |style| {
            dress(style, palette.tokens(), theme == Theme::Dark);
        });
    }
    ctx.set_theme(match look {
        Colours::System => ThemePreference::System,
        Colours::Light => ThemePreference::Light,
        Colours::Dark | Colours::Contrast => ThemePreference::Dark,
    });
}

fn dress(style: &mut Style, tokens: &Tokens, dark: bool) {
    style.text_styles = [
        (TextStyle::Heading, prose(text::HEADING)),
        (TextStyle::Body, prose(text::BODY)),
        (TextStyle::Button, prose(text::BODY)),
        (TextStyle::Small, prose(text::SMALL)),
        (TextStyle::Monospace, code(text::CODE)),
    ]
    .into();
    style.spacing.item_spacing = vec2(space::SMALL, space::SNUG);
    style.spacing.button_padding = vec2(space::SMALL, space::TIGHT);
    style.spacing.interact_size = vec2(36.0, 24.0);
    style.spacing.window_margin = space::margins(space::LARGE, space::LARGE);
    style.spacing.menu_margin = space::margins(space::SNUG, space::SNUG);
    style.spacing.combo_width = 120.0;
    style.interaction.selectable_labels = false;
    style.interaction.tooltip_delay = 0.25;
    style.animation_time = 0.09;
    style.visuals = visuals(tokens, dark);
}

fn visuals(tokens: &Tokens, dark: bool) -> Visuals {
    let mut visuals = if dark {
        Visuals::dark()
    } else {
        Visuals::light()
    };
    let corner = CornerRadius::same(space::CORNER);
    let widget = |fill: Color32, outline: Color32, text: Color32| WidgetVisuals {
        bg_fill: fill,
        weak_bg_fill: fill,
        bg_stroke: Stroke::new(1.0, outline),
        corner_radius: corner,
        fg_stroke: Stroke::new(1.0, text),
        expansion: 0.0,
    };
    visuals.widgets.noninteractive = widget(tokens.panel, tokens.line, tokens.text);
    visuals.widgets.inactive = widget(tokens.card, tokens.outline, tokens.text);
    visuals.widgets.hovered = widget(tokens.hover, tokens.accent, tokens.strong);
    visuals.widgets.active = widget(tokens.accent_fill, tokens.accent, tokens.strong);
    visuals.widgets.open = widget(tokens.hover, tokens.outline, tokens.strong);
    visuals.selection = Selection {
        bg_fill: tokens.accent_fill,
        stroke: Stroke::new(1.0, tokens.strong),
    };
    visuals.weak_text_color = Some(tokens.weak);
    visuals.hyperlink_color = tokens.accent;
    visuals.faint_bg_color = tokens.bar;
    visuals.extreme_bg_color = tokens.field;
    visuals.text_edit_bg_color = Some(tokens.field);
    visuals.code_bg_color = tokens.bar;
    visuals.warn_fg_color = tokens.warning;
    visuals.error_fg_color = tokens.bad;
    visuals.window_fill = tokens.panel;
    visuals.window_stroke = Stroke::new(1.0, tokens.outline);
    visuals.window_corner_radius = CornerRadius::same(8);
    visuals.menu_corner_radius = CornerRadius::same(6);
    visuals.panel_fill = tokens.panel;
    let shade = Color32::from_black_alpha(if dark { 110 } else { 40 });
    visuals.popup_shadow = Shadow {
        offset: [0, 4],
        blur: 12,
        spread: 0,
        color: shade,
    };
    visuals.window_shadow = Shadow {
        offset: [0, 8],
        blur: 28,
        spread: 0,
        color: shade,
    };
    visuals.text_cursor.stroke = Stroke::new(1.5, tokens.accent);
    visuals.text_cursor.blink = false;
    visuals
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Calls and fields whose numbers are of the scales of spacing and of text.
    const SCALED: [&str; 12] = [
        "add_space(",
        "prose(",
        "code(",
        "inner_margin(",
        ".margin(",
        ".corner_radius(",
        ".spacing([",
        "Margin::symmetric(",
        "Margin::same(",
        "item_spacing",
        "button_padding",
        "text::",
    ];

    /// Returns the number after a call, or after an operator on a size of text; 0 is no distance.
    fn number_outside(line: &str) -> Option<String> {
        for scaled in SCALED {
            let Some((_, rest)) = line.split_once(scaled) else {
                continue;
            };
            let rest = rest.split("//").next().unwrap_or_default();
            let rest = match scaled {
                "item_spacing" | "button_padding" => rest.split_once('=')?.1,
                "text::" => rest.trim_start_matches(|letter: char| letter.is_ascii_uppercase()),
                _ => rest,
            };
            if scaled == "text::" && !rest.starts_with(" + ") && !rest.starts_with(" - ") {
                continue;
            }
            let rest = rest.replace("vec2(", "(");
            let numbers = rest.split(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
            let mut numbers = numbers.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
            if let Some(number) = numbers.find(|number| number.parse() != Ok(0.0)) {
                return Some(number.to_owned());
            }
        }
        None
    }

    fn check(folder: &Path, faults: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                check(&path, faults);
                continue;
            }
            let is_theme = path
                .parent()
                .is_some_and(|parent| parent.ends_with("theme"));
            if is_theme || path.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for (number, line) in (1..).zip(text.lines()) {
                if let Some(outside) = number_outside(line) {
                    let line = line.trim();
                    faults.push(format!("{}:{number}: {outside} in {line}", path.display()));
                }
            }
        }
    }

    #[test]
    fn spacing_and_text_have_sizes_of_the_scales_only() {
        assert_eq!(
            number_outside("ui.add_space(24.0);").as_deref(),
            Some("24.0")
        );
        assert_eq!(
            number_outside("code(text::SMALL - 0.5)").as_deref(),
            Some("0.5")
        );
        assert_eq!(
            number_outside("ui.spacing_mut().item_spacing.y = 0.0;"),
            None
        );
        assert_eq!(number_outside("prose(text::SMALL)"), None);
        let mut found = Vec::new();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        check(Path::new(source), &mut found);
        assert_eq!(found, [""; 0]);
    }
}
