// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Eight mixed programs run repeatedly, beside one that runs all the time. The memory of the daemon and of that
//! program's worker must not grow, and at the end all device memory must be free again (on a GPU, no other program
//! may use it). `cargo xtask test --seconds` sets the duration.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::effort;
use vhost_cuda_tests::frontend::{FakeFrontend, PATIENCE};
use vhost_cuda_tests::running::{Ended, Running};
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::calls::Session;
use crate::kills::{free_memory, in_session, resident, settle, wait_for_memory};

const USUAL_SECONDS: u64 = 20;
const PROGRAMS: [&str; 8] = [
    "vector_add",
    "reduction",
    "copies_in_streams",
    "graphs",
    "pinned_memory",
    "events_streams",
    "managed_memory",
    "pools",
];
/// The observer's, and a warm one.
const WORKERS: usize = 2;
const EACH: Duration = Duration::from_millis(100);
/// One program may take as long.
const LIMIT: Duration = Duration::from_secs(120);
/// The first part of the time is for caches and allocators to fill.
const FILLING: f64 = 0.4;
/// Growth in the rest of the time that counts as flat, in KiB.
const FLAT: f64 = 4096.0;
/// In runs of this length and longer ones, also that in KiB per second: the growth of [`FLAT`] in five minutes. A leak of a small
/// object per session is more.
const LONG: u64 = 120;
const FLAT_RATE: f64 = FLAT / 180.0;

pub fn collect(suite: &mut Suite) {
    suite.test_alone_on_gpu("soak::memory_stays_flat", memory_stays_flat);
}

fn memory_stays_flat(kit: &Kit) -> Result<()> {
    let seconds = effort::seconds(USUAL_SECONDS)?;
    let programs: Vec<PathBuf> = PROGRAMS.iter().map(|name| kit.programs.get(name)).collect::<Result<_>>()?;
    let options = DaemonOptions {
        arguments: ["--log-level", "info"].map(str::to_owned).to_vec(),
        ..DaemonOptions::default()
    };
    let route = Route::through(&kit.stack, Daemon::start(&kit.stack, &options)?);
    let daemon = route.daemon.as_ref().context("no daemon")?;
    let mut frontend = FakeFrontend::connect(&daemon.socket())?;
    let id = frontend.open_session()?;
    let mut observer = Session::on(frontend, id)?;
    settle(daemon, WORKERS)?;
    let (free, observers) = (free_memory(&mut observer)?, in_session(daemon));
    let constant = Running::start(route.command(&kit.programs.get("copy_until_error")?).arg("1000000"), "")?;
    constant.wait_for_stdout("copying", PATIENCE)?;
    let worker = in_session(daemon).into_iter().find(|pid| !observers.contains(pid));
    let worker = worker.context("no worker has the program's session")?;
    let (stop, runs) = (AtomicBool::new(false), AtomicU64::new(0));
    let samples = thread::scope(|scope| {
        let loops: Vec<_> =
            programs.iter().map(|program| scope.spawn(|| run_again(&route, program, &stop, &runs))).collect();
        let samples = sample(daemon.pid(), worker, Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        for running in loops {
            running.join().map_err(|_| anyhow::anyhow!("a loop panicked"))??;
        }
        Ok::<_, anyhow::Error>(samples)
    })?;
    constant.signal(libc::SIGKILL);
    constant.finish(PATIENCE)?;
    settle(daemon, WORKERS)?;
    wait_for_memory(&mut observer, free)?;
    drop(observer);
    FakeFrontend::behave(&daemon.socket()).context("the daemon does not serve any more")?;
    ensure!(runs.load(Ordering::Relaxed) >= PROGRAMS.len() as u64, "the programs hardly ran");
    let mut result = Ok(());
    for (who, memory) in [("daemon", &samples[0]), ("worker", &samples[1])] {
        let slope = slope(memory);
        let growth = slope * seconds as f64 * (1.0 - FILLING);
        let now = memory.last().map_or(0.0, |&(_, kib)| kib);
        eprintln!(
            "soak: {seconds} s, {} programs: {who} {now:.0} KiB, {slope:+.2} KiB/s",
            runs.load(Ordering::Relaxed)
        );
        if now == 0.0 || growth > FLAT || (seconds >= LONG && slope > FLAT_RATE) {
            result = Err(anyhow::anyhow!("the memory of the {who} grows by {slope:.2} KiB/s\n{memory:?}"));
        }
    }
    result
}

fn run_again(route: &Route, program: &Path, stop: &AtomicBool, runs: &AtomicU64) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let outcome = Running::start(&mut route.command(program), "")?.finish(LIMIT)?;
        ensure!(outcome.ended == Ended::Exit(0), "{}\n{outcome}", program.display());
        runs.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Seconds and KiB of both processes, without the time in which caches fill.
fn sample(daemon: u32, worker: u32, time: Duration) -> [Vec<(f64, f64)>; 2] {
    let mut samples = [Vec::new(), Vec::new()];
    let begun = Instant::now();
    while begun.elapsed() < time {
        if begun.elapsed() > time.mul_f64(FILLING) {
            for (samples, pid) in samples.iter_mut().zip([daemon, worker]) {
                samples.push((begun.elapsed().as_secs_f64(), resident(pid) as f64));
            }
        }
        thread::sleep(EACH);
    }
    samples
}

/// Returns the slope of the memory in KiB per second: the median of the slopes between any two samples (Theil and Sen), because one
/// step, as of a table that has reached its size, is no growth.
fn slope(samples: &[(f64, f64)]) -> f64 {
    let some: Vec<_> = samples.iter().step_by(samples.len().div_ceil(512).max(1)).collect();
    let mut slopes: Vec<f64> = (1..some.len())
        .flat_map(|later| (0..later).map(move |earlier| (earlier, later)))
        .map(|(earlier, later)| (some[later].1 - some[earlier].1) / (some[later].0 - some[earlier].0))
        .filter(|slope| slope.is_finite())
        .collect();
    slopes.sort_by(f64::total_cmp);
    slopes.get(slopes.len() / 2).copied().unwrap_or(0.0)
}
