//! Opens a saved image and prints the control-flow graph of a function, with the tactic that
//! reaches each block or the rule that refuses it.
//!
//! `cargo run -p gilk-engine --example graph -- [FUNCTION [IMAGE]]`; without an image, the trimmed
//! one of the tests. `ilk dump -o IMAGE` saves one of a running kernel.

use std::error::Error;
use std::path::PathBuf;

use gilk_engine::cfg::{Cfg, text};
use gilk_engine::kernel::LiveParts;
use gilk_engine::placement::{Choice, options};
use gilk_engine::{Image, Refusal};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "mmput_async".to_owned());
    let path = arguments.next().map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/data/fork.image"
            ))
        },
        PathBuf::from,
    );

    // An image: symbols, text, and the kernel's tables, as they were read from a running kernel.
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(path)?)?;
    let image = Image::from_live(&parts)?;
    println!(
        "Linux {}, {} functions\n",
        image.release(),
        image.functions().len()
    );

    // The graph of a function: blocks, edges, and a listing with symbols.
    let function = image.function_named(&name)?;
    let cfg = Cfg::of(&image, function.id);
    println!("{}", text::listing(&image, &cfg));

    // The hooks of each block on its own: the tactic that reaches it, or the refusal.
    for block in options(&image, &cfg) {
        let describe = |choice: &Result<Choice, Refusal>| match choice {
            Ok(choice) => choice.tactic.name().to_owned(),
            Err(refusal) => format!("refused by {}", refusal.rule.name()),
        };
        println!(
            "block {}: pre {}, post {}",
            block.block.0,
            describe(&block.pre),
            describe(&block.post)
        );
    }
    Ok(())
}
