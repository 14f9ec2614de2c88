// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Long managed allocations, whose contents move to where they are used. Each has device memory, and pages in the
//! program, at the same address. A block of it belongs to the program or the GPU. Before work that may use it, the
//! blocks of the program are sent and unmapped ([`transfer`]). The program's next access then faults ([`crate::state::moving::faults`]); a
//! thread of this library waits for the GPU, fetches the block and wakes the program ([`attend`]). If it may not wait, the
//! program and the GPU share the block ([`shared`]). If the program prefers it, an allocation stays in host memory
//! ([`rest`]).
//!
//! The program may access managed memory when the GPU's work is done. CUDA guarantees no more on devices whose
//! `CONCURRENT_MANAGED_ACCESS` is 0, which [`crate::device`] reports for every device.

pub mod attend;
pub mod placed;
pub mod rest;
pub mod shared;
pub mod transfer;
