// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's own process.

use std::fs;
use std::io;

use anyhow::{Context, bail};
use rustix::process::{DumpableBehavior, getegid, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities, unshare_unsafe,
};

/// The namespaces of workers.
pub const OF_WORKERS: UnshareFlags =
    UnshareFlags::NEWNS.union(UnshareFlags::NEWPID).union(UnshareFlags::NEWNET).union(UnshareFlags::NEWIPC);

/// Refuses to run as the host's root, unless the operator allows it: a vulnerability in the daemon or in the GPU's
/// driver would expose the host.
pub fn check_user(allow_root: bool) -> anyhow::Result<()> {
    if geteuid().is_root() && !allow_root && is_root_of_host(&fs::read_to_string("/proc/self/uid_map")?) {
        bail!(
            "running as root: start the daemon as a user of its own for each virtual machine, with access to the \
             GPU's device nodes and to the folder of the socket, or say --allow-root"
        );
    }
    Ok(())
}

/// Returns whether user 0 of a map is user 0 of the host, and not of a container with its own users.
fn is_root_of_host(map: &str) -> bool {
    map.lines().any(|line| line.split_whitespace().take(2).eq(["0", "0"]))
}

/// Prevents other processes of the same user from accessing the daemon's memory and descriptors (`/proc/PID/mem`,
/// `ptrace`, `pidfd_getfd`).
pub fn hide_memory() -> anyhow::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("Cannot make the daemon non-dumpable")
}

/// Allows the daemon to create namespaces. Without CAP_SYS_ADMIN it enters a user namespace of its own, in which
/// users and groups keep their ids. Must be called while the process has one thread.
///
/// Errors: this host does not allow it. Nothing has changed then.
pub fn may_make_namespaces() -> io::Result<()> {
    if capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    // A user namespace cannot be left, and some hosts give no rights in one, so a child tries it first.
    try_in_child(UnshareFlags::NEWUSER | OF_WORKERS)?;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: the descriptors' table is not unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER)? };
    // Without privileges only one id can be mapped, and groups cannot be changed any more.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Lets the calling thread keep its capabilities, in a user namespace of its own, when it executes a program. [`drop_ambient`]
/// follows in that program.
pub fn keep_capabilities() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    if geteuid().is_root() || !sets.effective.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets)?;
    sets.permitted.iter().try_for_each(|one| Ok(configure_capability_in_ambient_set(one, true)?))
}

/// Keeps the capabilities that [`keep_capabilities`] has passed on from the programs that this one starts.
pub fn drop_ambient() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let sets = capabilities(None)?;
    Ok(set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::empty(), ..sets })?)
}

fn try_in_child(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the child makes system calls only, and ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the child makes system calls only; the table of descriptors is not unshared.
        let status = unsafe { unshare_unsafe(flags) }.map_or_else(|error| error.raw_os_error(), |()| 0);
        // SAFETY: does not return.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: `status` is a local, the child is this function's and waited for once.
    if child < 0 || unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        return Err(io::Error::last_os_error());
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, number) => Err(io::Error::from_raw_os_error(number)),
        (false, _) => Err(io::Error::other("the trial was killed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_in_a_container_with_its_own_users_is_not_the_hosts() {
        assert!(is_root_of_host("         0          0 4294967295\n"));
        assert!(!is_root_of_host("         0       1000          1\n         1     100000      65536\n"));
    }

    #[test]
    fn a_trial_says_why_not() {
        // Flags that the kernel does not know: there is no namespace of threads.
        let unknown = UnshareFlags::from_bits_retain(libc::CLONE_PARENT_SETTID as u32);
        assert_eq!(try_in_child(unknown).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(try_in_child(UnshareFlags::empty()).is_ok());
    }
}
