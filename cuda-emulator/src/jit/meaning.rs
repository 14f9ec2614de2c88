// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The semantics of an instruction, looked up by the address of its handler. Only the constructors of `execute`
//! create handlers: two equal function pointers do the same with the same operands, so the translation of one is
//! valid for the other. A handler that is not in the list is called, which is slower and never wrong.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::code::{Handler, Instr};
use crate::execute::compare::{combine, compare, select};
use crate::execute::float::{self, Extremum, Modifiers};
use crate::execute::load_store::{Transfer, select_load, select_store};
use crate::execute::moves::{self, Symbol};
use crate::execute::round::Rounding;
use crate::execute::{bits, control, convert, integer, special, warp_ops};
use crate::ptx::types::Type;

/// The instructions that are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// No known operation: the handler is called.
    Call,
    Nothing,
    /// The thread ends.
    Exit,
    /// `ops[0] = op(ops[1], …)`, lane by lane.
    Lane(Op),
    /// The predicate `ops[0] = ops[1] test ops[2]`.
    Compare(Test, Scalar),
    /// `ops[0] = ops[3] ? ops[1] : ops[2]`, bytes of a lane.
    Select(u8),
    /// The predicate `ops[0]` from `ops[1]` and `ops[2]`.
    Logic(Logic),
    /// A special register to `ops[0]`.
    Special(Special),
    /// The address of a variable to `ops[0]`, bytes of a lane.
    Address(Symbol, u8),
    Load(Element),
    Store(Element),
    /// From the kernel's parameters.
    LoadParam(Element),
    /// shfl.sync, by the first letter of its mode.
    Shuffle(u8),
}

/// An element in memory and the register it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) bytes: u8,
    pub(super) register: u8,
    pub(super) signed: bool,
}

/// The type of an operation, by its bytes in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    /// Bytes, signed.
    Int(u8, bool),
    /// f16; the instruction's parameter has the test.
    F16,
    F32,
    F64,
}

impl Scalar {
    pub(super) fn bytes(self) -> u8 {
        match self {
            Scalar::Int(bytes, _) => bytes,
            Scalar::F16 => 2,
            Scalar::F32 => 4,
            Scalar::F64 => 8,
        }
    }
}

/// Comparisons: less, equal, greater and unordered, a bit each, as [`crate::execute::compare::operator_imm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Test(pub(super) u8);

impl Test {
    /// The same of swapped operands: less and greater change places.
    pub(super) fn swapped(self) -> Test {
        Test(self.0 & !5 | (self.0 & 1) << 2 | self.0 >> 2 & 1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logic {
    And,
    Or,
    Xor,
    Not,
    Copy,
}

/// Special registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    /// threadIdx of an axis.
    Thread(u8),
    /// blockDim.
    BlockSize(u8),
    /// blockIdx.
    Block(u8),
    /// gridDim.
    GridSize(u8),
    Lane,
}

/// Lane-wise operations; `u8` is bytes of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Copy(u8),
    Add(u8),
    Sub(u8),
    Mul(u8),
    /// Product of the first two, plus the third.
    MulAdd(u8),
    And(u8),
    Or(u8),
    Xor(u8),
    Not(u8),
    Neg(u8),
    Abs(u8),
    Min(u8, bool),
    Max(u8, bool),
    Shl(u8),
    Shr(u8, bool),
    /// Adds `imm` (64 bits).
    AddImm,
    /// From 32 to 64 bits.
    Widen(bool),
    /// The low 32 of 64 bits.
    Low,
    High,
    /// 64 bits from two times 32, the low ones first.
    Join,
    /// 64-bit product of 32-bit factors.
    MulWide(bool),
    MulAddWide(bool),
    FAdd,
    FSub,
    FMul,
    FDiv,
    FMulAdd,
    FSqrt,
    FRecip,
    FRsqrt,
    FNeg,
    FAbs,
    FMin,
    FMax,
    /// f32 from an integer of 32 bits.
    FromInt(bool),
    /// An integer of 32 bits from f32, towards zero, saturating.
    ToInt(bool),
    /// The upper half of a 64-bit product of 32-bit factors.
    MulHigh(bool),
    DAdd,
    DSub,
    DMul,
    DDiv,
    DMulAdd,
    DSqrt,
    DNeg,
    DAbs,
    /// f64 from f32.
    Promote,
    /// f32 from f64.
    Demote,
    /// f64 from a signed integer of 32 bits.
    DFromInt,
    Field(Field),
    /// 32 bits from two times 16, the low ones first.
    JoinShorts,
    /// The operation of lop3 with this truth table.
    Table(u8),
    /// shf.wrap: to the left or to the right.
    Funnel(bool),
    /// f32 from f16.
    FromHalf,
    /// f16 from f32.
    ToHalf,
    /// f32 from bfloat16.
    FromBrain,
    /// Arithmetic on f16, or on pairs.
    Half(HalfOp, bool),
}

/// Some bits of a register of `from` bytes, extended to one of `to` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) shift: u8,
    /// 8, 16 or 32, in one half of 64 bits.
    pub(super) bits: u8,
    pub(super) signed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HalfOp {
    Add,
    Sub,
    Mul,
    MulAdd,
    Neg,
    Abs,
}

impl Op {
    /// Bytes of the result.
    pub(super) fn bytes(self) -> u8 {
        match self {
            Op::Copy(n) | Op::Add(n) | Op::Sub(n) | Op::Mul(n) | Op::MulAdd(n) | Op::And(n) | Op::Or(n) => n,
            Op::Xor(n) | Op::Not(n) | Op::Neg(n) | Op::Abs(n) | Op::Min(n, _) | Op::Max(n, _) => n,
            Op::Shl(n) | Op::Shr(n, _) => n,
            Op::AddImm | Op::Widen(_) | Op::Join | Op::MulWide(_) | Op::MulAddWide(_) => 8,
            Op::DAdd | Op::DSub | Op::DMul | Op::DDiv | Op::DMulAdd | Op::DSqrt | Op::DNeg | Op::DAbs => 8,
            Op::Promote | Op::DFromInt => 8,
            Op::Field(field) => field.to,
            Op::ToHalf | Op::Half(_, false) => 2,
            _ => 4,
        }
    }

    /// Bytes of operand `index`.
    pub(super) fn source_bytes(self, index: usize) -> u8 {
        match self {
            Op::Widen(_) | Op::Join | Op::MulWide(_) | Op::Promote | Op::DFromInt => 4,
            Op::MulAddWide(_) => [4, 4, 8][index],
            Op::Low | Op::High | Op::Demote => 8,
            Op::Field(field) => field.from,
            Op::JoinShorts | Op::FromHalf | Op::FromBrain => 2,
            Op::ToHalf => 4,
            Op::Shl(n) | Op::Shr(n, _) => [n, 4][index],
            op => op.bytes(),
        }
    }

    /// The number of its operands.
    pub(super) fn sources(self) -> usize {
        match self {
            Op::MulAdd(_) | Op::MulAddWide(_) | Op::FMulAdd | Op::DMulAdd => 3,
            Op::Table(_) | Op::Funnel(_) | Op::Half(HalfOp::MulAdd, _) => 3,
            Op::Field(_) | Op::FromHalf | Op::ToHalf | Op::FromBrain => 1,
            Op::Half(HalfOp::Neg | HalfOp::Abs, _) => 1,
            Op::Copy(_) | Op::Not(_) | Op::Neg(_) | Op::Abs(_) | Op::AddImm | Op::Widen(_) => 1,
            Op::Low | Op::High | Op::FSqrt | Op::FRecip | Op::FRsqrt | Op::FNeg | Op::FAbs => 1,
            Op::FromInt(_) | Op::ToInt(_) | Op::DSqrt | Op::DNeg | Op::DAbs => 1,
            Op::Promote | Op::Demote | Op::DFromInt => 1,
            _ => 2,
        }
    }

    /// Operands are f32, of which only matters that they are NaN, not which.
    pub(super) fn takes_floats(self) -> bool {
        use Op::{FAbs, FAdd, FDiv, FMax, FMin, FMul, FMulAdd, FNeg, FRecip, FRsqrt, FSqrt, FSub, ToInt};
        matches!(
            self,
            FAdd | FSub
                | FMul
                | FDiv
                | FMulAdd
                | FSqrt
                | FRecip
                | FRsqrt
                | FNeg
                | FAbs
                | FMin
                | FMax
                | ToInt(_)
        )
    }

    /// The result is f32 whose NaN must become the canonical one.
    pub(super) fn gives_float(self) -> bool {
        self.takes_floats() && !matches!(self, Op::ToInt(_))
    }
}

/// Returns the semantics of `instr`.
pub(super) fn meaning(instr: &Instr) -> Meaning {
    static KNOWN: OnceLock<HashMap<usize, Meaning>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let mut list = List(HashMap::new());
        list.control();
        list.integers();
        list.floats();
        list.doubles();
        list.comparisons();
        list.moves();
        list.memory();
        list.shorts();
        list.halves();
        list.0
    });
    match known.get(&(instr.run as usize)).copied().unwrap_or(Meaning::Call) {
        Meaning::Lane(Op::Table(_)) => Meaning::Lane(Op::Table(instr.imm as u8)),
        // Modifiers.
        Meaning::Lane(Op::Half(..) | Op::ToHalf) if instr.imm != 0 => Meaning::Call,
        Meaning::Compare(_, Scalar::F16) => match instr.imm {
            test @ 1..=14 => Meaning::Compare(Test(test as u8), Scalar::F16),
            _ => Meaning::Call,
        },
        meaning => meaning,
    }
}

/// Handlers and their semantics.
pub(super) struct List(HashMap<usize, Meaning>);

impl List {
    pub(super) fn add(&mut self, handler: Option<Handler>, meaning: Meaning) {
        if let Some(handler) = handler {
            self.0.entry(handler as usize).or_insert(meaning);
        }
    }

    pub(super) fn lane(&mut self, handler: Option<Handler>, op: Op) {
        self.add(handler, Meaning::Lane(op));
    }

    fn control(&mut self) {
        self.add(Some(control::exit()), Meaning::Exit);
        self.add(Some(control::nothing()), Meaning::Nothing);
    }

    fn integers(&mut self) {
        let kinds =
            [(Type::U32, 4, false), (Type::S32, 4, true), (Type::U64, 8, false), (Type::S64, 8, true)];
        for (kind, bytes, signed) in kinds {
            self.lane(integer::binary("add", kind), Op::Add(bytes));
            self.lane(integer::binary("sub", kind), Op::Sub(bytes));
            self.lane(integer::binary("mul.lo", kind), Op::Mul(bytes));
            self.lane(integer::ternary("mad.lo", kind), Op::MulAdd(bytes));
            self.lane(integer::binary("min", kind), Op::Min(bytes, signed));
            self.lane(integer::binary("max", kind), Op::Max(bytes, signed));
            self.lane(integer::unary("neg", kind), Op::Neg(bytes));
            self.lane(integer::unary("abs", kind), Op::Abs(bytes));
            self.lane(bits::logic("and", kind), Op::And(bytes));
            self.lane(bits::logic("or", kind), Op::Or(bytes));
            self.lane(bits::logic("xor", kind), Op::Xor(bytes));
            self.lane(bits::negation("not", kind), Op::Not(bytes));
            self.lane(bits::shift("shl", kind), Op::Shl(bytes));
            self.lane(bits::shift("shr", kind), Op::Shr(bytes, signed));
        }
        for (kind, signed) in [(Type::U32, false), (Type::S32, true)] {
            self.lane(integer::multiply_wide(kind), Op::MulWide(signed));
            self.lane(integer::multiply_add_wide(kind), Op::MulAddWide(signed));
            self.lane(integer::binary("mul.hi", kind), Op::MulHigh(signed));
        }
    }

    fn floats(&mut self) {
        let kind = Type::F32;
        let plain = Modifiers { rounding: Rounding::Nearest, flush: false, saturate: false };
        for (name, op) in [("add", Op::FAdd), ("sub", Op::FSub), ("mul", Op::FMul), ("div", Op::FDiv)] {
            self.lane(float::binary(name, kind, plain), op);
        }
        self.lane(float::divide_approximately(kind, false), Op::FDiv);
        self.lane(float::multiply_add(kind, plain), Op::FMulAdd);
        self.lane(float::root("sqrt", kind, plain), Op::FSqrt);
        self.lane(float::root("rcp", kind, plain), Op::FRecip);
        // Double rounding does no harm here: a quotient or root of 24 bits is never so near the middle between two floats
        // that 53 bits could not tell.
        self.lane(float::approximate("sqrt", kind, false), Op::FSqrt);
        self.lane(float::approximate("rcp", kind, false), Op::FRecip);
        self.lane(float::approximate("rsqrt", kind, false), Op::FRsqrt);
        self.lane(float::sign("neg", kind, false), Op::FNeg);
        self.lane(float::sign("abs", kind, false), Op::FAbs);
        for (max, op) in [(false, Op::FMin), (true, Op::FMax)] {
            let how = Extremum { max, flush: false, propagate: false, xor_sign: false };
            self.lane(float::extremum(kind, how), op);
        }
    }

    fn doubles(&mut self) {
        let kind = Type::F64;
        let plain = Modifiers { rounding: Rounding::Nearest, flush: false, saturate: false };
        for (name, op) in [("add", Op::DAdd), ("sub", Op::DSub), ("mul", Op::DMul), ("div", Op::DDiv)] {
            self.lane(float::binary(name, kind, plain), op);
        }
        self.lane(float::multiply_add(kind, plain), Op::DMulAdd);
        self.lane(float::root("sqrt", kind, plain), Op::DSqrt);
        self.lane(float::sign("neg", kind, false), Op::DNeg);
        self.lane(float::sign("abs", kind, false), Op::DAbs);
        let how = convert::Conversion {
            rounding: Rounding::Nearest,
            integral: false,
            flush: false,
            saturate: false,
            relu: false,
        };
        self.lane(convert::from_integer(kind, Type::S32, how), Op::DFromInt);
        self.lane(convert::float(kind, Type::F32, how), Op::Promote);
        self.lane(convert::float(Type::F32, kind, how), Op::Demote);
    }

    fn comparisons(&mut self) {
        let kinds = [
            (Type::U32, Scalar::Int(4, false)),
            (Type::S32, Scalar::Int(4, true)),
            (Type::U64, Scalar::Int(8, false)),
            (Type::S64, Scalar::Int(8, true)),
            (Type::F32, Scalar::F32),
            (Type::F64, Scalar::F64),
        ];
        let names =
            ["lt", "eq", "le", "gt", "ne", "ge", "num", "nan", "ltu", "equ", "leu", "gtu", "neu", "geu"];
        for (kind, scalar) in kinds {
            for (name, bits) in names.iter().zip(1..) {
                self.add(compare(name, kind, false), Meaning::Compare(Test(bits), scalar));
            }
        }
        self.add(select(4), Meaning::Select(4));
        self.add(select(8), Meaning::Select(8));
        for (name, logic) in [("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)] {
            self.add(combine(name), Meaning::Logic(logic));
            self.add(bits::logic(name, Type::Pred), Meaning::Logic(logic));
        }
        self.add(bits::negation("not", Type::Pred), Meaning::Logic(Logic::Not));
        self.add(Some(moves::copy_predicate()), Meaning::Logic(Logic::Copy));
    }

    fn moves(&mut self) {
        self.lane(moves::copy(4), Op::Copy(4));
        self.lane(moves::copy(8), Op::Copy(8));
        self.lane(moves::extract(8, 4, 0), Op::Low);
        self.lane(moves::extract(8, 4, 1), Op::High);
        self.lane(moves::join(4), Op::Join);
        self.lane(Some(moves::shift_window()), Op::AddImm);
        for symbol in [Symbol::Global, Symbol::Shared] {
            for bytes in [4, 8] {
                self.add(moves::address_of(symbol, u32::from(bytes)), Meaning::Address(symbol, bytes));
            }
        }
        for signed in [false, true] {
            self.lane(convert::extend(4, 32, signed, 8), Op::Widen(signed));
            self.lane(convert::extend(8, 32, signed, 4), Op::Low);
        }
        let kinds = [Type::U32, Type::S32, Type::U64, Type::S64];
        for to in kinds {
            for from in kinds {
                let op = match (from.bytes(), to.bytes()) {
                    (4, 8) => Op::Widen(from.is_signed()),
                    (8, 4) => Op::Low,
                    (_, bytes) => Op::Copy(bytes as u8),
                };
                self.lane(convert::integer(to, from, false), op);
            }
        }
        let how = |rounding| convert::Conversion {
            rounding,
            integral: false,
            flush: false,
            saturate: false,
            relu: false,
        };
        for (kind, signed) in [(Type::U32, false), (Type::S32, true)] {
            self.lane(convert::from_integer(Type::F32, kind, how(Rounding::Nearest)), Op::FromInt(signed));
            self.lane(convert::to_integer(kind, Type::F32, how(Rounding::Zero)), Op::ToInt(signed));
        }
        let mut special = |name: &str, what| {
            self.add(special::read(name).map(|(handler, _)| handler), Meaning::Special(what));
        };
        for (axis, letter) in (0..).zip(["x", "y", "z"]) {
            special(&format!("tid.{letter}"), Special::Thread(axis));
            special(&format!("ntid.{letter}"), Special::BlockSize(axis));
            special(&format!("ctaid.{letter}"), Special::Block(axis));
            special(&format!("nctaid.{letter}"), Special::GridSize(axis));
        }
        special("laneid", Special::Lane);
        for (mode, letter) in [("up", b'u'), ("down", b'd'), ("bfly", b'b'), ("idx", b'i')] {
            self.add(warp_ops::shuffle(mode), Meaning::Shuffle(letter));
        }
    }

    fn memory(&mut self) {
        for register in [2, 4, 8] {
            for bytes in [1, 2, 4, 8].into_iter().filter(|bytes| register > 2 || *bytes <= 2) {
                for signed in [false, true] {
                    let element = Element { bytes, register, signed: signed && bytes < register };
                    let (bytes, register) = (u32::from(bytes), u32::from(register));
                    let load = |transfer| select_load(transfer, bytes, signed, register);
                    self.add(load(Transfer::Memory), Meaning::Load(element));
                    self.add(load(Transfer::Param), Meaning::LoadParam(element));
                    self.add(select_store(Transfer::Memory, bytes, register), Meaning::Store(element));
                }
            }
        }
    }
}
