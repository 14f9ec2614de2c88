// SPDX-License-Identifier: Apache-2.0 OR MIT
//! mbarrier: barriers in shared memory from which cuda::barrier is built. The manual leaves the layout of the 64 bits
//! open. Here they are: pending arrivals in bits 0 to 19, arrivals expected in each phase in bits 20 to 39, bytes of
//! asynchronous copies that are still to come in bits 40 to 61 (two's complement), and the phase in bit 63.

use super::data::access::{Access, aux};
use super::lanes::instance;
use super::state::{Flow, Machine};
use crate::code::{Handler, Instr, LANES, lanes_of};

const FIELD: u64 = (1 << 20) - 1;
const EXPECTED_SHIFT: u32 = 20;
const BYTES_SHIFT: u32 = 40;
const BYTES: u64 = (1 << 22) - 1;
const PHASE: u64 = 1 << 63;

/// In [`Instr::aux`]: the operand of test_wait is a parity, not a state.
pub(crate) const BY_PARITY: u32 = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    pending: u64,
    expected: u64,
    bytes: u64,
    phase: bool,
}

impl State {
    fn unpack(word: u64) -> State {
        State {
            pending: word & FIELD,
            expected: word >> EXPECTED_SHIFT & FIELD,
            bytes: word >> BYTES_SHIFT & BYTES,
            phase: word & PHASE != 0,
        }
    }

    fn pack(self) -> u64 {
        self.pending & FIELD
            | (self.expected & FIELD) << EXPECTED_SHIFT
            | (self.bytes & BYTES) << BYTES_SHIFT
            | if self.phase { PHASE } else { 0 }
    }

    /// Begins the next phase when nothing is missing in this one.
    fn settle(mut self) -> State {
        if self.pending == 0 && self.bytes & BYTES == 0 {
            self.phase = !self.phase;
            self.pending = self.expected;
        }
        self
    }

    fn arrive(mut self, count: u64) -> State {
        self.pending = self.pending.saturating_sub(count);
        self.settle()
    }
}

/// The barrier's word after `bytes` bytes of asynchronous copies have come.
pub(super) fn complete_bytes(word: u64, bytes: u64) -> u64 {
    let mut state = State::unpack(word);
    state.bytes = state.bytes.wrapping_sub(bytes) & BYTES;
    state.settle().pack()
}

/// Lane after lane: `operation(word, operand, instr)` gives the new word and the result.
unsafe fn each(
    machine: &mut Machine<'_>,
    instr: &Instr,
    operation: impl Fn(u64, u64, &Instr) -> (u64, u64),
) -> Result<[u64; LANES], Flow> {
    let mut at = [0; LANES];
    let mut results = [0; LANES];
    // SAFETY: `ops[4]` is the address, `ops[1]` a u64 operand; `resolve` has checked address and alignment. Shared memory
    // belongs to this worker while it runs the block.
    unsafe {
        machine.resolve(instr, &mut at, 8, Access::Atomic)?;
        let operands = machine.lanes::<u64>(instr.ops[1]);
        for lane in lanes_of(machine.mask) {
            let place = at[lane] as *mut u64;
            let (word, result) = operation(*place, operands[lane], instr);
            *place = word;
            results[lane] = result;
        }
    }
    Ok(results)
}

/// The instructions that write a u64 to `ops[0]` (arrive: the state before it; pending_count: see [`pending_count`]) or
/// nothing of use. The operand in `ops[1]` is a u64.
pub(crate) fn update(name: &str) -> Option<Handler> {
    fn handler<Op: Fn(u64, u64) -> (u64, u64) + Copy>(_operation: Op) -> Handler {
        run::<Op>
    }
    unsafe fn run<Op: Fn(u64, u64) -> (u64, u64) + Copy>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let operation = instance::<Op>();
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of `Handler`).
        unsafe {
            match each(machine, instr, |word, operand, _| operation(word, operand)) {
                Ok(results) => machine.set_lanes(instr.ops[0], &results),
                Err(flow) => return flow,
            }
        }
        Flow::Next
    }
    Some(match name {
        "init" => handler(|_, count| {
            let state = State { pending: count, expected: count, bytes: 0, phase: false };
            (state.pack(), 0)
        }),
        "inval" => handler(|_, _| (0, 0)),
        "arrive" => handler(|word, count| (State::unpack(word).arrive(count).pack(), word)),
        "arrive_drop" => handler(|word, count| {
            let mut state = State::unpack(word);
            state.expected = state.expected.saturating_sub(count);
            (state.arrive(count).pack(), word)
        }),
        "arrive.expect_tx" => handler(|word, bytes| {
            let mut state = State::unpack(word);
            state.bytes = state.bytes.wrapping_add(bytes) & BYTES;
            (state.arrive(1).pack(), word)
        }),
        "arrive_drop.expect_tx" => handler(|word, bytes| {
            let mut state = State::unpack(word);
            state.bytes = state.bytes.wrapping_add(bytes) & BYTES;
            state.expected = state.expected.saturating_sub(1);
            (state.arrive(1).pack(), word)
        }),
        "expect_tx" => handler(|word, bytes| {
            let mut state = State::unpack(word);
            state.bytes = state.bytes.wrapping_add(bytes) & BYTES;
            (state.pack(), 0)
        }),
        "complete_tx" => handler(|word, bytes| (complete_bytes(word, bytes), 0)),
        _ => return None,
    })
}

/// test_wait and try_wait: the predicate `ops[0]` holds when the phase of the state (or parity) in `ops[1]` (u64) is over.
pub(crate) fn test_wait() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let over = |word: u64, operand: u64, instr: &Instr| {
            let asked = if instr.aux & BY_PARITY != 0 { operand & 1 != 0 } else { operand & PHASE != 0 };
            (word, u64::from(State::unpack(word).phase != asked))
        };
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            match each(machine, instr, over) {
                Ok(results) => {
                    let bits =
                        lanes_of(machine.mask).fold(0, |bits, lane| bits | (results[lane] as u32) << lane);
                    machine.set_predicate(instr.ops[0], bits);
                    if bits != 0 {
                        machine.block.synchronise();
                    }
                    if instr.aux & aux::POLLS != 0 && bits != machine.mask {
                        machine.polls();
                    }
                }
                Err(flow) => return flow,
            }
        }
        Flow::Next
    }
    run
}

/// pending_count: `ops[0]` (u32) of the state in `ops[1]` (u64).
pub(crate) fn pending_count() -> Handler {
    super::lanes::map1(|word: u64| State::unpack(word).pending as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other() {
        let state = State { pending: 3, expected: 3, bytes: 0, phase: false };
        assert_eq!(State::unpack(state.pack()), state);
        let state = state.arrive(2);
        assert_eq!((state.pending, state.phase), (1, false));
        let mut state = state.arrive(1);
        assert_eq!((state.pending, state.phase), (3, true));
        state.bytes = 16;
        let mut state = state.arrive(3);
        assert_eq!((state.pending, state.phase), (0, true));
        state.bytes = 0;
        let state = state.settle();
        assert_eq!((state.pending, state.phase), (3, false));
    }
}
