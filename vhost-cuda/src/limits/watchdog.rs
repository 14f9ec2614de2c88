// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends sessions that exceed their limit of device memory.
//!
//! Workers count the memory that they request from the driver ([`crate::limits::account`], `worker::memory::quota`).
//! A compromised worker does not have to, and the driver may need more than expected. So the daemon compares the
//! values that NVIDIA's management library reports for each process with the limits. The library is not loaded
//! without a limit, nor with the emulator.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, debug, info, log, warn};

use crate::limits::account::CONTEXT_BYTES;
use crate::sessions::session::Session;
use crate::worker::nvml::Nvml;

/// The time between two checks.
const INTERVAL: Duration = Duration::from_millis(500);
/// The number of consecutive checks above the limit after which a session is ended. Memory that is being freed may
/// show once.
const PATIENCE: u32 = 2;
/// The memory in bytes that the driver may keep additionally: a block of each pool.
const TOLERANCE: u64 = 64 << 20;
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

/// Watches the sessions of the machines that `machines` lists.
pub fn start(
    limits: Limits,
    machines: impl Fn() -> Vec<Vec<Arc<Session>>> + Send + 'static,
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
        watch(limits, &gpus, machines);
    };
    thread::Builder::new().name("watchdog".into()).spawn(watch).map(drop)
}

fn watch(limits: Limits, gpus: &[Nvml], machines: impl Fn() -> Vec<Vec<Arc<Session>>>) -> ! {
    let mut suspects: Vec<(Weak<Session>, u32)> = Vec::new();
    let mut warned: Option<Instant> = None;
    loop {
        let (machines, mut found) = (machines(), Vec::new());
        if machines.iter().any(|sessions| !sessions.is_empty()) {
            let processes: Vec<_> = gpus.iter().filter_map(Nvml::processes).collect();
            for sessions in machines {
                let pids: Vec<u32> = sessions.iter().map(|session| session.worker_pid()).collect();
                let usages = usages(&pids, &processes);
                found.extend(
                    excess(limits, &usages).into_iter().map(|index| (sessions[index].clone(), usages[index])),
                );
            }
        }
        let before = std::mem::take(&mut suspects);
        for (session, usage) in found {
            let same = |other: &Weak<Session>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(&session));
            let looks = before.iter().find(|(other, _)| same(other)).map_or(1, |(_, looks)| looks + 1);
            if looks >= PATIENCE {
                let quiet = warned.is_some_and(|before| before.elapsed() < WARNING_INTERVAL);
                let level = if quiet { Level::Debug } else { Level::Warn };
                log!(
                    level,
                    "{}: ended: it uses {} MiB of device memory, more than its limit allows",
                    session.describe(),
                    usage.bytes >> 20
                );
                warned = if quiet { warned } else { Some(Instant::now()) };
                session.end_worker();
            } else {
                debug!("{}: uses {} MiB of device memory", session.describe(), usage.bytes >> 20);
            }
            suspects.push((Arc::downgrade(&session), looks));
        }
        thread::sleep(INTERVAL);
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

/// Returns the sessions of one machine that exceed a limit. If only all together do, returns the largest one.
fn excess(limits: Limits, usages: &[Usage]) -> Vec<usize> {
    let allowed = |usage: &Usage, limit: u64| {
        limit.saturating_add(usage.gpus.max(1).saturating_mul(CONTEXT_BYTES)).saturating_add(TOLERANCE)
    };
    let too_large = |usage: &Usage| limits.session.is_some_and(|limit| usage.bytes > allowed(usage, limit));
    let found: Vec<usize> = (0..usages.len()).filter(|&index| too_large(&usages[index])).collect();
    let sum = usages.iter().fold(0u64, |sum, usage| sum.saturating_add(usage.bytes));
    // One context is free for a machine, and the others are charged. Each session may have blocks of the driver.
    let tolerance = TOLERANCE.saturating_mul(usages.len() as u64);
    let machine = limits.machine.map(|limit| limit.saturating_add(CONTEXT_BYTES).saturating_add(tolerance));
    if found.is_empty() && machine.is_some_and(|machine| sum > machine) {
        return (0..usages.len()).max_by_key(|&index| usages[index].bytes).into_iter().collect();
    }
    found
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
        assert!(excess(limits, &[used(most), used(GIB)]).is_empty());
        assert_eq!(excess(limits, &[used(GIB), used(most + TOLERANCE + 1)]), [1]);
        let two = Usage { bytes: most + CONTEXT_BYTES, gpus: 2 };
        assert!(excess(limits, &[two]).is_empty(), "one context on each GPU");
    }

    #[test]
    fn of_a_machine_that_has_too_much_the_largest_session_ends() {
        let limits = Limits { session: None, machine: Some(4 * GIB) };
        assert!(excess(limits, &[used(GIB), used(3 * GIB), used(CONTEXT_BYTES)]).is_empty());
        assert_eq!(excess(limits, &[used(GIB), used(4 * GIB), used(2 * GIB)]), [1]);
        assert!(excess(limits, &[]).is_empty());
        let both = Limits { session: Some(GIB), machine: Some(GIB) };
        assert_eq!(excess(both, &[used(3 * GIB), used(2 * GIB), used(GIB)]), [0, 1]);
    }
}
