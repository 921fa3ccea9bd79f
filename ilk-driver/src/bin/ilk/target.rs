//! Which kernel a command is about: an agent's, a lab's, or one that was saved.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use gilk_engine::kernel::{LiveParts, ModuleParts};
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::{Addr, Image};
use gilk_samples::joined::unused;
use ilk_driver::agent::SOCKET;
use ilk_driver::client::{Connection, Place, Way, lab_link};
use ilk_driver::lab::{Lab, Options, prepare};
use ilk_driver::ssh::Tunnel;
use ilk_driver::{interrupt, saved};

use crate::progress::Progress;

/// A running kernel.
#[derive(Args)]
pub(crate) struct TargetArgs {
    /// The socket of an agent. Left out: the lab that `ilk lab` runs, else the agent of this machine.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Boot a lab for this command alone.
    #[arg(long, conflicts_with = "socket")]
    lab: bool,
    /// A machine on which an agent runs: as ssh knows it (user@web1), a socket's path, or here. `ilk run`
    /// takes several, with commas between, and a name may stand before each: web1=/run/a.sock.
    #[arg(
        long,
        value_name = "MACHINE",
        value_delimiter = ',',
        conflicts_with_all = ["socket", "lab"]
    )]
    target: Vec<Place>,
}

/// Connects to the agent there.
fn connect(place: &Place) -> anyhow::Result<Connected> {
    let (mut connection, tunnel) = match &place.way {
        Way::Socket(socket) => (Connection::connect(socket)?, None),
        Way::Ssh(host) => {
            let tunnel = Tunnel::open(host, &|| !interrupt::came())?;
            (Connection::connect(&tunnel.socket())?, Some(tunnel))
        }
    };
    if let Some(name) = &place.name {
        connection.call(name);
    }
    Ok(Connected {
        connection,
        _tunnel: tunnel,
        _lab: None,
    })
}

/// A kernel, running or saved.
#[derive(Args)]
pub(crate) struct ImageArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// A kernel on a file: one that `ilk dump` saved, a vmlinuz, or a vmlinux.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["socket", "lab", "target"])]
    image: Option<PathBuf>,
}

/// A connection, and what it leads through: a lab that this command has booted, or ssh.
pub(crate) struct Connected {
    // Closed before the lab ends.
    pub(crate) connection: Connection,
    _tunnel: Option<Tunnel>,
    _lab: Option<Lab>,
}

impl TargetArgs {
    /// Whether it is several machines.
    pub(crate) fn is_several(&self) -> bool {
        self.target.len() > 1
    }

    /// Connects to each of several machines. Those of one name are told apart by numbers.
    pub(crate) fn connect_all(&self) -> anyhow::Result<Vec<Connected>> {
        let mut all: Vec<Connected> = Vec::new();
        for place in &self.target {
            let mut next = connect(place)?;
            let name = next.connection.info().host.clone();
            let taken = |name: &str| all.iter().any(|one| one.connection.info().host == name);
            next.connection.call(&unused(&name, taken));
            all.push(next);
        }
        Ok(all)
    }

    pub(crate) fn connect(&self) -> anyhow::Result<Connected> {
        match self.target.as_slice() {
            [] => {}
            [place] => return connect(place),
            _ => anyhow::bail!("This is about one machine; name one with --target."),
        }
        if self.lab {
            let lab = boot(&Options::default())?;
            let connection = Connection::connect(lab.socket())?;
            return Ok(Connected {
                connection,
                _tunnel: None,
                _lab: Some(lab),
            });
        }
        Ok(Connected {
            connection: Connection::connect(&self.find()?)?,
            _tunnel: None,
            _lab: None,
        })
    }

    fn find(&self) -> anyhow::Result<PathBuf> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        let link = lab_link(&Options::default().cache);
        // A link whose lab is gone leads nowhere.
        let found = [link, PathBuf::from(SOCKET)]
            .into_iter()
            .find(|socket| socket.exists());
        found.context(
            "No lab is running and no agent on this machine; start one with `ilk lab`, \
             or boot one for this command with --lab.",
        )
    }
}

impl ImageArgs {
    /// A file, or else a running kernel.
    pub(crate) const fn of(target: TargetArgs, image: Option<PathBuf>) -> Self {
        Self { target, image }
    }

    /// The kernel, and where generated code would find its words there.
    pub(crate) fn image(&self) -> anyhow::Result<(Image, RuntimeLayout)> {
        if let Some(file) = &self.image {
            let image = saved::open(file)?;
            let layout = supposed_layout(&image);
            return Ok((image, layout));
        }
        let mut connected = self.target.connect()?;
        let (parts, modules) = read(&mut connected.connection)?;
        let layout = connected.connection.info().layout.clone();
        let image = Image::with_modules(&parts, &modules)?.on(&layout);
        Ok((image, layout))
    }

    /// Whether it is one that was saved.
    pub(crate) fn is_saved(&self) -> bool {
        self.image.is_some()
    }
}

/// Prepares and boots a lab with its progress on standard error.
pub(crate) fn boot(options: &Options) -> anyhow::Result<Lab> {
    let mut progress = Progress::new();
    let prepared = prepare(options, &mut |step| progress.step(step))?;
    Ok(Lab::boot(&prepared, &mut |step| progress.step(step))?)
}

/// Reads the running kernel with its progress on standard error.
pub(crate) fn read(connection: &mut Connection) -> anyhow::Result<(LiveParts, ModuleParts)> {
    let mut progress = Progress::new();
    let mut note = String::new();
    let parts = connection.live_parts(&mut |share, what| {
        if what.contains("cannot") {
            what.clone_into(&mut note);
        }
        progress.share(share, what);
    })?;
    if !note.is_empty() {
        progress.say(&note);
    }
    Ok((parts, connection.modules()?))
}

/// A layout like that of the module, for looking at plans with no target at hand.
fn supposed_layout(image: &Image) -> RuntimeLayout {
    // Modules are loaded from here on (Documentation/arch/x86/x86_64/mm.rst).
    let modules = Addr(0xffff_ffff_c000_0000);
    let text = image.text().start;
    let arena = if modules.to(text).unsigned_abs() < 1 << 31 {
        modules
    } else {
        text.add(1 << 30)
    };
    RuntimeLayout::supposed(arena)
}
