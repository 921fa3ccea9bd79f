//! What the program is started with.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ilk_driver::client::Place;

use crate::theme::Colours;

/// The workbench's window: pick a kernel function, click a block, attach an instrument, run, look.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "gilk", version, about)]
pub struct Start {
    /// Boot the lab (a stock kernel in QEMU) and connect to it.
    #[arg(long, conflicts_with_all = ["socket", "image"])]
    pub lab: bool,
    /// Connect to the agent at this unix socket.
    #[arg(long, value_name = "PATH", conflicts_with = "image")]
    pub socket: Option<PathBuf>,
    /// Connect to the agent on this machine, over ssh with the keys you have.
    #[arg(long, value_name = "USER@HOST", conflicts_with_all = ["lab", "socket", "image"])]
    pub ssh: Option<String>,
    /// Connect to these machines, with commas between: a session runs on all of them, from the same moment
    /// on. Each as ssh knows it (user@web1), a socket's path, or here; a name may stand before it:
    /// web1=/run/a.sock. The first is the one whose kernel is looked at, unless another option says one.
    #[arg(long, value_name = "MACHINE", value_delimiter = ',')]
    pub target: Vec<Place>,
    /// Browse a kernel on a file: one that `ilk dump` saved, a vmlinuz, or a vmlinux; nothing can be
    /// run on it.
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Open this session.
    #[arg(long, value_name = "FILE")]
    pub session: Option<PathBuf>,
    /// Open this recording, or all recordings of this folder on one timeline.
    #[arg(long, value_name = "FILE")]
    pub recording: Option<PathBuf>,
    /// Open this function's graph: a name, or `name@0xaddress`.
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Choose this block of the function.
    #[arg(long, value_name = "INDEX", requires = "function")]
    pub block: Option<u32>,
    /// The window's colours; without it those of the desktop.
    #[arg(long, value_enum)]
    pub theme: Option<ThemeChoice>,
    /// Keep the window's arrangement, and sessions that no file has yet, in this folder; without it in
    /// `gilk` of the desktop's folder for state.
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
    /// Write a picture of the window once everything asked for is shown, and end.
    #[arg(long, value_name = "FILE")]
    pub screenshot: Option<PathBuf>,
    /// Keep what is on the screen, by name and place, in this file: for programs that drive the window.
    #[arg(long, value_name = "FILE")]
    pub seen: Option<PathBuf>,
    /// Width and height of the window in points, as `1600x1000`.
    #[arg(long, value_name = "WxH", value_parser = size)]
    pub size: Option<(f32, f32)>,
}

/// Light, dark, or high contrast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThemeChoice {
    /// Dark text on light ground.
    Light,
    /// Light text on dark ground.
    Dark,
    /// White text on black ground, strong lines.
    Contrast,
}

impl From<ThemeChoice> for Colours {
    fn from(choice: ThemeChoice) -> Self {
        match choice {
            ThemeChoice::Light => Self::Light,
            ThemeChoice::Dark => Self::Dark,
            ThemeChoice::Contrast => Self::Contrast,
        }
    }
}

/// Where the kernel is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the lab, which is booted.
    Lab,
    /// In the lab with another kernel than the usual one: a series and a flavour of Debian's, as
    /// `6.12 rt`, or the paths of a vmlinuz and of its headers.
    LabOf(String),
    /// Behind an agent's socket.
    Socket(PathBuf),
    /// On another machine, as ssh knows it: `user@machine`.
    Ssh(String),
    /// In a file: to look at, not to run on.
    Image(PathBuf),
}

impl Start {
    /// Where the kernel is, if the arguments say.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        if self.lab {
            return Some(Source::Lab);
        }
        self.socket
            .clone()
            .map(Source::Socket)
            .or_else(|| self.ssh.clone().map(Source::Ssh))
            .or_else(|| self.image.clone().map(Source::Image))
    }
}

/// The folder for state where none is named: `$XDG_STATE_HOME/gilk`, or `~/.local/state/gilk`.
#[must_use]
pub fn state_folder() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    from("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| from("HOME").map(|home| PathBuf::from(home).join(".local/state")))
        .map(|state| state.join("gilk"))
}

fn size(text: &str) -> Result<(f32, f32), String> {
    let wrong = || format!("{text:?} is not a size; write width and height as 1600x1000");
    let (width, height) = text.split_once('x').ok_or_else(wrong)?;
    let side = |side: &str| {
        side.parse::<u16>()
            .ok()
            .filter(|side| (200..=8000).contains(side))
            .map(f32::from)
            .ok_or_else(wrong)
    };
    Ok((side(width)?, side(height)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_sound() {
        Start::command().debug_assert();
        let start =
            Start::try_parse_from(["gilk", "--socket", "/run/ilk.sock", "--size", "1600x1000"])
                .unwrap();
        assert_eq!(start.source(), Some(Source::Socket("/run/ilk.sock".into())));
        assert_eq!(start.size, Some((1600.0, 1000.0)));
        assert!(Start::try_parse_from(["gilk", "--lab", "--image", "x"]).is_err());
        assert!(Start::try_parse_from(["gilk", "--size", "big"]).is_err());
    }
}
