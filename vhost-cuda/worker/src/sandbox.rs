// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drops the worker's rights before it executes calls for a guest.

mod files;
mod filter;
mod ioctls;
mod report;
mod rules;

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use vhost_cuda_common::args::Sandbox;
use vhost_cuda_common::confine::Folders;
use vhost_cuda_common::confine::rights;

/// The restrictions of the worker besides the system call filter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// True if the files that it can access are restricted, by Landlock or a root of its own.
    files: bool,
    /// True with a root of its own, in which only shared memory is writable.
    root: bool,
    /// True if it may create network sockets, which its namespaces restrict to the daemon's workers.
    sockets: bool,
    /// True if it maps only named guest pages.
    named_pages: bool,
}

impl Bounds {
    /// For [`super::memory::mapper`]: no mapping grows.
    pub fn with_named_pages(self) -> Self {
        Self { named_pages: true, ..self }
    }

    /// Allows the sockets that NCCL creates, if there is a root of its own: without it there are no namespaces
    /// either.
    pub fn with_sockets(self) -> Self {
        Self { sockets: self.root, ..self }
    }
}

/// Drops privileges, core files (they would hold guest data) and access to all files except those that CUDA needs. No
/// other process of this user reaches the process's memory and descriptors, not even its mapper's.
/// Must be called first, while the process has one thread: Landlock restricts the calling thread and those that it
/// starts.
///
/// `own_root` is true if the process has the namespaces of the daemon's workers.
pub fn enter(sandbox: Sandbox, folders: &Folders, own_root: bool) -> io::Result<Bounds> {
    rights::drop_privileges()?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    if sandbox != Sandbox::Off {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    if matches!(sandbox, Sandbox::Off | Sandbox::Log) {
        return Ok(Bounds { files: own_root, root: own_root, ..Bounds::default() });
    }
    let bounded = files::bound(folders, own_root).map_err(io::Error::other)?;
    Ok(Bounds { files: bounded || own_root, root: own_root, ..Bounds::default() })
}

/// Returns the filter that `auto` selects.
fn chosen(sandbox: Sandbox, emulated: bool) -> Sandbox {
    match sandbox {
        Sandbox::Auto if emulated => Sandbox::Seccomp,
        Sandbox::Auto => Sandbox::Refuse,
        chosen => chosen,
    }
}

/// Returns whether system calls will be refused.
pub fn closes(sandbox: Sandbox, emulated: bool) -> bool {
    matches!(chosen(sandbox, emulated), Sandbox::Seccomp | Sandbox::Refuse)
}

/// From now on, allows only the system calls that executing CUDA needs, in all threads. Must be called after libcuda
/// is initialised and the context is created, which need many more.
pub fn close(sandbox: Sandbox, emulated: bool, bounds: Bounds) -> anyhow::Result<()> {
    let sandbox = chosen(sandbox, emulated);
    if sandbox == Sandbox::Off {
        return Ok(());
    }
    report::install()?;
    for program in filter::programs(sandbox, emulated, bounds)? {
        seccompiler::apply_filter_all_threads(&program)?;
    }
    Ok(())
}

/// Sets the descriptor for messages of the sandbox, because stderr itself belongs to the guest.
pub fn report_to(log: std::os::fd::RawFd) {
    report::to(log);
}

#[cfg(test)]
mod tests;
