//! The options of a session that few sessions need: registers, tracepoints, what a process starts, and the collection of
//! samples.

use egui::accesskit::Role;
use egui::{Checkbox, CollapsingHeader, ComboBox, RichText, Ui};
use gilk_engine::collection::{Collection, Interval, Strategy};

use crate::seconds::seconds;
use crate::state::State;
use crate::{process_options, widgets};

/// Draws the options, folded unless the user has opened them.
pub(crate) fn show(ui: &mut Ui, state: &mut State) {
    let session = state.document.session();
    let (mut save_all, mut tracepoints) = (session.save_all, session.tracepoints);
    let mut collection = session.collection;
    let is_usual = state.is_in_cache() || state.document.choices().is_usual();
    let title = match (save_all, tracepoints, collection.is_default() && is_usual) {
        (false, false, true) => "Options",
        _ => "Options (changed)",
    };
    let header = CollapsingHeader::new(RichText::new(title).small())
        .id_salt("session options")
        .show(ui, |ui| {
            tick(
                ui,
                &mut tracepoints,
                "Switch tracepoints on",
                "Tracepoints whose functions have instruments are switched on while the session runs.",
            );
            tick(
                ui,
                &mut save_all,
                "Save all registers",
                "Instruments save every register that they use, and the flags, even where those are dead: to measure what the analysis saves.",
            );
            process_options::show(ui, state);
            samples(ui, &mut collection);
        });
    widgets::named(header.header_response, Role::Button, "Session options");
    let session = state.document.session();
    if (save_all, tracepoints) != (session.save_all, session.tracepoints) {
        state.document.edit("options", |session| {
            (session.save_all, session.tracepoints) = (save_all, tracepoints);
        });
        state.document.close_step();
    } else if collection != session.collection {
        state
            .document
            .edit("collection", |session| session.collection = collection);
    }
}

fn tick(ui: &mut Ui, on: &mut bool, name: &str, explanation: &str) {
    let response = ui.add(Checkbox::new(on, name));
    widgets::chosen(response, Role::CheckBox, *on, name).on_hover_text(explanation);
}

/// Draws the strategy for samples, the interval of totals, and the grace.
fn samples(ui: &mut Ui, collection: &mut Collection) {
    let name = name(&collection.samples);
    ui.horizontal_wrapped(|ui| {
        widgets::caption(ui, "samples");
        let combo = ComboBox::from_id_salt("samples are sent").selected_text(name);
        let shown = combo.show_ui(ui, |ui| {
            for choice in choices(&collection.samples) {
                let is_chosen = self::name(&choice) == name;
                let row = ui.selectable_label(is_chosen, self::name(&choice));
                let row = widgets::chosen(row, Role::ListBoxOption, is_chosen, self::name(&choice));
                if row.clicked() && !is_chosen {
                    collection.samples = choice;
                }
            }
        });
        widgets::named(shown.response, Role::ComboBox, "Samples are sent");
        let old = *collection;
        match &mut collection.samples {
            Strategy::Stream | Strategy::Oldest | Strategy::Newest => {}
            Strategy::Periodic { every, jitter } => {
                interval(ui, (every, jitter), "samples", &|every, jitter| {
                    let samples = Strategy::Periodic { every, jitter };
                    refused(Collection { samples, ..old })
                });
            }
            Strategy::Windows {
                every,
                jitter,
                length,
            } => {
                let long = *length;
                interval(ui, (every, jitter), "samples", &|every, jitter| {
                    let samples = Strategy::Windows {
                        every,
                        jitter,
                        length: long,
                    };
                    refused(Collection { samples, ..old })
                });
                let (every, jitter) = (*every, *jitter);
                widgets::caption(ui, "for");
                seconds(ui, length, 0.001..=every, "Length of windows", |length| {
                    let samples = Strategy::Windows {
                        every,
                        jitter,
                        length,
                    };
                    refused(Collection { samples, ..old })
                });
            }
        }
    });
    let old = *collection;
    ui.horizontal_wrapped(|ui| {
        widgets::caption(ui, "totals");
        let Interval { every, jitter } = &mut collection.totals;
        interval(ui, (every, jitter), "totals", &|every, jitter| {
            let totals = Interval { every, jitter };
            refused(Collection { totals, ..old })
        });
    });
    ui.horizontal_wrapped(|ui| {
        widgets::caption(ui, "continue after a lost window for");
        let grace = &mut collection.grace;
        seconds(ui, grace, 0.0..=Collection::LONGEST, "Grace", |grace| {
            refused(Collection { grace, ..old })
        });
    });
}

/// Draws the fields of an interval.
fn interval(
    ui: &mut Ui,
    (every, jitter): (&mut f64, &mut f64),
    of: &str,
    refuse: &dyn Fn(f64, f64) -> Option<String>,
) {
    let (old_every, old_jitter) = (*every, *jitter);
    widgets::caption(ui, "every");
    let range = Collection::SHORTEST..=Collection::LONGEST;
    seconds(ui, every, range, &format!("Interval of {of}"), |every| {
        refuse(every, old_jitter)
    });
    widgets::caption(ui, "±");
    let range = 0.0..=old_every;
    seconds(ui, jitter, range, &format!("Jitter of {of}"), |jitter| {
        refuse(old_every, jitter)
    });
}

/// Returns the reason why a collection is not possible, as a sentence.
fn refused(collection: Collection) -> Option<String> {
    let why = collection.check().err()?;
    Some(format!("The session cannot be collected so: {why}."))
}

/// Returns a strategy of each kind; those with times keep the times of `now`.
fn choices(now: &Strategy) -> [Strategy; 5] {
    let (every, jitter) = match now {
        Strategy::Periodic { every, jitter } | Strategy::Windows { every, jitter, .. } => {
            (*every, *jitter)
        }
        _ => (1.0, 0.0),
    };
    let length = (every - jitter) / 10.0;
    [
        Strategy::Stream,
        Strategy::Periodic { every, jitter },
        Strategy::Windows {
            every,
            jitter,
            length,
        },
        Strategy::Oldest,
        Strategy::Newest,
    ]
}

const fn name(strategy: &Strategy) -> &'static str {
    match strategy {
        Strategy::Stream => "sent as they arrive",
        Strategy::Periodic { .. } => "sent at intervals",
        Strategy::Windows { .. } => "taken in windows",
        Strategy::Oldest => "oldest of each ring, sent at the end",
        Strategy::Newest => "newest of each ring, sent at the end",
    }
}
