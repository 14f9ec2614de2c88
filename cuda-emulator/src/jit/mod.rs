// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hot functions as instructions of this machine. A translated function executes a whole warp, as long as its lanes stay
//! together; the interpreter (`execute`) does everything else and stays the definition of what is right.
//!
//! `meaning` (with `short_meanings`) tells from an instruction's handler what it does; `flow` finds blocks and lifetimes, `regions` the `if`s; `kinds`
//! which registers are the same, or in steps, over the lanes. `translate` goes through the blocks; `instructions`, `comparisons`,
//! `exchange`, `memory`, `scatter` and `exits` are its parts, `nodes`, `lanes` and `short_lanes` make vector instructions. `compile` hands all
//! to Cranelift. `calls` are the functions that translated code calls; `crate::native` is what it and `execute` know of each other.
//!
//! PTX is not trusted, and translated code keeps all of the interpreter's checks: addresses are checked where they are used
//! (`memory`); what it does not translate, faults included, is done by the interpreter's handlers; it accesses registers at
//! places that lowering has laid out; jumps backwards are counted and end its turn, so that a launch can be cancelled; calls are
//! the interpreter's, and with them their depth.

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
