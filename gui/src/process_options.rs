//! The options of a session that runs in a process: the fate of the children that it forks, and of programs that it
//! executes.

use egui::accesskit::Role;
use egui::{ComboBox, Ui};
use ilk_driver::process::{Children, EveryTarget, Exec, ProcessChoices};

use crate::args::Source;
use crate::state::State;
use crate::widgets;

/// Fates of forked children: the words in the list, and their meaning.
const CHILDREN: [(Children, &str, &str); 3] = [
    (
        Children::Shared,
        "count with the process",
        "The children that the process forks keep the instruments, and their hits are counted with those of the process.",
    ),
    (
        Children::Clean,
        "are left clean",
        "Everything is removed from each child that the process forks before it executes an instruction.",
    ),
    (
        Children::Own,
        "have counts of their own",
        "Each child that the process forks has the instruments, with counts, samples and lanes of its own.",
    ),
];

/// Fates of the measurement: the words in the list, and their meaning.
pub(crate) const EXEC: [(Exec, &str, &str); 2] = [
    (
        Exec::Ends,
        "ends the run",
        "The run ends when the process executes another program (exec).",
    ),
    (
        Exec::Follows,
        "is measured, too",
        "The session runs in each program that the process executes (exec), too, once its libraries are loaded, with \
         lanes of its own.",
    ),
];

/// Captions and names of the lists.
pub(crate) const FORKED: (&str, &str) = ("forked children", "Forked children");
pub(crate) const EXECUTED: (&str, &str) = ("an executed program", "Executed programs");

/// Draws both choices, if the target is a process, or one of them is not the usual one.
pub(crate) fn show(ui: &mut Ui, state: &mut State) {
    let choices = state.document.choices();
    let is_offered = state.has_process() && !state.has_every();
    // Those in the code cache are beside what is measured there.
    if state.is_in_cache() || (!is_offered && choices.is_usual()) {
        return;
    }
    let ProcessChoices {
        mut children,
        mut exec,
        ..
    } = choices;
    choice(ui, FORKED, &mut children, &CHILDREN);
    choice(ui, EXECUTED, &mut exec, &EXEC);
    let chosen = ProcessChoices {
        children,
        exec,
        ..choices
    };
    if chosen != choices {
        state.document.choose(chosen);
    }
}

/// Draws a caption and a list of choices with their meanings. The list has a name of its own.
pub(crate) fn choice<T: Copy + PartialEq>(
    ui: &mut Ui,
    (caption, name): (&str, &str),
    now: &mut T,
    all: &[(T, &'static str, &'static str)],
) {
    ui.horizontal_wrapped(|ui| {
        widgets::caption(ui, caption);
        list(ui, name, now, all);
    });
}

fn list<T: Copy + PartialEq>(
    ui: &mut Ui,
    name: &str,
    now: &mut T,
    all: &[(T, &'static str, &'static str)],
) {
    let known = all.iter().find(|(choice, ..)| choice == now);
    debug_assert!(known.is_some(), "the list has all choices");
    let (selected, meaning) = known.map_or(("", ""), |&(_, words, meaning)| (words, meaning));
    let shown = ComboBox::from_id_salt(name)
        .selected_text(selected)
        .show_ui(ui, |ui| {
            for &(choice, words, meaning) in all {
                let is_chosen = choice == *now;
                let row = ui.selectable_label(is_chosen, words);
                let row = widgets::chosen(row, Role::ListBoxOption, is_chosen, words);
                if row.on_hover_text(meaning).clicked() {
                    *now = choice;
                }
            }
        });
    widgets::named(shown.response, Role::ComboBox, name).on_hover_text(meaning);
}

impl State {
    /// Returns whether a target is a process that sessions instrument.
    pub(crate) fn has_process(&self) -> bool {
        self.is_pair() || self.source.as_ref().is_some_and(Source::is_process)
    }

    /// Returns whether the target is all processes of a program.
    pub(crate) const fn has_every(&self) -> bool {
        matches!(self.source, Some(Source::Every(_)))
    }

    /// Returns the reason why the session cannot run with its choices for a process, if so.
    pub(crate) fn choices_hindrance(&self) -> Option<String> {
        let choices = self.document.choices();
        if self.has_every() {
            if !self.machines.others.is_empty() {
                let why = "All processes of a program are measured without other machines, and without the kernel: remove those \
                           from the bar below the menus.";
                return Some(why.to_owned());
            }
            let why = EveryTarget::refusal(choices)?;
            return Some(format!(
                "{why}: choose as usual in the options of the session."
            ));
        }
        if self.is_pair() {
            let why = choices.refused_with_kernel()?;
            return Some(format!(
                "{why}: choose another in the options of the session."
            ));
        }
        let is_met = choices.is_usual() || self.has_process();
        (!is_met).then(|| {
            "The session has a choice for the forked children of a process, or for programs that it executes: open a \
             process, or choose as usual in the options of the session."
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use gilk_instruments::Library;

    use super::*;

    #[test]
    fn choices_for_a_process_are_refused_without_one() {
        let mut state = State::new(Library::builtin().unwrap());
        assert_eq!(state.choices_hindrance(), None);
        let exec = Exec::Follows;
        state.document.choose(ProcessChoices {
            exec,
            ..ProcessChoices::default()
        });
        let why = state.choices_hindrance().unwrap();
        assert!(why.contains("open a process"), "{why}");
        state.source = Some(Source::Process(1));
        assert_eq!(state.choices_hindrance(), None);
        // All processes of a program are measured in one way.
        state.source = Some(Source::Every("cat".to_owned()));
        let why = state.choices_hindrance().unwrap();
        assert!(why.starts_with("All processes of a program"), "{why}");
        assert!(state.document.undo());
        assert_eq!(state.choices_hindrance(), None);
        state.source = None;
        assert_eq!(state.choices_hindrance(), None);
    }
}
