//! The calls of a recording, and of an earlier one to which it is compared.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gilk_samples::calls::{CallId, CallTree, ROOT};
use gilk_samples::export::flame_graph;
use gilk_samples::ids::Ids;
use gilk_samples::recording::Recording;
use ilk_driver::client::StopFlag;

use crate::Result;

/// Contents of the pane: the recording, and the one to which it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallsKey {
    /// Number of the opened recording.
    pub(crate) recording: u64,
    pub(crate) path: PathBuf,
    pub(crate) earlier: Option<PathBuf>,
}

/// A request to read calls, shared with the thread that works on it.
#[derive(Clone, Debug)]
pub struct CallsRequest {
    pub(crate) key: CallsKey,
    /// Ends the reading.
    pub(crate) stop: StopFlag,
    /// Samples read so far, of both recordings.
    pub(crate) samples: Arc<AtomicU64>,
}

impl CallsRequest {
    pub(crate) fn of(key: CallsKey) -> Self {
        Self {
            key,
            stop: StopFlag::default(),
            samples: Arc::default(),
        }
    }
}

/// The calls of an earlier recording.
#[derive(Debug)]
struct EarlierCalls {
    tree: CallTree,
    /// The earlier call of each call.
    counterparts: Ids<CallId, Option<CallId>>,
}

/// The calls of a recording.
#[derive(Debug)]
pub struct CallRun {
    /// The calls of the recording, by function and callers.
    pub tree: CallTree,
    earlier: Option<EarlierCalls>,
    /// Number of batches that could not be read.
    pub damaged: usize,
}

impl CallRun {
    /// Reads the recordings of a request.
    ///
    /// # Errors
    /// A recording that cannot be opened or has no calls; [`gilk_samples::Error::Cancelled`] after a stop.
    pub(crate) fn of(request: &CallsRequest) -> Result<Self> {
        let mut before = 0;
        let mut read = |path: &Path| -> Result<(CallTree, usize)> {
            let recording = Recording::open(path)?;
            let (tree, damaged) = CallTree::of(&recording, |samples| {
                request.samples.store(before + samples, Ordering::Relaxed);
                if request.stop.is_stopped() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            before += recording.samples();
            Ok((tree, damaged.len()))
        };
        let (tree, mut damaged) = read(&request.key.path)?;
        let mut earlier = None;
        if let Some(path) = &request.key.earlier {
            let (other, more) = read(path)?;
            damaged += more;
            earlier = Some(EarlierCalls {
                counterparts: tree.counterparts(&other),
                tree: other,
            });
        }
        Ok(Self {
            tree,
            earlier,
            damaged,
        })
    }

    /// Returns the earlier call with the same callers, and its share of the time; `None` without an earlier
    /// recording. A call that is new has the share 0.
    #[must_use]
    pub fn earlier_share(&self, call: CallId) -> Option<f64> {
        let earlier = self.earlier.as_ref()?;
        let counterpart = earlier.counterparts[call];
        Some(counterpart.map_or(0.0, |call| earlier.tree.share(call)))
    }

    /// Returns the flame graph as SVG; `None` without an earlier recording. Its colours show the change.
    #[must_use]
    pub fn difference(&self) -> Option<String> {
        let earlier = self.earlier.as_ref()?;
        Some(flame_graph(&self.tree, Some(&earlier.tree)))
    }

    /// Returns the number of calls, as callers and callee, that only the earlier recording has; `None` without
    /// one.
    #[must_use]
    pub fn vanished(&self) -> Option<usize> {
        let earlier = self.earlier.as_ref()?;
        let kept = earlier.counterparts.values().iter().flatten().count();
        Some(earlier.tree.iter().count() - kept)
    }

    /// Returns the share of the time that is spent in functions whose names contain `wanted` and in their
    /// callees, and the number of such calls. A call within another one is in its time already.
    #[must_use]
    pub fn found(&self, wanted: &str) -> (f64, usize) {
        let wanted = wanted.to_lowercase();
        let (mut share, mut count) = (0.0, 0);
        let mut open = vec![(ROOT, false)];
        while let Some((call, within)) = open.pop() {
            let node = &self.tree[call];
            let matches = call != ROOT && node.name.to_lowercase().contains(&wanted);
            if matches {
                count += 1;
                share += if within { 0.0 } else { self.tree.share(call) };
            }
            let callees = node.callees.iter();
            open.extend(callees.map(|&callee| (callee, within || matches)));
        }
        (share, count)
    }
}
