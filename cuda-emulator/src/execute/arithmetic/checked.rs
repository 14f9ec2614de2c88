// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers that recompute results in which hardware may differ from the host.

use crate::code::{Handler, Instr, LANES, lanes_of};
use crate::execute::lanes::instance;
use crate::execute::state::{Flow, Machine};

/// `ops[0] = fast(ops[1], ops[2], ops[3])`, except that a lane whose result is `doubtful` gets `exact(…)`: for operations
/// in which hardware differs from the host in rare cases. The closures capture nothing.
pub(crate) fn checked<T, Fast, Doubtful, Exact>(_: Fast, _: Doubtful, _: Exact) -> Handler
where
    T: Copy + Default + 'static,
    Fast: Fn(T, T, T) -> T + Copy + 'static,
    Doubtful: Fn(T) -> bool + Copy + 'static,
    Exact: Fn(T, T, T) -> T + Copy + 'static,
{
    #[inline(always)]
    unsafe fn body<T, Fast, Doubtful, Exact>(machine: &mut Machine<'_>, instr: &Instr) -> Flow
    where
        T: Copy + Default,
        Fast: Fn(T, T, T) -> T + Copy,
        Doubtful: Fn(T) -> bool + Copy,
        Exact: Fn(T, T, T) -> T + Copy,
    {
        let (fast, doubtful) = (instance::<Fast>(), instance::<Doubtful>());
        // SAFETY: the operands are registers or constants as wide as `T` (contract of `Handler`).
        unsafe {
            let a = machine.source::<T>(instr.ops[1]);
            let b = machine.source::<T>(instr.ops[2]);
            let c = machine.source::<T>(instr.ops[3]);
            let mut results = [T::default(); LANES];
            for (lane, result) in results.iter_mut().enumerate() {
                *result = fast(*a.add(lane), *b.add(lane), *c.add(lane));
            }
            let doubts = results.iter().fold(false, |any, result| any | doubtful(*result));
            if doubts {
                for lane in lanes_of(machine.mask) {
                    if doubtful(results[lane]) {
                        results[lane] = instance::<Exact>()(*a.add(lane), *b.add(lane), *c.add(lane));
                    }
                }
            }
            machine.set_lanes(instr.ops[0], &results);
        }
        Flow::Next
    }
    unsafe fn base<T, Fast, Doubtful, Exact>(machine: &mut Machine<'_>, instr: &Instr) -> Flow
    where
        T: Copy + Default,
        Fast: Fn(T, T, T) -> T + Copy,
        Doubtful: Fn(T) -> bool + Copy,
        Exact: Fn(T, T, T) -> T + Copy,
    {
        // SAFETY: the caller keeps the contract of `Handler`.
        unsafe { body::<T, Fast, Doubtful, Exact>(machine, instr) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn wide<T, Fast, Doubtful, Exact>(machine: &mut Machine<'_>, instr: &Instr) -> Flow
    where
        T: Copy + Default,
        Fast: Fn(T, T, T) -> T + Copy,
        Doubtful: Fn(T) -> bool + Copy,
        Exact: Fn(T, T, T) -> T + Copy,
    {
        // SAFETY: the caller keeps the contract of `Handler`.
        unsafe { body::<T, Fast, Doubtful, Exact>(machine, instr) }
    }
    #[cfg(target_arch = "x86_64")]
    if crate::vectors::has_wide_vectors() {
        return wide::<T, Fast, Doubtful, Exact>;
    }
    base::<T, Fast, Doubtful, Exact>
}
