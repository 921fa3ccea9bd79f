//! Who calls whom: every direct call and jump from one function to the start of another.

use std::collections::HashMap;

use gilk_engine::Addr;
use gilk_engine::cfg::Cfg;
use gilk_engine::image::FunctionId;

use crate::catalogue::Catalogue;

/// The calls of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    into: HashMap<FunctionId, Vec<Call>>,
    out: HashMap<FunctionId, Vec<Call>>,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Where the call stands.
    pub at: Addr,
    /// The function it stands in.
    pub from: FunctionId,
    /// The function that is called.
    pub to: FunctionId,
}

impl Calls {
    /// Looks through all of a kernel's functions.
    #[must_use]
    pub fn of(catalogue: &Catalogue) -> Self {
        let image = catalogue.image();
        let starts: HashMap<u64, FunctionId> = image
            .functions()
            .iter()
            .map(|one| (one.span.start.0, one.id))
            .collect();
        let mut calls = Self::default();
        for function in image.functions() {
            let from = function.id;
            for block in &Cfg::of(image, from).blocks {
                for instruction in block.instructions.iter() {
                    let near = instruction.is_call_near() || instruction.is_jmp_short_or_near();
                    let target = instruction.near_branch_target();
                    let to = starts.get(&target).copied();
                    if let (true, Some(to)) = (near, to.filter(|&to| to != from)) {
                        let call = Call {
                            at: Addr(instruction.ip()),
                            from,
                            to,
                        };
                        calls.into.entry(to).or_default().push(call);
                        calls.out.entry(from).or_default().push(call);
                    }
                }
            }
        }
        calls
    }

    /// The calls of a function, in order of the callers' addresses.
    #[must_use]
    pub fn of_callers(&self, function: FunctionId) -> &[Call] {
        self.into.get(&function).map_or(&[], Vec::as_slice)
    }

    /// The calls in a function, in order of address.
    #[must_use]
    pub fn out_of(&self, function: FunctionId) -> &[Call] {
        self.out.get(&function).map_or(&[], Vec::as_slice)
    }
}
