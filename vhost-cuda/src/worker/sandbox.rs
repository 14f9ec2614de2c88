// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rights that a worker gives up before it executes anything for a guest.

mod files;
mod filter;
mod report;
mod rules;

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

use crate::args::Sandbox;
use crate::confine::Folders;

pub use files::is_supported as files_can_be_bounded;

/// The bounds of the worker besides the filter of system calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Which files it can reach and change: Landlock, or a root of its own.
    files: bool,
    /// A root of its own, in which only shared memory can be changed.
    root: bool,
    /// It may make sockets of the network, which its namespaces keep among the daemon's workers.
    sockets: bool,
    /// It maps only guest pages that were named, and one thread sets that up.
    named_pages: bool,
}

impl Bounds {
    /// For [`super::mapper`]: its thread may take a filter and a descriptor table of its own, and no mapping grows.
    pub fn with_named_pages(self) -> Self {
        Self { named_pages: true, ..self }
    }

    /// With the sockets that NCCL makes, if there is a root of its own: without it there are no namespaces either.
    pub fn with_sockets(self) -> Self {
        Self { sockets: self.root, ..self }
    }
}

/// No privileges, no core files (they would hold guest data), and only the files that CUDA needs. To be called first,
/// while the process has one thread: Landlock bounds the calling thread and those that it starts.
///
/// `own_root`: the process has the namespaces of the daemon's workers.
pub fn enter(sandbox: Sandbox, folders: &Folders, own_root: bool) -> io::Result<Bounds> {
    drop_privileges()?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    if matches!(sandbox, Sandbox::Off | Sandbox::Log) {
        return Ok(Bounds { files: own_root, root: own_root, ..Bounds::default() });
    }
    let bounded = files::bound(folders, own_root).map_err(io::Error::other)?;
    if !bounded {
        // Landlock would keep other workers from this one's memory.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(Bounds { files: bounded || own_root, root: own_root, ..Bounds::default() })
}

/// Gives up all capabilities, for good: also exec gives none back.
pub fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    // The kernel knows fewer than these; the first unknown number ends the list.
    for capability in 0..64 {
        // SAFETY: plain system call. It fails without CAP_SETPCAP, and then there is nothing to lose: exec gives
        // nothing to a process without new privileges but what is in the sets that are emptied below.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 {
            break;
        }
    }
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// Returns the filter that `auto` stands for.
fn chosen(sandbox: Sandbox, emulated: bool) -> Sandbox {
    match sandbox {
        Sandbox::Auto if emulated => Sandbox::Seccomp,
        Sandbox::Auto => Sandbox::Refuse,
        chosen => chosen,
    }
}

/// Returns whether system calls are going to be refused.
pub fn closes(sandbox: Sandbox, emulated: bool) -> bool {
    matches!(chosen(sandbox, emulated), Sandbox::Seccomp | Sandbox::Refuse)
}

/// From here on, in all threads, only the system calls that executing CUDA takes. To be called when libcuda is up
/// and the context made, which takes many more.
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

/// Sets the descriptor for messages of the sandbox; stderr itself is the guest's.
pub fn report_to(log: std::os::fd::RawFd) {
    report::to(log);
}

#[cfg(test)]
mod tests;
