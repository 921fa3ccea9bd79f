//! `ilk cfg`: one function's graph, and what can be hooked.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use gilk_engine::cfg::{Cfg, dot, text};
use gilk_engine::placement::{BlockOptions, Choice, compare, coverage, options};
use gilk_engine::remarks::Remarks;
use gilk_engine::{Image, Refusal};
use ilk_driver::sources::Sources;

use crate::target::ImageArgs;

/// Show a function's control-flow graph: blocks, edges, and what can be hooked.
#[derive(Args)]
pub(crate) struct CfgCommand {
    /// The function, or name@0xaddress where several have the name.
    function: String,
    /// Print it for Graphviz instead.
    #[arg(long, conflicts_with = "costs")]
    dot: bool,
    /// Print instead what its hooks cost together, in place and with the function relocated whole, and
    /// which of the two a session's `Auto` takes.
    #[arg(long)]
    costs: bool,
    /// Name lines of source, by the debug information of this kernel in a vmlinux.
    #[arg(long, value_name = "VMLINUX", conflicts_with_all = ["dot", "costs"])]
    debug: Option<PathBuf>,
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
        } else if self.costs {
            costs(&mut out, &image, &cfg)?;
        } else {
            let sources = self
                .debug
                .map(|path| Sources::open(&path, &image, &|_| true));
            let sources = sources.transpose()?.flatten();
            print(&mut out, &image, &cfg, sources.as_ref())?;
        }
        Ok(out.flush()?)
    }
}

fn print(
    out: &mut impl Write,
    image: &Image,
    cfg: &Cfg,
    sources: Option<&Sources>,
) -> std::io::Result<()> {
    let mut before = None;
    let options = options(image, cfg);
    let remarks = Remarks::of(image, cfg);
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
            let source = sources.and_then(|sources| sources.line(line.at));
            if let Some(source) = source.filter(|source| before.as_ref() != Some(source)) {
                writeln!(out, "    {source}:")?;
                before = Some(source);
            }
            let bytes: String = line
                .bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            write!(out, "    {:x}  {bytes:<22} {}", line.at.0, line.text)?;
            match remarks.at(line.at) {
                Some(remark) => writeln!(out, "  ; {remark}")?,
                None => writeln!(out)?,
            }
        }
    }
    Ok(())
}

/// What all its hooks cost together, in either style.
fn costs(out: &mut impl Write, image: &Image, cfg: &Cfg) -> std::io::Result<()> {
    if let Some(refusal) = &cfg.refusal {
        return writeln!(out, "no block of {} may be hooked: {refusal}", cfg.name);
    }
    let wanted = coverage::wanted(0, image, cfg);
    let hooks: Vec<_> = wanted.iter().map(|one| (one.block, one.hook)).collect();
    let compared = compare(image, cfg, &hooks);
    writeln!(
        out,
        "{}: {} hooks, of which {} are reached in place; the cheaper is {}",
        cfg.name,
        compared.hooks,
        compared.in_place.reached,
        compared.cheaper()
    )?;
    write!(out, "{compared}")
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
