// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The workers of this worker's virtual machine: the children of its daemon.

use std::fs;

/// Their process ids, this process's among them. Where the kernel does not list children: this process alone.
pub fn workers() -> Vec<u32> {
    // SAFETY: plain system call.
    let daemon = unsafe { libc::getppid() };
    let threads = fs::read_dir(format!("/proc/{daemon}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let mut workers: Vec<u32> = lists.flat_map(|list| pids(&list)).collect();
    let own = std::process::id();
    if !workers.contains(&own) {
        workers = vec![own];
    }
    workers
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
    }
}
