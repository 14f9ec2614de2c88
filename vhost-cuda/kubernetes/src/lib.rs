// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device plugin of Kubernetes' kubelet. It advertises *shards* of the node's GPUs, and starts a daemon for each container
//! that has some. A shard is a fixed amount of device memory, and a part of the weight by which GPU time is shared.
//! `docs/kubernetes.md` is for operators, `README.md` for readers of the code.

pub mod api;
pub mod args;
mod authority;
mod bytes;
mod daemons;
mod folder;
mod gpus;
mod kubelet;
mod process;
mod run;
mod service;
mod shards;
mod sockets;

pub use run::run;
