// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of a worker, which the daemon writes.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

/// The filter of the workers' system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sandbox {
    /// The strictest filter that the library supports.
    Auto,
    /// Filtered: other calls end the worker.
    Seccomp,
    /// Filtered: other calls fail with EPERM.
    Refuse,
    /// All calls are allowed. The kernel logs those that the filter would refuse.
    Log,
    /// Not filtered.
    #[value(alias = "none")]
    Off,
}

impl Sandbox {
    /// Returns the word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Seccomp => "seccomp",
            Self::Refuse => "refuse",
            Self::Log => "log",
            Self::Off => "off",
        }
    }
}

/// Options of a worker, chosen by the daemon.
#[derive(Clone, Debug, ClapArgs)]
pub struct WorkerArgs {
    /// The socket to the daemon.
    #[arg(long)]
    pub link_fd: i32,
    /// The socket to the daemon's exchange.
    #[arg(long)]
    pub exchange_fd: i32,
    /// The socket to the daemon's cache of images.
    #[arg(long)]
    pub images_fd: i32,
    /// The memory for its counters.
    #[arg(long)]
    pub statistics_fd: i32,
    /// The page of its gates, where virtual machines share GPU time.
    #[arg(long, requires = "share_bell_fd")]
    pub share_page_fd: Option<i32>,
    /// The bell that wakes the arbiter.
    #[arg(long)]
    pub share_bell_fd: Option<i32>,
    /// The socket that the process for mappings gets, if only named pages of guest memory may be mapped.
    #[arg(long)]
    pub pages_fd: Option<i32>,
    /// The lock that it holds until it has ended.
    #[arg(long)]
    pub lock_fd: Option<i32>,
    /// The libcuda to load.
    #[arg(long)]
    pub library: PathBuf,
    /// Folders of NVIDIA's libraries.
    #[arg(long)]
    pub libraries: Vec<PathBuf>,
    /// Allow sockets within the namespaces.
    #[arg(long)]
    pub nccl: bool,
    /// The maximum device memory of the session, in bytes.
    #[arg(long)]
    pub memory_limit: Option<u64>,
    /// The maximum time that work on a GPU may take, in milliseconds.
    #[arg(long)]
    pub time_limit: Option<u64>,
    /// Log the GPU memory that the context takes, and this number of such contexts.
    #[arg(long, value_name = "N")]
    pub announce_memory: Option<u32>,
    /// Threads for large copies.
    #[arg(long, default_value_t = 1)]
    pub copy_threads: u32,
    /// The filter of its system calls.
    #[arg(long, value_enum, default_value = "auto")]
    pub sandbox: Sandbox,
    /// True if the library is the emulator.
    #[arg(long)]
    pub emulated: bool,
    /// True if all that makes calls faster is off.
    #[arg(long)]
    pub plain: bool,
    /// True if it runs in the namespaces of the daemon's workers.
    #[arg(long)]
    pub namespaces: bool,
    /// Serve GPUs that access pageable memory.
    #[arg(long)]
    pub allow_pageable_access: bool,
    /// The level of the worker's messages.
    #[arg(long, default_value = "info")]
    pub worker_log_level: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_are_called_what_they_are_called() {
        for &sandbox in Sandbox::value_variants() {
            assert_eq!(Sandbox::from_str(sandbox.name(), false), Ok(sandbox));
        }
    }
}
