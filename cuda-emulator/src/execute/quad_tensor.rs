// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mma.m8n8k4` of f16: lanes 0 to 3 and 16 to 19 multiply a pair of matrices, the next four of each half another one, and so
//! on. Rounded as other products of f16 (`tensor`).

use super::arithmetic::tiny_float::to_f16;
use super::state::{Flow, Machine};
use super::tensor::{float, truncated};
use crate::code::fragment::Element;
use crate::code::{FULL, Handler, Instr, LANES};

pub(crate) const A_BY_COLUMN: u32 = 1;
pub(crate) const B_BY_COLUMN: u32 = 2;
/// C and D are f32, not f16.
pub(crate) const C_WIDE: u32 = 4;
pub(crate) const D_WIDE: u32 = 8;

/// Rows and columns of C.
const SIDE: usize = 8;
/// Columns of A.
const DEPTH: usize = 4;
const QUADS: usize = 4;

/// The matrix of a lane, and its number in the half of the warp that it belongs to.
fn member(lane: usize) -> (usize, usize, usize) {
    (lane % 16 / 4, lane % 4, lane / 16)
}

/// Row and column of element `index` of C or D.
fn place(lane: usize, index: usize, wide: bool) -> (usize, usize) {
    let (_, member, half) = member(lane);
    if wide {
        (member % 2 + (index & 2) + 4 * half, (index & 4) + (member & 2) + index % 2)
    } else {
        (member + 4 * half, index)
    }
}

/// `D = A * B + C`: `operands[ops[7]..]` are the registers of D, A, B and C.
pub(crate) fn multiply() -> Handler {
    run
}

unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    if let Some(flow) = machine.gather(FULL) {
        return flow;
    }
    let all = &machine.grid.code.operands[instr.ops[7] as usize..];
    let count = |wide: u32| if instr.aux & wide != 0 { 8 } else { 4 };
    let (in_d, rest) = all.split_at(count(D_WIDE));
    let (in_a, rest) = rest.split_at(2);
    let (in_b, rest) = rest.split_at(2);
    let in_c = &rest[..count(C_WIDE)];
    let mut a = [[[0.0_f64; DEPTH]; SIDE]; QUADS];
    let mut b = [[[0.0_f64; SIDE]; DEPTH]; QUADS];
    let mut sums = [[[0.0_f64; SIDE]; SIDE]; QUADS];
    for (register, (of_a, of_b)) in in_a.iter().zip(in_b).enumerate() {
        // SAFETY: 32-bit registers (lowering).
        let words = unsafe { (machine.lanes::<u32>(*of_a), machine.lanes::<u32>(*of_b)) };
        for lane in 0..LANES {
            let (quad, member, half) = member(lane);
            for part in 0..2 {
                let index = 2 * register + part;
                let value = |word: u32| float(Element::F16, word >> (16 * part) & 0xffff);
                let (row, column) = if instr.aux & A_BY_COLUMN != 0 {
                    (index + 4 * half, member)
                } else {
                    (member + 4 * half, index)
                };
                a[quad][row][column] = value(words.0[lane]);
                let (row, column) = if instr.aux & B_BY_COLUMN != 0 {
                    (index, member + 4 * half)
                } else {
                    (member, index + 4 * half)
                };
                b[quad][row][column] = value(words.1[lane]);
            }
        }
    }
    for (register, op) in in_c.iter().enumerate() {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        let words = unsafe { machine.lanes::<u32>(*op) };
        for (lane, word) in words.into_iter().enumerate() {
            let quad = member(lane).0;
            if instr.aux & C_WIDE != 0 {
                let (row, column) = place(lane, register, true);
                sums[quad][row][column] = float(Element::F32, word);
                continue;
            }
            for part in 0..2 {
                let (row, column) = place(lane, 2 * register + part, false);
                sums[quad][row][column] = float(Element::F16, word >> (16 * part) & 0xffff);
            }
        }
    }
    for ((a, b), sums) in a.iter().zip(&b).zip(&mut sums) {
        for (row, sums) in a.iter().zip(sums) {
            for (factor, line) in row.iter().zip(b) {
                sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += factor * value);
            }
        }
    }
    for (register, op) in in_d.iter().enumerate() {
        let words: [u32; LANES] = std::array::from_fn(|lane| {
            let quad = member(lane).0;
            if instr.aux & D_WIDE != 0 {
                let (row, column) = place(lane, register, true);
                return truncated(sums[quad][row][column]);
            }
            let half = |part: usize| {
                let (row, column) = place(lane, 2 * register + part, false);
                u32::from(to_f16(sums[quad][row][column]))
            };
            half(0) | half(1) << 16
        });
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`); none is a constant.
        unsafe { machine.set_lanes(*op, &words) };
    }
    Flow::Next
}
