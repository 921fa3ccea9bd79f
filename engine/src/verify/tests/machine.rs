//! One instruction on numbers.

use std::collections::HashMap;

use iced_x86::{
    ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    RflagsBits,
};

use super::interpreter::PatchWorld;
use crate::layout::RuntimeLayout;

const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;
pub(super) const RSP: usize = 4;

fn hash(seed: u64, of: u64) -> u64 {
    let mut x = (seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x1234_5678_9abc_def1);
    for shift in [30, 27, 31] {
        x = (x ^ (x >> shift)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    x ^ (x >> 33)
}

/// A processor with a patch on it.
pub(super) struct Interpreter<'a> {
    layout: &'a RuntimeLayout,
    world: PatchWorld,
    pub(super) cpu: usize,
    pub(super) ip: u64,
    tsc: u64,
    pub(super) registers: [u64; 16],
    pub(super) flags: u32,
    /// By space (0 and 1 per-CPU, 2 memory) and address.
    pub(super) written: HashMap<(usize, u64), u64>,
    pub(super) others: Vec<String>,
    info: InstructionInfoFactory,
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(layout: &'a RuntimeLayout, ip: u64, world: &PatchWorld) -> Self {
        Interpreter {
            layout,
            world: world.clone(),
            cpu: 0,
            ip,
            tsc: hash(world.seed, 1) >> 8,
            registers: world.registers,
            flags: world.flags,
            written: HashMap::new(),
            others: Vec::new(),
            info: InstructionInfoFactory::new(),
        }
    }

    /// An interrupt handler with a splice in it: it takes a slot, and the stack below the pointer.
    pub(super) fn interrupt(&mut self) {
        let (head, limit) = (
            self.load(self.cpu, self.layout.rings.head.0),
            self.load(self.cpu, self.layout.rings.limit.0),
        );
        if head != limit {
            self.store(self.cpu, self.layout.rings.head.0, head + 1);
        }
        for word in 1..64 {
            let place = self.registers[RSP].wrapping_sub(8 * word);
            self.store(2, place, 0xdead_dead_dead_dead);
        }
        self.tsc += 1000;
    }

    fn load(&self, space: usize, at: u64) -> u64 {
        let given = if space < 2 {
            self.world.gs[space].get(&at)
        } else {
            self.world.memory.get(&at)
        };
        let known = self.written.get(&(space, at)).or(given);
        known
            .copied()
            .unwrap_or_else(|| hash(self.world.seed, at.wrapping_add(space as u64)))
    }

    fn store(&mut self, space: usize, at: u64, word: u64) {
        self.written.insert((space, at), word);
    }

    fn place(&self, i: &Instruction) -> (usize, u64) {
        let address = i
            .virtual_address(op_of_memory(i), 0, |register, _, _| match register {
                Register::GS
                | Register::FS
                | Register::DS
                | Register::ES
                | Register::CS
                | Register::SS => Some(0),
                _ => Some(self.get(register)),
            })
            .unwrap();
        (
            if i.memory_segment() == Register::GS {
                self.cpu
            } else {
                2
            },
            address,
        )
    }

    fn get(&self, register: Register) -> u64 {
        let word = self.registers[register.full_register().number()];
        match register.size() {
            8 => word,
            4 => word & 0xffff_ffff,
            _ => hash(word, 3),
        }
    }

    fn set(&mut self, register: Register, word: u64) {
        self.registers[register.full_register().number()] = if register.size() == 4 {
            word & 0xffff_ffff
        } else {
            word
        };
    }

    /// An operand of four or eight bytes.
    fn operand(&self, i: &Instruction, operand: u32) -> u64 {
        match i.op_kind(operand) {
            OpKind::Register => self.get(i.op_register(operand)),
            OpKind::Memory => {
                let (space, at) = self.place(i);
                let word = self.load(space, at);
                if i.memory_size().size() == 4 {
                    word & 0xffff_ffff
                } else {
                    word
                }
            }
            _ => i.immediate(operand),
        }
    }

    fn put(&mut self, i: &Instruction, word: u64) {
        if i.op0_kind() == OpKind::Register {
            self.set(i.op0_register(), word);
        } else {
            let (space, at) = self.place(i);
            let whole = self.load(space, at);
            self.store(
                space,
                at,
                if i.memory_size().size() == 4 {
                    whole & !0xffff_ffff | word & 0xffff_ffff
                } else {
                    word
                },
            );
        }
    }

    fn push(&mut self, word: u64) {
        self.registers[RSP] = self.registers[RSP].wrapping_sub(8);
        self.store(2, self.registers[RSP], word);
    }

    fn pop(&mut self) -> u64 {
        let word = self.load(2, self.registers[RSP]);
        self.registers[RSP] = self.registers[RSP].wrapping_add(8);
        word
    }

    fn result(&mut self, bits: u32, word: u64, carry: bool, overflow: bool, adjust: bool) {
        let word = word & (u64::MAX >> (64 - bits));
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        self.flags = flag(carry, RflagsBits::CF)
            | flag(overflow, RflagsBits::OF)
            | flag(adjust, RflagsBits::AF)
            | flag(word == 0, RflagsBits::ZF)
            | flag(word >> (bits - 1) & 1 == 1, RflagsBits::SF)
            | flag((word & 0xff).count_ones().is_multiple_of(2), RflagsBits::PF);
    }

    fn holds(&self, condition: ConditionCode) -> bool {
        let is = |flag: u32| self.flags & flag != 0;
        let (carry, zero, sign, overflow, parity) = (
            is(RflagsBits::CF),
            is(RflagsBits::ZF),
            is(RflagsBits::SF),
            is(RflagsBits::OF),
            is(RflagsBits::PF),
        );
        match condition {
            ConditionCode::o => overflow,
            ConditionCode::no => !overflow,
            ConditionCode::b => carry,
            ConditionCode::ae => !carry,
            ConditionCode::e => zero,
            ConditionCode::ne => !zero,
            ConditionCode::be => carry || zero,
            ConditionCode::a => !(carry || zero),
            ConditionCode::s => sign,
            ConditionCode::ns => !sign,
            ConditionCode::p => parity,
            ConditionCode::np => !parity,
            ConditionCode::l => sign != overflow,
            ConditionCode::ge => sign == overflow,
            ConditionCode::le => zero || sign != overflow,
            ConditionCode::g => !zero && sign == overflow,
            ConditionCode::None => true,
        }
    }

    /// `None` where the run ends for good.
    pub(super) fn step(&mut self, i: &Instruction) -> Option<()> {
        let size = if i.op0_kind() == OpKind::Memory && i.op_count() > 0 {
            i.memory_size().size()
        } else {
            i.op0_register().size()
        };
        let plain = matches!(size, 4 | 8) && !i.has_rep_prefix() && !i.has_repne_prefix();
        let bits = size as u32 * 8;
        let cut = |word: u64| if bits == 32 { word & 0xffff_ffff } else { word };
        match i.mnemonic() {
            Mnemonic::INVALID | Mnemonic::Int3 | Mnemonic::Ud2 => return None,
            Mnemonic::Nop => {}
            Mnemonic::Jmp if i.is_jmp_short_or_near() => self.ip = i.near_branch_target(),
            _ if i.is_jcc_short_or_near() => {
                if self.holds(i.condition_code()) {
                    self.ip = i.near_branch_target();
                }
            }
            Mnemonic::Ret => {
                self.ip = self.pop();
                self.others.push(format!("{i}"));
            }
            Mnemonic::Jrcxz if self.registers[1] == 0 => self.ip = i.near_branch_target(),
            Mnemonic::Jrcxz => {}
            Mnemonic::Loop => {
                self.registers[1] = self.registers[1].wrapping_sub(1);
                if self.registers[1] != 0 {
                    self.ip = i.near_branch_target();
                }
            }
            Mnemonic::Lahf => {
                let low = self.flags & STATUS & !RflagsBits::OF;
                self.registers[0] = self.registers[0] & !0xff00 | u64::from(low) << 8;
            }
            Mnemonic::Seto if i.op0_register() == Register::AL => {
                let overflow = self.flags & RflagsBits::OF != 0;
                self.registers[0] = self.registers[0] & !0xff | u64::from(overflow);
            }
            Mnemonic::Add if i.op0_register() == Register::AL => {
                let (a, b) = (self.registers[0] as u8, i.immediate8());
                let sum = a.wrapping_add(b);
                let overflow = (a ^ sum) & (b ^ sum) & 0x80 != 0;
                self.result(8, sum.into(), sum < a, overflow, (a ^ b ^ sum) & 16 != 0);
                self.registers[0] = self.registers[0] & !0xff | u64::from(sum);
            }
            Mnemonic::Sahf => {
                let low = (self.registers[0] >> 8) as u32 & STATUS & !RflagsBits::OF;
                self.flags = self.flags & RflagsBits::OF | low;
            }
            Mnemonic::Push
                if i.stack_pointer_increment() == -8 && i.op0_kind() != OpKind::Memory =>
            {
                self.push(self.operand(i, 0));
            }
            Mnemonic::Pop if size == 8 && i.op0_kind() == OpKind::Register => {
                let word = self.pop();
                self.set(i.op0_register(), word);
            }
            Mnemonic::Rdtsc => {
                self.tsc += 7;
                self.registers[0] = self.tsc & 0xffff_ffff;
                self.registers[2] = self.tsc >> 32;
            }
            Mnemonic::Mov if plain && i.op1_register().size() != 2 => {
                self.put(i, self.operand(i, 1));
            }
            Mnemonic::Lea if plain => {
                let address = i.virtual_address(1, 0, |register, _, _| {
                    Some(if register.is_segment_register() {
                        0
                    } else {
                        self.get(register)
                    })
                });
                self.set(i.op0_register(), address.unwrap());
            }
            Mnemonic::Add | Mnemonic::Inc if plain => {
                let (a, b) = (
                    self.operand(i, 0),
                    if i.op_count() == 1 {
                        1
                    } else {
                        cut(self.operand(i, 1))
                    },
                );
                let (word, carry) = (cut(a.wrapping_add(b)), self.flags & RflagsBits::CF);
                self.result(
                    bits,
                    word,
                    word < a,
                    (a ^ word) & (b ^ word) & 1 << (bits - 1) != 0,
                    (a ^ b ^ word) & 16 != 0,
                );
                self.keep_carry(i, carry);
                self.put(i, word);
            }
            Mnemonic::Sub | Mnemonic::Cmp | Mnemonic::Dec if plain => {
                let (a, b) = (
                    self.operand(i, 0),
                    if i.op_count() == 1 {
                        1
                    } else {
                        cut(self.operand(i, 1))
                    },
                );
                let (word, carry) = (cut(a.wrapping_sub(b)), self.flags & RflagsBits::CF);
                self.result(
                    bits,
                    word,
                    a < b,
                    (a ^ b) & (a ^ word) & 1 << (bits - 1) != 0,
                    (a ^ b ^ word) & 16 != 0,
                );
                self.keep_carry(i, carry);
                if i.mnemonic() != Mnemonic::Cmp {
                    self.put(i, word);
                }
            }
            Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test if plain => {
                let (a, b) = (self.operand(i, 0), cut(self.operand(i, 1)));
                let word = match i.mnemonic() {
                    Mnemonic::Or => a | b,
                    Mnemonic::Xor => a ^ b,
                    _ => a & b,
                };
                self.result(bits, word, false, false, false);
                if i.mnemonic() != Mnemonic::Test {
                    self.put(i, word);
                }
            }
            Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Shrd
                if plain && i.op_kind(i.op_count() - 1) != OpKind::Register =>
            {
                let (a, by) = (
                    self.operand(i, 0),
                    i.immediate(i.op_count() - 1) as u32 & (bits - 1),
                );
                if by != 0 {
                    let word = match i.mnemonic() {
                        Mnemonic::Shl => cut(a << by),
                        Mnemonic::Shr => a >> by,
                        _ => a >> by | cut(self.operand(i, 1) << (bits - by)),
                    };
                    self.result(
                        bits,
                        word,
                        hash(word, 5) & 1 != 0,
                        hash(word, 6) & 1 != 0,
                        false,
                    );
                    self.put(i, word);
                }
            }
            Mnemonic::Rol if plain && i.op1_kind() != OpKind::Register => {
                let (a, by) = (self.operand(i, 0), i.immediate(1) as u32 & (bits - 1));
                if by != 0 {
                    let word = cut(a << by) | a >> (bits - by);
                    // The carry is the bit that went round; the overflow is anyone's guess.
                    let changed = RflagsBits::CF | RflagsBits::OF;
                    self.flags = self.flags & !changed | hash(word, 5) as u32 & changed;
                    self.put(i, word);
                }
            }
            Mnemonic::Imul if plain && i.op_count() >= 2 => {
                let last = self.operand(i, i.op_count() - 1);
                let word = cut(self.operand(i, i.op_count() - 2).wrapping_mul(last));
                self.result(bits, word, hash(word, 5) & 1 != 0, false, false);
                self.set(i.op0_register(), word);
            }
            Mnemonic::Cmpxchg if plain && size == 8 => {
                let (known, old, new) = (self.operand(i, 0), self.registers[0], self.operand(i, 1));
                self.result(64, old.wrapping_sub(known), old < known, false, false);
                if old == known {
                    self.put(i, new);
                } else {
                    self.registers[0] = known;
                }
            }
            _ => self.other(i),
        }
        Some(())
    }

    fn keep_carry(&mut self, i: &Instruction, carry: u32) {
        if matches!(i.mnemonic(), Mnemonic::Inc | Mnemonic::Dec) {
            self.flags = self.flags & !RflagsBits::CF | carry;
        }
    }

    /// Anything else does something that depends on what it reads.
    fn other(&mut self, i: &Instruction) {
        let used: Vec<_> = self
            .info
            .info(i)
            .used_registers()
            .iter()
            .copied()
            .filter(|used| used.register().is_gpr())
            .collect();
        let mut did = format!("{:?} {:?}", i.code(), i.flow_control());
        if i.is_ip_rel_memory_operand() {
            did.push_str(&format!(" [{:#x}]", i.ip_rel_memory_address()));
        } else {
            did.push_str(&format!(" [{:#x}]", i.memory_displacement64()));
        }
        for operand in (0..i.op_count()).filter(|&operand| i.try_immediate(operand).is_ok()) {
            did.push_str(&format!(" {:#x}", i.immediate(operand)));
        }
        for used in &used {
            did.push_str(&format!(" {:?}", used.register()));
            if !matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::None | OpAccess::NoMemAccess
            ) {
                did.push_str(&format!(
                    "={:#x}",
                    self.registers[used.register().full_register().number()]
                ));
            }
        }
        did.push_str(&format!(" flags {:#x}", self.flags & i.rflags_read()));
        let effect = did.bytes().fold(7, |all, byte| hash(all, byte.into()));
        for used in used
            .iter()
            .filter(|used| !matches!(used.access(), OpAccess::Read | OpAccess::CondRead))
        {
            let number = used.register().full_register().number();
            if number != RSP {
                self.registers[number] = hash(effect, number as u64);
            }
        }
        self.flags =
            self.flags & !i.rflags_modified() | effect as u32 & i.rflags_modified() & STATUS;
        self.others.push(did);
    }
}

fn op_of_memory(i: &Instruction) -> u32 {
    (0..i.op_count())
        .find(|&operand| i.op_kind(operand) == OpKind::Memory)
        .unwrap_or(0)
}
