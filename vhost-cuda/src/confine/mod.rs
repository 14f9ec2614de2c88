// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's part of the confinement of workers. `worker::sandbox` has the other part.
//!
//! * [`own`] changes the daemon itself: other processes cannot read its memory, and it may create namespaces.
//! * [`namespaces`] gives all workers of a daemon PID, mount, network and IPC namespaces of their own, and with
//!   [`tree`] a root with only the files that libcuda needs.
//! * [`threads`] confines the daemon's threads that read the bytes of guests and workers.
//!
//! [`vhost_cuda_common::confine::paths`] lists these files. The worker's Landlock rules use the same list.
//!
//! The workers of one daemon share their namespaces, because CUDA's IPC between processes of a guest needs that:
//! libcuda finds the other process by its process id and by an abstract socket.

pub mod keeper;
mod loopback;
pub mod namespaces;
pub mod own;
pub mod threads;
mod tree;

use std::process::Command;

use vhost_cuda_common::confine::CACHE_VARIABLE;

/// Disables that cache.
const NO_CACHE_VARIABLE: &str = "CUDA_CACHE_DISABLE";

/// Disables the cache of NVIDIA's library, which all sessions would share: code that one session writes there would
/// run in another. An operator who sets a folder accepts that.
pub fn environment(command: &mut Command) {
    if std::env::var_os(CACHE_VARIABLE).is_none() {
        command.env(NO_CACHE_VARIABLE, "1");
    }
}
