//! The session: its name, duration and workload, and the list of its instruments.

use egui::accesskit::Role;
use egui::{
    Align, Checkbox, Frame, Layout, Margin, RichText, ScrollArea, Sense, Stroke, TextEdit, Ui, vec2,
};
use gilk_engine::cfg::BlockIndex;
use gilk_engine::session::Workload;

use crate::command::Command;
use crate::icons::Icon;
use crate::run::default_path;
use crate::seconds::{SHORTEST, refused_launch, refused_splash, seconds};
use crate::state::{State, set_duration, too_short};
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Height of an instrument's card, including the gap.
const CARD: f32 = 66.0;
/// The least width of a field with a name or a program; what follows it wraps to the next line.
const NARROWEST: f32 = 70.0;
/// The longest session in seconds: a day.
const LONGEST: f64 = 86_400.0;
/// The shortest session in seconds.
const SHORTEST_SESSION: f64 = 0.1;

/// Draws the pane's header, next to its tab: undo, redo, and the file.
pub(crate) fn header(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let document = &state.document;
    widgets::icon_button(ui, Icon::Redo, Command::Redo, document.can_redo(), commands);
    widgets::icon_button(ui, Icon::Undo, Command::Undo, document.can_undo(), commands);
    let place = document.path().and_then(|path| path.file_name());
    let place = place.map(|name| name.to_string_lossy().into_owned());
    let mark = if document.unsaved() { " (unsaved)" } else { "" };
    let words = format!("{}{mark}", place.unwrap_or_default());
    let weak = Tokens::of(ui).weak;
    ui.add(egui::Label::new(RichText::new(words).small().color(weak)).truncate());
}

/// Draws the session.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    ui.set_max_width(ui.available_width().min(space::READABLE));
    widgets::inset(ui, |ui| {
        fields(ui, state);
        troubles(ui, state);
    });
    if state.document.session().placements.is_empty() {
        widgets::empty(
            ui,
            "No instruments yet",
            "Select a block in the graph, choose an instrument in the inspector, and add it.",
        );
        return;
    }
    list(ui, state, commands);
}

fn fields(ui: &mut Ui, state: &mut State) {
    let (mut name, mut duration) = (
        state.document.session().name.clone(),
        state.document.session().duration,
    );
    let mut workload = state.document.session().workload.clone();
    ui.horizontal_wrapped(|ui| {
        widgets::caption(ui, "name");
        let room = (ui.available_size_before_wrap().x - 148.0).max(NARROWEST);
        let field = ui.add(TextEdit::singleline(&mut name).desired_width(room));
        if field.changed() {
            state
                .document
                .edit("name", |session| session.name.clone_from(&name));
        }
        if field.lost_focus() {
            state.document.close_step();
        }
        widgets::named(field, Role::TextInput, "Session name");
        widgets::caption(ui, "lasts");
        let session = state.document.session();
        let refuse = |duration: f64| match duration {
            _ if duration < SHORTEST_SESSION => {
                Some(format!("A session lasts at least {SHORTEST_SESSION} s."))
            }
            _ if duration > LONGEST => Some("A session lasts at most 24 h.".to_owned()),
            _ => too_short(session, duration),
        };
        let range = SHORTEST_SESSION..=LONGEST;
        if seconds(ui, &mut duration, range, "Session duration", refuse) {
            state
                .document
                .edit("duration", |session| set_duration(session, duration));
        }
    });
    ui.horizontal_wrapped(|ui| {
        let mut wanted = workload.is_some();
        let response = ui.add(Checkbox::new(&mut wanted, "run"));
        let changed = response.changed();
        widgets::chosen(response, Role::CheckBox, wanted, "Run a program")
            .on_hover_text("Runs a program in the lab during the session.");
        if changed {
            let new = wanted.then(pulsar);
            state
                .document
                .edit("workload", |session| session.workload = new);
            state.document.close_step();
            return;
        }
        let Some(workload) = &mut workload else {
            widgets::caption(ui, "no program during the session");
            return;
        };
        let mut line = std::iter::once(&workload.program)
            .chain(&workload.arguments)
            .cloned()
            .collect::<Vec<_>>()
            .join(" ");
        let field = ui.add(
            TextEdit::singleline(&mut line)
                .font(code(text::CODE))
                .desired_width((ui.available_size_before_wrap().x - 100.0).max(NARROWEST)),
        );
        if field.changed() {
            let mut words = line.split(' ').map(str::to_owned);
            let program = words.next().unwrap_or_default();
            let arguments: Vec<String> = words.collect();
            state.document.edit("program", |session| {
                if let Some(workload) = &mut session.workload {
                    (workload.program, workload.arguments) = (program, arguments);
                }
            });
        }
        widgets::named(field, Role::TextInput, "Program and arguments");
        widgets::caption(ui, "at");
        let mut start = workload.start;
        let refuse = |start: f64| match start {
            _ if start < 0.0 => Some("The session starts at 0 s.".to_owned()),
            _ => (start > duration).then(|| format!("The session ends at {duration} s.")),
        };
        if seconds(ui, &mut start, 0.0..=duration, "Program start", refuse) {
            state.document.edit("program start", |session| {
                if let Some(workload) = &mut session.workload {
                    workload.start = start;
                }
            });
        }
    });
    ui.horizontal(|ui| {
        widgets::caption(ui, "record to");
        let hint = default_path(state.document.session()).display().to_string();
        let field = TextEdit::singleline(&mut state.run.path)
            .font(code(text::CODE))
            .hint_text(hint)
            .desired_width(f32::INFINITY);
        let response = ui.add_enabled(state.run.active.is_none(), field);
        widgets::named(response, Role::TextInput, "Recording path").on_hover_text(
            "Recordings are never overwritten: if this file exists, a number is added to its name.",
        );
    });
}

/// Returns the program of the lab that forks in rounds.
pub(crate) fn pulsar() -> Workload {
    Workload {
        program: "/bin/pulsar".to_owned(),
        arguments: Vec::new(),
        start: 0.0,
    }
}

/// Shows the reasons why the session cannot run.
fn troubles(ui: &mut Ui, state: &State) {
    let tokens = Tokens::of(ui);
    let Some(Err(wrong)) = &state.plan.outcome else {
        return;
    };
    if state.document.session().placements.is_empty() {
        return;
    }
    let frame = Frame::NONE
        .fill(tokens.bad_fill)
        .corner_radius(space::CORNER)
        .inner_margin(Margin::symmetric(10, 6));
    frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        for words in wrong.iter().take(3) {
            ui.label(RichText::new(words).small().color(tokens.text));
        }
        if wrong.len() > 3 {
            ui.label(
                RichText::new(format!("and {} more", wrong.len() - 3))
                    .small()
                    .color(tokens.weak),
            );
        }
    });
}

fn list(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let count = state.document.session().placements.len();
    let duration = state.document.session().duration;
    ui.spacing_mut().item_spacing.y = 0.0;
    ScrollArea::vertical()
        .id_salt("session")
        .auto_shrink(false)
        .show_rows(ui, CARD, count, |ui, rows| {
            for place in rows {
                card(ui, state, place, duration, commands);
            }
        });
}

fn card(ui: &mut Ui, state: &mut State, place: usize, duration: f64, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let Some(placement) = state.document.session().placements.get(place).cloned() else {
        return;
    };
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), CARD), Sense::hover());
    let frame = rect.shrink2(vec2(space::PANEL, 3.0));
    let label = format!(
        "{} {} {} block {}",
        placement.instrument, placement.hook, placement.function, placement.block
    );
    let open = ui.interact(
        frame,
        ui.scope_id().with(("placement", place)),
        Sense::click(),
    );
    let open = widgets::named(open, Role::Button, &format!("show {label}"));
    let shown = state.graph.selected == Some(BlockIndex(placement.block))
        && state
            .graph
            .scene
            .as_ref()
            .is_some_and(|scene| *scene.name == *placement.function);
    let outline = if shown { tokens.accent } else { tokens.line };
    ui.painter().rect_filled(
        frame,
        space::CORNER,
        if open.hovered() {
            tokens.hover
        } else {
            tokens.card
        },
    );
    ui.painter().rect_stroke(
        frame,
        space::CORNER,
        Stroke::new(1.0, outline),
        egui::StrokeKind::Inside,
    );
    if open.clicked() {
        commands.push(Command::OpenNamed(
            placement.function.to_string(),
            Some(BlockIndex(placement.block)),
        ));
    }
    let inner = frame.shrink2(vec2(10.0, 5.0));
    // The list has already advanced by a whole card; this child does not advance it.
    let place_of = egui::UiBuilder::new().max_rect(inner).id_salt(place);
    let ui = &mut ui.new_child(place_of);
    ui.spacing_mut().item_spacing = vec2(6.0, 2.0);
    ui.horizontal(|ui| {
        widgets::dot(ui, tokens.instrument(&placement.instrument));
        ui.label(RichText::new(&*placement.instrument).color(tokens.strong));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            if widgets::cross(ui, &format!("remove {label}"))
                .on_hover_text("Remove instrument")
                .clicked()
            {
                commands.push(Command::RemovePlacement(place));
            }
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                ui.add(
                    egui::Label::new(
                        RichText::new(&*placement.function)
                            .font(code(text::SMALL))
                            .color(tokens.weak),
                    )
                    .truncate(),
                );
            });
        });
    });
    ui.horizontal(|ui| {
        let hook = format!("{} · block {}", placement.hook, placement.block);
        let hook = RichText::new(hook).small().color(tokens.weak);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            times(ui, state, place, duration, &label);
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                ui.add(egui::Label::new(hook).truncate());
            });
        });
    });
}

/// Draws launch and splash of an instrument, right to left.
fn times(ui: &mut Ui, state: &mut State, place: usize, duration: f64, label: &str) {
    let Some((mut launch, mut splash)) = state
        .document
        .session()
        .placements
        .get(place)
        .map(|placement| (placement.launch, placement.splash))
    else {
        return;
    };
    let after = (launch + SHORTEST).min(duration);
    if seconds(
        ui,
        &mut splash,
        after..=duration,
        &format!("splash of {label}"),
        |splash| refused_splash(splash, launch, duration),
    ) {
        state.document.edit(&format!("splash {place}"), |session| {
            if let Some(placement) = session.placements.get_mut(place) {
                placement.splash = splash;
            }
        });
    }
    widgets::caption(ui, "to");
    let before = (splash - SHORTEST).max(0.0);
    if seconds(
        ui,
        &mut launch,
        0.0..=before,
        &format!("launch of {label}"),
        |launch| refused_launch(launch, splash),
    ) {
        state.document.edit(&format!("launch {place}"), |session| {
            if let Some(placement) = session.placements.get_mut(place) {
                placement.launch = launch;
            }
        });
    }
}
