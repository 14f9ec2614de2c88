// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's descriptors: as many as the kernel allows, divided before they run out.
//!
//! A process without descriptors cannot accept a connection, start a worker or receive a file from one. So each
//! connection, session and shared file takes its share of a budget first, and is refused without.

use std::sync::Arc;

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vhost_cuda_common::budget::Budget;

use crate::cache::MAX_IMAGES;

/// The daemon itself: standard streams, the listener, the pool, the log, and temporary descriptors.
const DAEMON: usize = 64;
/// A worker: three sockets, the process and its mapper, its messages, its counters, the listener of its mappings; and one more
/// while it starts.
pub const WORKER: usize = 9;
/// A connection: its socket and that between relay and library, twice, the dirty log, the migration stream, and regions of
/// memory, whose files are open three times.
const CONNECTION: usize = 112;
/// A queue: its poller, two events of its thread, and three events of the front-end, twice.
const QUEUE: usize = 11;
/// The minimum and maximum number of files that a machine may share, independent of the number of sessions.
const MIN_MACHINE_FILES: usize = 64;
const MAX_MACHINE_FILES: usize = 4096;

/// The division of the descriptors.
#[derive(Clone, Debug)]
pub struct Descriptors {
    /// The budget of all descriptors.
    pub budget: Arc<Budget>,
    /// The descriptors of one connection, without sessions and shared files.
    pub connection: usize,
    /// The maximum number of files that one machine may share.
    pub machine_files: usize,
    /// The maximum number of files that one user of a machine may share. The rest is for the other users.
    pub user_files: usize,
}

impl Descriptors {
    /// Raises the process's limit as far as possible, and divides it.
    ///
    /// Errors: the limit is too low for one machine with the given options.
    pub fn share_out(num_queues: u32, max_sessions: u32, warm_workers: u32) -> anyhow::Result<Self> {
        Self::of(raise_limit(), [num_queues, max_sessions, warm_workers].map(|count| count as usize))
    }

    fn of(limit: usize, [num_queues, max_sessions, warm_workers]: [usize; 3]) -> anyhow::Result<Self> {
        let daemon = DAEMON + MAX_IMAGES + warm_workers * WORKER;
        let connection = CONNECTION + (num_queues + 1) * QUEUE;
        let machine = connection + max_sessions * WORKER + MIN_MACHINE_FILES;
        if daemon + machine > limit {
            bail!(
                "--max-sessions {max_sessions} and --warm-workers {warm_workers} need {} open files, and the limit is \
                 {limit}: raise it (LimitNOFILE= of a systemd unit, `ulimit -Hn`), or lower --max-sessions",
                daemon + machine
            );
        }
        Ok(Self::with(limit - daemon, connection, (limit / 4).clamp(MIN_MACHINE_FILES, MAX_MACHINE_FILES)))
    }

    fn with(budget: usize, connection: usize, machine_files: usize) -> Self {
        let user_files = machine_files / 4 * 3;
        Self { budget: Budget::new(budget), connection, machine_files, user_files }
    }

    /// For tests: more than they need.
    #[cfg(test)]
    pub fn plenty() -> Self {
        Self::with(100_000, 1, MAX_MACHINE_FILES)
    }
}

/// Raises the soft limit of open files to the hard one, and returns it. Workers inherit it.
fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let files = if raised { maximum } else { current };
    files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_do_not_fit_are_refused_with_what_they_need() {
        let refused = Descriptors::of(1024, [2, 1024, 1]).unwrap_err().to_string();
        assert!(refused.contains("--max-sessions 1024") && refused.contains("1024:"), "{refused}");
        assert!(Descriptors::of(16384, [2, 1024, 1]).is_ok());
        // The default options fit where the hard limit equals the usual soft one.
        let usual = Descriptors::of(1024, [2, 64, 1]).unwrap();
        assert_eq!((usual.machine_files, usual.user_files), (256, 192));
    }

    #[test]
    fn the_soft_limit_is_raised() {
        let limit = raise_limit();
        assert_eq!(raise_limit(), limit);
        assert!(limit >= 1024);
    }
}
