//! Export of the graph as SVG, with the colours of the theme.

use std::fmt::Write as _;

use egui::{Color32, Pos2};
use gilk_engine::HookType;
use gilk_samples::chart::escaped;

use super::heat::Heat;
use super::marks::{Hooked, Mark};
use super::scene::{EdgeLook, Metrics, Scene, inside};
use crate::theme::{Tokens, text};
use crate::widgets;

/// Returns the graph of `scene` as SVG.
#[must_use]
pub fn svg(
    scene: &Scene,
    (hooked, heat): (&Hooked, Option<&Heat>),
    metrics: Metrics,
    tokens: &Tokens,
) -> String {
    let mut out = String::new();
    let written = write(&mut out, scene, (hooked, heat), metrics, tokens);
    debug_assert!(written.is_ok(), "writing to a string does not fail");
    out
}

fn write(
    out: &mut String,
    scene: &Scene,
    (hooked, heat): (&Hooked, Option<&Heat>),
    metrics: Metrics,
    tokens: &Tokens,
) -> std::fmt::Result {
    let size = scene.layout.size + egui::vec2(20.0, 20.0);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 {0} {1}" width="{0}" height="{1}">"#,
        size.x, size.y
    )?;
    writeln!(out, "<title>{}</title>", escaped(&scene.name))?;
    let ground = hex(tokens.canvas);
    writeln!(
        out,
        r#"<rect x="-10" y="-10" width="100%" height="100%" fill="{ground}"/>"#
    )?;
    let routes = scene.layout.routes.iter().zip(&scene.looks);
    for (route, look) in routes.filter(|(route, _)| !route.points.is_empty()) {
        let color = hex(match look {
            _ if route.back => tokens.edge_back,
            EdgeLook::True => tokens.edge_true,
            EdgeLook::False => tokens.edge_false,
            EdgeLook::Jump => tokens.edge_jump,
            EdgeLook::Rare => tokens.edge_rare,
        });
        let points: Vec<String> = route
            .points
            .iter()
            .map(|at| format!("{},{}", at.x, at.y))
            .collect();
        let dash = if *look == EdgeLook::Rare {
            r#" stroke-dasharray="5 4""#
        } else {
            ""
        };
        writeln!(
            out,
            r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="1.3" stroke-linejoin="round"{dash}/>"#,
            points.join(" ")
        )?;
        if let Some(&Pos2 { x, y }) = route.points.last() {
            let (left, right, base) = (x - 4.0, x + 4.0, y - 8.0);
            writeln!(
                out,
                r#"<path d="M{x} {y}L{left} {base}L{right} {base}Z" fill="{color}"/>"#
            )?;
        }
    }
    for (block, rect, region) in scene.boxes() {
        let (x, y, w, h) = (rect.left(), rect.top(), rect.width(), rect.height());
        let (card, outline) = (hex(tokens.card), hex(tokens.outline));
        writeln!(
            out,
            r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5" fill="{card}" stroke="{outline}"/>"#
        )?;
        let count = heat.and_then(|heat| heat.block(block));
        if let Some(words) = match (region, count) {
            (Some(region), _) => Some(widgets::counted(region.len(), "cold block")),
            (None, Some(hits)) => Some(format!("{} ×", widgets::grouped(hits))),
            (None, None) => None,
        } {
            let (right, base) = (x + w - inside::PADDING, y + inside::HEADING - 7.0);
            writeln!(
                out,
                r#"<text x="{right}" y="{base}" text-anchor="end" font-family="sans-serif" font-size="{}" fill="{}">{words}</text>"#,
                text::BODY,
                hex(tokens.hooked)
            )?;
        }
        let Some(shown) = scene
            .shown
            .get(block.0 as usize)
            .filter(|_| region.is_none())
        else {
            continue;
        };
        for (hook, top) in [(HookType::Pre, y), (HookType::Post, y + h / 2.0)] {
            let color = hex(Mark::of(scene, hooked, block, hook).color(tokens));
            let half = h / 2.0;
            writeln!(
                out,
                r#"<rect x="{x}" y="{top}" width="4" height="{half}" fill="{color}"/>"#
            )?;
        }
        let left = x + inside::PADDING + 2.0;
        let base = y + inside::HEADING - 7.0;
        writeln!(
            out,
            r#"<text x="{left}" y="{base}" font-family="sans-serif" font-size="{}" fill="{}">block {} +{:x}</text>"#,
            text::BODY,
            hex(tokens.strong),
            block.0,
            shown.offset
        )?;
        let mut base = y + inside::HEADING + inside::PADDING * 0.6 + text::CODE;
        for line in &shown.lines {
            // The text keeps the width of the block with any font of the reader.
            let letters = line.parts.iter().map(|(_, piece)| piece.chars().count());
            let width = (6 + letters.sum::<usize>()) as f32 * metrics.letter;
            write!(
                out,
                r#"<text x="{left}" y="{base}" font-family="monospace" font-size="{}" textLength="{width}" lengthAdjust="spacingAndGlyphs" xml:space="preserve">"#,
                text::CODE
            )?;
            write!(
                out,
                r#"<tspan fill="{}">{:<5} </tspan>"#,
                hex(tokens.weak),
                line.offset
            )?;
            for (part, piece) in &line.parts {
                let color = part.color(tokens);
                write!(
                    out,
                    r#"<tspan fill="{}">{}</tspan>"#,
                    hex(color),
                    escaped(piece)
                )?;
            }
            writeln!(out, "</text>")?;
            base += metrics.line;
        }
    }
    writeln!(out, "</svg>")
}

fn hex(color: Color32) -> String {
    format!("#{:02x}{:02x}{:02x}", color.r(), color.g(), color.b())
}
