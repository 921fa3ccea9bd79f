//! `ilk instrument`: the instrument language: the library, a source, its cost, its layout.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, Subcommand};
use gilk_engine::code::Origin;
use gilk_instruments::program::Checked;
use gilk_instruments::{Context, Library, Source};
use gilk_samples::{input, output};

use crate::target::ImageArgs;

/// List the library's instruments, and check and format custom ones.
#[derive(Args)]
pub(crate) struct Instrument {
    #[command(subcommand)]
    command: InstrumentCommand,
}

#[derive(Subcommand)]
enum InstrumentCommand {
    /// List the instruments of the library: name, unit, summary.
    List,
    /// Print the source of an instrument of the library.
    Show {
        /// Name of the instrument in the library.
        name: String,
    },
    /// Check a source, and print the cost of its probes.
    Check(Check),
    /// Print a source in the standard layout.
    Format {
        /// The source.
        file: PathBuf,
        /// Rewrite the file instead.
        #[arg(long)]
        write: bool,
    },
}

#[derive(Args)]
struct Check {
    /// The source.
    file: PathBuf,
    /// The function of its placement: arguments then have names, and fields of structures are
    /// available. Needs a kernel.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    #[command(flatten)]
    image: ImageArgs,
}

impl Instrument {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        match self.command {
            InstrumentCommand::List => {
                let library = Library::builtin()?;
                for instrument in library.iter() {
                    let (name, unit) = (&instrument.name, &instrument.unit);
                    writeln!(out, "{name:<20} {unit:<8} {}", instrument.summary)?;
                }
            }
            InstrumentCommand::Show { name } => {
                let library = Library::builtin()?;
                let found = library.get(&name)?;
                let Some(text) = found.text() else {
                    bail!(
                        "{name} is a native function and has no source; `ilk instrument list` describes it."
                    );
                };
                write!(out, "{text}")?;
            }
            InstrumentCommand::Check(check) => write!(out, "{}", check.run()?)?,
            InstrumentCommand::Format { file, write } => {
                let text = parse(&file)?.formatted();
                if write {
                    output::write(&file, text.as_bytes())?;
                } else {
                    write!(out, "{text}")?;
                }
            }
        }
        Ok(())
    }
}

fn parse(file: &Path) -> anyhow::Result<Source> {
    let text = input::text(file)?;
    Source::parse(&text)
        .map_err(|faults| anyhow::anyhow!("{} has errors.\n{faults}", file.display()))
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
            of_process: kernel
                .as_ref()
                .is_some_and(|(image, _)| image.origin() == Origin::Object),
        };
        let program = source
            .check(&context)
            .map_err(|faults| anyhow::anyhow!("{} has errors.\n{faults}", self.file.display()))?;
        Ok(describe(&program))
    }
}

/// Returns the costs of a checked program's probes and aggregates.
fn describe(program: &Checked) -> String {
    let mut text = String::new();
    for probe in &program.probes {
        let function = probe
            .function
            .as_ref()
            .map_or_else(String::new, |name| format!(":{name}"));
        text += &format!("{}{function}: {}\n", probe.hook, program.cost(probe));
    }
    for aggregate in program.aggregates.values() {
        let bytes = aggregate.words() * 8;
        text += &format!("@{}: {bytes} bytes per CPU\n", aggregate.name);
    }
    text
}
