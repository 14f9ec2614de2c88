// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The life of the process that holds the session: alive, forked child, or exiting.

use std::fs;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::{CudaError, session};

const ALIVE: u8 = 0;
const FORKED: u8 = 1;
const EXITING: u8 = 2;

static PHASE: AtomicU8 = AtomicU8::new(ALIVE);
/// Set if the process has forked since the session was opened.
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// The kernel's flag of processes that have forked and not executed another program since (`PF_FORKNOEXEC`).
const FORKED_WITHOUT_EXEC: u64 = 0x40;

/// Checks that calls may be made. They may not in the child of a fork, whose session is its parent's, nor after the
/// library's destructor has run.
pub fn check() -> Result<(), CudaError> {
    match PHASE.load(Ordering::Relaxed) {
        ALIVE => Ok(()),
        FORKED => Err(CudaError::NOT_INITIALIZED),
        _ => Err(CudaError::DEINITIALIZED),
    }
}

/// Makes every later call return `CUDA_ERROR_DEINITIALIZED`.
pub fn exiting() {
    // A forked child stays one.
    let _ = PHASE.compare_exchange(ALIVE, EXITING, Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns whether another process may have shared mappings in common with this one because of a fork.
pub(crate) fn may_share_mappings() -> bool {
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

/// From now on, a forked child leaves the session to its parent and returns `CUDA_ERROR_NOT_INITIALIZED` from
/// every call.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `in_child` may run in a forked child: see there.
        let rc = unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
        if rc != 0 {
            log::error!("pthread_atfork failed ({rc}): do not use fork in this process");
        }
    });
}

extern "C" fn in_parent() {
    HAS_FORKED.store(true, Ordering::Relaxed);
}

/// Runs in a forked child, whose other threads have ended in any state: takes no lock and allocates nothing.
extern "C" fn in_child() {
    PHASE.store(FORKED, Ordering::Relaxed);
    if let Some(session) = session::current() {
        session.transport().in_child();
    }
}
