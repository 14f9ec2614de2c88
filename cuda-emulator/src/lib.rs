// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CUDA device made of host code: PTX is parsed (`ptx`), lowered to a flat register program (`lower`), and executed by
//! host threads (`execute`) on an address space of its own (`memory`).

mod checks;
pub mod conditions;
pub mod driver;
pub mod execute;
pub use cuda_fatbin as fatbin;
mod jit;
pub mod launch;
mod lower;
pub mod memory;
pub mod nested;
pub mod program;
mod ptx;
pub mod texture;
