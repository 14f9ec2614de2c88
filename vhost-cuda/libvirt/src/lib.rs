// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attaches the CUDA device to domains of libvirt, and detaches it.
//!
//! [`attach`] and [`detach`] change the text of a domain's XML and know nothing of this host. [`host`] and [`virsh`] do.

pub mod args;
pub mod attach;
pub mod command;
pub mod detach;
mod edits;
pub mod host;
mod memory;
mod names;
mod record;
mod same;
pub mod virsh;

#[cfg(test)]
mod transformation_test;
