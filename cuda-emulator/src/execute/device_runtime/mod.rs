// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of NVIDIA's device runtime that kernels call, under both names that they have: nvcc's header makes
//! `__cudaCDP2X` of `cudaX`.

mod caller;
mod graphs;
mod launches;
mod queries;
mod streams;
mod transfers;

use crate::code::Handler;

/// The handler for a function of the device runtime; how many arguments it takes.
pub(super) fn select(name: &str) -> Option<(Handler, usize)> {
    let name = name.strip_prefix("__cudaCDP2").or_else(|| name.strip_prefix("cuda"))?;
    // With streams of threads as the default: the same for a kernel.
    let name = name.strip_suffix("_ptsz").unwrap_or(name);
    let sources = [graphs::select, launches::select, queries::select, streams::select, transfers::select];
    sources.iter().find_map(|select| select(name))
}
