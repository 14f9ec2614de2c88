// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface between translated code (`jit`) and the executor (`execute`).
//!
//! `shape`: the cases that a translation distinguishes. `view`: the executor's state that translated code reads. `entry`: how
//! registers get into translated code and out of it. `compiled`: a translated function. `place`: its entries by position in the
//! program. `functions`: all of a program, and when a function is translated.

pub(crate) mod compiled;
pub(crate) mod entry;
mod functions;
mod place;
pub(crate) mod shape;
pub(crate) mod view;

pub(crate) use entry::Code as ExitCode;
pub use functions::Mode;
pub(crate) use functions::{Native, mode};
pub(crate) use place::{Left, Place, Table, place_at};
pub(crate) use shape::Shape;
pub(crate) use view::{View, called};
