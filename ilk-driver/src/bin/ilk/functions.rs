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
