//! The inspector: facts about a block, its hooks, and a form to add an instrument.

use std::sync::Arc;

use egui::accesskit::Role;
use egui::{Button, ComboBox, Frame, Grid, RichText, ScrollArea, Sense, Stroke, Ui};
use gilk_engine::HookType;
use gilk_engine::cfg::{BlockEnd, BlockIndex};

use crate::command::Command;
use crate::graph::Scene;
use crate::graph::marks::{Mark, sentence};
use crate::hook_facts::LastPlan;
use crate::object_names;
use crate::seconds::{SHORTEST, refused_launch, refused_splash, seconds};
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::{
    availability, hook_instruments, paths, replacement_panel, sources, style_panel, widgets,
};

/// Draws the inspector.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let Some(scene) = state.graph.scene.clone() else {
        let words = "Open a function and click one of its blocks.";
        let find = (Command::FocusFilter, state.catalogue.is_some());
        widgets::empty_with(ui, ("Nothing selected", words), find, commands);
        return;
    };
    if let Some(block) = state.graph.selected {
        update_hook_facts(state, &scene, block, ui.ctx());
    }
    ScrollArea::vertical()
        .id_salt("inspector")
        .auto_shrink(false)
        .show(ui, |ui| {
            ui.set_max_width(ui.available_width().min(space::READABLE));
            widgets::inset(ui, |ui| match state.graph.selected {
                Some(block) => {
                    about_block(ui, state, &scene, block);
                    sources::show(ui, &mut state.lines, &scene, block, commands);
                    ui.add_space(space::SMALL);
                    for hook in scene.hooks(block) {
                        // The ways of a branch are chosen next to it and have a card then.
                        if hook.is_way() && state.draft.hook != hook {
                            continue;
                        }
                        hook_card(ui, state, &scene, block, hook);
                    }
                    both(ui, &scene, block);
                    ui.add_space(space::SMALL);
                    form(ui, state, (&scene, block), commands);
                    ui.add_space(space::TIGHT);
                    hook_instruments::show(ui, state, block, commands);
                    ui.add_space(space::SMALL);
                    replacement_panel::show(ui, state, &scene, commands);
                    style_panel::show(ui, state, &scene, commands);
                    paths::show(ui, state, &scene, commands);
                }
                None => {
                    about_function(ui, &scene);
                    sources::show(ui, &mut state.lines, &scene, BlockIndex(0), commands);
                    ui.add_space(space::SMALL);
                    ui.label(RichText::new("Click a block to see its hooks.").color(tokens.weak));
                    ui.add_space(space::SMALL);
                    replacement_panel::show(ui, state, &scene, commands);
                    style_panel::show(ui, state, &scene, commands);
                    paths::show(ui, state, &scene, commands);
                }
            });
        });
}

fn update_hook_facts(
    state: &mut State,
    scene: &Arc<Scene>,
    block: BlockIndex,
    ctx: &egui::Context,
) {
    let plan = state.plan.outcome.as_ref();
    let plan = plan.and_then(|plan| plan.as_ref().ok());
    let last = LastPlan {
        plan: plan.cloned(),
        number: state.plan.answered,
        is_current: !state.plan.pending(),
    };
    let hook = (block, state.draft.hook);
    let document = &state.document;
    state.hook_facts.update(document, scene, hook, &last, ctx);
}

fn row(ui: &mut Ui, caption: &str, value: impl Into<String>) {
    widgets::caption(ui, caption);
    ui.label(RichText::new(value).font(code(text::CODE)));
    ui.end_row();
}

fn facts(ui: &mut Ui, name: &str, contents: impl FnOnce(&mut Ui)) {
    /// Space between captions and values.
    const GAP: f32 = space::MEDIUM;
    /// Width of the widest caption.
    const CAPTIONS: f32 = 58.0;
    Grid::new(name)
        .num_columns(2)
        .spacing([GAP, space::TIGHT])
        .max_col_width((ui.available_width() - CAPTIONS - GAP).max(CAPTIONS))
        .min_row_height(16.0)
        .show(ui, contents);
}

/// Draws the name of the open function.
fn function_name(ui: &mut Ui, scene: &Scene, size: f32, color: egui::Color32) {
    let shown = object_names::fitting_here(ui, &scene.name, &code(size));
    let shown = RichText::new(shown).font(code(size)).color(color);
    ui.add(egui::Label::new(shown).truncate())
        .on_hover_text(&scene.name);
}

fn about_function(ui: &mut Ui, scene: &Scene) {
    let tokens = Tokens::of(ui);
    function_name(ui, scene, text::HEADING, tokens.strong);
    prototype(ui, scene);
    facts(ui, "function", |ui| {
        row(ui, "address", scene.cfg.span.start.to_string());
        row(
            ui,
            "size",
            widgets::counted(scene.cfg.span.len() as usize, "byte"),
        );
        row(
            ui,
            "blocks",
            widgets::grouped(scene.cfg.blocks.len() as u64),
        );
        row(ui, "edges", widgets::grouped(scene.cfg.edges.len() as u64));
        if !scene.cfg.tables.is_empty() {
            let count = widgets::grouped(scene.cfg.tables.len() as u64);
            let hidden = if scene.has_hidden_tables() {
                " (too many to be drawn)"
            } else {
                ""
            };
            row(ui, "table edges", format!("{count}{hidden}"));
        }
        row(
            ui,
            "pre-hooks",
            widgets::counted(scene.hookable(HookType::Pre).count(), "block"),
        );
        row(
            ui,
            "post-hooks",
            widgets::counted(scene.hookable(HookType::Post).count(), "block"),
        );
    });
}

/// Shows the function's C declaration, if the kernel's types have it.
fn prototype(ui: &mut Ui, scene: &Scene) {
    let Some(words) = &scene.prototype else {
        return;
    };
    let text = RichText::new(words).font(code(text::SMALL));
    let shown = ui.add(egui::Label::new(text.color(Tokens::of(ui).text)).wrap());
    widgets::named(shown, Role::Label, words);
}

fn about_block(ui: &mut Ui, state: &mut State, scene: &Scene, index: BlockIndex) {
    let tokens = Tokens::of(ui);
    let Some(block) = scene.cfg.block(index) else {
        return;
    };
    ui.horizontal(|ui| {
        ui.label(
            RichText::new(format!("Block {}", index.0))
                .heading()
                .color(tokens.strong),
        );
        function_name(ui, scene, text::CODE, tokens.weak);
    });
    prototype(ui, scene);
    facts(ui, "block", |ui| {
        let offset = block.span.start.0.saturating_sub(scene.cfg.span.start.0);
        row(ui, "address", format!("{}  +{offset:#x}", block.span.start));
        row(
            ui,
            "size",
            format!(
                "{}, {}",
                widgets::counted(block.span.len() as usize, "byte"),
                widgets::counted(block.instructions.len(), "instruction")
            ),
        );
        if block.end == BlockEnd::Conditional {
            widgets::caption(ui, "ends with");
            ui.horizontal(|ui| ways(ui, state, scene, index));
            ui.end_row();
        } else {
            row(ui, "ends with", end(block.end));
        }
        if block.entered {
            row(ui, "entered", "from outside the function");
        }
    });
}

/// Draws the end of a block with a branch, whose two ways can be selected.
fn ways(ui: &mut Ui, state: &mut State, scene: &Scene, block: BlockIndex) {
    ui.spacing_mut().interact_size.y = 16.0;
    ui.spacing_mut().button_padding = egui::vec2(space::SNUG, 0.0);
    ui.label(RichText::new("branch").font(code(text::CODE)));
    for hook in [HookType::Taken, HookType::Untaken] {
        let mark = Mark::of(scene, &state.hooked, block, hook);
        let chosen = state.draft.hook == hook;
        let words = RichText::new(hook.to_string())
            .small()
            .color(mark.color(Tokens::of(ui)));
        let response = ui
            .selectable_label(chosen, words)
            .on_hover_text(mark.words());
        let name = format!("select the way {hook}: {}", mark.words());
        if widgets::chosen(response, Role::RadioButton, chosen, &name).clicked() {
            state.draft.hook = hook;
            state.graph.hook = Some(hook);
        }
    }
}

const fn end(end: BlockEnd) -> &'static str {
    match end {
        BlockEnd::FallThrough => "falls through",
        BlockEnd::Jump => "jump",
        BlockEnd::Conditional => "conditional branch",
        BlockEnd::Return => "return",
        BlockEnd::TailCall => "jump to another function",
        BlockEnd::Indirect => "indirect jump",
        BlockEnd::NoReturn => "does not return",
    }
}

/// Draws a hook of the block as a selectable card.
fn hook_card(ui: &mut Ui, state: &mut State, scene: &Scene, block: BlockIndex, hook: HookType) {
    let tokens = Tokens::of(ui);
    let mark = Mark::of(scene, &state.hooked, block, hook);
    let chosen = state.draft.hook == hook;
    let outline = if chosen {
        Stroke::new(1.5, tokens.accent)
    } else {
        Stroke::new(1.0, tokens.line)
    };
    let frame = Frame::NONE
        .fill(if chosen { tokens.card } else { tokens.panel })
        .stroke(outline)
        .corner_radius(space::CORNER)
        .inner_margin(space::margins(space::SMALL, space::SNUG));
    let shown = frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = space::HAIR;
        ui.horizontal(|ui| {
            ui.label(RichText::new(format!("{hook}-hook")).color(tokens.strong));
            ui.label(RichText::new(mark.words()).color(mark.color(tokens)));
        });
        let words = match (&mark, scene.hook(block, hook)) {
            (Mark::Refused(refusal), _) => sentence(refusal),
            (_, Some(Ok(choice))) => format!("{}: {}", choice.tactic.name(), choice.cost),
            _ => String::new(),
        };
        let color = if matches!(mark, Mark::Refused(_)) {
            tokens.text
        } else {
            tokens.weak
        };
        ui.label(RichText::new(words).small().color(color));
        let details = match &mark {
            Mark::Refused(refusal) => vec![format!("at {}", refusal.at)],
            _ => state.hook_facts.written(hook).to_vec(),
        };
        for line in details {
            ui.label(
                RichText::new(line)
                    .font(code(text::SMALL))
                    .color(tokens.weak),
            );
        }
    });
    let name = format!("select the {hook}-hook: {}", mark.words());
    let response = ui.interact(
        shown.response.rect,
        ui.scope_id().with(("hook card", hook)),
        Sense::click(),
    );
    if widgets::chosen(response, Role::RadioButton, chosen, &name).clicked() {
        state.draft.hook = hook;
        state.graph.hook = Some(hook);
    }
}

/// Shows the refusal of using both hooks at once.
fn both(ui: &mut Ui, scene: &Scene, block: BlockIndex) {
    let tokens = Tokens::of(ui);
    let options = scene.options.get(block.0 as usize);
    if let Some(Some(Err(refusal))) = options.map(|options| &options.both) {
        ui.label(
            RichText::new(format!(
                "Only one of the two hooks at a time. {}",
                sentence(refusal)
            ))
            .small()
            .color(tokens.warning),
        );
    }
}

fn form(
    ui: &mut Ui,
    state: &mut State,
    (scene, block): (&Scene, BlockIndex),
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    let summary = state.definition(&state.draft.instrument);
    let summary = summary.map(|definition| definition.summary.clone());
    let mut chosen = None;
    widgets::caption(ui, "instrument");
    let combo = ComboBox::from_id_salt("instrument")
        .width(ui.available_width())
        .selected_text(&state.draft.instrument)
        .show_ui(ui, |ui| {
            for definition in state.offered() {
                let is_chosen = state.draft.instrument == definition.name;
                let response = ui
                    .selectable_label(is_chosen, &definition.name)
                    .on_hover_text(&definition.summary);
                if response.clicked() {
                    chosen = Some(definition.name.clone());
                }
            }
        });
    widgets::named(combo.response, Role::ComboBox, "Instrument");
    if let Some(summary) = summary {
        ui.label(RichText::new(summary).small().color(tokens.weak));
    }
    if let Some(chosen) = chosen {
        state.draft.instrument = chosen;
    }
    ui.add_space(space::TIGHT);
    let duration = state.document.session().duration;
    ui.horizontal(|ui| {
        let draft = &mut state.draft;
        let (mut launch, mut splash) = (draft.launch, draft.splash);
        widgets::caption(ui, "launch");
        let latest = (splash - SHORTEST).max(0.0);
        let refuse = |launch| refused_launch(launch, splash);
        if seconds(ui, &mut launch, 0.0..=latest, "Launch time", refuse) {
            draft.launch = launch;
        }
        widgets::caption(ui, "splash");
        let earliest = (draft.launch + SHORTEST).min(duration);
        let launch = draft.launch;
        let refuse = |splash| refused_splash(splash, launch, duration);
        if seconds(ui, &mut splash, earliest..=duration, "Splash time", refuse) {
            draft.set_splash(splash, duration);
        }
    });
    ui.add_space(space::SMALL);
    // The card of a refused hook has the sentence already.
    let shown = match scene.hook(block, state.draft.hook) {
        Some(Err(refusal)) => Some(refusal.why.as_str()),
        _ => None,
    };
    let is_new = |why: &&String| shown.is_none_or(|shown| !why.contains(shown));
    for why in state
        .offer
        .refused()
        .unwrap_or_default()
        .iter()
        .filter(is_new)
    {
        let shown = ui.label(RichText::new(why).small().color(tokens.refused));
        widgets::named(shown, Role::Label, &format!("cannot be added: {why}"));
        ui.add_space(space::TIGHT);
    }
    let possible = availability::possible(state, &Command::AddInstrument);
    let label = format!("Add {}-hook", state.draft.hook);
    let color = if possible {
        tokens.on_accent
    } else {
        tokens.weak
    };
    let mut button = Button::new(RichText::new(label).color(color))
        .min_size(egui::vec2(ui.available_width(), 28.0));
    if possible {
        button = button
            .fill(tokens.accent)
            .stroke(Stroke::new(1.0, tokens.accent));
    }
    let response = ui
        .vertical_centered_justified(|ui| ui.add_enabled(possible, button))
        .inner;
    let response = widgets::named(response, Role::Button, Command::AddInstrument.name());
    let response =
        response.on_disabled_hover_text("This placement is refused; see the rule above.");
    if response.on_hover_text("Ctrl+Enter").clicked() {
        commands.push(Command::AddInstrument);
    }
    let count = state
        .graph
        .scene
        .as_ref()
        .map_or(0, |scene| scene.hookable(state.draft.hook).count());
    let label = format!("Add to every hookable block ({count})");
    let button = Button::new(label).min_size(egui::vec2(ui.available_width(), 26.0));
    let response = ui
        .vertical_centered_justified(|ui| ui.add_enabled(count > 0, button))
        .inner;
    let response = widgets::named(response, Role::Button, Command::AddToEveryBlock.name());
    if response
        .on_hover_text(format!(
            "Adds {} at the {}-hook of each block, as one undo step.",
            state.draft.instrument, state.draft.hook
        ))
        .clicked()
    {
        commands.push(Command::AddToEveryBlock);
    }
    let possible = availability::possible(state, &Command::CountFirst);
    let button = Button::new("Count hits first").min_size(egui::vec2(ui.available_width(), 26.0));
    let response = ui
        .vertical_centered_justified(|ui| ui.add_enabled(possible, button))
        .inner;
    let response = widgets::named(response, Role::Button, Command::CountFirst.name());
    let words = "Runs a counter at this hook for a few seconds, with the session's program, to predict the instrument's cost.";
    if response
        .on_hover_text(words)
        .on_disabled_hover_text("Connect to a target and select a hook that is not refused.")
        .clicked()
    {
        commands.push(Command::CountFirst);
    }
}
