//! Classic BPF (McCanne and Jacobson, 1993): programs that say whether a packet is meant.
//!
//! A program comes from outside. [`Program::new`] refuses what could read or jump out of place, so
//! that [`Program::matches`] ends after at most as many steps as the program has instructions, as
//! jumps lead forward only, and never fails. What it means is as in libpcap.

use thiserror::Error;

/// The most instructions of a program, as in the kernel (`BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4096;

/// Words of memory that a program has (`BPF_MEMWORDS`).
const MEMORY: usize = 16;

/// One instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// What is done.
    pub code: u16,
    /// How many instructions are left out if a condition is true.
    pub jump_true: u8,
    /// How many are left out if it is false.
    pub jump_false: u8,
    /// A constant, an offset, or a place in the memory.
    pub constant: u32,
}

/// A program that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Box<[Instruction]>);

/// What is wrong with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProgramError {
    /// It has no instructions, or too many.
    #[error("a program has 1 to {MAX_INSTRUCTIONS} instructions, and this has {0}")]
    Length(usize),
    /// An instruction is none.
    #[error("instruction {at}: {code:#06x} is no instruction of classic BPF")]
    Code {
        /// Its place, from 0.
        at: usize,
        /// What it says.
        code: u16,
    },
    /// A jump leads behind the end.
    #[error("instruction {0} jumps behind the end")]
    Jump(usize),
    /// A memory slot does not exist.
    #[error("instruction {at}: there are {MEMORY} words of memory, and no word {slot}")]
    Memory {
        /// Its place, from 0.
        at: usize,
        /// The slot.
        slot: u32,
    },
    /// A constant divisor is zero.
    #[error("instruction {0} divides by zero")]
    Division(usize),
    /// A constant shift is longer than a word.
    #[error("instruction {at} shifts by {by} bits, and a word has 32")]
    Shift {
        /// Its place, from 0.
        at: usize,
        /// How far.
        by: u32,
    },
    /// The last instruction does not end the program.
    #[error("the last instruction is no `ret`")]
    End,
}

// The parts of an instruction's code, by their names in <pcap/bpf.h>.
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;

const W: u16 = 0x00;
const H: u16 = 0x08;
const B: u16 = 0x10;

const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;

const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const MOD: u16 = 0x90;
const XOR: u16 = 0xa0;

const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;

/// The operand is X, not the constant.
const X: u16 = 0x08;
/// `ret` returns A, not the constant.
const A: u16 = 0x10;
const TAX: u16 = 0x00;
const TXA: u16 = 0x80;

impl Program {
    /// A program of these instructions.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(instructions: Vec<Instruction>) -> Result<Self, ProgramError> {
        let length = instructions.len();
        if length == 0 || length > MAX_INSTRUCTIONS {
            return Err(ProgramError::Length(length));
        }
        for (at, instruction) in instructions.iter().enumerate() {
            check(at, instruction, length)?;
        }
        match instructions.last().map(|last| last.code & 7) {
            Some(RET) => Ok(Self(instructions.into_boxed_slice())),
            _ => Err(ProgramError::End),
        }
    }

    /// How many instructions it has.
    #[allow(clippy::len_without_is_empty, reason = "a program is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a packet is meant. What is read behind its end ends the program with no, and so does
    /// a division by an X of zero.
    pub fn matches(&self, packet: &[u8]) -> bool {
        self.run(packet).is_some_and(|result| result != 0)
    }

    /// `None` where the program ends early.
    fn run(&self, packet: &[u8]) -> Option<u32> {
        let (mut a, mut x) = (0_u32, 0_u32);
        let mut memory = [0_u32; MEMORY];
        let mut at = 0;
        while let Some(instruction) = self.0.get(at) {
            at += 1;
            let &Instruction { code, constant: k, .. } = instruction;
            match code & 7 {
                LD => {
                    a = match code & 0xe0 {
                        IMM => k,
                        ABS => load(packet, code, k)?,
                        IND => load(packet, code, x.checked_add(k)?)?,
                        MEM => *memory.get(k as usize)?,
                        _ => packet.len() as u32,
                    }
                }
                LDX => {
                    x = match code & 0xe0 {
                        IMM => k,
                        MEM => *memory.get(k as usize)?,
                        MSH => (u32::from(*packet.get(k as usize)?) & 0xf) << 2,
                        _ => packet.len() as u32,
                    }
                }
                ST => *memory.get_mut(k as usize)? = a,
                STX => *memory.get_mut(k as usize)? = x,
                ALU => a = compute(code, a, if code & X != 0 { x } else { k })?,
                JMP if code & 0xf0 == JA => at = at.checked_add(k as usize)?,
                JMP => {
                    let operand = if code & X != 0 { x } else { k };
                    let is_true = match code & 0xf0 {
                        JEQ => a == operand,
                        JGT => a > operand,
                        JGE => a >= operand,
                        _ => a & operand != 0,
                    };
                    at += usize::from(match is_true {
                        true => instruction.jump_true,
                        false => instruction.jump_false,
                    });
                }
                RET => return Some(if code & 0x18 == A { a } else { k }),
                _ if code & 0xf8 == TAX => x = a,
                _ => a = x,
            }
        }
        None
    }
}

/// A big-endian number of a packet.
fn load(packet: &[u8], code: u16, at: u32) -> Option<u32> {
    let rest = packet.get(at as usize..)?;
    Some(match code & 0x18 {
        W => u32::from_be_bytes(*rest.first_chunk()?),
        H => u16::from_be_bytes(*rest.first_chunk()?).into(),
        _ => (*rest.first()?).into(),
    })
}

fn compute(code: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        ADD => a.wrapping_add(operand),
        SUB => a.wrapping_sub(operand),
        MUL => a.wrapping_mul(operand),
        DIV => a.checked_div(operand)?,
        MOD => a.checked_rem(operand)?,
        OR => a | operand,
        AND => a & operand,
        XOR => a ^ operand,
        LSH => a.checked_shl(operand).unwrap_or(0),
        RSH => a.checked_shr(operand).unwrap_or(0),
        _ => a.wrapping_neg(),
    })
}

fn check(at: usize, instruction: &Instruction, length: usize) -> Result<(), ProgramError> {
    let &Instruction { code, jump_true, jump_false, constant: k } = instruction;
    let is_known = match code & 7 {
        // Numbers of the packet have a size, and the others are words.
        LD => match code & !0x18 {
            ABS | IND => code & 0x18 != 0x18,
            IMM | MEM | LEN => code & 0x18 == W,
            _ => false,
        },
        LDX => [IMM, MEM, LEN].map(|mode| LDX | mode).contains(&code) || code == LDX | MSH | B,
        ST | STX => code & !7 == 0,
        ALU => match code & !(7 | X) {
            NEG => code & X == 0,
            operation => [ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, MOD, XOR].contains(&operation),
        },
        JMP => match code & !(7 | X) {
            JA => code & X == 0,
            condition => [JEQ, JGT, JGE, JSET].contains(&condition),
        },
        RET => code & !7 == 0 || code & !7 == A,
        _ => code == MISC | TAX || code == MISC | TXA,
    };
    if !is_known {
        return Err(ProgramError::Code { at, code });
    }
    let uses_memory =
        matches!(code & 7, ST | STX) || (matches!(code & 7, LD | LDX) && code & 0xe0 == MEM);
    if uses_memory && k as usize >= MEMORY {
        return Err(ProgramError::Memory { at, slot: k });
    }
    if code & 7 == ALU && code & X == 0 {
        match code & 0xf0 {
            DIV | MOD if k == 0 => return Err(ProgramError::Division(at)),
            LSH | RSH if k >= 32 => return Err(ProgramError::Shift { at, by: k }),
            _ => {}
        }
    }
    if code & 7 == JMP {
        let left = length - at - 1;
        let farthest = match code & 0xf0 {
            JA => k as usize,
            _ => usize::from(jump_true.max(jump_false)),
        };
        if farthest >= left {
            return Err(ProgramError::Jump(at));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(lines: &[(u16, u8, u8, u32)]) -> Result<Program, ProgramError> {
        let instruction = |&(code, jump_true, jump_false, constant): &(u16, u8, u8, u32)| {
            Instruction { code, jump_true, jump_false, constant }
        };
        Program::new(lines.iter().map(instruction).collect())
    }

    /// `tcpdump -ddd -y RAW 'ip and udp dst port 53'`.
    const DNS: &[(u16, u8, u8, u32)] = &[
        (48, 0, 0, 0),
        (84, 0, 0, 240),
        (21, 0, 8, 64),
        (48, 0, 0, 9),
        (21, 0, 6, 17),
        (40, 0, 0, 6),
        (69, 4, 0, 8191),
        (177, 0, 0, 0),
        (72, 0, 0, 2),
        (21, 0, 1, 53),
        (6, 0, 0, 262_144),
        (6, 0, 0, 0),
    ];

    #[test]
    fn a_program_of_tcpdump_finds_its_packets() {
        let program = of(DNS).unwrap();
        let mut packet = [0_u8; 28];
        (packet[0], packet[9], packet[23]) = (0x45, 17, 53);
        assert!(program.matches(&packet));
        // With options, the ports are elsewhere.
        packet[0] = 0x46;
        assert!(!program.matches(&packet));
        for (at, other) in [(0, 0x65), (9, 6), (23, 54), (7, 1)] {
            let mut packet = packet;
            packet[0] = 0x45;
            packet[at] = other;
            assert!(!program.matches(&packet), "{at}");
        }
        for length in 0..24 {
            packet[0] = 0x45;
            assert!(!program.matches(&packet[..length]), "{length}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let end = (RET, 0, 0, 0);
        for (lines, error) in [
            (vec![], ProgramError::Length(0)),
            (vec![end; MAX_INSTRUCTIONS + 1], ProgramError::Length(MAX_INSTRUCTIONS + 1)),
            (vec![(0xff, 0, 0, 0), end], ProgramError::Code { at: 0, code: 0xff }),
            (vec![(0x100, 0, 0, 0), end], ProgramError::Code { at: 0, code: 0x100 }),
            (vec![end, (JMP | JEQ, 0, 1, 0), end], ProgramError::Jump(1)),
            (vec![(JMP | JA, 0, 0, u32::MAX), end], ProgramError::Jump(0)),
            (vec![(ST, 0, 0, 16), end], ProgramError::Memory { at: 0, slot: 16 }),
            (vec![(ALU | DIV, 0, 0, 0), end], ProgramError::Division(0)),
            (vec![(ALU | MOD, 0, 0, 0), end], ProgramError::Division(0)),
            (vec![(ALU | LSH, 0, 0, 32), end], ProgramError::Shift { at: 0, by: 32 }),
            (vec![end, (LD | IMM, 0, 0, 1)], ProgramError::End),
        ] {
            assert_eq!(of(&lines), Err(error));
        }
        assert!(of(&vec![end; MAX_INSTRUCTIONS]).is_ok());
    }

    #[test]
    fn what_only_a_packet_tells_ends_it_with_no() {
        let yes = (RET, 0, 0, 1);
        // X is zero.
        assert!(!of(&[(ALU | DIV | X, 0, 0, 0), yes]).unwrap().matches(&[]));
        assert!(!of(&[(LDX, 0, 0, u32::MAX), (LD | IND | B, 0, 0, 1), yes]).unwrap().matches(&[1]));
        assert!(of(&[(LD | LEN, 0, 0, 0), (RET | A, 0, 0, 0)]).unwrap().matches(&[0]));
        assert!(!of(&[(LD | LEN, 0, 0, 0), (RET | A, 0, 0, 0)]).unwrap().matches(&[]));
        // As libpcap has it: a shift by more than a word leaves nothing.
        let shift = [(LDX, 0, 0, 40), (LD, 0, 0, 1), (ALU | LSH | X, 0, 0, 0), (RET | A, 0, 0, 0)];
        assert!(!of(&shift).unwrap().matches(&[]));
    }

    /// Any instruction, most of them good.
    fn instruction() -> impl Strategy<Value = Instruction> {
        let code = prop_oneof![9 => 0_u16..0x100, 1 => any::<u16>()];
        let constant = prop_oneof![6 => 0_u32..20, 1 => any::<u32>()];
        (code, 0_u8..6, 0_u8..6, constant).prop_map(|(code, jump_true, jump_false, constant)| {
            Instruction { code, jump_true, jump_false, constant }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Whatever comes, the check returns, and what passes it ends on every packet.
        #[test]
        fn no_program_and_no_packet_does_harm(
            any_program in proptest::collection::vec(instruction(), 0..12),
            packet in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = Program::new(any_program.clone());
            // Of such as are good by themselves, many programs are.
            let mut good: Vec<_> = any_program
                .into_iter()
                .filter(|instruction| check(0, instruction, 300).is_ok())
                .collect();
            let returns = Instruction { code: RET, constant: 1, ..Instruction::default() };
            good.extend([returns; 20]);
            if let Ok(program) = Program::new(good) {
                program.matches(&packet);
            }
        }
    }
}
