//! `ilk cfg`: a function's graph and its hooks.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use gilk_engine::cfg::{Cfg, dot, text};
use gilk_engine::placement::{BlockOptions, Choice, compare, coverage, options};
use gilk_engine::remarks::Remarks;
use gilk_engine::{Image, Refusal};
use gilk_samples::chart::scale::counted;
use ilk_driver::sources::Sources;

use crate::target::ImageArgs;

/// Show a function's control-flow graph: blocks, edges, and available hooks.
#[derive(Args)]
pub(crate) struct CfgCommand {
    /// The function, or name@0xaddress if several have the name.
    function: String,
    /// Print the graph for Graphviz instead.
    #[arg(long, conflicts_with = "costs")]
    dot: bool,
    /// Print instead the cost of all its hooks together, in place and with the function relocated
    /// whole, and which of the two a session's `Auto` chooses.
    #[arg(long)]
    costs: bool,
    /// Print source lines from the debug information of this kernel in a vmlinux.
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
        "{} at {}, {}: {}, {}; a pre-hook is available at {} and a post-hook at {post}",
        cfg.name,
        cfg.span.start,
        counted(cfg.span.len(), "byte"),
        counted(cfg.blocks.len() as u64, "block"),
        counted(cfg.edges.len() as u64, "edge"),
        counted(pre as u64, "block")
    )?;
    if let Some(refusal) = &cfg.refusal {
        writeln!(out, "no block of it can be hooked: {refusal}")?;
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

/// Prints the cost of all its hooks together, in both styles.
fn costs(out: &mut impl Write, image: &Image, cfg: &Cfg) -> std::io::Result<()> {
    if let Some(refusal) = &cfg.refusal {
        return writeln!(out, "no block of {} can be hooked: {refusal}", cfg.name);
    }
    let requested = coverage::wanted(0, image, cfg);
    let hooks: Vec<_> = requested
        .iter()
        .map(|hook| (hook.block, hook.hook))
        .collect();
    let compared = compare(image, cfg, &hooks);
    writeln!(
        out,
        "{}: {} hooks, of which {} are reached in place; the cheaper style is {}",
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
