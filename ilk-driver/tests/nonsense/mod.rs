//! Generator of invalid input: requests of every kind with arbitrary numbers, damaged ones, random
//! bytes.

use gilk_engine::HookType;
use gilk_engine::layout::EventCounter;
use gilk_engine::placement::Style;
use gilk_instruments::program::Event;
use ilk_driver::protocol::{
    self, Bytes, Collection, Interval, ObjectFile, Opening, Placed, PlanOptions, Request, Schedule,
    SessionPart, Strategy, encode,
};

const HOOKS: [HookType; 4] = [
    HookType::Pre,
    HookType::Post,
    HookType::Taken,
    HookType::Untaken,
];

/// Reproducible random numbers (xorshift; Marsaglia, 2003).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % most.max(1)
    }

    pub(crate) fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most))
            .map(|_| self.below(256) as u8)
            .collect()
    }

    pub(crate) fn request(&mut self) -> Request {
        let word = self.below(1 << 40) as u64;
        match self.below(16) {
            0 => Request::Info,
            1 => Request::Blacklist,
            2 => Request::Read {
                address: word << 24,
                length: word & 0xfffff,
            },
            3 => Request::Clear,
            4 | 5 => Request::Load(self.part()),
            6 => Request::Plan(self.options("6.1.0")),
            7 => Request::Modules,
            8 => Request::Start(self.schedule()),
            9 => Request::Stop,
            10 => Request::Confirm(word),
            11 => Request::Clear,
            12 => Request::Status,
            13 => Request::End,
            14 => Request::Look,
            _ => Request::Resume {
                token: word,
                confirmed: word,
            },
        }
    }

    /// Returns a part of a session that names anything.
    pub(crate) fn part(&mut self) -> SessionPart {
        let name = |random: &mut Self| String::from_utf8_lossy(&random.bytes(40)).into_owned();
        SessionPart {
            names: (0..self.below(4)).map(|_| name(self)).collect(),
            placements: (0..self.below(4)).map(|_| self.placed(4)).collect(),
            styles: (0..self.below(2))
                .map(|_| (name(self), Style::ALL[self.below(3)]))
                .collect(),
            sources: (0..self.below(2))
                .map(|_| (name(self), name(self)))
                .collect(),
            objects: (0..self.below(2))
                .map(|_| ObjectFile {
                    name: name(self),
                    bytes: Bytes::from(self.bytes(400)),
                })
                .collect(),
        }
    }

    /// Returns a placement that refers to one of so many names.
    pub(crate) fn placed(&mut self, names: usize) -> Placed {
        Placed {
            function: self.below(names) as u32,
            block: self.below(40) as u32,
            hook: HOOKS[self.below(4)],
            instrument: self.below(names) as u32,
            launch: self.below(5) as f64 / 10.0,
            splash: self.below(20) as f64 / 10.0,
        }
    }

    pub(crate) fn options(&mut self, release: &str) -> PlanOptions {
        let assumed = EventCounter {
            event: Event::ALL[self.below(Event::ALL.len())],
            index: self.below(1 << 32) as u32,
            width: self.below(70) as u8,
        };
        PlanOptions {
            release: release.to_owned(),
            duration: self.below(40) as f64 / 10.0 - 0.2,
            save_all: self.below(4) == 0,
            tracepoints: self.below(4) == 0,
            unknown_kernel: self.below(8) == 0,
            storage_log2: self.below(20) as u32,
            assumed_events: (self.below(8) == 0).then(|| vec![assumed]),
        }
    }

    pub(crate) fn schedule(&mut self) -> Schedule {
        let word = self.below(1 << 40) as u64;
        Schedule {
            workload: None,
            start: (word & 2 != 0).then_some(word),
            collection: Collection {
                samples: Strategy::Stream,
                totals: Interval {
                    every: 0.1,
                    jitter: 0.0,
                },
                grace: word as f64 / 1e11 - 1.0,
            },
            token: word,
        }
    }

    /// Returns an opening, a request, a damaged request, or random bytes.
    pub(crate) fn piece(&mut self) -> Vec<u8> {
        let opening = Opening {
            version: protocol::VERSION,
            nonce: 7,
        };
        let mut piece = match self.below(8) {
            0 => opening.to_bytes(),
            1 => return self.bytes(300),
            2 => [
                &(self.below(1 << 25) as u32).to_le_bytes()[..],
                &self.bytes(50),
            ]
            .concat(),
            _ => encode(&self.request()).unwrap(),
        };
        if self.below(3) == 0 {
            let at = self.below(piece.len());
            piece[at] ^= 1 << self.below(8);
        }
        if self.below(8) == 0 {
            piece.truncate(self.below(piece.len()));
        }
        piece
    }
}
