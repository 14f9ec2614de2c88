// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The tables of the library: what exists, and what is known about it. They make no calls, except that a mark of a host
//! pool destroys its event ([`local_pools::mark`]).

pub mod advice;
pub mod arrays;
pub mod buffers;
pub mod callbacks;
pub mod captures;
pub mod contexts;
pub mod devices;
pub mod dumps;
pub mod externals;
pub mod greens;
pub mod in_callback;
pub mod kept;
pub mod local_pools;
pub mod memory;
pub mod modules;
pub mod moving;
pub mod parked;
pub mod pools;
pub mod reached;
pub mod references;
pub mod reservations;
pub mod retraced;
pub mod streams;
pub mod tensor_maps;
pub mod textures;
