// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that a worker needs.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Read-only: libraries, the linker's files, and the files in which NVIDIA's driver describes itself and the machine.
/// Files that do not exist on a host are left out.
pub const READ: &[&str] = &[
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/run/opengl-driver",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nvidia",
    "/sys",
];

/// The kernel's view of processes. In a tree it is a file system of its own.
pub const PROC: &str = "/proc";
/// This process in [`PROC`].
pub const OWN: &str = "/proc/self";
/// The threads of this process. libcuda names its threads through files in here, and does not start without that.
pub const THREADS: &str = "/proc/self/task";
/// Parts of [`PROC`] that change the machine. Root can write some of them even without a capability.
pub const SETTINGS: [&CStr; 10] = [
    c"/proc/acpi",
    c"/proc/asound",
    c"/proc/bus",
    c"/proc/driver",
    c"/proc/fs",
    c"/proc/irq",
    c"/proc/mtrr",
    c"/proc/scsi",
    c"/proc/sys",
    c"/proc/sysrq-trigger",
];
/// Named shared memory, which libcuda uses for events between processes.
pub const SHM: &str = "/dev/shm";

const DEV: &str = "/dev";
/// Device nodes by name, and by a prefix of their name: the GPU's (also WSL's) and harmless ones.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "dxg"];
const NODES_OF: &str = "nvidia";

/// Returns the files and folders of [`PROC`] that describe the machine, and no process.
pub fn of_machine() -> Vec<PathBuf> {
    let entries = fs::read_dir(PROC).into_iter().flatten().flatten();
    let named = entries.filter(|entry| !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    // Links lead to processes.
    let files = named.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    files.map(|entry| entry.path()).collect()
}

/// Returns the device nodes of this host that workers may use, and folders of such nodes.
pub fn nodes() -> Vec<PathBuf> {
    let entries = fs::read_dir(DEV).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        NODES.iter().any(|node| name == *node) || name.as_encoded_bytes().starts_with(NODES_OF.as_bytes())
    });
    let mut nodes: Vec<PathBuf> = named.map(|entry| Path::new(DEV).join(entry.file_name())).collect();
    nodes.sort();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described_without_processes() {
        let files = of_machine();
        assert!(
            files.contains(&PathBuf::from("/proc/cpuinfo")) && files.contains(&PathBuf::from("/proc/sys"))
        );
        assert!(!files.contains(&PathBuf::from("/proc/1")) && !files.contains(&PathBuf::from(OWN)));
    }

    #[test]
    fn nodes_are_few() {
        let nodes = nodes();
        assert!(nodes.contains(&PathBuf::from("/dev/null")));
        let harmless = |node: &PathBuf| {
            let name = node.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(NODES_OF) || NODES.contains(&name)
        };
        assert!(nodes.iter().all(harmless), "{nodes:?}");
    }
}
