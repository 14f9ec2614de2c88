// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The workers of this worker's virtual machine: all processes of their PID namespace, or without one the children of
//! the daemon.

use std::fs;
use std::os::unix::process::parent_id;

/// Returns their process ids, including this process. Where the kernel does not list children, returns this process
/// alone.
pub fn workers() -> Vec<u32> {
    let daemon = parent_id();
    // A parent outside of the namespace has no id in it.
    let mut workers = if daemon == 0 { all() } else { children(daemon) };
    let own = std::process::id();
    if !workers.contains(&own) {
        workers = vec![own];
    }
    workers
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn children(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| pids(&list)).collect()
}

fn pids(list: &str) -> Vec<u32> {
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_one() {
        assert_eq!(pids("12 345 \n"), [12, 345]);
        assert!(workers().contains(&std::process::id()));
        assert!(all().contains(&std::process::id()));
    }
}
