//! The session: its name, duration and workload, and the table of its instruments.

use std::sync::Arc;

use egui::accesskit::Role;
use egui::{Align, Checkbox, Frame, Layout, RichText, ScrollArea, Sense, TextEdit, Ui, pos2, vec2};
use gilk_engine::cfg::BlockIndex;
use gilk_engine::paths::counts_paths_of;
use gilk_engine::session::Workload;

use crate::command::Command;
use crate::icons::Icon;
use crate::placement_rows::{Row, label, paths_label};
use crate::seconds::{SHORTEST, refused_launch, refused_splash, seconds};
use crate::session_duration::{set_duration, too_short};
use crate::state::State;
use crate::theme::{Tokens, code, prose, space, text};
use crate::{
    availability, cached_work, object_names, only_while_row, session_options, waiting, widgets,
};

/// Height of a row of the table.
const ROW: f32 = 24.0;
/// Least width of a time in the table.
const TIME: f32 = 50.0;
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
        if state.is_in_cache() {
            cached_work::show(ui, state);
            only_while_row::show(ui, state);
        }
        troubles(ui, state);
        waiting::show(ui, state);
    });
    if state.counts_in_cache() {
        let words = "A run executes the process in the code cache and counts every block. The session's duration applies, \
                     its instruments do not.";
        let run = (Command::Run, availability::possible(state, &Command::Run));
        widgets::empty_with(ui, ("No instruments needed", words), run, commands);
        return;
    }
    if state.document.session().placements.is_empty() {
        let words =
            "Select a block in the graph, choose an instrument in the inspector, and add it.";
        let next = next_step(state);
        widgets::empty_with(ui, ("No instruments yet", words), next, commands);
        return;
    }
    table(ui, state, commands);
}

/// Returns the next step towards an instrument, and whether it is possible.
pub(crate) fn next_step(state: &State) -> (Command, bool) {
    match (&state.graph.scene, state.graph.selected) {
        (None, _) => (Command::FocusFilter, state.catalogue.is_some()),
        (Some(_), None) => (Command::NextBlock, true),
        (Some(_), Some(_)) => {
            let add = Command::AddInstrument;
            let is_possible = availability::possible(state, &add);
            (add, is_possible)
        }
    }
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
            .on_hover_text("Runs a program on the kernel's machine during the session; not if the target is a process.");
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
        let hint = state
            .run
            .next_path(&state.document.session().name)
            .to_owned();
        let field = TextEdit::singleline(&mut state.run.path)
            .font(code(text::CODE))
            .hint_text(hint)
            .desired_width(f32::INFINITY);
        let response = ui.add_enabled(state.run.active.is_none(), field);
        widgets::named(response, Role::TextInput, "Recording path").on_hover_text(
            "Recordings are never overwritten: if this file exists, a number is added to its name.",
        );
    });
    session_options::show(ui, state);
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
    if state.document.session().placements.is_empty() || state.counts_in_cache() {
        return;
    }
    let frame = Frame::NONE
        .fill(tokens.bad_fill)
        .corner_radius(space::CORNER)
        .inner_margin(space::margins(space::SMALL, space::SNUG));
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

/// Draws the table: a heading per function, and a row per instrument.
fn table(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    let (rows, is_current) = state.session_rows.list(&state.document, ui.ctx());
    if !is_current {
        ui.disable();
    }
    let fault = state.plan.fault.filter(|_| !state.plan.pending());
    let placements = &state.document.session().placements;
    let faulty = fault.and_then(|fault| placements.get(fault)).cloned();
    let is_faulty_in = |function: &Arc<str>| {
        let faulty = faulty.as_ref();
        faulty.is_some_and(|one| one.function == *function)
    };
    ui.spacing_mut().item_spacing.y = 0.0;
    let mut area = ScrollArea::vertical().id_salt("session").auto_shrink(false);
    if fault.is_some() && std::mem::take(&mut state.plan.fault_unseen) {
        let is_faulty = |row: &Row| match row {
            Row::Placement(place) | Row::Alone(place) => Some(*place) == fault,
            Row::Group(_, places) | Row::Paths(_, places) => {
                fault.is_some_and(|fault| places.contains(&fault))
            }
        };
        let above = rows.iter().position(is_faulty).unwrap_or(0) as f32 * ROW;
        area = area.vertical_scroll_offset(above);
    }
    area.show_rows(ui, ROW, rows.len(), |ui, range| {
        for row in rows.get(range).unwrap_or_default() {
            match row {
                Row::Group(function, places) => {
                    group(ui, state, function, places.len(), is_faulty_in(function));
                }
                Row::Placement(place) | Row::Alone(place) => {
                    let is_alone = matches!(row, Row::Alone(_));
                    let is_faulty = fault == Some(*place);
                    placement_row(ui, state, *place, (is_alone, is_faulty), commands);
                }
                Row::Paths(function, places) => {
                    let counts_paths = faulty
                        .as_ref()
                        .is_some_and(|one| counts_paths_of(&one.instrument, function));
                    let is_faulty = counts_paths && is_faulty_in(function);
                    paths_row(ui, function, places.len(), is_faulty, commands);
                }
            }
        }
    });
}

/// Draws the heading of a function's instruments, which folds them.
fn group(ui: &mut Ui, state: &mut State, function: &Arc<str>, count: usize, is_faulty: bool) {
    let tokens = Tokens::of(ui);
    let size = vec2(ui.available_width(), ROW);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let folded = state.session_rows.is_folded(function);
    let verb = if folded { "unfold" } else { "fold" };
    let instruments = widgets::counted(count, "instrument");
    let name = format!("{verb} {instruments} of {function}");
    let response = widgets::named(response, Role::Button, &name);
    let fill = match (is_faulty, response.hovered()) {
        (true, _) => tokens.bad_fill,
        (false, true) => tokens.hover,
        (false, false) => tokens.bar,
    };
    ui.painter().rect_filled(rect, 0.0, fill);
    let middle = rect.center().y;
    let at = pos2(rect.left() + space::PANEL, middle);
    widgets::triangle(ui.painter(), at, !folded, tokens.text);
    let count = ui.painter().layout_no_wrap(
        widgets::grouped(count as u64),
        code(text::SMALL),
        tokens.weak,
    );
    let right = rect.right() - space::PANEL - count.size().x;
    let at = pos2(right, middle - count.size().y / 2.0);
    ui.painter().galley(at, count, tokens.weak);
    let left = rect.left() + 2.0 * space::PANEL;
    let color = if is_faulty { tokens.bad } else { tokens.strong };
    let name = object_names::laid_out(
        ui.painter(),
        function,
        code(text::CODE),
        color,
        right - left - space::SMALL,
    );
    let at = pos2(left, middle - name.size().y / 2.0);
    ui.painter().galley(at, name, color);
    if response.on_hover_text(&**function).clicked() {
        state.session_rows.fold(function);
    }
}

/// Draws the instruments that count a function's paths, and a cross to remove them.
fn paths_row(
    ui: &mut Ui,
    function: &Arc<str>,
    count: usize,
    is_faulty: bool,
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    let size = vec2(ui.available_width(), ROW);
    let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
    if is_faulty {
        ui.painter().rect_filled(rect, 0.0, tokens.bad_fill);
    }
    let inside = egui::UiBuilder::new()
        .max_rect(rect.shrink2(vec2(space::PANEL, 0.0)))
        .id_salt(("paths", function))
        .layout(Layout::right_to_left(Align::Center));
    let ui = &mut ui.new_child(inside);
    let remove = widgets::cross(ui, &format!("stop counting paths of {function}"));
    if remove.on_hover_text("Stop counting paths").clicked() {
        commands.push(Command::RemovePaths(Arc::clone(function)));
    }
    ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
        widgets::dot(ui, tokens.accent);
        let words = paths_label(count);
        let text = RichText::new(&words).small().color(tokens.text);
        let label = ui.add(egui::Label::new(text).truncate());
        widgets::named(label, Role::Label, &format!("{function} {words}"));
    });
}

/// Draws an instrument: its function if it is the only one there, its hook, its times, and a cross to
/// remove it.
fn placement_row(
    ui: &mut Ui,
    state: &mut State,
    place: usize,
    (is_alone, is_faulty): (bool, bool),
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    let Some(placement) = state.document.session().placements.get(place).cloned() else {
        return;
    };
    let size = vec2(ui.available_width(), ROW);
    let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
    let label = label(&placement);
    let id = ui.scope_id().with(("placement", place));
    let open = ui.interact(rect, id, Sense::click());
    let scene = state.graph.scene.as_ref();
    let is_shown = state.graph.selected == Some(BlockIndex(placement.block))
        && scene.is_some_and(|scene| *scene.name == *placement.function);
    let open = widgets::chosen(open, Role::Button, is_shown, &format!("show {label}"));
    let fill = match (is_faulty, is_shown, open.hovered()) {
        (true, ..) => Some(tokens.bad_fill),
        (_, true, _) => Some(tokens.accent_fill),
        (_, _, true) => Some(tokens.hover),
        _ => None,
    };
    if let Some(fill) = fill {
        ui.painter().rect_filled(rect, 0.0, fill);
    }
    if open.clicked() {
        commands.push(Command::OpenNamed(
            placement.function.to_string(),
            Some(BlockIndex(placement.block)),
        ));
    }
    let inner = rect.shrink2(vec2(space::PANEL, 0.0));
    // The list has already advanced by a whole row; this child does not advance it.
    let layout = Layout::right_to_left(Align::Center);
    let inside = egui::UiBuilder::new()
        .max_rect(inner)
        .id_salt(place)
        .layout(layout);
    let ui = &mut ui.new_child(inside);
    ui.spacing_mut().item_spacing.x = space::TIGHT;
    ui.spacing_mut().button_padding = vec2(space::TIGHT, 0.0);
    ui.spacing_mut().interact_size = vec2(TIME, ROW - space::TIGHT);
    let remove = widgets::cross(ui, &format!("remove {label}"));
    if remove.on_hover_text("Remove instrument").clicked() {
        commands.push(Command::RemovePlacement(place));
    }
    let duration = state.document.session().duration;
    times(ui, state, place, duration, &label);
    ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
        widgets::dot(ui, tokens.instrument(&placement.instrument));
        let hook = format!("{} {}", placement.hook, placement.block);
        let mut job = egui::text::LayoutJob::default();
        let color = if is_faulty { tokens.bad } else { tokens.text };
        let small = |color| egui::TextFormat::simple(prose(text::SMALL), color);
        let mut before = 0.0;
        if is_alone {
            let strong = if is_faulty { tokens.bad } else { tokens.strong };
            let name = egui::TextFormat::simple(code(text::CODE), strong);
            // The instrument and its hook follow.
            let room = 0.6 * ui.available_width();
            let font = &name.font_id;
            let shown = object_names::fitting(ui.painter(), &placement.function, font, room);
            job.append(&shown, 0.0, name.clone());
            before = space::SMALL;
        }
        job.append(&placement.instrument, before, small(color));
        job.append(&hook, space::SMALL, small(tokens.weak));
        let mut words = format!(
            "{}: {}, {} block {}",
            placement.function, placement.instrument, placement.hook, placement.block
        );
        if let Some(library) = state.awaited(&placement.function) {
            job.append("waits", space::SMALL, small(tokens.warning));
            words += &format!("\nPlaced when {library} is loaded.");
        }
        ui.add(egui::Label::new(job).truncate())
            .on_hover_text(words);
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
        let times = [(place, launch, splash)];
        state
            .document
            .edit_times(&format!("splash {place}"), &times);
    }
    let before = (splash - SHORTEST).max(0.0);
    if seconds(
        ui,
        &mut launch,
        0.0..=before,
        &format!("launch of {label}"),
        |launch| refused_launch(launch, splash),
    ) {
        let times = [(place, launch, splash)];
        state
            .document
            .edit_times(&format!("launch {place}"), &times);
    }
}
