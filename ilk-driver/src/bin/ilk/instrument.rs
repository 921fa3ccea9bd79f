//! `ilk instrument`: the language at hand: the library, one source, what it costs, its layout.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use gilk_instruments::program::Checked;
use gilk_instruments::{Context, Library, Source};

use crate::target::ImageArgs;

/// List the library's instruments, and check and format your own.
#[derive(Args)]
pub(crate) struct Instrument {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the instruments of the library: name, unit, what they do.
    List,
    /// Print the source of an instrument of the library.
    Show {
        /// Its name.
        name: String,
    },
    /// Check a source, and print what its probes cost.
    Check(Check),
    /// Print a source in the common layout.
    Format {
        /// The source.
        file: PathBuf,
        /// Write it back instead.
        #[arg(long)]
        write: bool,
    },
}

#[derive(Args)]
struct Check {
    /// The source.
    file: PathBuf,
    /// The function it is to be placed on: its arguments have names then, and fields of structures can
    /// be reached. Needs a kernel.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    #[command(flatten)]
    image: ImageArgs,
}

impl Instrument {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        match self.command {
            Command::List => {
                let library = Library::builtin()?;
                for one in library.iter() {
                    writeln!(out, "{:<20} {:<8} {}", one.name, one.unit, one.summary)?;
                }
            }
            Command::Show { name } => {
                let library = Library::builtin()?;
                let found = library.get(&name)?;
                let Some(text) = found.text() else {
                    bail!(
                        "{name} is of an older form and has no source; `ilk instrument list` says what it does."
                    );
                };
                write!(out, "{text}")?;
            }
            Command::Check(check) => write!(out, "{}", check.run()?)?,
            Command::Format { file, write } => {
                let text = parse(&file)?.formatted();
                if write {
                    std::fs::write(&file, text)
                        .with_context(|| format!("{} cannot be written", file.display()))?;
                } else {
                    write!(out, "{text}")?;
                }
            }
        }
        Ok(())
    }
}

fn parse(file: &Path) -> anyhow::Result<Source> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{} cannot be read", file.display()))?;
    Source::parse(&text).map_err(|faults| anyhow::anyhow!("{} is wrong.\n{faults}", file.display()))
}

impl Check {
    fn run(&self) -> anyhow::Result<String> {
        let source = parse(&self.file)?;
        let kernel = match &self.function {
            Some(name) => {
                let (image, _) = self.image.image()?;
                image.function_named(name)?;
                Some((image, name.as_str()))
            }
            None => None,
        };
        let context = Context {
            types: kernel.as_ref().and_then(|(image, _)| image.types()),
            function: kernel.as_ref().map(|(_, name)| *name),
        };
        let program = source
            .check(&context)
            .map_err(|faults| anyhow::anyhow!("{} is wrong.\n{faults}", self.file.display()))?;
        Ok(told(&program))
    }
}

/// What a person wants to know of a checked program.
fn told(program: &Checked) -> String {
    let mut told = String::new();
    for probe in &program.probes {
        let place = probe
            .function
            .as_ref()
            .map_or_else(String::new, |name| format!(":{name}"));
        told += &format!("{}{place}: {}\n", probe.hook, program.cost(probe));
    }
    for aggregate in &program.aggregates {
        let bytes = aggregate.words() * 8;
        told += &format!("@{}: {bytes} bytes a processor\n", aggregate.name);
    }
    told
}
