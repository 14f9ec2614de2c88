// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The forks from which this process came, and its own, as far as they are known.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set if the process has forked since the session was opened.
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// The kernel's flag of processes that have forked and not executed another program since (`PF_FORKNOEXEC`).
const FORKED_WITHOUT_EXEC: u64 = 0x40;

/// Notes that the process forks. Takes no lock and allocates nothing.
pub fn note() {
    HAS_FORKED.store(true, Ordering::Relaxed);
}

/// Returns whether another process may have shared mappings in common with this one because of a fork.
pub fn may_share_mappings() -> bool {
    HAS_FORKED.load(Ordering::Relaxed) || is_fork().unwrap_or(true) || has_children().unwrap_or(true)
}

/// Returns whether the process came from a fork, and still executes its parent's program. `None`: unknown.
fn is_fork() -> Option<bool> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in brackets, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let flags: u64 = fields.split_whitespace().nth(6)?.parse().ok()?;
    Some(flags & FORKED_WITHOUT_EXEC != 0)
}

fn has_children() -> Option<bool> {
    let mut tasks = fs::read_dir("/proc/self/task").ok()?;
    tasks.try_fold(false, |any, task| {
        // A thread that has just ended has none.
        let children = fs::read_to_string(task.ok()?.path().join("children")).unwrap_or_default();
        Some(any || !children.trim().is_empty())
    })
}
