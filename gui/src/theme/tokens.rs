//! The colours of each theme. No other module names a colour.

use egui::{Color32, Ui};

/// The colours of one theme, by purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Background of the graph and the timeline.
    pub canvas: Color32,
    /// Faint marks on the canvas.
    pub grid: Color32,
    /// Background of panels.
    pub panel: Color32,
    /// Bars and headings.
    pub bar: Color32,
    /// Blocks of the graph and cards of lists.
    pub card: Color32,
    /// Widgets under the pointer.
    pub hover: Color32,
    /// Text fields.
    pub field: Color32,
    /// Separators.
    pub line: Color32,
    /// Outlines of clickable widgets.
    pub outline: Color32,
    /// Regular text.
    pub text: Color32,
    /// Headings and selected items.
    pub strong: Color32,
    /// Notes.
    pub weak: Color32,
    /// The accent of the current selection.
    pub accent: Color32,
    /// Background of selected items.
    pub accent_fill: Color32,
    /// Text on `accent`.
    pub on_accent: Color32,
    /// Success, or running.
    pub good: Color32,
    /// Conditions that need attention.
    pub warning: Color32,
    /// Errors.
    pub bad: Color32,
    /// Background of an error message.
    pub bad_fill: Color32,
    /// A hook that is free.
    pub hookable: Color32,
    /// A hook with an instrument of the session.
    pub hooked: Color32,
    /// A hook refused by a rule.
    pub refused: Color32,
    /// Edge of a taken branch.
    pub edge_true: Color32,
    /// Edge of a branch not taken.
    pub edge_false: Color32,
    /// Edge of a jump, or of a block that falls through.
    pub edge_jump: Color32,
    /// Edge that closes a loop.
    pub edge_back: Color32,
    /// Edge not taken now: static keys, fixups.
    pub edge_rare: Color32,
    /// Mnemonics of instructions.
    pub mnemonic: Color32,
    /// Register operands.
    pub register: Color32,
    /// Immediates and displacements.
    pub number: Color32,
    /// Names of the kernel's symbols.
    pub symbol: Color32,
    /// Remarks about instructions.
    pub remark: Color32,
    /// Background of a lane from launch to splash.
    pub window: Color32,
    /// Shadow of blocks.
    pub shadow: Color32,
    /// Colours of instruments.
    pub instruments: [Color32; 12],
}

const fn rgb(hex: u32) -> Color32 {
    Color32::from_rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

pub(super) const DARK: Tokens = Tokens {
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
    weak: rgb(0x9ca5b2),
    accent: rgb(0x5fa8f5),
    accent_fill: rgb(0x243b57),
    on_accent: rgb(0x0c1724),
    good: rgb(0x5cc08f),
    warning: rgb(0xe0b35a),
    bad: rgb(0xf08580),
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
    remark: rgb(0xa3a08a),
    window: rgb(0x1e2630),
    shadow: Color32::from_black_alpha(60),
    instruments: [
        rgb(0x6fb1f2),
        rgb(0x66c39a),
        rgb(0xe3b05f),
        rgb(0xc095e4),
        rgb(0xe5878f),
        rgb(0x5fc2cb),
        rgb(0xa5cf5f),
        rgb(0xf0955a),
        rgb(0xe58fce),
        rgb(0x8f9cf5),
        rgb(0xcdbd94),
        rgb(0x9fb4c8),
    ],
};

pub(super) const LIGHT: Tokens = Tokens {
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
    weak: rgb(0x5c6673),
    accent: rgb(0x1f6fcb),
    accent_fill: rgb(0xd5e6fa),
    on_accent: rgb(0xffffff),
    good: rgb(0x197447),
    warning: rgb(0x865a00),
    bad: rgb(0xb93236),
    bad_fill: rgb(0xfbe6e5),
    hookable: rgb(0x1c8267),
    hooked: rgb(0xa36100),
    refused: rgb(0xa85052),
    edge_true: rgb(0x2e8f52),
    edge_false: rgb(0xc14a4c),
    edge_jump: rgb(0x4c6fa3),
    edge_back: rgb(0x804fbd),
    edge_rare: rgb(0x858f9d),
    mnemonic: rgb(0x1d5ca8),
    register: rgb(0x2b333e),
    number: rgb(0x965416),
    symbol: rgb(0x1f7741),
    remark: rgb(0x67654a),
    window: rgb(0xeaf0f8),
    shadow: Color32::from_black_alpha(18),
    instruments: [
        rgb(0x1f6fcb),
        rgb(0x1d7f4e),
        rgb(0x9f6400),
        rgb(0x804fbd),
        rgb(0xb93c4b),
        rgb(0x0e7c87),
        rgb(0x5b7b00),
        rgb(0xba5009),
        rgb(0xb0328f),
        rgb(0x4a55c9),
        rgb(0x7a6237),
        rgb(0x53718a),
    ],
};

/// Pure colours on black, with strong lines.
pub(super) const CONTRAST: Tokens = Tokens {
    canvas: rgb(0x000000),
    grid: rgb(0x2a2a2a),
    panel: rgb(0x000000),
    bar: rgb(0x0e0e0e),
    card: rgb(0x000000),
    hover: rgb(0x1f2f45),
    field: rgb(0x000000),
    line: rgb(0x8a8a8a),
    outline: rgb(0xd0d0d0),
    text: rgb(0xffffff),
    strong: rgb(0xffffff),
    weak: rgb(0xd6d6d6),
    accent: rgb(0x4dd2ff),
    accent_fill: rgb(0x003a57),
    on_accent: rgb(0x000000),
    good: rgb(0x5dff9b),
    warning: rgb(0xffd84d),
    bad: rgb(0xff9a94),
    bad_fill: rgb(0x3d0000),
    hookable: rgb(0x45ffc8),
    hooked: rgb(0xffc400),
    refused: rgb(0xff8080),
    edge_true: rgb(0x4dff7c),
    edge_false: rgb(0xff7d7d),
    edge_jump: rgb(0x9dc4ff),
    edge_back: rgb(0xe0a6ff),
    edge_rare: rgb(0xb0b0b0),
    mnemonic: rgb(0x8fd3ff),
    register: rgb(0xffffff),
    number: rgb(0xffc98a),
    symbol: rgb(0x9dffb8),
    remark: rgb(0xe6e0b0),
    window: rgb(0x16202c),
    shadow: Color32::TRANSPARENT,
    instruments: [
        rgb(0x66c2ff),
        rgb(0x5dff9b),
        rgb(0xffd84d),
        rgb(0xe0a6ff),
        rgb(0xff9a94),
        rgb(0x5df5ff),
        rgb(0xc8ff4d),
        rgb(0xffa64d),
        rgb(0xff9de6),
        rgb(0xa8b4ff),
        rgb(0xf0dfa8),
        rgb(0xd0e4f5),
    ],
};

impl Tokens {
    /// Returns the current colours of `ui`.
    #[must_use]
    pub fn of(ui: &Ui) -> &'static Self {
        Palette::of(ui.visuals()).tokens()
    }

    /// Returns the colour of an instrument, which is the same everywhere.
    #[must_use]
    pub fn instrument(&self, name: &str) -> Color32 {
        let hash = name.bytes().fold(HASH_START, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        let place = (hash >> 8) as usize % self.instruments.len();
        debug_assert!(place < self.instruments.len(), "a remainder");
        self.instruments.get(place).copied().unwrap_or(self.accent)
    }
}

/// Start of the FNV-1a hash of an instrument's name: a number for which the most frequent
/// instruments of the library have different colours.
const HASH_START: u32 = 358_306;

/// A built-in set of colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// Light text on dark.
    #[default]
    Dark,
    /// Dark text on light.
    Light,
    /// White on black.
    Contrast,
}

impl Palette {
    /// Returns the palette from which `visuals` were made: each has a different background.
    #[must_use]
    pub fn of(visuals: &egui::Visuals) -> Self {
        if !visuals.dark_mode {
            Self::Light
        } else if visuals.panel_fill == CONTRAST.panel {
            Self::Contrast
        } else {
            Self::Dark
        }
    }

    /// Returns its colours.
    #[must_use]
    pub const fn tokens(self) -> &'static Tokens {
        match self {
            Self::Dark => &DARK,
            Self::Light => &LIGHT,
            Self::Contrast => &CONTRAST,
        }
    }
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

    /// Panics unless all colours have this contrast on all backgrounds.
    fn check(least: f32, colors: &[Color32], grounds: &[Color32]) {
        for color in colors {
            for ground in grounds {
                let contrast = contrast(*color, *ground);
                assert!(contrast >= least, "{color:?} on {ground:?}: {contrast}");
            }
        }
    }

    #[test]
    fn every_color_has_enough_contrast_where_it_is_used() {
        const TEXT: f32 = 4.5;
        const MARK: f32 = 3.0;
        for tokens in [&DARK, &LIGHT, &CONTRAST] {
            let Tokens {
                canvas,
                panel,
                bar,
                card,
                hover,
                field,
                accent,
                accent_fill,
                on_accent,
                bad_fill,
                window,
                ..
            } = *tokens;
            let words = [tokens.text, tokens.strong];
            let notes = [tokens.weak, tokens.bad, tokens.good, tokens.warning];
            let grounds = [canvas, panel, bar, card, field, hover, accent_fill, window];
            check(TEXT, &words, &grounds);
            check(TEXT, &notes, &grounds);
            check(TEXT, &[tokens.text, tokens.strong, tokens.bad], &[bad_fill]);
            // Text on buttons, on tags of notes, hits and changes, and in slices of lanes.
            check(TEXT, &[on_accent], &[accent, tokens.number]);
            let tags = [tokens.hooked, tokens.weak, tokens.good, tokens.warning];
            check(TEXT, &[canvas], &tags);
            check(TEXT, &[canvas], &tokens.instruments);
            let code = [
                tokens.mnemonic,
                tokens.register,
                tokens.number,
                tokens.symbol,
                tokens.remark,
            ];
            check(TEXT, &code, &[card, hover, field, bar]);
            // Marks of hooks, the focus, and dots of instruments.
            let hooks = [tokens.hookable, tokens.hooked, tokens.refused];
            check(MARK, &hooks, &[canvas, panel, bar, card, field]);
            check(MARK, &[accent], &[canvas, panel, bar, card, field]);
            check(
                MARK,
                &tokens.instruments,
                &[canvas, panel, card, hover, accent_fill],
            );
            let edges = [
                tokens.edge_true,
                tokens.edge_false,
                tokens.edge_jump,
                tokens.edge_back,
                tokens.edge_rare,
            ];
            check(MARK, &edges, &[canvas]);
        }
    }

    #[test]
    fn frequent_instruments_have_different_colours() {
        let frequent = [
            "timestamp",
            "counter",
            "elapsed",
            "return-value",
            "argument-0",
            "branch",
            "caller",
            "elapsed-when-called",
            "running-thread",
            "threads-inside",
            "lock-wait",
            "block-trace",
        ];
        let mut colors = frequent.map(|name| DARK.instrument(name).to_array());
        colors.sort_unstable();
        assert!(colors.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
