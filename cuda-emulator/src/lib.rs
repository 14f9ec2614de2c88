// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CUDA device made of host code: PTX is parsed (`ptx`), lowered (`lower`) to a flat register program (`code`), and executed
//! by host threads (`execute`) on an address space of its own (`memory`). Hot functions are translated (`jit`) and then
//! entered by the executor (`native`).

mod checks;
mod code;
pub use code::program;
pub mod conditions;
pub mod driver;
pub mod execute;
pub use cuda_fatbin as fatbin;
mod jit;
pub mod launch;
mod lower;
pub mod memory;
mod native;
pub mod nested;
mod ptx;
mod requests;
pub mod symbols;
mod tensor_map;
pub mod texture;
mod vectors;
