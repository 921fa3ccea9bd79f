//! Which lanes there are, and in which order: as the session has them, by instrument, or CPU by CPU.

use std::collections::BTreeSet;

use gilk_samples::metadata::InstrumentInfo;
use gilk_samples::record::ALL_CPUS;

use super::Record;

/// How lanes are stacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// A lane an instrument, in the session's order.
    #[default]
    Session,
    /// The same, those of one kind beside each other.
    Instrument,
    /// CPU after CPU, a lane for every instrument that delivered there; then what is no CPU's.
    Cpu,
}

impl Stack {
    /// All of them, and what they are called beside "lanes by".
    pub(crate) const ALL: [(Self, &'static str); 3] = [
        (Self::Session, "order"),
        (Self::Instrument, "instrument"),
        (Self::Cpu, "CPU"),
    ];
}

/// A lane that is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// Its place in the recording, which its colour comes from.
    pub(crate) index: usize,
    pub(crate) info: &'a InstrumentInfo,
    /// The CPU whose samples it has, if not all.
    pub(crate) cpu: Option<u16>,
}

impl Row<'_> {
    /// What stands before the place of its instrument: `CPU 1 · `.
    pub(crate) fn whose(&self) -> String {
        self.cpu
            .map_or_else(String::new, |cpu| format!("CPU {cpu} · "))
    }

    /// What it is called.
    pub(crate) fn label(&self) -> String {
        let label = &self.info.label;
        self.cpu
            .map_or_else(|| label.clone(), |cpu| format!("{label} on CPU {cpu}"))
    }
}

/// The lanes of a recording.
pub(crate) fn rows(record: &Record, stack: Stack) -> Vec<Row<'_>> {
    let all = || {
        let lanes = record.lanes().iter().enumerate();
        lanes.map(|(index, info)| Row {
            index,
            info,
            cpu: None,
        })
    };
    match stack {
        Stack::Session => all().collect(),
        Stack::Instrument => {
            let mut rows: Vec<_> = all().collect();
            rows.sort_by_key(|row| &row.info.instrument);
            rows
        }
        Stack::Cpu => {
            // Totals are told for all CPUs at once.
            let cpus = |row: &Row<'_>| {
                let mut cpus = record.index.look().cpus(row.info.id);
                cpus.remove(&ALL_CPUS);
                cpus
            };
            let mut rows: Vec<_> = all()
                .flat_map(|row| {
                    let own: BTreeSet<Option<u16>> = cpus(&row).into_iter().map(Some).collect();
                    let nobodys = own.is_empty().then_some(None);
                    own.into_iter()
                        .chain(nobodys)
                        .map(move |cpu| Row { cpu, ..row })
                })
                .collect();
            rows.sort_by_key(|row| (row.cpu.is_none(), row.cpu));
            rows
        }
    }
}
