//! Functions of the kernel that native code may call: from everywhere, and without coming to an instrument.

use std::collections::BTreeSet;

use iced_x86::{FlowControl, OpKind};

use crate::cfg::Cfg;
use crate::code::{FunctionId, Why};
use crate::{Addr, Image, Span};

/// More functions below one are not followed.
const MOST_FUNCTIONS: usize = 64;

/// Returns the address of the function of that name, if it may be called.
pub(super) fn find(
    image: &Image,
    name: &str,
    touched: &dyn Fn(FunctionId) -> bool,
) -> Result<Addr, String> {
    let called = image.function_named(name).map_err(|error| {
        format!(
            "it calls {name}: {}",
            error.to_string().trim_end_matches('.')
        )
    })?;
    let mut worklist = vec![called.id];
    let mut visited = BTreeSet::from([called.id]);
    while let Some(function) = worklist.pop() {
        let cfg = Cfg::of(image, function);
        let below = |what: &str| {
            if function == called.id {
                format!("it calls {name}, which {what}")
            } else {
                format!("it calls {name}, which reaches {}, which {what}", cfg.name)
            }
        };
        if touched(function) {
            return Err(below("has instruments in this session"));
        }
        if let Some(refusal) = &cfg.refusal {
            return Err(below(&format!(
                "may not be called from everywhere ({refusal})"
            )));
        }
        for block in &cfg.blocks {
            for instruction in &block.instructions {
                let at = Addr(instruction.ip());
                // The kernel makes a call of it, even if it is none now.
                let static_call = image
                    .fixed()
                    .overlapping(Span::new(at, 1))
                    .any(|site| site.why == Why::StaticCall);
                let branches = !matches!(
                    instruction.flow_control(),
                    FlowControl::Next | FlowControl::Return
                );
                if !branches && !static_call {
                    continue;
                }
                if instruction.op0_kind() != OpKind::NearBranch64
                    || static_call
                    || image.decided(at).is_some()
                {
                    return Err(below(
                        "branches to an address that is computed when it runs",
                    ));
                }
                let to = Addr(instruction.near_branch_target());
                if cfg.span.contains(to) || image.is_return_thunk(to) {
                    continue;
                }
                let to = image
                    .function_at(to)
                    .ok_or_else(|| below("branches out of the kernel's text"))?;
                if visited.insert(to.id) {
                    worklist.push(to.id);
                }
            }
        }
        if visited.len() > MOST_FUNCTIONS {
            return Err(format!(
                "it calls {name}, which reaches more than {MOST_FUNCTIONS} functions"
            ));
        }
    }
    Ok(called.span.start)
}
