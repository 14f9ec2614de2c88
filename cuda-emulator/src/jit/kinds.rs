// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds registers with the same value in all lanes, or with values in steps from lane to lane: nearly all addresses
//! and loop counters consist of them. Such a value is computed once, not 32 times.
//!
//! The result holds for lanes that took the same path. Where lanes may have taken different paths, the entry into
//! translated code compares the registers with it (`entry`).

use super::flow::Flow;
use super::meaning::{Meaning, Op, Special};
use crate::code::{CONSTANT, Instr};
use crate::execute::access::{Place, aux};
use crate::native::shape::{Kind, Shape};

/// The kinds of all registers at one place.
pub(super) type State = Vec<Kind>;

/// The kinds at the start of each block; `None` for blocks that are never reached.
pub(super) fn analyse(flow: &Flow<'_>, shape: Shape) -> Vec<Option<State>> {
    let mut states: Vec<Option<State>> = vec![None; flow.blocks.len()];
    states[0] = Some(vec![Kind::Vector; flow.registers.len()]);
    let mut left = vec![0];
    while let Some(index) = left.pop() {
        let Some(mut state) = states[index].clone() else { continue };
        let block = &flow.blocks[index];
        for pc in block.start..block.end {
            step(flow, shape, pc, &mut state);
        }
        if block.region.is_some() {
            // Some lanes have executed it, others not.
            for pc in block.start..block.end {
                for (register, _) in flow.mentions(pc).filter(|mention| mention.1) {
                    state[register] = Kind::Vector;
                }
            }
            let before = states[index].clone().unwrap_or_default();
            state.iter_mut().zip(before).for_each(|(kind, before)| *kind = kind.join(before));
        }
        for successor in &block.successors {
            let changed = match &mut states[*successor] {
                None => {
                    states[*successor] = Some(state.clone());
                    true
                }
                Some(known) => {
                    let mut changed = false;
                    for (kind, new) in known.iter_mut().zip(&state) {
                        let joined = kind.join(*new);
                        changed |= joined != *kind;
                        *kind = joined;
                    }
                    changed
                }
            };
            if changed && !left.contains(successor) {
                left.push(*successor);
            }
        }
    }
    states
}

/// The value of a constant operand of `bytes` bytes.
pub(super) fn constant(flow: &Flow<'_>, operand: u32, bytes: u8) -> Option<u64> {
    let place = (operand & CONSTANT != 0).then_some((operand & !CONSTANT) as usize)?;
    let line = flow.code.constants.get(place / 64)?;
    let value = line.0.get(place % 64..place % 64 + usize::from(bytes.clamp(4, 8)))?;
    let mut word = [0; 8];
    word[..value.len()].copy_from_slice(value);
    let word = u64::from_ne_bytes(word);
    Some(if bytes == 2 { word & 0xffff } else { word })
}

/// The constant as a number, sign-extended.
pub(super) fn signed(value: u64, bytes: u8) -> i64 {
    if bytes == 4 { i64::from(value as u32 as i32) } else { value as i64 }
}

fn operand(flow: &Flow<'_>, state: &State, operand: u32) -> Kind {
    if operand & CONSTANT != 0 { Kind::Uniform } else { state[flow.register(operand)] }
}

/// Applies the effect of instruction `pc` to the kinds.
pub(super) fn step(flow: &Flow<'_>, shape: Shape, pc: u32, state: &mut State) {
    let result = result(flow, shape, pc, state);
    let certain = flow.guard(pc).map(|(guard, _)| state[guard] == Kind::Uniform);
    for (register, written) in flow.mentions(pc) {
        if !written {
            continue;
        }
        state[register] = match certain {
            None => result,
            Some(true) => state[register].join(result),
            Some(false) => Kind::Vector,
        };
        // Registers of 16 bits are scalars at most inside a block, those of 128 bits never.
        if !matches!(flow.registers[register].bytes, 0 | 4 | 8) {
            state[register] = Kind::Vector;
        }
    }
}

/// The kind of what instruction `pc` computes.
pub(super) fn result(flow: &Flow<'_>, shape: Shape, pc: u32, state: &State) -> Kind {
    let instr = flow.instr(pc);
    let kind = |index: usize| operand(flow, state, instr.ops[index]);
    let uniform = |operands: std::ops::RangeInclusive<usize>| {
        if operands.into_iter().all(|index| kind(index) == Kind::Uniform) {
            Kind::Uniform
        } else {
            Kind::Vector
        }
    };
    match flow.meaning(pc) {
        Meaning::Lane(op) => lane(flow, instr, op, &kind),
        Meaning::Compare(..) => uniform(1..=2),
        Meaning::Logic(_) => uniform(1..=2),
        Meaning::Select(_) if kind(3) == Kind::Uniform => kind(1).join(kind(2)),
        Meaning::Address(..) | Meaning::LoadParam(_) => Kind::Uniform,
        Meaning::Special(special) => match special {
            Special::Thread(_) if !shape.regular => Kind::Vector,
            Special::Thread(0) | Special::Lane => Kind::Affine(1),
            Special::Thread(_) if shape.groups == 1 => Kind::Uniform,
            Special::Thread(_) => Kind::Affine(0),
            Special::BlockSize(_) | Special::Block(_) | Special::GridSize(_) => Kind::Uniform,
        },
        Meaning::Load(_) if is_plain(instr) => match kind(4) {
            Kind::Uniform => Kind::Uniform,
            Kind::Affine(0) => Kind::Affine(0),
            _ => Kind::Vector,
        },
        _ => Kind::Vector,
    }
}

/// Returns whether a transfer is of data that another thread may be about to read or write.
pub(super) fn polls(instr: &Instr) -> bool {
    instr.aux & aux::POLLS != 0
}

/// Returns whether a transfer is one of those that are translated: in memory that has one start, without fences, and no
/// vector that others may wait for, which has to be one access.
pub(super) fn is_plain(instr: &Instr) -> bool {
    let special = aux::ACQUIRE | aux::RELEASE;
    let place = matches!(aux::place(instr.aux), Place::Global | Place::Generic | Place::Shared);
    let whole = polls(instr) && aux::count(instr.aux) > 1;
    place && instr.aux & special == 0 && !whole
}

fn lane(flow: &Flow<'_>, instr: &Instr, op: Op, kind: &dyn Fn(usize) -> Kind) -> Kind {
    let kinds: Vec<Kind> = (1..=op.sources()).map(kind).collect();
    if kinds.iter().all(|kind| *kind == Kind::Uniform) {
        return Kind::Uniform;
    }
    if kinds.contains(&Kind::Vector) {
        return Kind::Vector;
    }
    let flat = kinds.iter().all(|kind| kind.stride() == Some(0));
    if flat {
        return Kind::Affine(0);
    }
    let stride = |index: usize| kinds[index].stride().unwrap_or(0);
    let literal = |index: usize| {
        constant(flow, instr.ops[index + 1], op.source_bytes(index))
            .map(|value| signed(value, op.source_bytes(index)))
    };
    let product = || {
        let factors = [(0, 1), (1, 0)];
        factors.into_iter().find_map(|(a, b)| Some(stride(a).wrapping_mul(literal(b)?)))
    };
    // 64-bit products of unsigned factors: a negative literal is a large number.
    let wide = |signed: bool| {
        let factors = [(0, 1), (1, 0)];
        factors.into_iter().find_map(|(a, b)| {
            let value = literal(b)?;
            Some(stride(a).wrapping_mul(if signed { value } else { i64::from(value as u32) }))
        })
    };
    let found = match op {
        Op::Copy(_) | Op::AddImm | Op::Low | Op::Widen(_) => Some(stride(0)),
        Op::Add(_) => Some(stride(0).wrapping_add(stride(1))),
        Op::Sub(_) => Some(stride(0).wrapping_sub(stride(1))),
        Op::Neg(_) => Some(stride(0).wrapping_neg()),
        Op::Mul(_) => product(),
        Op::Shl(bytes) => literal(1)
            .filter(|amount| (0..i64::from(bytes) * 8).contains(amount))
            .map(|amount| stride(0).wrapping_shl(amount as u32)),
        Op::MulAdd(_) if stride(0) == 0 && stride(1) == 0 => Some(stride(2)),
        Op::MulAdd(_) => product().map(|product| product.wrapping_add(stride(2))),
        Op::MulWide(signed) => wide(signed),
        Op::MulAddWide(_) if stride(0) == 0 && stride(1) == 0 => Some(stride(2)),
        Op::MulAddWide(signed) => wide(signed).map(|product| product.wrapping_add(stride(2))),
        _ => None,
    };
    match found {
        Some(stride) if op.bytes() == 4 => Kind::Affine(i64::from(stride as i32)),
        Some(stride) => Kind::Affine(stride),
        None => Kind::Vector,
    }
}
