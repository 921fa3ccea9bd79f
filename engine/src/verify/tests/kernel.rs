//! Bits of patches for a real kernel's blocks. `GILK_IMAGE` is as in `engine/tests/verify_kernel.rs`.

use super::flips::{first, flip};
use super::*;
use crate::image::LiveParts;

#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn bits_of_patches_for_real_blocks() {
    let file = std::env::var_os("GILK_IMAGE")
        .expect("GILK_IMAGE names no file; it should name an image read from a kernel");
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    let image = Image::from_live(&parts).unwrap();
    let library = Library::builtin().unwrap();
    let kinds = ["counter", "timestamp", "block-trace", "elapsed-stop"];
    let mut layout = layout();
    layout.arena = Span::new(Addr(0xffff_ffff_c000_0000), 4 << 20);
    let (mut patches, mut bits, mut passing) = (0, 0, 0);
    for (number, function) in image.functions().iter().enumerate().step_by(331) {
        let name = format!("{}@{:#x}", function.name, function.span.start.0);
        let cfg = crate::cfg::Cfg::of(&image, function.id);
        for option in options(&image, &cfg)
            .into_iter()
            .skip(number % 3)
            .step_by(4)
        {
            for (hook, possible) in [
                (HookType::Pre, option.pre.is_ok()),
                (HookType::Post, option.post.is_ok()),
            ] {
                if !possible {
                    continue;
                }
                let kind = kinds[(patches + number) % kinds.len()];
                // The other end of the timer, or its place in the table could be anywhere.
                let other = placement("kernel_clone", 0, HookType::Pre, "elapsed-start");
                let own = placement(&name, option.block.0, hook, kind);
                let session = session(vec![own, other]);
                let plan = plan(&image, &session, &library, &layout).unwrap();
                let all = plan.patches[first(&plan)].code.len() * 8;
                let step = 13 + number % 7;
                let reasons = flip(&image, &plan, (patches % step..all).step_by(step));
                (patches, bits, passing) = (
                    patches + 1,
                    bits + all / step,
                    passing + reasons.values().sum::<usize>(),
                );
            }
        }
    }
    println!(
        "{bits} bits of {patches} patches flipped one at a time, {passing} of them pass and are harmless"
    );
    assert!(patches > 200);
}
