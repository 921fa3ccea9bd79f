//! Parallel map over a slice, on all CPUs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Items that a thread claims at a time: enough to make claiming cheap, few enough that all threads
/// finish at about the same time.
const CLAIMED: usize = 64;

/// Returns the number of threads worth starting.
#[must_use]
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Maps `items` through `work` in `threads` threads and returns the results in the order of the
/// items. Concurrently calls `progress` on this thread with the number of finished items.
pub fn spread<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    progress: &mut dyn FnMut(usize),
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut done: Vec<(usize, Vec<R>)> = Vec::with_capacity(items.len().div_ceil(CLAIMED));
    thread::scope(|scope| {
        let (next, work) = (&next, &work);
        for _ in 0..threads.max(1) {
            let sender = sender.clone();
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(claimed) = items.chunks(CLAIMED).nth(number) else {
                        return;
                    };
                    // The receiver is gone only if the caller is unwinding.
                    if sender
                        .send((number, claimed.iter().map(work).collect()))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut count = 0;
        for (number, results) in receiver {
            count += Vec::len(&results);
            done.push((number, results));
            progress(count);
        }
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().flat_map(|(_, results)| results).collect()
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn results_keep_their_order_and_progress_counts_all() {
        let items: Vec<usize> = (0..1000).collect();
        for threads in [0, 1, 3] {
            let mut last = 0;
            let results = spread(&items, threads, &mut |done| last = done, |item| item * 2);
            assert_eq!(last, items.len());
            assert!(results.iter().copied().eq((0..1000).map(|item| item * 2)));
        }
        assert!(spread(&[], 2, &mut |_| (), |item: &u8| *item).is_empty());
    }
}
