// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The tables of the library: what exists, and what is known about it. They make no calls.

pub mod answers;
pub mod arrays;
pub mod buffers;
pub mod callbacks;
pub mod captures;
pub mod contexts;
pub mod devices;
pub mod externals;
pub mod functions;
pub mod greens;
pub mod kept;
pub mod links;
pub mod memory;
pub mod modules;
pub mod pools;
pub mod proven;
pub mod reached;
pub mod references;
pub mod reservations;
pub mod streams;
pub mod textures;
