//! The menus; the palette and the sheet of shortcuts list the same commands.

use gilk_engine::placement::Style;

use crate::command::Command;
use crate::desk::Pane;
use crate::theme::Colours;

/// A menu and what is in it; `None` is a line.
pub(crate) const MENUS: &[(&str, &[Option<Command>])] = &[
    (
        "File",
        &[
            Some(Command::NewSession),
            Some(Command::OpenSession),
            Some(Command::SaveSession),
            Some(Command::SaveSessionAs),
            None,
            Some(Command::OpenRecording),
            None,
            Some(Command::Quit),
        ],
    ),
    (
        "Edit",
        &[
            Some(Command::Undo),
            Some(Command::Redo),
            None,
            Some(Command::AddInstrument),
            Some(Command::AddToEveryBlock),
            Some(Command::AddToMatching),
            Some(Command::RemoveHere),
            Some(Command::RemoveAll),
            None,
            Some(Command::Style(Style::InPlace)),
            Some(Command::Style(Style::Auto)),
            Some(Command::Style(Style::Whole)),
        ],
    ),
    (
        "View",
        &[
            Some(Command::ShowPalette),
            Some(Command::GoTo),
            Some(Command::FocusFilter),
            Some(Command::Back),
            Some(Command::Forward),
            None,
            Some(Command::FitGraph),
            Some(Command::ActualSize),
            Some(Command::NextBlock),
            Some(Command::PreviousBlock),
            Some(Command::FollowTaken),
            Some(Command::FollowNotTaken),
            None,
            Some(Command::FitTimeline),
            Some(Command::FollowLive),
            None,
            Some(Command::ToggleTheme),
            Some(Command::Theme(Colours::System)),
            Some(Command::Theme(Colours::Light)),
            Some(Command::Theme(Colours::Dark)),
            Some(Command::Theme(Colours::Contrast)),
        ],
    ),
    (
        "Panes",
        &[
            Some(Command::TogglePane(Pane::Functions)),
            Some(Command::TogglePane(Pane::Graph)),
            Some(Command::TogglePane(Pane::Inspector)),
            Some(Command::TogglePane(Pane::Session)),
            Some(Command::TogglePane(Pane::Timeline)),
            Some(Command::TogglePane(Pane::Schedule)),
            Some(Command::TogglePane(Pane::Patch)),
            None,
            Some(Command::ResetLayout),
        ],
    ),
    (
        "Target",
        &[
            Some(Command::Run),
            Some(Command::Stop),
            None,
            Some(Command::StartLab),
            Some(Command::Reconnect),
            Some(Command::Disconnect),
        ],
    ),
    ("Help", &[Some(Command::ShowShortcuts)]),
];
