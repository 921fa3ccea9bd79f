//! The progress of the preparation and boot of a lab.

/// Names of the steps, in order.
pub const STEPS: [&str; 6] = [
    "kernel",
    "module",
    "agent",
    "initramfs",
    "accelerator",
    "boot",
];

/// Usual times of [`STEPS`] when their products are in the cache, relative to each other.
const USUAL: [f32; STEPS.len()] = [1.0, 1.0, 1.0, 1.0, 1.0, 20.0];

/// Progress of a lab. [`super::prepare()`] performs the first four of [`STEPS`], [`super::Lab::boot`]
/// the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index in [`STEPS`].
    pub index: usize,
    /// `STEPS[index]`.
    pub name: &'static str,
    /// Current activity, for the user: a line of a tool's output, or a phrase.
    pub detail: String,
    /// Finished share of this step (0 to 1), if known.
    pub fraction: Option<f32>,
}

impl Step {
    /// Returns the finished share of all steps (0 to 1), weighted by their usual times: the length of a
    /// progress bar.
    #[must_use]
    pub fn overall(&self) -> f32 {
        let before: f32 = USUAL.iter().take(self.index).sum();
        let current = USUAL.get(self.index).copied().unwrap_or(0.0);
        let done = before + current * self.fraction.unwrap_or(0.0).clamp(0.0, 1.0);
        (done / USUAL.iter().sum::<f32>()).clamp(0.0, 1.0)
    }
}

/// A step of [`STEPS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Kernel,
    Module,
    Agent,
    Initramfs,
    Accelerator,
    Boot,
}

/// Passes progress to a callback.
pub(super) struct Reporter<'a> {
    watcher: &'a mut dyn FnMut(&Step),
}

impl<'a> Reporter<'a> {
    pub(super) fn new(watcher: &'a mut dyn FnMut(&Step)) -> Self {
        Self { watcher }
    }

    /// Reports the activity in a step.
    pub(super) fn report(&mut self, at: At, detail: impl Into<String>, fraction: Option<f32>) {
        let index = at as usize;
        debug_assert!(index < STEPS.len(), "every step has a name");
        let name = STEPS.get(index).copied().unwrap_or("lab");
        (self.watcher)(&Step {
            index,
            name,
            detail: detail.into(),
            fraction,
        });
    }

    /// Reports the end of a step.
    pub(super) fn done(&mut self, at: At, detail: impl Into<String>) {
        self.report(at, detail, Some(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_name_and_progress_never_decreases() {
        let mut seen = Vec::new();
        let mut watcher = |step: &Step| seen.push((step.name, step.overall()));
        let mut reporter = Reporter::new(&mut watcher);
        for at in [
            At::Kernel,
            At::Module,
            At::Agent,
            At::Initramfs,
            At::Accelerator,
            At::Boot,
        ] {
            reporter.report(at, "begins", None);
            reporter.done(at, "ends");
        }
        let names: Vec<_> = seen.iter().step_by(2).map(|(name, _)| *name).collect();
        assert_eq!(names, STEPS);
        assert!(
            seen.windows(2)
                .all(|pair| pair[0].1 <= pair[1].1 + f32::EPSILON)
        );
        assert!((seen[seen.len() - 1].1 - 1.0).abs() < 1e-6);
    }
}
