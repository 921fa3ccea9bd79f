//! Reports that a proof lasts, by which it is cancelled.

/// Functions, patches or sites between two reports: a fraction of a second also in an emulated processor.
pub(crate) const REPORTED: usize = 64;

/// Reports that the proof lasts; an error cancels it.
pub(crate) type ProofProgress<'a> = dyn FnMut() -> crate::Result<()> + 'a;
