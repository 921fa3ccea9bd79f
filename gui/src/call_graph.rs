//! Call graph: every direct call or jump from one function to the start of another.

use std::collections::HashMap;

use gilk_engine::Addr;
use gilk_engine::cfg::Cfg;
use gilk_engine::code::FunctionId;

use crate::catalogue::Catalogue;

/// The call graph of a kernel.
#[derive(Clone, Debug, Default)]
pub struct CallGraph {
    into: HashMap<FunctionId, Vec<Call>>,
    out: HashMap<FunctionId, Vec<Call>>,
}

/// A direct call or jump between functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Address of the call instruction.
    pub at: Addr,
    /// The calling function.
    pub from: FunctionId,
    /// The called function.
    pub to: FunctionId,
}

impl CallGraph {
    /// Finds the calls in all functions of a kernel.
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

    /// Returns the calls to a function, ordered by the callers' addresses.
    #[must_use]
    pub fn of_callers(&self, function: FunctionId) -> &[Call] {
        self.into.get(&function).map_or(&[], Vec::as_slice)
    }

    /// Returns the calls in a function, ordered by address.
    #[must_use]
    pub fn out_of(&self, function: FunctionId) -> &[Call] {
        self.out.get(&function).map_or(&[], Vec::as_slice)
    }
}
