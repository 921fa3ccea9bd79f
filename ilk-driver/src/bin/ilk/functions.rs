//! `ilk functions`: the list of functions.

use std::io::Write;

use anyhow::bail;
use clap::Args;

use crate::target::ImageArgs;

/// List the functions of a kernel, a program or a library: address, bytes, name.
#[derive(Args)]
pub(crate) struct Functions {
    /// Only functions whose name contains this, ignoring case.
    filter: Option<String>,
    /// List static probes of a program or a library instead (`usdt:` in scripts of `ilk process`): address, name,
    /// arguments as the assembler writes them, place.
    #[arg(long)]
    probes: bool,
    #[command(flatten)]
    image: ImageArgs,
}

impl Functions {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let (image, _) = self.image.image()?;
        let filter = self.filter.unwrap_or_default();
        let pattern = filter.to_lowercase();
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        let mut count = 0_usize;
        if self.probes {
            let named = image.probes().iter().map(|probe| (probe.title(), probe));
            for (title, probe) in named.filter(|(title, _)| title.to_lowercase().contains(&pattern))
            {
                count += 1;
                let place = image.named(probe.at).unwrap_or_default();
                let arguments = probe.arguments.iter();
                let arguments: Vec<&str> = arguments.map(|one| one.text.as_str()).collect();
                writeln!(
                    out,
                    "{} usdt:{title} ({}) in {place}",
                    probe.at,
                    arguments.join(", ")
                )?;
            }
            out.flush()?;
            if count == 0 {
                bail!(
                    "No static probe of {} has {filter:?} in its name; it has {}.",
                    image.title(),
                    image.probes().len()
                );
            }
            return Ok(());
        }
        for function in image
            .functions()
            .iter()
            .filter(|function| function.name.to_lowercase().contains(&pattern))
        {
            count += 1;
            writeln!(
                out,
                "{} {:>7} {}",
                function.span.start,
                function.span.len(),
                function.name
            )?;
        }
        out.flush()?;
        if count == 0 {
            bail!(
                "No function of {} has {filter:?} in its name; try a shorter filter.",
                image.title()
            );
        }
        Ok(())
    }
}
