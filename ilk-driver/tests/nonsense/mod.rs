//! Generator of invalid input: requests of every kind with arbitrary numbers, damaged ones, random
//! bytes.

use ilk_driver::protocol::{
    self, ArenaWrite, Batch, Bytes, Collection, Counter, EventCounter, Fault, Interval, Opening,
    Poke, Recovery, Request, Retire, Row, Schedule, SpliceKind, Strategy, encode,
};

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
        match self.below(13) {
            0 => Request::Info,
            1 => Request::Blacklist,
            2 => Request::Read {
                address: word << 24,
                length: word & 0xfffff,
            },
            3 => Request::Clear,
            4 => Request::Arena(vec![ArenaWrite {
                offset: word,
                code: Bytes(self.bytes(100)),
                rows: (0..self.below(4))
                    .map(|_| Row {
                        offset: self.below(200) as u32,
                        pushed: self.below(64) as u32,
                        original: word,
                    })
                    .collect(),
                faults: (0..self.below(4))
                    .map(|_| Fault {
                        offset: self.below(200) as u32,
                        recovery: match self.below(2) {
                            0 => Recovery::At(self.below(200) as u32),
                            _ => Recovery::Like(word << 24),
                        },
                    })
                    .collect(),
            }]),
            5 => Request::Batch(Batch {
                at: word as f64 / 1e9 - 1.0,
                pokes: self.pokes(),
            }),
            6 => Request::Pokes(self.pokes()),
            7 => Request::Counters(vec![Counter {
                id: word,
                bank: word as u32,
                slot: word as u32,
                largest: word & 1 != 0,
            }]),
            8 => Request::Start(Schedule {
                duration: word as f64 / 1e6 - 10.0,
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
                events: vec![EventCounter {
                    event: word as u8,
                    index: word as u32,
                }],
                token: word,
            }),
            9 => Request::Stop,
            10 => Request::Confirm(word),
            11 => Request::Retire(vec![Retire {
                address: word << 24,
                hits: vec![(word as u32, word as u32)],
            }]),
            _ => Request::Resume {
                token: word,
                confirmed: word,
            },
        }
    }

    /// Returns pokes at addresses all over the upper half.
    fn pokes(&mut self) -> Vec<Poke> {
        const KINDS: [SpliceKind; 5] = [
            SpliceKind::Jump,
            SpliceKind::Short,
            SpliceKind::Bounce,
            SpliceKind::Trap,
            SpliceKind::Tracer,
        ];
        let poke = |random: &mut Self| {
            let mut address = || !(random.below(1 << 32) as u64);
            let [address, detour, target, host] = std::array::from_fn(|_| address());
            Poke {
                address,
                detour,
                target,
                host,
                kind: KINDS[random.below(5)],
                rank: random.below(256) as u8,
                length: random.below(10) as u8,
                multi: random.below(2) == 0,
                remove: random.below(4) == 0,
                expect: [0x90; 8],
                write: [0xe9; 8],
            }
        };
        (0..self.below(4)).map(|_| poke(self)).collect()
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
