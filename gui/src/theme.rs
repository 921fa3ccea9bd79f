//! Every colour and distance of the window, light and dark. No other module names a colour.

use egui::style::{Selection, WidgetVisuals};
use egui::{
    Color32, Context, CornerRadius, FontFamily, FontId, Margin, Shadow, Stroke, Style, TextStyle,
    Theme, Ui, Visuals, vec2,
};

/// Distances and sizes, in points.
pub mod space {
    /// Between things that belong together.
    pub const TIGHT: f32 = 4.0;
    /// Between things of one group.
    pub const SMALL: f32 = 8.0;
    /// Between groups.
    pub const MEDIUM: f32 = 12.0;
    /// Inside panels, from the edge.
    pub const PANEL: f32 = 12.0;
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
    /// What most of the window is written in.
    pub const BODY: f32 = 13.5;
    /// Notes and captions.
    pub const SMALL: f32 = 11.5;
    /// Headings of panels.
    pub const HEADING: f32 = 15.0;
}

/// The colours of one theme, by what they mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Behind the graph and the timeline.
    pub canvas: Color32,
    /// Faint marks on the canvas.
    pub grid: Color32,
    /// Panels.
    pub panel: Color32,
    /// Bars and headings, a step away from panels.
    pub bar: Color32,
    /// Blocks of the graph, cards of lists.
    pub card: Color32,
    /// What the pointer is over.
    pub hover: Color32,
    /// Fields to type in.
    pub field: Color32,
    /// Lines between things.
    pub line: Color32,
    /// Lines round what can be clicked.
    pub outline: Color32,
    /// Text.
    pub text: Color32,
    /// Headings and what is chosen.
    pub strong: Color32,
    /// Notes.
    pub weak: Color32,
    /// The one colour that says "here".
    pub accent: Color32,
    /// Behind what is chosen.
    pub accent_fill: Color32,
    /// Text on `accent`.
    pub on_accent: Color32,
    /// Went well, runs.
    pub good: Color32,
    /// Needs a look.
    pub warning: Color32,
    /// Went wrong.
    pub bad: Color32,
    /// Behind a message of something that went wrong.
    pub bad_fill: Color32,
    /// A hook that can be had.
    pub hookable: Color32,
    /// A hook that an instrument of the session has.
    pub hooked: Color32,
    /// A hook that a rule refuses.
    pub refused: Color32,
    /// Edge of a branch that is taken.
    pub edge_true: Color32,
    /// Edge of a branch that is not taken.
    pub edge_false: Color32,
    /// Edge of a jump, or of a block that runs on.
    pub edge_jump: Color32,
    /// Edge that closes a loop.
    pub edge_back: Color32,
    /// Edge that is not taken now: static keys, fixups.
    pub edge_rare: Color32,
    /// Mnemonics of instructions.
    pub mnemonic: Color32,
    /// Registers.
    pub register: Color32,
    /// Numbers.
    pub number: Color32,
    /// Names of the kernel's symbols.
    pub symbol: Color32,
    /// Behind a lane while its instrument is in place.
    pub window: Color32,
    /// Under blocks.
    pub shadow: Color32,
    /// Colours of lanes, taken in turn.
    pub lanes: [Color32; 6],
}

const fn rgb(hex: u32) -> Color32 {
    Color32::from_rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

const DARK: Tokens = Tokens {
    canvas: rgb(0x14171c),
    grid: rgb(0x20242b),
    panel: rgb(0x1b1f25),
    bar: rgb(0x20252c),
    card: rgb(0x232830),
    hover: rgb(0x2d343e),
    field: rgb(0x121519),
    line: rgb(0x2c323b),
    outline: rgb(0x3d4551),
    text: rgb(0xc9d1dc),
    strong: rgb(0xeef2f7),
    weak: rgb(0x8691a0),
    accent: rgb(0x5fa8f5),
    accent_fill: rgb(0x243b57),
    on_accent: rgb(0x0c1724),
    good: rgb(0x5cc08f),
    warning: rgb(0xe0b35a),
    bad: rgb(0xf07f7a),
    bad_fill: rgb(0x3a2427),
    hookable: rgb(0x5cb59c),
    hooked: rgb(0xf0b455),
    refused: rgb(0xb86f70),
    edge_true: rgb(0x5cb87f),
    edge_false: rgb(0xd97b7b),
    edge_jump: rgb(0x738fb8),
    edge_back: rgb(0xb38add),
    edge_rare: rgb(0x5b6472),
    mnemonic: rgb(0x8fbcf2),
    register: rgb(0xd8dde5),
    number: rgb(0xd9a877),
    symbol: rgb(0x8fd0a6),
    window: rgb(0x1e2630),
    shadow: Color32::from_black_alpha(60),
    lanes: [
        rgb(0x6fb1f2),
        rgb(0x66c39a),
        rgb(0xe3b05f),
        rgb(0xc095e4),
        rgb(0xe5878f),
        rgb(0x5fc2cb),
    ],
};

const LIGHT: Tokens = Tokens {
    canvas: rgb(0xf6f7f9),
    grid: rgb(0xe7eaef),
    panel: rgb(0xfdfdfe),
    bar: rgb(0xf0f2f5),
    card: rgb(0xffffff),
    hover: rgb(0xe6ecf4),
    field: rgb(0xffffff),
    line: rgb(0xdce0e6),
    outline: rgb(0xbdc5cf),
    text: rgb(0x2b333e),
    strong: rgb(0x0f1620),
    weak: rgb(0x636e7c),
    accent: rgb(0x1f6fcb),
    accent_fill: rgb(0xd5e6fa),
    on_accent: rgb(0xffffff),
    good: rgb(0x1a7648),
    warning: rgb(0x865a00),
    bad: rgb(0xb93236),
    bad_fill: rgb(0xfbe6e5),
    hookable: rgb(0x1c8267),
    hooked: rgb(0xb26a00),
    refused: rgb(0xa85052),
    edge_true: rgb(0x2e8f52),
    edge_false: rgb(0xc14a4c),
    edge_jump: rgb(0x4c6fa3),
    edge_back: rgb(0x804fbd),
    edge_rare: rgb(0x9aa3b0),
    mnemonic: rgb(0x1d5ca8),
    register: rgb(0x2b333e),
    number: rgb(0x965416),
    symbol: rgb(0x1f7741),
    window: rgb(0xeaf0f8),
    shadow: Color32::from_black_alpha(18),
    lanes: [
        rgb(0x1f6fcb),
        rgb(0x1f8552),
        rgb(0xa86a00),
        rgb(0x804fbd),
        rgb(0xb93c4b),
        rgb(0x0f7f8a),
    ],
};

impl Tokens {
    /// The colours in force where `ui` is.
    #[must_use]
    pub fn of(ui: &Ui) -> &'static Self {
        Self::for_dark(ui.visuals().dark_mode)
    }

    /// The dark colours, or the light ones.
    #[must_use]
    pub const fn for_dark(dark: bool) -> &'static Self {
        if dark { &DARK } else { &LIGHT }
    }

    /// The colour of the lane at `index`.
    #[must_use]
    pub fn lane(&self, index: usize) -> Color32 {
        self.lanes
            .get(index % self.lanes.len())
            .copied()
            .unwrap_or(self.accent)
    }
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

/// Gives both themes to a context.
pub fn install(ctx: &Context) {
    for (theme, tokens) in [(Theme::Dark, &DARK), (Theme::Light, &LIGHT)] {
        ctx.style_mut_of(theme, |style| dress(style, tokens, theme == Theme::Dark));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(color: Color32) -> f32 {
        let linear = |part: u8| {
            let part = f32::from(part) / 255.0;
            if part <= 0.04045 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * linear(color.r()) + 0.7152 * linear(color.g()) + 0.0722 * linear(color.b())
    }

    fn contrast(a: Color32, b: Color32) -> f32 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_can_be_read_on_everything_it_stands_on() {
        for tokens in [&DARK, &LIGHT] {
            for behind in [
                tokens.panel,
                tokens.bar,
                tokens.card,
                tokens.field,
                tokens.canvas,
            ] {
                for text in [
                    tokens.text,
                    tokens.strong,
                    tokens.weak,
                    tokens.bad,
                    tokens.good,
                    tokens.warning,
                ] {
                    assert!(
                        contrast(text, behind) >= 4.5,
                        "{text:?} on {behind:?}: {}",
                        contrast(text, behind)
                    );
                }
                for mark in [
                    tokens.hookable,
                    tokens.hooked,
                    tokens.refused,
                    tokens.edge_back,
                    tokens.accent,
                ] {
                    assert!(
                        contrast(mark, behind) >= 3.0,
                        "{mark:?} on {behind:?}: {}",
                        contrast(mark, behind)
                    );
                }
            }
            for code in [
                tokens.mnemonic,
                tokens.register,
                tokens.number,
                tokens.symbol,
            ] {
                assert!(contrast(code, tokens.card) >= 4.5, "{code:?}");
            }
            assert!(contrast(tokens.on_accent, tokens.accent) >= 4.5);
        }
    }
}
