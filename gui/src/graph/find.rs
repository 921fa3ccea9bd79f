//! Text search in the open graph: instructions, symbols, numbers, block numbers.

use egui::accesskit::Role;
use egui::{Frame, Key, Modifiers, Rect, RichText, Stroke, TextEdit, Ui, pos2};
use gilk_engine::cfg::BlockIndex;

use super::scene::Scene;
use crate::command::Command;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// State of the search.
#[derive(Clone, Debug, Default)]
pub struct Find {
    text: String,
    answered: Option<(String, String)>,
    /// The blocks that match.
    pub found: Vec<BlockIndex>,
    was_focused: bool,
}

impl Find {
    fn answer(&mut self, scene: &Scene) {
        let key = (scene.name.clone(), self.text.trim().to_lowercase());
        if self.answered.as_ref() == Some(&key) {
            return;
        }
        let wanted = &key.1;
        let blocks = scene.cfg.blocks.iter().zip(&scene.shown);
        self.found = blocks
            .filter(|(block, shown)| {
                let number = format!("block {}", block.index.0) == *wanted;
                let line = |line: &super::scene::CodeLine| {
                    let text: String = line.parts.iter().map(|(_, piece)| piece.as_str()).collect();
                    text.to_lowercase().contains(wanted)
                };
                !wanted.is_empty() && (number || shown.lines.iter().any(line))
            })
            .map(|(block, _)| block.index)
            .collect();
        self.answered = Some(key);
    }
}

/// Draws the search field in the corner of the canvas while a search is open.
pub(super) fn show(
    ui: &mut Ui,
    open_find: &mut Option<Find>,
    selected: Option<BlockIndex>,
    scene: &Scene,
    canvas: Rect,
    commands: &mut Vec<Command>,
) {
    let Some(mut find) = open_find.take() else {
        return;
    };
    find.answer(scene);
    let tokens = Tokens::of(ui);
    let place = Rect::from_min_max(
        pos2(canvas.right() - 330.0, canvas.top() + 8.0),
        pos2(canvas.right() - 10.0, canvas.top() + 46.0),
    );
    let mut open = true;
    let id = egui::Id::unique("find in graph");
    let focused = ui.memory(|memory| memory.has_focus(id));
    let pressed = |key| focused && ui.input_mut(|input| input.consume_key(Modifiers::NONE, key));
    let step = isize::from(pressed(Key::Enter) || pressed(Key::ArrowDown))
        - isize::from(pressed(Key::ArrowUp));
    let at = selected.and_then(|block| find.found.iter().position(|&one| one == block));
    if step != 0 && !find.found.is_empty() {
        let count = find.found.len() as isize;
        let next = at.map_or(0, |at| (at as isize + step).rem_euclid(count));
        if let Some(&block) = find.found.get(next as usize) {
            commands.push(Command::SelectBlock(block));
        }
    }
    ui.scope_builder(egui::UiBuilder::new().max_rect(place), |ui| {
        let frame = Frame::NONE
            .fill(tokens.panel)
            .stroke(Stroke::new(1.0, tokens.outline))
            .corner_radius(space::CORNER)
            .inner_margin(space::margins(space::SMALL, space::SNUG));
        frame.show(ui, |ui| {
            ui.horizontal(|ui| {
                let field = TextEdit::singleline(&mut find.text)
                    .id(id)
                    .font(code(text::CODE))
                    .hint_text("instruction, symbol, block 12")
                    .desired_width(190.0);
                let field = widgets::named(ui.add(field), Role::TextInput, "Find in graph");
                if !std::mem::replace(&mut find.was_focused, true) {
                    field.request_focus();
                }
                let words = match (find.text.trim().is_empty(), at) {
                    (true, _) => String::new(),
                    (false, Some(at)) => format!("{} of {}", at + 1, find.found.len()),
                    (false, None) => widgets::counted(find.found.len(), "block"),
                };
                ui.label(RichText::new(words).small().color(tokens.weak));
                open &= !widgets::cross(ui, "Close find").clicked();
            });
        });
    });
    if open {
        *open_find = Some(find);
    }
}
