//! `ilk cfg`: one function's graph, and what can be hooked.

use std::io::Write;

use clap::Args;
use gilk_engine::cfg::{Cfg, dot, text};
use gilk_engine::placement::{BlockOptions, Choice, options};
use gilk_engine::{Image, Refusal};

use crate::target::ImageArgs;

/// Show a function's control-flow graph: blocks, edges, and what can be hooked.
#[derive(Args)]
pub(crate) struct CfgCommand {
    /// The function, or name@0xaddress where several have the name.
    function: String,
    /// Print it for Graphviz instead.
    #[arg(long)]
    dot: bool,
    #[command(flatten)]
    image: ImageArgs,
}

impl CfgCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let (image, _) = self.image.image()?;
        let function = image.function_named(&self.function)?;
        let cfg = Cfg::of(&image, function.id);
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        if self.dot {
            out.write_all(dot::dot(&image, &cfg).as_bytes())?;
        } else {
            print(&mut out, &image, &cfg)?;
        }
        Ok(out.flush()?)
    }
}

fn print(out: &mut impl Write, image: &Image, cfg: &Cfg) -> std::io::Result<()> {
    let options = options(image, cfg);
    let (pre, post) = (
        options.iter().filter(|o| o.pre.is_ok()).count(),
        options.iter().filter(|o| o.post.is_ok()).count(),
    );
    writeln!(
        out,
        "{} at {}, {} bytes: {} blocks, {} edges; a pre-hook fits {pre} blocks and a post-hook \
         {post}",
        cfg.name,
        cfg.span.start,
        cfg.span.len(),
        cfg.blocks.len(),
        cfg.edges.len()
    )?;
    if let Some(refusal) = &cfg.refusal {
        writeln!(out, "no block of it may be hooked: {refusal}")?;
    }
    for block in &cfg.blocks {
        writeln!(out, "\n{}", text::heading(cfg, block))?;
        if let Some(options) = options.iter().find(|options| options.block == block.index) {
            hooks(out, options)?;
        }
        for line in text::lines(image, block) {
            let bytes: String = line
                .bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            writeln!(out, "    {:x}  {bytes:<22} {}", line.at.0, line.text)?;
        }
    }
    Ok(())
}

fn hooks(out: &mut impl Write, options: &BlockOptions) -> std::io::Result<()> {
    writeln!(out, "  pre-hook:  {}", option(&options.pre))?;
    writeln!(out, "  post-hook: {}", option(&options.post))?;
    if let Some(Err(refusal)) = &options.both {
        writeln!(out, "  not both in one session: {refusal}")?;
    }
    Ok(())
}

fn option(option: &Result<Choice, Refusal>) -> String {
    match option {
        Ok(choice) => format!("{}: {}", choice.tactic.name(), choice.cost),
        Err(refusal) => format!("refused, {refusal}"),
    }
}
