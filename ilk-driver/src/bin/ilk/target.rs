//! The kernel of a command: an agent's, a lab's, or a saved one.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use gilk_engine::kernel::{LiveParts, ModuleParts};
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::{Addr, Image};
use gilk_samples::joined::unused;
use ilk_driver::agent::SOCKET;
use ilk_driver::client::{Connection, Route, TargetAddress, lab_link};
use ilk_driver::lab::{Lab, Options, prepare};
use ilk_driver::ssh::Tunnel;
use ilk_driver::{interrupt, saved};

use crate::progress::Progress;

/// A running kernel.
#[derive(Args)]
pub(crate) struct TargetArgs {
    /// The socket of an agent. Default: the lab that `ilk lab` runs, otherwise the agent of this
    /// machine.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Boot a lab for this command alone.
    #[arg(long, conflicts_with = "socket")]
    lab: bool,
    /// A machine with an agent: a host for ssh (user@web1), a socket's path, or here. `ilk run`
    /// accepts several, separated by commas, each with an optional name: web1=/run/a.sock.
    #[arg(
        long,
        value_name = "MACHINE",
        value_delimiter = ',',
        conflicts_with_all = ["socket", "lab"]
    )]
    target: Vec<TargetAddress>,
}

/// Connects to the agent at an address.
fn connect(address: &TargetAddress) -> anyhow::Result<Connected> {
    let (mut connection, tunnel) = match &address.route {
        Route::Socket(socket) => (Connection::connect(socket)?, None),
        Route::Ssh(host) => {
            let tunnel = Tunnel::open(host, &|| !interrupt::arrived())?;
            (Connection::connect(&tunnel.socket())?, Some(tunnel))
        }
    };
    if let Some(name) = &address.name {
        connection.set_name(name);
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
    /// A kernel in a file: saved by `ilk dump`, a vmlinuz, or a vmlinux. Or a program or a library, to
    /// look at.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["socket", "lab", "target"])]
    image: Option<PathBuf>,
}

/// A connection, with the lab or the ssh tunnel that it uses.
pub(crate) struct Connected {
    // Declared first, so that it is closed before the lab ends.
    pub(crate) connection: Connection,
    _tunnel: Option<Tunnel>,
    _lab: Option<Lab>,
}

impl TargetArgs {
    /// Returns the socket that is named.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Returns whether several machines are named.
    pub(crate) fn is_several(&self) -> bool {
        self.target.len() > 1
    }

    /// Connects to each of several machines. Equal names are distinguished by numbers.
    pub(crate) fn connect_all(&self) -> anyhow::Result<Vec<Connected>> {
        let mut all: Vec<Connected> = Vec::new();
        for address in &self.target {
            let mut next = connect(address)?;
            let name = next.connection.info().host.clone();
            let taken = |name: &str| all.iter().any(|other| other.connection.info().host == name);
            next.connection.set_name(&unused(&name, taken));
            all.push(next);
        }
        Ok(all)
    }

    pub(crate) fn connect(&self) -> anyhow::Result<Connected> {
        match self.target.as_slice() {
            [] => {}
            [address] => return connect(address),
            _ => anyhow::bail!("This command needs a single machine; name one with --target."),
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

    /// Connects to look at the kernel, also while the agent serves another client.
    pub(crate) fn look(&self) -> anyhow::Result<Connected> {
        let refused = match self.connect() {
            Err(error) => error,
            connected => return connected,
        };
        let is_busy = matches!(refused.downcast_ref(), Some(ilk_driver::Error::Busy { .. }));
        let socket = match self.target.as_slice() {
            _ if !is_busy || self.lab => return Err(refused),
            [] => self.find()?,
            [address] => match &address.route {
                Route::Socket(socket) => socket.clone(),
                Route::Ssh(host) => {
                    let tunnel = Tunnel::open(host, &|| !interrupt::arrived())?;
                    return Ok(Connected {
                        connection: Connection::look(&tunnel.socket())?,
                        _tunnel: Some(tunnel),
                        _lab: None,
                    });
                }
            },
            _ => return Err(refused),
        };
        Ok(Connected {
            connection: Connection::look(&socket)?,
            _tunnel: None,
            _lab: None,
        })
    }

    /// Returns the socket of an agent on this machine.
    pub(crate) fn socket_alone(&self) -> anyhow::Result<PathBuf> {
        anyhow::ensure!(
            !self.lab && self.target.is_empty(),
            "This command looks at an agent on this machine; name its socket with --socket, or \
             use ssh to execute it on another."
        );
        self.find()
    }

    fn find(&self) -> anyhow::Result<PathBuf> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        let link = lab_link(&Options::default().cache);
        // A dangling link belongs to a lab that has ended.
        let found = [link, PathBuf::from(SOCKET)]
            .into_iter()
            .find(|socket| socket.exists());
        found.context(
            "Neither a lab nor an agent runs on this machine; start one with `ilk lab`, \
             or boot one for this command with --lab.",
        )
    }
}

impl ImageArgs {
    /// Selects a file, otherwise a running kernel.
    pub(crate) const fn of(target: TargetArgs, image: Option<PathBuf>) -> Self {
        Self { target, image }
    }

    /// Returns the kernel's image, and the layout for generated code.
    pub(crate) fn image(&self) -> anyhow::Result<(Image, RuntimeLayout)> {
        if let Some(file) = &self.image {
            let image = saved::open(file)?;
            let layout = assumed_layout(&image);
            return Ok((image, layout));
        }
        let mut connected = self.target.look()?;
        let (parts, modules) = read(&mut connected.connection)?;
        let layout = connected.connection.info().layout.clone();
        let image = Image::with_modules(&parts, &modules)?.on(&layout);
        Ok((image, layout))
    }

    /// Returns whether the kernel is in a file.
    pub(crate) fn is_saved(&self) -> bool {
        self.image.is_some()
    }
}

/// Prepares and boots a lab, with progress on standard error.
pub(crate) fn boot(options: &Options) -> anyhow::Result<Lab> {
    let mut progress = Progress::new();
    let prepared = prepare(options, &mut |step| progress.step(step))?;
    Ok(Lab::boot(&prepared, &mut |step| progress.step(step))?)
}

/// Reads the running kernel, with progress on standard error.
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
        progress.print(&note);
    }
    Ok((parts, connection.modules()?))
}

/// Returns an assumed layout for plans without a target.
fn assumed_layout(image: &Image) -> RuntimeLayout {
    // Start of the modules' address range (Documentation/arch/x86/x86_64/mm.rst).
    let modules = Addr(0xffff_ffff_c000_0000);
    let text = image.text().start;
    let arena = if modules.to(text).unsigned_abs() < 1 << 31 {
        modules
    } else {
        text.add(1 << 30)
    };
    RuntimeLayout::supposed(arena)
}
