// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The call table: number, facts, inputs and results of each call. Its source are the rows in `protocol/calls`, whose README
//! describes them; `cargo xtask generate` writes [`Opcode`] and [`ROWS`], and the guest's and the worker's halves of each call.
//!
//! A number, once shipped, keeps its meaning for ever: `golden/calls.txt` checks it.

mod facts;
mod names;
mod opcode;
mod rows;

use super::*;
pub use facts::{Facts, Getter, Launches, Makes, State, Text, Work};
pub use opcode::Opcode;
pub use rows::ROWS;

/// Numbers of rows that were removed. No other call gets them.
pub const RETIRED: &[u32] = &[0x0316, 0x0317, 0x0318, 0x0920, 0x0921, 0x0922, 0x0923, 0x0924, 0x0f00];

/// A row of the call table as data, for documentation and tests.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The number.
    pub opcode: u32,
    /// The kind of row: `forward`, `custom`, …
    pub kind: &'static str,
    /// The CUDA name.
    pub name: &'static str,
    /// The version of the call table ([`CALL_TABLE_VERSION`]) that had it first.
    pub since: u32,
    /// The inputs, in the order of the wire.
    pub inputs: &'static [Field],
    /// Bytes of the inputs on the wire.
    pub input_bytes: usize,
    /// The results, in the order of the wire.
    pub results: &'static [Field],
    /// Bytes of the results on the wire.
    pub result_bytes: usize,
    /// The facts.
    pub facts: Facts,
}

/// An input or a result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its Rust type.
    pub of: &'static str,
    /// Its bytes on the wire.
    pub bytes: usize,
}

impl Row {
    const fn new(
        opcode: Opcode,
        kind: &'static str,
        since: u32,
        inputs: &'static [Field],
        results: &'static [Field],
    ) -> Self {
        Self {
            opcode: opcode as u32,
            kind,
            name: opcode.name(),
            since,
            inputs,
            input_bytes: bytes(inputs),
            results,
            result_bytes: bytes(results),
            facts: opcode.facts(),
        }
    }
}

const fn field<T: Wire>(name: &'static str, of: &'static str) -> Field {
    Field { name, of, bytes: T::BYTES }
}

const fn bytes(fields: &[Field]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < fields.len() {
        sum += fields[at].bytes;
        at += 1;
    }
    sum
}

/// Bytes of the longest arguments of a row.
pub const MAX_ARGS: usize = longest(true);
/// Bytes of the longest results of a row.
pub const MAX_RESULTS: usize = longest(false);

const fn longest(of_inputs: bool) -> usize {
    let (mut longest, mut at) = (0, 0);
    while at < ROWS.len() {
        let bytes = if of_inputs { ROWS[at].input_bytes } else { ROWS[at].result_bytes };
        if bytes > longest {
            longest = bytes;
        }
        at += 1;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They would never end while their session is suspended.
    #[test]
    fn calls_that_end_the_waits_of_others_need_no_memory() {
        for opcode in [Opcode::session_next_callback, Opcode::session_order, Opcode::cuStreamSynchronize] {
            assert!(!opcode.facts().needs_memory(), "{opcode:?}");
        }
        for opcode in
            [Opcode::cuLaunchKernel, Opcode::cuMemFree_v2, Opcode::vendor_call, Opcode::cuGraphLaunch]
        {
            assert!(opcode.facts().needs_memory(), "{opcode:?}");
        }
    }
}
