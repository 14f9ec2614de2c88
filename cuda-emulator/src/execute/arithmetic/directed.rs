// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Double precision with rounding modes other than to nearest: the CPU rounds all lanes together.

use super::round::{self, Rounding};
use crate::code::{Handler, Instr, LANES};
use crate::execute::state::{Flow, Machine};

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    Add,
    Sub,
    Mul,
    Div,
    /// The product of the first two, plus the third.
    MulAdd,
}

/// Lanes of a double-precision register.
type Doubles = [f64; LANES];

/// Returns the handler of `ops[0] = operation(ops[1], ops[2], ops[3])`, rounded according to `imm`, or `None` where
/// the CPU cannot do it.
pub(crate) fn handler(operation: Operation) -> Option<Handler> {
    if !crate::vectors::has_wide_vectors() {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    return Some(match operation {
        Operation::Add => run::<{ Operation::Add as u8 }>,
        Operation::Sub => run::<{ Operation::Sub as u8 }>,
        Operation::Mul => run::<{ Operation::Mul as u8 }>,
        Operation::Div => run::<{ Operation::Div as u8 }>,
        Operation::MulAdd => run::<{ Operation::MulAdd as u8 }>,
    });
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(target_arch = "x86_64")]
unsafe fn run<const OPERATION: u8>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let rounding = Rounding::from_bits(instr.imm);
    // SAFETY: the operands are registers or constants of 64 bits (contract of `Handler`); the CPU has AVX2 and FMA (`handler`).
    unsafe {
        let sources = [1, 2, 3].map(|index| machine.source::<Doubles>(instr.ops[index]));
        let mut results = [0.0; LANES];
        compute::<OPERATION>(sources, &mut results, rounding);
        if results.iter().any(|result| round::is_nan64(*result)) {
            let [a, b, c] = sources.map(|source| *source);
            for (lane, result) in results.iter_mut().enumerate() {
                let (a, b, c) = (a[lane], b[lane], c[lane]);
                *result = match OPERATION {
                    _ if !round::is_nan64(*result) => *result,
                    4 => round::with_nan64(*result, [b, c, a]),
                    3 => round::with_nan64(*result, [a, b]),
                    _ => round::with_nan64(*result, [b, a]),
                };
            }
        }
        machine.set_lanes(instr.ops[0], &results);
    }
    Flow::Next
}

/// # Safety
/// The sources must be readable, and the CPU must have AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn compute<const OPERATION: u8>(
    [a, b, c]: [*const Doubles; 3],
    results: &mut Doubles,
    rounding: Rounding,
) {
    use std::arch::asm;

    let mut usual = 0_u32;
    let place = &raw mut usual;
    // SAFETY: writes the control and status register to `usual`.
    unsafe { asm!("stmxcsr [{}]", in(reg) place, options(nostack)) };
    let mode = match rounding {
        Rounding::Nearest => 0,
        Rounding::Down => 1,
        Rounding::Up => 2,
        Rounding::Zero => 3_u32,
    };
    let wanted = (usual & !0x6000) | mode << 13;
    // The loop around an instruction. It is no function, because `asm!` takes its text from literals only.
    macro_rules! loop_of {
        ($($operation:literal),*) => {
            // SAFETY: reads and writes 256 bytes of each; the rounding mode is the usual one at the end, and exceptions, whose
            // flags may be set, are masked.
            unsafe {
                asm!(
                    "ldmxcsr [{wanted}]",
                    "2:",
                    "vmovupd {x}, [{a} + {at}]",
                    $($operation,)*
                    "vmovupd [{to} + {at}], {x}",
                    "add {at}, 32",
                    "cmp {at}, 256",
                    "jb 2b",
                    "ldmxcsr [{usual}]",
                    wanted = in(reg) &wanted,
                    usual = in(reg) &usual,
                    a = in(reg) a,
                    b = in(reg) b,
                    c = in(reg) c,
                    to = in(reg) results,
                    at = inout(reg) 0_u64 => _,
                    x = out(ymm_reg) _,
                    y = out(ymm_reg) _,
                    options(nostack),
                )
            }
        };
    }
    match OPERATION {
        0 => loop_of!("vaddpd {x}, {x}, [{b} + {at}] // {c} {y}"),
        1 => loop_of!("vsubpd {x}, {x}, [{b} + {at}] // {c} {y}"),
        2 => loop_of!("vmulpd {x}, {x}, [{b} + {at}] // {c} {y}"),
        3 => loop_of!("vdivpd {x}, {x}, [{b} + {at}] // {c} {y}"),
        _ => loop_of!("vmovupd {y}, [{b} + {at}]", "vfmadd213pd {x}, {y}, [{c} + {at}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_cpu_rounds_as_the_exact_arithmetic() {
        if !crate::vectors::has_wide_vectors() {
            return;
        }
        let edges = [0.0, -0.0, 1.0, -1.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::INFINITY, 1e-200, 3.0];
        let mut state = 1_u64;
        let mut value = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = state ^ state >> 29;
            let exponent = if bits & 1 == 0 { bits >> 52 & 0x7ff } else { 1000 + (bits >> 52 & 0x2f) };
            match bits & 0xf0 {
                0 => edges[(bits >> 8) as usize % edges.len()],
                _ => f64::from_bits(bits & 0x800f_ffff_ffff_ffff | exponent.min(2046) << 52),
            }
        };
        for _ in 0..500 {
            let [a, b, c]: [Doubles; 3] = std::array::from_fn(|_| std::array::from_fn(|_| value()));
            for rounding in [Rounding::Zero, Rounding::Down, Rounding::Up] {
                let mut all = [[0.0; LANES]; 5];
                let [add, sub, mul, div, fma] = &mut all;
                // SAFETY: the sources are arrays; the CPU was asked.
                unsafe {
                    compute::<0>([&a, &b, &c], add, rounding);
                    compute::<1>([&a, &b, &c], sub, rounding);
                    compute::<2>([&a, &b, &c], mul, rounding);
                    compute::<3>([&a, &b, &c], div, rounding);
                    compute::<4>([&a, &b, &c], fma, rounding);
                }
                for lane in 0..LANES {
                    let (x, y, z) = (a[lane], b[lane], c[lane]);
                    let wanted = [
                        round::add64(x, y, rounding),
                        round::sub64(x, y, rounding),
                        round::mul64(x, y, rounding),
                        round::div64(x, y, rounding),
                        round::fma64(x, y, z, rounding),
                    ];
                    for (found, wanted) in all.iter().zip(wanted) {
                        let same = found[lane].to_bits() == wanted.to_bits();
                        assert!(
                            same || found[lane].is_nan() && wanted.is_nan(),
                            "{x:e} {y:e} {z:e} {rounding:?}"
                        );
                    }
                }
            }
        }
    }
}
