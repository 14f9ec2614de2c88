// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of a connection at one moment.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};
use vhost_cuda_common::statistics::Totals;

use crate::sessions::residence::{Moves, Phase};

/// Metrics of the daemon itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct DaemonReport {
    /// The number of ready workers without a session.
    pub warm_workers: u64,
    /// The number of workers that are starting.
    pub starting_workers: u64,
    /// The number of workers that were started.
    pub started_workers: u64,
    /// The number of workers that failed to start.
    pub failed_workers: u64,
}

/// Reasons for which a session or request of a guest is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `--max-sessions` are open.
    MachineSessions,
    /// `--max-user-sessions` of this user are open.
    UserSessions,
    /// The daemon has no descriptors left.
    Descriptors,
    /// The daemon has no address space left.
    AddressSpace,
    /// `--memory` leaves no room for a context.
    DeviceMemory,
    /// No worker could be started.
    Worker,
    /// Outstanding requests exceed their memory limit.
    RequestMemory,
    /// The request is malformed.
    Malformed,
}

impl Refusal {
    /// All reasons, in the order of their values.
    pub const ALL: [Self; 8] = [
        Self::MachineSessions,
        Self::UserSessions,
        Self::Descriptors,
        Self::AddressSpace,
        Self::DeviceMemory,
        Self::Worker,
        Self::RequestMemory,
        Self::Malformed,
    ];

    /// Returns the reason as a label's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::MachineSessions => "machine_sessions",
            Self::UserSessions => "user_sessions",
            Self::Descriptors => "descriptors",
            Self::AddressSpace => "address_space",
            Self::DeviceMemory => "device_memory",
            Self::Worker => "worker",
            Self::RequestMemory => "request_memory",
            Self::Malformed => "malformed",
        }
    }
}

/// Counts refusals by reason.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; Refusal::ALL.len()]);

impl Refusals {
    /// Counts one refusal.
    pub fn count(&self, reason: Refusal) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Goes on with counts of the program before this one, in the order of [`Refusal::ALL`].
    pub fn restore(&self, counts: &[u64]) {
        for (count, &before) in self.0.iter().zip(counts) {
            count.store(before, Ordering::Relaxed);
        }
    }

    /// Returns each reason with its count.
    pub fn counts(&self) -> impl Iterator<Item = (Refusal, u64)> {
        Refusal::ALL.into_iter().map(|reason| (reason, self.0[reason as usize].load(Ordering::Relaxed)))
    }
}

/// Metrics of an open session.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// The session's number in the log.
    pub label: u64,
    /// Name of the program, as the guest reports it, in printable characters.
    pub program: String,
    /// Process id in the guest.
    pub pid: u32,
    /// User id in the guest.
    pub uid: u32,
    /// Time since the session was opened.
    pub age: Duration,
    /// Requests in queues that are not answered yet.
    pub outstanding: u64,
    /// Counters of the worker.
    pub totals: Totals,
    /// CPU time and memory of the worker, unless the host hides them.
    pub process: Option<ProcessUse>,
    /// The host memory that is ready for its contents, in bytes.
    pub ready_memory: u64,
    /// Where its device memory is.
    pub moves: Moves,
}

impl SessionReport {
    /// The device memory that it has on the card, without its context, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let moves = &self.moves;
        if moves.phase == Phase::Suspended { moves.resident_bytes } else { self.totals.device_memory }
    }
}

/// Metrics of a connection.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// The connection's number in the log.
    pub connection: u64,
    /// Open sessions.
    pub sessions: Vec<SessionReport>,
    /// Sums of sessions that have ended.
    pub ended: Totals,
    /// Sessions that were closed by their programs.
    pub closed: u64,
    /// Sessions whose worker ended by itself or was ended.
    pub lost: u64,
    /// Refusals by reason.
    pub refused: Vec<(Refusal, u64)>,
}

/// Resources of the host that a process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessUse {
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes, including mapped guest memory.
    pub resident_bytes: u64,
}

impl ProcessUse {
    /// Reads `/proc/PID/stat` (proc_pid_stat(5)) of processes that share their memory.
    pub fn of(pids: impl Iterator<Item = u32>) -> Option<Self> {
        let mut uses = pids.map(|pid| Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?));
        let first = uses.next()??;
        let others: f64 = uses.flatten().map(|other| other.cpu_seconds).sum();
        Some(Self { cpu_seconds: first.cpu_seconds + others, ..first })
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name, in parentheses, may contain anything. Field 3 follows it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let (user, system, pages) = (field(14)?, field(15)?, field(24)?);
        Some(Self {
            cpu_seconds: (user + system) as f64 / clock_ticks_per_second() as f64,
            resident_bytes: pages.saturating_mul(page_size() as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_the_order_of_their_values() {
        for (index, reason) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        let refusals = Refusals::default();
        refusals.count(Refusal::Worker);
        let counted: Vec<_> = refusals.counts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(Refusal::Worker, 1)]);
    }

    #[test]
    fn a_process_may_have_any_name() {
        let stat =
            "7 (a) b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 100 9999 3 18446744073709551615 1";
        let used = ProcessUse::parse(stat).unwrap();
        let (ticks, page) = (clock_ticks_per_second(), page_size());
        assert_eq!(used, ProcessUse { cpu_seconds: 200.0 / ticks as f64, resident_bytes: 3 * page as u64 });
        assert!(
            ProcessUse::of(std::iter::once(std::process::id())).is_some_and(|own| own.resident_bytes > 0)
        );
        assert_eq!(ProcessUse::parse("7 (a"), None);
    }
}
