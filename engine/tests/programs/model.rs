//! A model of a program's effects, by the interpreter.

use std::collections::BTreeMap;

use gilk_engine::layout::{
    CounterBank, CounterSlot, EventCounter, Events, Inputs, KernelInputs, MonotonicClock,
    RuntimeLayout, SegmentOffset,
};
use gilk_engine::patch::{Home, Homes, Probed, TIMER_BYTES, TIMER_FACTOR};
use gilk_engine::{Addr, InstrumentId};
use gilk_instruments::interpret;
use gilk_instruments::program::{
    ActionKind, AggregateId, Checked, Event, Expr, ExprKind, Gpr, Half, Input, Probe, Scope,
    UserRead, VariableId, Width,
};
use gilk_samples::Sample;

use super::native::{GS, Machine, Random, SCRATCH, State};
use super::support::{self, COUNTERS, CPU, CURRENT, LOST_FULL, TIMER_TABLE, TIMERS_LOG2, slot};

/// Serial number of the first sample.
pub(crate) const SERIAL: u64 = 16;
/// The counters around a program.
pub(crate) const COUNTER: u64 = 1000;
const WORDS: u32 = 1024;
const CPU_WORD: u64 = 0x130;
/// The word that makes scaled ticks nanoseconds.
pub(crate) const CLOCK_OFFSET: u64 = 0x138;
const THREAD: u32 = 0x40;
const PROCESS: u32 = 0x48;
const COMM: u32 = 0x50;
/// Bytes of the task.
const MEMORY: usize = 0x200;

/// Storage: variables first, aggregates after them.
pub(crate) fn homes(program: &Checked) -> Homes {
    let mut next = 0;
    let mut take = |words| {
        let slot = next;
        next += words;
        CounterSlot { bank: 0, slot }
    };
    Homes {
        variables: program
            .variables
            .values()
            .iter()
            .map(|variable| match variable.scope {
                Scope::Cpu => Home::Cpu(take(1)),
                Scope::Global => Home::Shared(take(1)),
                Scope::Thread => Home::Thread(5),
                Scope::Call => Home::Call(3),
            })
            .collect(),
        aggregates: program
            .aggregates
            .values()
            .iter()
            .map(|aggregate| take(aggregate.words()))
            .collect(),
        failed: Some(take(1)),
        no_room: Some(take(1)),
    }
}

/// A layout with room for all of it, and a task that can be read.
pub(crate) fn layout(machine: &mut Machine, seed: u64) -> RuntimeLayout {
    let task = machine.address(SCRATCH);
    machine.set_word(GS.wrapping_add(CURRENT), task);
    let mut random = Random(seed ^ 0x5555);
    for word in 0..64 {
        let bits = random.next();
        machine.set_word(SCRATCH + 8 * word, bits);
    }
    machine.set_word(GS + CPU_WORD, random.next() << 32 | CPU);
    RuntimeLayout {
        counters: vec![CounterBank {
            base: SegmentOffset(COUNTERS),
            slots: WORDS,
        }],
        shared: vec![Addr(machine.address(GS + COUNTERS))],
        inputs: Inputs::kernel(KernelInputs {
            current: SegmentOffset(CURRENT),
            cpu: SegmentOffset(CPU_WORD),
            thread: THREAD,
            process: PROCESS,
            comm: COMM,
        }),
        clock: Some(MonotonicClock {
            factor: (2 << 32) / 5,
            offset: Addr(machine.address(GS + CLOCK_OFFSET)),
        }),
        // No processor has such a counter, and a process may read none.
        events: Events {
            counters: [
                (Event::Cycles, 0x3fff_fff0, 48),
                (Event::CacheMisses, 0x3fff_fff1, 64),
            ]
            .map(|(event, index, width)| EventCounter {
                event,
                index,
                width,
            })
            .into(),
            refused: Box::default(),
        },
        ..support::layout(machine, 0)
    }
}

/// Registers for a hit: at times small numbers.
pub(crate) fn state(machine: &Machine, random: &mut Random, _: &mut Model) -> State {
    let mut state = support::random_state(machine, random);
    for (number, register) in state.registers.iter_mut().enumerate() {
        if number != 4 && random.next().is_multiple_of(3) {
            *register >>= random.next() % 64;
        }
    }
    state
}

pub(crate) struct Model {
    program: Checked,
    homes: Homes,
    pub(crate) registers: [u64; 16],
    /// From the return address on.
    pub(crate) stack: Vec<u64>,
    words: Vec<u64>,
    /// Entries of the table of timers: owner and value.
    table: BTreeMap<u64, [u64; 2]>,
    no_room: u64,
    /// Values, and whether each is a further word of the one before.
    samples: Vec<(u64, bool)>,
    lost: u64,
    room: u64,
    /// For each sample of a hit, in order, the number of samples that are kept or lost together with it, if it is the
    /// first of them, or 0.
    groups: Vec<usize>,
    /// Samples of this hit.
    taken: usize,
    /// Set while a group is lost.
    is_lost: bool,
    id: InstrumentId,
    task: u64,
    memory: Vec<u8>,
    failed: u64,
    fields: [u64; 4],
}

impl Model {
    pub(crate) fn new(machine: &mut Machine, probed: &Probed, id: InstrumentId, room: u64) -> Self {
        let field = |machine: &mut Machine, at: u32| machine.word(SCRATCH + u64::from(at));
        Self {
            program: (*probed.checked).clone(),
            homes: (*probed.homes).clone(),
            registers: [0; 16],
            stack: Vec::new(),
            words: vec![0; 1000],
            table: BTreeMap::new(),
            no_room: 0,
            samples: Vec::new(),
            lost: 0,
            room,
            groups: groups(&probed.checked),
            taken: 0,
            is_lost: false,
            id,
            task: machine.address(SCRATCH),
            memory: machine.memory()[SCRATCH as usize..][..MEMORY].to_vec(),
            failed: 0,
            fields: [
                field(machine, THREAD) & 0xffff_ffff,
                field(machine, PROCESS) & 0xffff_ffff,
                field(machine, COMM),
                field(machine, COMM + 8),
            ],
        }
    }

    /// Begins a hit.
    pub(crate) fn begin(&mut self) {
        self.taken = 0;
    }

    pub(crate) fn compare(&self, machine: &mut Machine) {
        let failed = self.homes.failed.unwrap().slot;
        let found = machine.word(GS + COUNTERS + 8 * u64::from(failed));
        self.compare_failed(found);
        for (number, &word) in self.words.iter().enumerate() {
            if number == failed as usize {
                continue;
            }
            let no_room = self.homes.no_room.unwrap().slot as usize;
            let word = if number == no_room {
                self.no_room
            } else {
                word
            };
            let found = machine.word(GS + COUNTERS + 8 * number as u64);
            assert_eq!(found, word, "word {number}");
        }
        for (place, &(value, is_word)) in self.samples.iter().enumerate() {
            let serial = SERIAL + place as u64;
            if self.samples.len() - place <= 8 {
                let [mark, found, _, id] = slot(machine, serial);
                let own = self.id.pack() | if is_word { Sample::WORD } else { 0 };
                assert_eq!((mark, found, id), (support::head(serial), value, own));
            }
        }
        for (&entry, &words) in &self.table {
            let found = [0, 8].map(|word| machine.word(entry + word));
            assert_eq!(found, words, "entry {entry:#x}");
        }
        assert_eq!(machine.word(GS + LOST_FULL), self.lost);
    }

    /// A leaf that occurs twice in one step is read once, and an operand of `&&`, `||` and `?:` may be read
    /// although it is not needed.
    fn compare_failed(&self, found: u64) {
        let expressions = || self.program.probes.iter().flat_map(Probe::expressions);
        let loads = |expr: &Expr| {
            let mut loads = 0;
            expr.any(&mut |node| {
                loads += u64::from(matches!(
                    node.kind,
                    ExprKind::Load { .. } | ExprKind::Input(Input::Event(_))
                ));
                false
            });
            loads
        };
        let lazy = |node: &Expr| {
            let chooses = matches!(
                node.kind,
                ExprKind::And(..) | ExprKind::Or(..) | ExprKind::Select { .. }
            );
            chooses && node.operands().into_iter().map(loads).sum::<u64>() > 0
        };
        if expressions().any(|expr| expr.any(&mut |node| lazy(node))) {
            assert!(found > 0 || self.failed == 0, "{found} {}", self.failed);
        } else if expressions().all(|expr| loads(expr) < 2) {
            assert_eq!(found, self.failed);
        } else {
            assert!(found <= self.failed, "{found} {}", self.failed);
            assert_eq!(found > 0, self.failed > 0);
        }
    }

    /// The key of a variable in the table of timers, and where its entry is.
    fn keyed(&self, home: Home) -> (u64, u64) {
        let key = match home {
            Home::Thread(number) => self.task | u64::from(number),
            Home::Call(number) => self.registers[4] ^ u64::from(number) << 48,
            Home::Cpu(_) | Home::Shared(_) => panic!("{home:?}"),
        };
        let place = key.wrapping_mul(TIMER_FACTOR) >> (64 - TIMERS_LOG2);
        (key, TIMER_TABLE + TIMER_BYTES * place)
    }

    /// Entries that are others' before the first hit, by the bits of a number.
    pub(crate) fn crowd(&mut self, machine: &mut Machine, which: u64) {
        for place in (0..1 << TIMERS_LOG2).filter(|place| which >> place & 1 != 0) {
            let entry = TIMER_TABLE + TIMER_BYTES * place;
            let words = [0x1_0000_0001 << place, 77 + place];
            machine.set_word(entry, words[0]);
            machine.set_word(entry + 8, words[1]);
            self.table.insert(entry, words);
        }
    }

    fn word(&mut self, slot: CounterSlot) -> &mut u64 {
        &mut self.words[slot.slot as usize]
    }
}

/// The samples of a program that share a reservation: up to a quarter of the ring and to four that follow each other, each
/// of a small constant, of a register at the hook, of the block, or of the clock.
fn groups(program: &Checked) -> Vec<usize> {
    let is_at_hand = |expr: &Expr| match expr.kind {
        ExprKind::Constant(bits) => i32::try_from(bits).is_ok(),
        ExprKind::Input(Input::Argument(number)) => number < 6,
        ExprKind::Input(Input::Register(gpr)) => gpr != Gpr::Rsp,
        ExprKind::Input(Input::Returned | Input::Tsc | Input::Block) => true,
        _ => false,
    };
    let most = 4.min(1 << (support::SLOTS_LOG2 - 2));
    let mut groups: Vec<usize> = Vec::new();
    let mut first = None;
    for action in program.probes.iter().flat_map(|probe| &probe.actions) {
        let ActionKind::Sample(value) = &action.kind else {
            first = None;
            continue;
        };
        match first {
            Some(first) if is_at_hand(value) && groups[first] < most => {
                groups[first] += 1;
                groups.push(0);
            }
            _ => {
                first = is_at_hand(value).then_some(groups.len());
                groups.push(1);
            }
        }
    }
    groups
}

impl interpret::Machine for Model {
    fn input(&mut self, input: Input) -> u64 {
        match input {
            Input::Argument(number @ 6..) => self.stack[usize::from(number) - 5],
            Input::Argument(number) => self.registers[[7, 6, 2, 1, 8, 9][usize::from(number)]],
            Input::Returned => self.registers[0],
            Input::Register(gpr) => {
                self.registers[Gpr::ALL.iter().position(|known| *known == gpr).unwrap()]
            }
            Input::Task => self.task,
            Input::Tid => self.fields[0],
            Input::Pid => self.fields[1],
            Input::Comm(Half::First) => self.fields[2],
            Input::Comm(Half::Second) => self.fields[3],
            Input::Cpu => CPU,
            Input::Block => self.id.block.into(),
            Input::Identifier => self.id.pack(),
            // A process may not read it: as where there is none.
            Input::Event(_) => {
                self.failed += 1;
                0
            }
            Input::Tsc | Input::Nsecs => panic!("clocks have tests of their own"),
            Input::KernelStack(_) | Input::UserStack(_) => {
                panic!("a process has no code that reads stacks")
            }
        }
    }

    fn load(&mut self, address: u64, width: Width) -> Option<u64> {
        let from = usize::try_from(address.checked_sub(self.task)?).ok()?;
        let bytes = self
            .memory
            .get(from..from.checked_add(width.bytes() as usize)?)?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    fn user(&mut self, _: UserRead, _: u64) -> Option<u64> {
        panic!("a process has no code that reads processes")
    }

    fn read(&mut self, variable: VariableId) -> u64 {
        match self.homes.variables[variable] {
            Home::Cpu(slot) | Home::Shared(slot) => *self.word(slot),
            home => {
                let (key, entry) = self.keyed(home);
                let [owner, value] = self.table.get(&entry).copied().unwrap_or_default();
                if owner == key { value } else { 0 }
            }
        }
    }

    fn write(&mut self, variable: VariableId, value: u64) {
        match self.homes.variables[variable] {
            Home::Cpu(slot) | Home::Shared(slot) => *self.word(slot) = value,
            home => {
                let (key, entry) = self.keyed(home);
                let words = self.table.entry(entry).or_default();
                match (words[0] == key, value) {
                    (true, 0) => *words = [0, 0],
                    (false, 0) => {}
                    (own, _) if own || words[0] == 0 => *words = [key, value],
                    _ => self.no_room += 1,
                }
            }
        }
    }

    fn update(&mut self, aggregate: AggregateId, values: &[u64]) {
        let first = self.homes.aggregates[aggregate].slot as usize;
        let aggregate = self.program.aggregates[aggregate].clone();
        let words = &mut self.words[first..first + aggregate.words() as usize];
        aggregate.update(words, values);
    }

    fn sample(&mut self, words: &[u64]) {
        let group = self.groups[self.taken];
        self.taken += 1;
        if group > 0 {
            let all = self.samples.len() + group.max(words.len());
            self.is_lost = all as u64 > self.room;
        }
        if self.is_lost {
            self.lost += 1;
            return;
        }
        let words = words.iter().enumerate();
        self.samples
            .extend(words.map(|(place, &word)| (word, place > 0)));
    }

    fn fault(&mut self) {
        self.failed += 1;
    }
}
