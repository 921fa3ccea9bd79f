//! The command line of the program.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ilk_driver::client::TargetAddress;

use crate::theme::Colours;

/// Instruments a running kernel or process: choose a function, choose a block, add an instrument, run.
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
    /// Connect to these machines, separated by commas: a session runs on all of them and starts at
    /// the same time. Each is an ssh destination (user@web1), the path of a socket, or "here"; a
    /// name may precede it: web1=/run/a.sock. The first machine's kernel is shown unless another
    /// option selects one.
    #[arg(long, value_name = "MACHINE", value_delimiter = ',')]
    pub target: Vec<TargetAddress>,
    /// Open a kernel from a file: an image saved by `ilk dump`, a vmlinuz, or a vmlinux; sessions
    /// cannot run on it.
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Open this process of this machine; with `--target here`, this machine's kernel beside it.
    #[arg(short, long, conflicts_with_all = ["lab", "socket", "ssh", "image"])]
    pub pid: Option<u32>,
    /// Open this session.
    #[arg(long, value_name = "FILE")]
    pub session: Option<PathBuf>,
    /// Open this recording, or all recordings in this folder on one timeline.
    #[arg(long, value_name = "FILE")]
    pub recording: Option<PathBuf>,
    /// Open this function's graph: a name, or `name@0xaddress`.
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Choose this block of the function.
    #[arg(long, value_name = "INDEX", requires = "function")]
    pub block: Option<u32>,
    /// The window's colours; by default those of the desktop.
    #[arg(long, value_enum)]
    pub theme: Option<ThemeChoice>,
    /// Keep the window's layout and unsaved sessions in this folder; by default in `gilk` in the
    /// desktop's state folder.
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
    /// Write a picture of the window once everything requested is shown, then exit.
    #[arg(long, value_name = "FILE")]
    pub screenshot: Option<PathBuf>,
    /// Write the names and rectangles of all visible widgets to this file, for programs that drive
    /// the window.
    #[arg(long, value_name = "FILE")]
    pub widgets: Option<PathBuf>,
    /// Width and height of the window in points, e.g. `1600x1000`.
    #[arg(long, value_name = "WxH", value_parser = size)]
    pub size: Option<(f32, f32)>,
}

/// Choice of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThemeChoice {
    /// Dark text on a light background.
    Light,
    /// Light text on a dark background.
    Dark,
    /// White text on a black background, strong lines.
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

/// Source of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The lab, which is booted.
    Lab,
    /// The lab with a kernel other than the default: a Debian series and flavour, e.g. `6.12 rt`,
    /// or the paths of a vmlinuz and its headers.
    LabOf(String),
    /// An agent that listens on a unix socket.
    Socket(PathBuf),
    /// Another machine, as an ssh destination: `user@machine`.
    Ssh(String),
    /// A file; sessions cannot run on it.
    Image(PathBuf),
    /// A process of this machine.
    Process(u32),
    /// A program with its arguments, separated by spaces, which is started.
    Program(String),
    /// All processes of this machine that execute a program, by its path or name.
    Every(String),
    /// A process of this machine, whose runs execute in the code cache.
    ProcessInCache(u32),
    /// A program with its arguments, separated by spaces, which is started, and executes in the code cache.
    ProgramInCache(String),
}

impl Source {
    /// Returns whether it is a process of this machine that sessions instrument, or all of a program.
    #[must_use]
    pub const fn is_process(&self) -> bool {
        matches!(self, Self::Process(_) | Self::Program(_) | Self::Every(_))
    }

    /// Returns whether it is a process of this machine that runs execute in the code cache.
    #[must_use]
    pub const fn is_in_cache(&self) -> bool {
        matches!(self, Self::ProcessInCache(_) | Self::ProgramInCache(_))
    }
}

impl Start {
    /// Returns the source of the kernel that the arguments select, if any.
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
            .or_else(|| self.pid.map(Source::Process))
    }
}

/// Returns the default state folder: `$XDG_STATE_HOME/gilk`, or `~/.local/state/gilk`.
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
