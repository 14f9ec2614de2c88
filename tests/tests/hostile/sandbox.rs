// SPDX-License-Identifier: Apache-2.0 OR MIT

//! What a worker may ask the kernel for, whatever a guest makes of it.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::suite::Suite;

use crate::{Target, attack_with};

/// How long a worker may take until it is ready.
const READY: Duration = Duration::from_secs(30);
/// The name of a worker that waits for a session (`vhost-cuda/src/worker/start.rs`).
const WARM: &str = "cuda-warm";

pub fn collect(suite: &mut Suite) {
    let emulated = |arguments: &[&str]| DaemonOptions {
        device: "emulated".into(),
        arguments: arguments.iter().map(|&argument| argument.into()).collect(),
        ..DaemonOptions::default()
    };
    attack_with(suite, "sandbox::workers_are_filtered", emulated(&[]), |target| has_filters(target, 3));
    let refused = emulated(&["--sandbox", "refuse"]);
    attack_with(suite, "sandbox::filters_may_refuse", refused, |target| has_filters(target, 3));
    let logged = emulated(&["--sandbox", "log"]);
    attack_with(suite, "sandbox::filters_may_log_only", logged, |target| has_filters(target, 1));
    let off = emulated(&["--sandbox", "off"]);
    attack_with(suite, "sandbox::filters_may_be_off", off, |target| has_filters(target, 0));
}

/// As many filters as there are programs in `vhost-cuda/src/worker/sandbox/filter.rs`.
fn has_filters(target: &mut Target, count: u32) -> Result<()> {
    let status = warm_worker(target)?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
        value.with_context(|| format!("no {name} in\n{status}"))
    };
    ensure!(field("NoNewPrivs:")? == 1, "the worker may get new privileges\n{status}");
    // 2: a filter, 0: none.
    ensure!(field("Seccomp:")? == if count > 0 { 2 } else { 0 }, "{status}");
    ensure!(field("Seccomp_filters:")? == count, "{status}");
    Ok(())
}

/// What the kernel says about a worker that is ready.
fn warm_worker(target: &mut Target) -> Result<String> {
    let deadline = Instant::now() + READY;
    loop {
        for worker in target.daemon.workers() {
            let read = |file: &str| fs::read_to_string(format!("/proc/{worker}/{file}")).unwrap_or_default();
            if read("comm").trim() == WARM {
                return Ok(read("status"));
            }
        }
        ensure!(Instant::now() < deadline, "no worker is ready within {READY:?}");
        thread::sleep(Duration::from_millis(20));
    }
}
