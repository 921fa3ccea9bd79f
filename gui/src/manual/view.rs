//! Draws the manual.

use egui::accesskit::Role;
use egui::text::LayoutJob;
use egui::{
    Align, Context, Frame, Id, Layout, Rect, RichText, ScrollArea, TextEdit, TextFormat, Ui,
    UiBuilder, Window, vec2,
};

use super::{Manual, Part, command, matches, parts, sections, shown};
use crate::command::Command;
use crate::state::State;
use crate::theme::text::BODY;
use crate::theme::{Tokens, prose, space};
use crate::widgets;

/// Width of the list of sections.
const TITLES: f32 = 160.0;

/// Draws the manual, if it is open.
pub(crate) fn show(ctx: &Context, state: &mut State, commands: &mut Vec<Command>) {
    let Some(mut manual) = state.manual.take() else {
        return;
    };
    let mut open = true;
    let margin = space::margins(space::LARGE, space::MEDIUM);
    let size = vec2(760.0, 540.0).min(ctx.content_rect().size() - vec2(60.0, 60.0));
    Window::new("Manual")
        .id(Id::unique("manual"))
        .open(&mut open)
        .collapsible(false)
        .frame(Frame::window(&ctx.global_style()).inner_margin(margin))
        .default_size(size)
        .default_pos(ctx.content_rect().center() - size / 2.0)
        .show(ctx, |ui| contents(ui, &mut manual, commands));
    if open {
        state.manual = Some(manual);
    }
}

fn contents(ui: &mut Ui, manual: &mut Manual, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let field = TextEdit::singleline(&mut manual.search)
        .hint_text("Search the manual")
        .desired_width(f32::INFINITY);
    widgets::named(ui.add(field), Role::TextInput, "Search the manual");
    let wanted = manual.search.trim().to_ascii_lowercase();
    let count = |title: &str, paragraphs: &[&'static str]| -> usize {
        if wanted.is_empty() {
            return 0;
        }
        let texts = paragraphs.iter().map(|paragraph| shown(paragraph));
        let in_texts: usize = texts.map(|text| matches(&text, &wanted).len()).sum();
        in_texts + matches(title, &wanted).len()
    };
    let found: Vec<(&'static str, &[&'static str], usize)> = sections()
        .iter()
        .map(|(title, paragraphs)| (*title, paragraphs.as_slice(), count(title, paragraphs)))
        .filter(|(.., count)| wanted.is_empty() || *count > 0)
        .collect();
    if !wanted.is_empty() {
        let all = found.iter().map(|(.., count)| count).sum();
        let places = widgets::counted(all, "place");
        let words = format!("{places} in {}", widgets::counted(found.len(), "section"));
        let label = ui.label(RichText::new(&words).small().color(tokens.weak));
        widgets::named(label, Role::Status, &words);
    }
    ui.add_space(space::TIGHT);
    let area = ui.available_rect_before_wrap();
    let beside = area.left() + TITLES;
    let column = |rect: Rect, name: &str| {
        let layout = Layout::top_down(Align::Min);
        UiBuilder::new().max_rect(rect).layout(layout).id_salt(name)
    };
    ui.scope_builder(column(area.with_max_x(beside), "titles"), |ui| {
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            for (title, ..) in &found {
                let link = ui.link(*title);
                let link = widgets::named(link, Role::Link, &format!("to {title}"));
                if link.clicked() {
                    manual.scroll_to = Some(title);
                }
            }
        });
    });
    let text = area.with_min_x(beside + space::MEDIUM);
    ui.scope_builder(column(text, "sections"), |ui| {
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            for (title, paragraphs, _) in found {
                section(ui, manual, (title, paragraphs), &wanted, commands);
            }
        });
    });
}

fn section(
    ui: &mut Ui,
    manual: &mut Manual,
    (title, paragraphs): (&'static str, &[&'static str]),
    wanted: &str,
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    ui.add_space(space::SMALL);
    let heading = ui.label(RichText::new(title).heading().color(tokens.strong));
    let heading = widgets::named(heading, Role::Heading, title);
    if manual.scroll_to == Some(title) {
        manual.scroll_to = None;
        heading.scroll_to_me(Some(Align::Min));
    }
    for paragraph in paragraphs {
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 0.0;
            for part in parts(paragraph) {
                match part {
                    Part::Text(words) => {
                        let job = marked(words, wanted, tokens);
                        ui.label(job);
                    }
                    Part::Link(words, target) => {
                        let link = ui.link(words);
                        if !link.clicked() {
                            continue;
                        }
                        match target.strip_prefix('!').map(command) {
                            Some(command) => commands.extend(command),
                            None => {
                                manual.search.clear();
                                let mut titles = sections().iter().map(|(title, _)| *title);
                                manual.scroll_to = titles.find(|title| *title == target);
                            }
                        }
                    }
                }
            }
        });
    }
}

/// Lays out text with its matches marked.
fn marked(text: &str, wanted: &str, tokens: &Tokens) -> LayoutJob {
    let plain = TextFormat::simple(prose(BODY), tokens.text);
    let mark = TextFormat {
        background: tokens.accent_fill,
        color: tokens.strong,
        ..plain.clone()
    };
    let mut job = LayoutJob::default();
    let mut at = 0;
    for range in matches(text, wanted) {
        job.append(
            text.get(at..range.start).unwrap_or_default(),
            0.0,
            plain.clone(),
        );
        job.append(
            text.get(range.clone()).unwrap_or_default(),
            0.0,
            mark.clone(),
        );
        at = range.end;
    }
    job.append(text.get(at..).unwrap_or_default(), 0.0, plain);
    job
}
