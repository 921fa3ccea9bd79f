//! The calls of a recording as a tree with times, to be drawn and compared.

use std::collections::HashMap;
use std::ops::{ControlFlow, Index};
use std::sync::Arc;

use super::{CallId, Calls, ROOT, traces};
use crate::ids::Ids;
use crate::metadata::Metadata;
use crate::recording::Recording;
use crate::{Error, Result};

/// Samples between two calls of `progress`.
const PROGRESS_EVERY: u64 = 1 << 16;

/// A function, called by the functions on the way to the root.
#[derive(Clone, Debug)]
pub struct CallNode {
    /// Name of the function; `all` for the root.
    pub name: Arc<str>,
    /// The caller; `None` for the root.
    pub caller: Option<CallId>,
    /// The callees, in order of their names.
    pub callees: Vec<CallId>,
    /// Time in the function itself, in nanoseconds.
    pub own_ns: u64,
    /// Time in the function and in its callees, in nanoseconds.
    pub total_ns: u64,
    /// Number of calls; 0 for the root.
    pub count: u64,
}

/// The calls of all threads of a recording, by function and callers. The root is [`ROOT`], and a caller
/// precedes its callees.
#[derive(Clone, Debug)]
pub struct CallTree {
    nodes: Ids<CallId, CallNode>,
    remark: Option<String>,
}

/// Returns whether the instruments of a recording trace calls.
#[must_use]
pub fn is_traced(metadata: &Metadata) -> bool {
    traces(metadata).next().is_some()
}

impl CallTree {
    /// Reads the call traces of a recording. `progress` is called with the number of samples read, at
    /// intervals, and stops the reading by breaking. Returns an error for each batch that could not be
    /// read beside the tree of the others.
    ///
    /// # Errors
    /// [`Error::NoCalls`] if the recording has no call traces; [`Error::Cancelled`] if `progress` breaks.
    pub fn of(
        recording: &Recording,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(Self, Vec<Error>)> {
        let metadata = recording.metadata();
        if !is_traced(metadata) {
            let path = recording.path().to_path_buf();
            return Err(Error::NoCalls { path });
        }
        let mut calls = Calls::new(metadata);
        let mut damaged = Vec::new();
        for (samples, found) in (1_u64..).zip(recording.merged()) {
            match found {
                Ok((cpu, sample)) => calls.add(cpu, &sample),
                Err(error) => damaged.push(error),
            }
            if samples.is_multiple_of(PROGRESS_EVERY) && progress(samples).is_break() {
                return Err(Error::Cancelled { samples });
            }
        }
        Ok((Self::new(&calls, metadata.clock.hz), damaged))
    }

    pub(crate) fn new(calls: &Calls, hz: u64) -> Self {
        let nanoseconds = |ticks: u64| {
            let time = u128::from(ticks) * 1_000_000_000 / u128::from(hz.max(1));
            u64::try_from(time).unwrap_or(u64::MAX)
        };
        let mut names: HashMap<u32, Arc<str>> = HashMap::new();
        let totals = calls.totals();
        let mut nodes: Ids<CallId, CallNode> = Ids::new();
        for (id, call) in calls.all.iter() {
            let name = match id {
                ROOT => "all".into(),
                _ => {
                    let name = names.entry(call.major);
                    Arc::clone(name.or_insert_with(|| calls.name(call.major).into()))
                }
            };
            nodes.push(CallNode {
                name,
                caller: call.caller,
                callees: call.calls.values().copied().collect(),
                own_ns: nanoseconds(call.own),
                total_ns: nanoseconds(totals[id]),
                count: call.count,
            });
        }
        let sorted: Vec<Vec<CallId>> = nodes
            .values()
            .iter()
            .map(|node| {
                let mut callees = node.callees.clone();
                callees.sort_by_key(|&callee| Arc::clone(&nodes[callee].name));
                callees
            })
            .collect();
        for (id, callees) in nodes.keys().zip(sorted) {
            nodes[id].callees = callees;
        }
        Self {
            nodes,
            remark: calls.remark(),
        }
    }

    /// Returns all calls, callers first.
    pub fn iter(&self) -> impl Iterator<Item = (CallId, &CallNode)> {
        self.nodes.iter()
    }

    /// Returns a sentence about calls that lack their entry or their return; `None` if there are none.
    #[must_use]
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Returns the way from the root to a call, both included.
    #[must_use]
    pub fn way_to(&self, call: CallId) -> Vec<CallId> {
        let mut way = vec![call];
        let mut at = call;
        while let Some(caller) = self[at].caller {
            way.push(caller);
            at = caller;
        }
        way.reverse();
        way
    }

    /// Returns for each call of this tree the call of `other` with the same function and the same callers.
    #[must_use]
    pub fn counterparts(&self, other: &Self) -> Ids<CallId, Option<CallId>> {
        let mut counterparts = Ids::like(&self.nodes, None);
        for (id, node) in self.nodes.iter() {
            counterparts[id] = match node.caller {
                None => Some(ROOT),
                Some(caller) => counterparts[caller].and_then(|there: CallId| {
                    let callees = &other[there].callees;
                    let place = callees.binary_search_by(|&one| other[one].name.cmp(&node.name));
                    callees.get(place.ok()?).copied()
                }),
            };
        }
        counterparts
    }

    /// Returns a call's share of the time of all calls; 0 if no time was recorded.
    #[must_use]
    pub fn share(&self, call: CallId) -> f64 {
        let all = self[ROOT].total_ns;
        if all == 0 {
            return 0.0;
        }
        self[call].total_ns as f64 / all as f64
    }
}

impl Index<CallId> for CallTree {
    type Output = CallNode;

    fn index(&self, call: CallId) -> &CallNode {
        &self.nodes[call]
    }
}
