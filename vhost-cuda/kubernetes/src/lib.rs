// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parts of GPUs for Kubernetes: a device plugin of the kubelet, or a driver of dynamic resource allocation (DRA). It starts a
//! daemon for each container that has *shards* of a GPU, or for each *claim*. A shard is a fixed amount of device memory, and a part
//! of the weight by which GPU time is shared; a claim has an amount of each.
//! `docs/kubernetes.md` is for operators, `README.md` for readers of the code.

pub mod api;
pub mod args;
mod authority;
mod bytes;
mod cdi;
mod claim;
mod container;
mod daemons;
mod dra;
mod folder;
mod gpus;
mod identity;
mod kubelet;
mod owner;
mod process;
mod run;
mod service;
mod settings;
mod shards;
mod shared;
mod sockets;

pub use run::run;
