//! Starts of threads.

/// Drops a value on a thread of its own: a plan of 100,000 placements has a million parts.
pub(crate) fn discard<T: Send + 'static>(value: T) {
    spawn("discard", move || drop(value));
}

/// Starts a named thread. If the system has no thread left, the task is dropped with a message; the
/// window stays usable.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new()
        .name(format!("gilk {name}"))
        .spawn(work);
    if let Err(error) = started {
        eprintln!(
            "The thread {name} could not be started: {error}. End other programs and start gilk again."
        );
    }
}
