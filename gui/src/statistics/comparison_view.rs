//! Draws the comparison of two recordings.

use egui::accesskit::Role;
use egui::{Rect, RichText, ScrollArea, Sense, TextEdit, Ui, vec2};
use gilk_samples::compare::{Change, Comparison, SideStats};

use super::cells::{cells, draw_cell};
use super::comparison::ComparedRuns;
use crate::command::Command;
use crate::desk::{Pane, filter_field};
use crate::theme::{Tokens, space};
use crate::timeline::scale::length;
use crate::widgets;

/// Columns of numbers, after the instrument's.
const TITLES: [&str; 8] = [
    "hits before",
    "hits after",
    "rate",
    "p50 before",
    "p50 after",
    "values",
    "p99 before",
    "p99 after",
];
/// Width of a column of numbers in points.
const NUMBER: f32 = 88.0;

/// Draws the names of both recordings and the buttons, in the pane's header.
pub(super) fn header(ui: &mut Ui, runs: &ComparedRuns, commands: &mut Vec<Command>) {
    widgets::button(
        ui,
        "Close comparison",
        Command::StopComparing,
        true,
        commands,
    );
    if ui.button("Copy CSV").clicked() {
        let what = format!(
            "the comparison of {}",
            widgets::counted(runs.instruments.len(), "instrument")
        );
        commands.push(Command::Copy(csv(&runs.instruments).into(), what));
    }
    let name = |path: &std::path::Path| {
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let words = format!("{} and {}", name(&runs.before), name(&runs.after));
    let strong = Tokens::of(ui).strong;
    ui.add(egui::Label::new(RichText::new(words).small().color(strong)).truncate());
}

/// Draws the table.
pub(super) fn show(ui: &mut Ui, runs: &mut ComparedRuns, filter: &mut String) {
    let tokens = Tokens::of(ui);
    widgets::inset(ui, |ui| {
        let field = TextEdit::singleline(filter)
            .id(filter_field(Pane::Statistics))
            .hint_text("Filter: function or instrument")
            .desired_width(f32::INFINITY);
        widgets::named(ui.add(field), Role::TextInput, "Filter statistics");
        let mut words = format!(
            "{} of {} differ: the colour marks a change whose chance is below 5 % over all comparisons.",
            widgets::grouped(runs.differing as u64),
            widgets::counted(runs.instruments.len(), "instrument")
        );
        if runs.instruments.is_empty() {
            "No instrument is in both recordings.".clone_into(&mut words);
        }
        if runs.unmatched > 0 {
            words += &format!(
                " {} in one recording only.",
                widgets::counted(runs.unmatched, "instrument")
            );
        }
        if runs.damaged > 0 {
            words += &format!(" {} unreadable.", widgets::counted(runs.damaged, "batch"));
        }
        ui.label(RichText::new(words).small().color(tokens.weak));
    });
    let shown = runs.shown(filter);
    let names = ui.available_width() - TITLES.len() as f32 * NUMBER - 2.0 * space::PANEL;
    let mut widths = vec![names.max(200.0)];
    widths.extend(TITLES.map(|_| NUMBER));
    let size = vec2(widths.iter().sum::<f32>() + 2.0 * space::PANEL, space::ROW);
    ui.spacing_mut().item_spacing.y = 0.0;
    ScrollArea::horizontal()
        .id_salt("comparison")
        .auto_shrink(false)
        .show(ui, |ui| {
            let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
            ui.painter().rect_filled(rect, 0.0, tokens.bar);
            let titles = std::iter::once("instrument").chain(TITLES);
            for (place, (title, cell)) in titles.zip(cells(rect, &widths)).enumerate() {
                draw_cell(ui, cell, place == 0, title.to_owned(), tokens.weak, false);
            }
            ScrollArea::vertical()
                .id_salt("comparison rows")
                .auto_shrink(false)
                .show_rows(ui, space::ROW, shown.len(), |ui, range| {
                    let places = shown.get(range).unwrap_or_default().iter();
                    for one in places.filter_map(|&place| runs.instruments.get(place)) {
                        row(ui, one, &widths, size);
                    }
                });
        });
}

fn row(ui: &mut Ui, comparison: &Comparison, widths: &[f32], size: egui::Vec2) {
    let tokens = Tokens::of(ui);
    let (rect, response): (Rect, _) = ui.allocate_exact_size(size, Sense::hover());
    if response.hovered() {
        ui.painter().rect_filled(rect, 0.0, tokens.hover);
    }
    let value = |of: u64| match (comparison.times, comparison.value.is_some()) {
        (true, _) => length(of as f64 / 1e9),
        (false, true) => widgets::grouped(of),
        (false, false) => String::new(),
    };
    let numbers = |side: &SideStats| (value(side.median), value(side.p99));
    let ((p50_a, p99_a), (p50_b, p99_b)) = (numbers(&comparison.a), numbers(&comparison.b));
    let texts = [
        comparison.label.clone(),
        widgets::grouped(comparison.a.count),
        widgets::grouped(comparison.b.count),
        share(comparison.rate.as_ref()),
        p50_a,
        p50_b,
        share(comparison.value.as_ref()),
        p99_a,
        p99_b,
    ];
    let words = format!(
        "{}: rate {}, values {}",
        comparison.label,
        share(comparison.rate.as_ref()),
        share(comparison.value.as_ref())
    );
    let response = widgets::named(response, Role::Row, &words);
    for (place, (words, cell)) in texts.into_iter().zip(cells(rect, widths)).enumerate() {
        let change = match place {
            3 => comparison.rate.as_ref(),
            6 => comparison.value.as_ref(),
            _ => None,
        };
        let color = match change.filter(|change| change.differs()) {
            Some(change) if change.by > 0.0 => tokens.warning,
            Some(_) => tokens.good,
            None => tokens.text,
        };
        draw_cell(ui, cell, place == 0, words, color, true);
    }
    let superiority = comparison.superiority.map_or_else(String::new, |share| {
        format!(
            "\nA value after is greater than one before with a probability of {:.0} %.",
            100.0 * share
        )
    });
    response.on_hover_text(format!("{}{superiority}", comparison.label));
}

/// Formats a relative change with its sign; an equals sign without a difference.
fn share(change: Option<&Change>) -> String {
    match change {
        None => String::new(),
        Some(change) if !change.differs() => "=".to_owned(),
        Some(change) => match change.share() {
            Some(share) => format!("{:+.1} %", 100.0 * share),
            None => "new".to_owned(),
        },
    }
}

/// Returns the comparison as CSV: plain numbers, durations in nanoseconds.
fn csv(instruments: &[Comparison]) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let change = |change: Option<&Change>| {
        change.map_or_else(
            || ",,".to_owned(),
            |change| {
                let share = change
                    .share()
                    .map_or_else(String::new, |share| share.to_string());
                format!("{},{share},{}", change.by, change.chance)
            },
        )
    };
    let mut lines = vec![
        "instrument,hits before,hits after,p50 before,p50 after,p99 before,p99 after,rate by,rate share,rate chance,value by,value share,value chance".to_owned(),
    ];
    lines.extend(instruments.iter().map(|one| {
        format!(
            "{},{},{},{},{},{},{},{},{}",
            quoted(&one.label),
            one.a.count,
            one.b.count,
            one.a.median,
            one.b.median,
            one.a.p99,
            one.b.p99,
            change(one.rate.as_ref()),
            change(one.value.as_ref())
        )
    }));
    lines.join("\n") + "\n"
}
