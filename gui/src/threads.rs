//! Starts of threads, and what the user sees if one panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use egui::{Context, Id};

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

/// Does work of a thread. If it panics, the window reports so, and there is no value.
pub(crate) fn guarded<T>(ctx: &Context, name: &str, work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(value) => Some(value),
        Err(panic) => {
            report(ctx, name, &reason(&*panic));
            None
        }
    }
}

/// Reports to the user of a window that a thread could not do its work.
pub(crate) fn report(ctx: &Context, name: &str, why: &str) {
    let words = format!(
        "The window has a fault: its thread \u{201c}{name}\u{201d} failed ({why}). What it computes is missing. Save the session, and report the fault."
    );
    ctx.data_mut(|data| {
        let failures = data.get_temp_mut_or_default::<Vec<String>>(failures());
        if !failures.contains(&words) {
            failures.push(words);
        }
    });
    ctx.request_repaint();
}

/// Returns the reports since the last call.
pub(crate) fn reported(ctx: &Context) -> Vec<String> {
    ctx.data_mut(|data| data.remove_temp(failures()))
        .unwrap_or_default()
}

fn failures() -> Id {
    Id::unique("failures of threads")
}

/// Returns the message of a panic.
fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use egui_kittest::Harness;
    use gilk_instruments::Library;

    use super::*;
    use crate::app::App;
    use crate::args::Start;
    use crate::notices::NoticeKind;

    #[test]
    fn the_window_reports_a_thread_that_panicked() {
        let mut harness = Harness::builder().build_eframe(|creation| {
            App::new(
                &creation.egui_ctx,
                Start::default(),
                Library::builtin().unwrap(),
            )
        });
        let mail = harness.state().workers.mail().clone();
        mail.spawn("test", |_| panic!("a value is missing"));
        while harness.state().state.notices.is_empty() {
            harness.step();
            std::thread::yield_now();
        }
        let notice = &harness.state().state.notices[0];
        assert_eq!(notice.kind, NoticeKind::Bad);
        for words in ["test", "a value is missing"] {
            assert!(notice.words.contains(words), "{}", notice.words);
        }
    }

    #[test]
    fn a_thread_that_answers_requests_continues_after_a_panic() {
        let ctx = Context::default();
        assert_eq!(guarded(&ctx, "test", || 1), Some(1));
        assert_eq!(guarded::<i32>(&ctx, "test", || panic!("once")), None);
        assert_eq!(guarded(&ctx, "test", || 2), Some(2));
        assert_eq!(reported(&ctx).len(), 1);
        assert!(reported(&ctx).is_empty());
    }
}
