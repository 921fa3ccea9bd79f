//! Lines of instruments in a process, which are printed as they come where there is no recording.

use std::io::Write as _;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use gilk_samples::Sample;
use gilk_samples::metadata::Metadata;
use gilk_samples::texts::{LineReader, SampleTexts, Texts};
use gilk_samples::totals::Totals;
use ilk_driver::client::Event;

/// A thread that prints lines.
#[derive(Debug)]
pub(crate) struct LinePrinter {
    thread: JoinHandle<()>,
}

impl LinePrinter {
    /// Begins to print the lines of instruments, as they are sent; `None` if they have none, and none of objects that are
    /// loaded later may follow. It ends with the last sender.
    pub(crate) fn begin(described: &Metadata, may_follow: bool) -> Option<(Sender<Event>, Self)> {
        let mut texts = described.texts.clone();
        let lines = |(_, texts): (u64, &Texts)| matches!(texts, Texts::Lines(_));
        if !may_follow && !texts.iter().any(lines) {
            return None;
        }
        let (sender, events) = crossbeam_channel::unbounded();
        let print = move || {
            let mut reader = LineReader::default();
            // The stacks that lines have.
            let mut named = Totals::default();
            for event in events {
                let batch = match event {
                    Event::Samples(batch) => batch,
                    Event::Texts(later) => {
                        texts.extend(&later);
                        continue;
                    }
                    Event::Stacks(stacks) => {
                        named.stacks.extend(stacks);
                        continue;
                    }
                    _ => continue,
                };
                let mut out = std::io::stdout().lock();
                for sample in &batch.samples {
                    let line = line(&mut reader, (batch.cpu, sample), &texts, &named);
                    let Some(line) = line else {
                        continue;
                    };
                    let end = if line.ends_with('\n') { "" } else { "\n" };
                    // A closed pipe ends the printing; the counts follow.
                    if write!(out, "{line}{end}").is_err() {
                        return;
                    }
                }
            }
        };
        let thread = std::thread::spawn(print);
        Some((sender, Self { thread }))
    }

    /// Waits until all lines are printed, whose senders have ended.
    pub(crate) fn end(self) {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Returns the line that is complete with the next sample of a CPU.
fn line(
    reader: &mut LineReader,
    (cpu, sample): (u16, &Sample),
    texts: &SampleTexts,
    named: &Totals,
) -> Option<String> {
    let (sample, words) = reader.next(cpu, sample, texts)?;
    match texts.get(sample.id)? {
        Texts::Lines(_) => texts.text(&sample, &words, named),
        Texts::Names(_) | Texts::Stacks => None,
    }
}
