// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time in which GPUs executed the kernels of each session, reported by NVIDIA's management library.
//!
//! For each process, the library has the fraction of the last part of a second in which one of its kernels was
//! executed. Programs and workers are not involved: it costs them nothing, and they cannot report wrong values.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{info, warn};
use vhost_cuda_common::nvml::{Nvml, ProcessSample};

use crate::sessions::session::Session;

/// The time between two queries.
const INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time that one query covers, in microseconds, because the clock may have been set.
const MAX_WINDOW: u64 = 5_000_000;

/// Measures the sessions that `sessions` returns, from now on.
///
/// Errors: the thread cannot be started.
pub fn start(sessions: impl Fn() -> Vec<Arc<Session>> + Send + 'static) -> std::io::Result<()> {
    let measure = move || {
        let gpus = Nvml::all();
        if gpus.is_empty() {
            warn!("GPU time is not measured: NVIDIA's management library shows no GPU");
            return;
        }
        info!("GPU time is measured on {} GPU(s)", gpus.len());
        measure(&gpus, sessions);
    };
    thread::Builder::new().name("gpu-time".into()).spawn(measure).map(drop)
}

fn measure(gpus: &[Nvml], sessions: impl Fn() -> Vec<Arc<Session>>) -> ! {
    let mut since = microseconds();
    loop {
        thread::sleep(INTERVAL);
        let (sessions, now) = (sessions(), microseconds());
        let window = now.saturating_sub(since).min(MAX_WINDOW);
        let samples: Vec<Vec<ProcessSample>> = match sessions[..] {
            [] => Vec::new(),
            _ => gpus.iter().filter_map(|gpu| gpu.samples_since(since)).collect(),
        };
        since = now;
        let busy = samples.iter().map(|samples| busy(samples, window)).reduce(merge);
        // If the library reports nothing, nothing is measured.
        let Some(busy) = busy else { continue };
        for session in sessions {
            session.add_gpu_busy(busy.get(&session.worker_pid()).copied().unwrap_or(0));
        }
    }
}

/// Returns the time of each process in a window of `window` microseconds, in nanoseconds: the mean of its samples.
fn busy(samples: &[ProcessSample], window: u64) -> HashMap<u32, u64> {
    let mut sums: HashMap<u32, (u64, u64)> = HashMap::new();
    for sample in samples {
        let (sum, count) = sums.entry(sample.pid).or_default();
        *sum += u64::from(sample.compute.min(100));
        *count += 1;
    }
    sums.into_iter().map(|(pid, (sum, count))| (pid, sum * window * 10 / count)).collect()
}

fn merge(mut one: HashMap<u32, u64>, other: HashMap<u32, u64>) -> HashMap<u32, u64> {
    for (pid, time) in other {
        *one.entry(pid).or_default() += time;
    }
    one
}

/// Returns the library's clock. If the clock is set, one query covers at most [`MAX_WINDOW`].
#[expect(clippy::disallowed_methods, reason = "the library stamps its samples by the wall clock")]
fn microseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_the_mean_share_of_the_window() {
        let sample = |pid, compute| ProcessSample { pid, compute, ..ProcessSample::default() };
        let found = busy(&[sample(7, 100), sample(7, 50), sample(8, 20), sample(9, 400)], 1_000_000);
        assert_eq!(found, HashMap::from([(7, 750_000_000), (8, 200_000_000), (9, 1_000_000_000)]));
        let two = merge(found, HashMap::from([(7, 1), (1, 2)]));
        assert_eq!((two[&7], two[&1]), (750_000_001, 2));
    }
}
