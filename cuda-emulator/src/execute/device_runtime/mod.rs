// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of NVIDIA's device runtime that kernels call, under both of their names: nvcc's header turns `cudaX`
//! into `__cudaCDP2X`.

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
    // The names for the per-thread default stream. A kernel treats both alike.
    let name = name.strip_suffix("_ptsz").unwrap_or(name);
    let sources = [graphs::select, launches::select, queries::select, streams::select, transfers::select];
    sources.iter().find_map(|select| select(name))
}
