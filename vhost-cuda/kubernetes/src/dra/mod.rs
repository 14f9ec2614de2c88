// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of Kubernetes' dynamic resource allocation (DRA): claims with memory and weight, instead of shards.

mod cluster;
mod driver;
mod object;
mod publish;
mod quantity;
mod sockets;

pub use cluster::Cluster;
pub use driver::Driver;
pub use publish::publish;
pub use sockets::{endpoint, serve};
