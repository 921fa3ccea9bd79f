//! Colours, distances and text sizes of the window. `tokens` has the colours of each theme.

mod tokens;

use egui::style::{Selection, WidgetVisuals};
use egui::{
    Color32, Context, CornerRadius, FontFamily, FontId, Margin, Shadow, Stroke, Style, TextStyle,
    Theme, ThemePreference, Visuals, vec2,
};
use serde::{Deserialize, Serialize};

pub use tokens::{Palette, Tokens};

/// Distances and sizes, in points.
pub mod space {
    /// Between closely related items.
    pub const TIGHT: f32 = 4.0;
    /// Between items of one group.
    pub const SMALL: f32 = 8.0;
    /// Between groups.
    pub const MEDIUM: f32 = 12.0;
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
    style.spacing.item_spacing = vec2(space::SMALL, 6.0);
    style.spacing.button_padding = vec2(9.0, 4.0);
    style.spacing.interact_size = vec2(36.0, 24.0);
    style.spacing.window_margin = Margin::same(16);
    style.spacing.menu_margin = Margin::same(6);
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
