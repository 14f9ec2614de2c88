// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Translates hot functions to instructions of this machine. A translated function executes a whole warp, as long as
//! its lanes stay together. The interpreter (`execute`) executes everything else and remains the reference.
//!
//! `meaning` (with `short_meanings`) returns the semantics of an instruction from its handler. `flow` finds blocks
//! and live ranges, `regions` the `if`s, `kinds` the registers that are the same, or in steps, over the lanes.
//! `translate` processes the blocks; `instructions`, `comparisons`, `exchange`, `memory`, `scatter` and `exits` are
//! its parts, and `nodes`, `lanes` and `short_lanes` generate vector instructions. `compile` passes all to Cranelift.
//! `calls` has the functions that translated code calls. `crate::native` is the interface between it and `execute`.
//!
//! PTX is not trusted, and translated code keeps all of the interpreter's checks. Addresses are checked where they
//! are used (`memory`). The interpreter's handlers execute instructions that are not translated, including faults.
//! Translated code accesses registers only at places that lowering has laid out. Backward jumps are counted and end
//! its turn, so that a launch can be cancelled. Calls are those of the interpreter, and so is the limit of their
//! depth.

mod calls;
mod comparisons;
mod compile;
mod conditional;
mod exchange;
mod exits;
mod flow;
mod instructions;
mod kinds;
mod lanes;
mod meaning;
mod memory;
mod nodes;
mod regions;
mod scatter;
mod short_lanes;
mod short_meanings;
mod translate;

pub(crate) use compile::native;
