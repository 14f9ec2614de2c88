// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs and capture: builds the driver's structures from the worker's state, and parses them.
//!
//! If the driver fills in an enum, the structure is declared again with integers. A newer driver's value is then an
//! unknown number and not undefined behaviour.

mod attribute;
mod capture;
mod copy;
mod exec;
mod kernel;
mod node;
mod one_kernel;
mod parameters;
mod structure;

pub use attribute::{AttributeValue, EVENT_ATTRIBUTES, is_documented};
pub(super) use attribute::{launch_attribute, value_of};
pub use capture::{CAPTURE_RELAXED, CheckedOperations, while_current, with_capture_relaxed};
pub use one_kernel::{Code, OneKernel};
pub use parameters::{NodeParameters, UserFunction};
pub use structure::{Edges, InGraph, Links};
