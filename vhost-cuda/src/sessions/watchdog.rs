// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends sessions that exceed their limit of device memory.
//!
//! Workers count the memory that they request from the driver ([`crate::limits::account`], `worker::memory::quota`).
//! A compromised worker does not have to, and the driver may need more than expected. So the daemon compares the
//! values that NVIDIA's management library reports for each process with the limits. The library is not loaded
//! without a limit, nor with the emulator.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, info, log, warn};
use vhost_cuda_common::account::CONTEXT_BYTES;
use vhost_cuda_common::nvml::Nvml;

use crate::sessions::session::Session;

/// The minimum time between two checks, and the maximum random time beside it, in milliseconds. A worker that knew the
/// moment of the next check could be below its limit then.
const INTERVAL: u64 = 250;
const JITTER: u64 = 500;
/// The number of checks above the limit, among the last [`WINDOW`], after which a session is ended. Memory that is
/// being freed may show once or twice. Consecutive checks would not find a worker that exceeds its limit for half of
/// the time.
const PATIENCE: u32 = 3;
/// The number of checks that are remembered.
const WINDOW: u32 = 8;
/// The number of checks that list none of the workers, after which the watchdog reports that it cannot see any.
const BLIND: u32 = 4;
/// The memory in bytes that the driver may keep additionally: a block of each pool.
const TOLERANCE: u64 = 64 << 20;
/// The driver's tables for host memory that is ready for contents take 1/512 of it on the card. Twice that is allowed.
const POOL_PART: u64 = 256;
/// The time between two warnings of the same kind.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The limits, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The limit of a session.
    pub session: Option<u64>,
    /// The limit of a machine.
    pub machine: Option<u64>,
}

/// The memory that a session's worker uses on all GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    /// The number of GPUs that it uses. It may have a context on each.
    gpus: u64,
}

/// What the limits apply to: a session by its id, or a machine by its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Session(u64),
    Machine(u64),
}

/// The subjects that exceeded a limit in one of the last [`WINDOW`] checks. Bit 0 is the last one.
#[derive(Debug, Default)]
struct History(HashMap<Subject, u8>);

const _: () = assert!(WINDOW == u8::BITS);

/// One machine: its connection and its open sessions.
pub type Machine = (u64, Vec<Arc<Session>>);

/// Watches the sessions of the machines that `machines` lists. `warm` lists the processes of ready workers without a
/// session, which hold a context on a GPU, too.
pub fn start(
    limits: Limits,
    machines: impl Fn() -> Vec<Machine> + Send + 'static,
    warm: impl Fn() -> Vec<u32> + Send + 'static,
) -> std::io::Result<()> {
    if limits.session.is_none() && limits.machine.is_none() {
        return Ok(());
    }
    let watch = move || {
        let gpus = Nvml::all();
        if gpus.is_empty() {
            warn!(
                "limits of device memory are not watched: NVIDIA's management library shows no GPU. Workers keep them \
                 as long as nobody has taken one over"
            );
            return;
        }
        info!("limits of device memory are watched on {} GPU(s)", gpus.len());
        watch(limits, &gpus, machines, warm);
    };
    thread::Builder::new().name("watchdog".into()).spawn(watch).map(drop)
}

fn watch(
    limits: Limits,
    gpus: &[Nvml],
    machines: impl Fn() -> Vec<Machine>,
    warm: impl Fn() -> Vec<u32>,
) -> ! {
    let mut history = History::default();
    let mut sight = Sight::default();
    let mut warned: Option<Instant> = None;
    loop {
        let machines = machines();
        let mut workers = if sight.is_known() { Vec::new() } else { warm() };
        let is_idle = machines.iter().all(|(_, sessions)| sessions.is_empty());
        if !is_idle || !workers.is_empty() {
            let processes: Vec<_> = gpus.iter().filter_map(Nvml::processes).collect();
            workers.extend(
                machines.iter().flat_map(|(_, sessions)| sessions).map(|session| session.worker_pid()),
            );
            if sight.look(&workers, &processes) {
                warn!(
                    "limits of device memory are not watched: NVIDIA's management library does not list the workers of \
                     this daemon, for example because it runs in a container without the host's PID namespace. Workers \
                     keep their limits as long as nobody has taken one over"
                );
            }
            for session in exceeding(limits, &machines, &processes, &mut history) {
                let quiet = warned.is_some_and(|before| before.elapsed() < WARNING_INTERVAL);
                let level = if quiet { Level::Debug } else { Level::Warn };
                log!(
                    level,
                    "{}: ended: it uses {} MiB of device memory, more than its limit allows",
                    session.0.describe(),
                    session.1.bytes >> 20
                );
                warned = if quiet { warned } else { Some(Instant::now()) };
                session.0.end_worker();
            }
        }
        let jitter = getrandom::u64().unwrap_or(0) % JITTER;
        thread::sleep(Duration::from_millis(INTERVAL + jitter));
    }
}

/// Records one check. Returns the sessions to end, and what they use.
fn exceeding<'a>(
    limits: Limits,
    machines: &'a [Machine],
    processes: &[Vec<(u32, u64)>],
    history: &mut History,
) -> Vec<(&'a Arc<Session>, Usage)> {
    let mut above = Vec::new();
    for (connection, sessions) in machines {
        let pids: Vec<u32> = sessions.iter().map(|session| session.worker_pid()).collect();
        let mut usages = usages(&pids, processes);
        for (usage, session) in usages.iter_mut().zip(sessions) {
            usage.bytes = usage.bytes.saturating_sub(session.residence().pool_bytes() / POOL_PART);
        }
        match excess(limits, &usages) {
            Excess::None => {}
            Excess::Sessions(found) => above.extend(
                found
                    .into_iter()
                    .map(|index| (Subject::Session(sessions[index].id()), &sessions[index], usages[index])),
            ),
            Excess::Machine { largest } => {
                above.push((Subject::Machine(*connection), &sessions[largest], usages[largest]));
            }
        }
    }
    let subjects: Vec<Subject> = above.iter().map(|(subject, ..)| *subject).collect();
    let due = history.record(&subjects);
    above.retain(|(subject, ..)| due.contains(subject));
    above.into_iter().map(|(_, session, usage)| (session, usage)).collect()
}

impl History {
    /// Records that these subjects, and no others, exceed a limit. Returns those that have done so too often, whose
    /// history begins anew.
    fn record(&mut self, above: &[Subject]) -> Vec<Subject> {
        self.0.retain(|_, looks| {
            *looks <<= 1;
            *looks != 0
        });
        let mut due = Vec::new();
        for &subject in above {
            let looks = self.0.entry(subject).or_default();
            *looks |= 1;
            if looks.count_ones() >= PATIENCE {
                self.0.remove(&subject);
                due.push(subject);
            }
        }
        due
    }
}

/// Whether the library lists the daemon's workers: `None` until it is known.
#[derive(Debug, Default)]
struct Sight {
    known: Option<bool>,
    /// The number of checks in a row that have listed none of them.
    missed: u32,
}

impl Sight {
    fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Compares the daemon's workers with the library's lists. Returns true once it is clear that they are not listed.
    fn look(&mut self, workers: &[u32], processes: &[Vec<(u32, u64)>]) -> bool {
        if self.is_known() || workers.is_empty() {
            return false;
        }
        if processes.iter().flatten().any(|(pid, _)| workers.contains(pid)) {
            self.known = Some(true);
            return false;
        }
        self.missed += 1;
        // A worker that has just started, or is ending, may be missing.
        if self.missed < BLIND {
            return false;
        }
        self.known = Some(false);
        true
    }
}

/// Returns the memory that each of these processes uses. `processes` has one list per GPU.
fn usages(pids: &[u32], processes: &[Vec<(u32, u64)>]) -> Vec<Usage> {
    let of = |pid: u32| {
        processes.iter().fold(Usage::default(), |usage, gpu| {
            let bytes: u64 = gpu.iter().filter(|(other, _)| *other == pid).map(|(_, bytes)| bytes).sum();
            Usage { bytes: usage.bytes.saturating_add(bytes), gpus: usage.gpus + u64::from(bytes > 0) }
        })
    };
    pids.iter().map(|&pid| of(pid)).collect()
}

/// The limit that a machine exceeds.
#[derive(Debug, PartialEq, Eq)]
enum Excess {
    None,
    /// Sessions that exceed their own limit.
    Sessions(Vec<usize>),
    /// All sessions together exceed the machine's limit.
    Machine {
        largest: usize,
    },
}

/// Compares the sessions of one machine with the limits.
fn excess(limits: Limits, usages: &[Usage]) -> Excess {
    let allowed = |usage: &Usage, limit: u64| {
        limit.saturating_add(usage.gpus.max(1).saturating_mul(CONTEXT_BYTES)).saturating_add(TOLERANCE)
    };
    let too_large = |usage: &Usage| limits.session.is_some_and(|limit| usage.bytes > allowed(usage, limit));
    let found: Vec<usize> = (0..usages.len()).filter(|&index| too_large(&usages[index])).collect();
    let sum = usages.iter().fold(0u64, |sum, usage| sum.saturating_add(usage.bytes));
    // One context is free for a machine, and the others are charged. Each session may have blocks of the driver.
    let tolerance = TOLERANCE.saturating_mul(usages.len() as u64);
    let machine = limits.machine.map(|limit| limit.saturating_add(CONTEXT_BYTES).saturating_add(tolerance));
    if !found.is_empty() {
        return Excess::Sessions(found);
    }
    let largest = (0..usages.len()).max_by_key(|&index| usages[index].bytes);
    match largest {
        Some(largest) if machine.is_some_and(|machine| sum > machine) => Excess::Machine { largest },
        _ => Excess::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn used(bytes: u64) -> Usage {
        Usage { bytes, gpus: 1 }
    }

    #[test]
    fn processes_are_found_on_all_gpus() {
        let lists = [vec![(7, 100), (8, 1)], vec![(7, 10)], vec![]];
        let expected =
            [Usage { bytes: 110, gpus: 2 }, Usage { bytes: 1, gpus: 1 }, Usage { bytes: 0, gpus: 0 }];
        assert_eq!(usages(&[7, 8, 9], &lists), expected);
    }

    #[test]
    fn a_session_may_have_its_limit_and_a_context() {
        let limits = Limits { session: Some(GIB), machine: None };
        let most = GIB + CONTEXT_BYTES;
        assert_eq!(excess(limits, &[used(most), used(GIB)]), Excess::None);
        assert_eq!(excess(limits, &[used(GIB), used(most + TOLERANCE + 1)]), Excess::Sessions(vec![1]));
        let two = Usage { bytes: most + CONTEXT_BYTES, gpus: 2 };
        assert_eq!(excess(limits, &[two]), Excess::None, "one context on each GPU");
    }

    #[test]
    fn of_a_machine_that_has_too_much_the_largest_session_ends() {
        let limits = Limits { session: None, machine: Some(4 * GIB) };
        assert_eq!(excess(limits, &[used(GIB), used(3 * GIB), used(CONTEXT_BYTES)]), Excess::None);
        assert_eq!(
            excess(limits, &[used(GIB), used(4 * GIB), used(2 * GIB)]),
            Excess::Machine { largest: 1 }
        );
        assert_eq!(excess(limits, &[]), Excess::None);
        let both = Limits { session: Some(GIB), machine: Some(GIB) };
        assert_eq!(excess(both, &[used(3 * GIB), used(2 * GIB), used(GIB)]), Excess::Sessions(vec![0, 1]));
    }

    /// A session that is above its limit in these checks; the number of the check that ends it.
    fn ends_at(checks: &[bool]) -> Option<usize> {
        let (mut history, subject) = (History::default(), [Subject::Session(1)]);
        checks.iter().position(|&above| !history.record(&subject[..usize::from(above)]).is_empty())
    }

    #[test]
    fn a_session_that_exceeds_its_limit_now_and_then_is_ended() {
        assert_eq!(ends_at(&[true, false, true, false, true]), Some(4));
        assert_eq!(ends_at(&[true, true, false, false, false, false, false, true]), Some(7));
        assert_eq!(ends_at(&[true, true, true]), Some(2));
    }

    #[test]
    fn memory_that_is_being_freed_ends_nothing() {
        assert_eq!(ends_at(&[true, true, false, false, false, false, false, false]), None);
        let once_in_four: Vec<bool> = (0..64).map(|check| check % 4 == 0).collect();
        assert_eq!(ends_at(&once_in_four), None);
    }

    #[test]
    fn sessions_that_take_turns_at_their_machines_limit_are_found() {
        let mut history = History::default();
        let machine = [Subject::Machine(3)];
        assert!(history.record(&machine).is_empty());
        assert!(history.record(&[Subject::Machine(4)]).is_empty());
        assert!(history.record(&machine).is_empty());
        assert_eq!(history.record(&machine), machine);
        assert!(history.record(&machine).is_empty(), "the next session gets as many checks");
    }

    #[test]
    fn workers_that_the_library_does_not_list_are_reported_once() {
        let (others, own) = ([vec![(70, 1), (71, 2)]], [vec![(70, 1)], vec![(8, 5)]]);
        let mut blind = Sight::default();
        assert!(!blind.look(&[], &others), "there is no worker");
        let said: Vec<bool> = (0..2 * BLIND).map(|_| blind.look(&[7, 8], &others)).collect();
        assert_eq!(said.iter().filter(|&&said| said).count(), 1);
        let mut sight = Sight::default();
        assert!(!sight.look(&[7, 8], &others) && !sight.look(&[7, 8], &own));
        assert!((0..2 * BLIND).all(|_| !sight.look(&[7, 8], &others)));
    }
}
