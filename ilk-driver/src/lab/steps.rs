//! What is told while a lab is prepared and booted.

/// Names of the steps from nothing to a lab that answers, in order.
pub const STEPS: [&str; 6] = [
    "kernel",
    "module",
    "agent",
    "initramfs",
    "accelerator",
    "boot",
];

/// How far a lab has come. [`super::prepare`] does the first four of [`STEPS`], [`super::Lab::boot`] the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index in [`STEPS`].
    pub index: usize,
    /// How many steps there are.
    pub of: usize,
    /// `STEPS[index]`.
    pub name: &'static str,
    /// What is being done, for a person: a line a tool printed, or a sentence of ours.
    pub detail: String,
    /// Share of this step that is done (0 to 1), where that can be told.
    pub fraction: Option<f32>,
}

impl Step {
    /// Share of all steps that is done (0 to 1), each counted alike: the length of a progress bar.
    #[must_use]
    pub fn overall(&self) -> f32 {
        let done = self.index as f32 + self.fraction.unwrap_or(0.0).clamp(0.0, 1.0);
        (done / self.of.max(1) as f32).clamp(0.0, 1.0)
    }
}

/// One of [`STEPS`], as the code names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Kernel,
    Module,
    Agent,
    Initramfs,
    Accelerator,
    Boot,
}

/// Passes steps on to whoever watches.
pub(super) struct Reporter<'a> {
    watcher: &'a mut dyn FnMut(&Step),
}

impl<'a> Reporter<'a> {
    pub(super) fn new(watcher: &'a mut dyn FnMut(&Step)) -> Self {
        Self { watcher }
    }

    /// Tells what is being done in a step.
    pub(super) fn tell(&mut self, at: At, detail: impl Into<String>, fraction: Option<f32>) {
        let index = at as usize;
        let name = STEPS.get(index).copied().unwrap_or("lab");
        (self.watcher)(&Step {
            index,
            of: STEPS.len(),
            name,
            detail: detail.into(),
            fraction,
        });
    }

    /// Tells that a step is done.
    pub(super) fn done(&mut self, at: At, detail: impl Into<String>) {
        self.tell(at, detail, Some(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_name_and_the_bar_never_shrinks() {
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
            reporter.tell(at, "begins", None);
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
