// SPDX-License-Identifier: Apache-2.0 OR MIT

//! GPU time that several daemons share by weights.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vhost_cuda_tests::arbiter::Arbiter;
use vhost_cuda_tests::daemon::{DaemonOptions, is_emulated};
use vhost_cuda_tests::metrics::{page, values};
use vhost_cuda_tests::running::{Outcome, Running};
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, LOSS, SETTLE, daemon, route, start};

/// The seconds for which a machine is charged, and those for which it is held back.
const TOTALS: [&str; 2] = ["vhost_cuda_gpu_contended_seconds_total", "vhost_cuda_gpu_held_seconds_total"];
/// Seconds for which machines are charged before their shares are compared. How long that takes depends on what else the
/// processors do, the shares do not.
const CHARGED: f64 = 3.0;
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Longer than any test: the program is ended by a signal.
const UNTIL_ENDED: &str = "3600";

pub fn collect(suite: &mut Suite) {
    suite.test_alone("shares_follow_weights", shares_follow_weights);
    suite.test("graphs_wait_for_their_turn", |kit| works_by_turns(kit, "graph"));
    if is_emulated() {
        suite.test("library_calls_wait_for_their_turn", |kit| works_by_turns(kit, "library"));
    } else {
        suite.skip("library_calls_wait_for_their_turn", "this machine may not have NVIDIA's library");
    }
    suite.test("nobody_waits_for_an_arbiter_that_is_killed", nobody_waits_for_an_arbiter_that_is_killed);
    suite.test("nobody_waits_for_a_machine_that_is_killed", nobody_waits_for_a_machine_that_is_killed);
}

/// A daemon with a weight, connected.
fn machine(kit: &Kit, arbiter: &Arbiter, weight: u32, more: Vec<String>) -> Result<Route> {
    let arguments = arbiter.options(weight)?.into_iter().chain(more).collect();
    let mut route = route(kit, &DaemonOptions { arguments, ..Default::default() })?;
    daemon(&mut route)?
        .wait_until("the arbiter is found", SETTLE, |daemon| connections(&daemon.log()) > 0)?;
    Ok(route)
}

fn connections(log: &str) -> usize {
    log.matches("GPU time is shared by").count()
}

/// Kernels that had ended, by time in milliseconds.
fn progress(outcome: &str) -> Vec<(u64, u64)> {
    let line = |line: &str| {
        let (time, kernels) = line.split_once(' ')?;
        Some((time.parse().ok()?, kernels.parse().ok()?))
    };
    outcome.lines().filter_map(line).collect()
}

fn finish(program: Running) -> Result<Outcome> {
    let outcome = program.finish(LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.ends_with("right\n"), "{outcome}");
    Ok(outcome)
}

/// Lets two machines with these weights compete, until they were charged for [`CHARGED`] seconds together. Returns the [`TOTALS`]
/// of each.
fn compete(kit: &Kit, weights: [u32; 2], mode: &[&str]) -> Result<[[f64; 2]; 2]> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let folder = tempfile::tempdir()?;
    let sockets = [0, 1].map(|at| folder.path().join(at.to_string()));
    let machine = |at: usize| {
        let metrics = ["--metrics".to_owned(), sockets[at].display().to_string()];
        machine(kit, &arbiter, weights[at], metrics.to_vec())
    };
    let machines = [machine(0)?, machine(1)?];
    let arguments: Vec<&str> = [UNTIL_ENDED].iter().chain(mode).copied().collect();
    let [one, other] = [0, 1].map(|at| start(kit, &machines[at], "compete", &arguments));
    let programs = [one?, other?];
    let look = |socket: &PathBuf| -> Result<[f64; 2]> {
        // The daemon connects to the arbiter before it serves its metrics.
        if !socket.exists() {
            return Ok([0.0; 2]);
        }
        let shown = page(socket, "/metrics")?;
        Ok(TOTALS.map(|metric| values(&shown, metric).iter().sum()))
    };
    let deadline = Instant::now() + LIMIT;
    let totals = loop {
        let totals = [look(&sockets[0])?, look(&sockets[1])?];
        if totals[0][0] + totals[1][0] > CHARGED {
            break totals;
        }
        ensure!(
            Instant::now() < deadline,
            "charged and held back within {LIMIT:?}, in seconds: {totals:.2?}"
        );
        thread::sleep(LOOK);
    };
    for program in programs {
        program.signal(libc::SIGTERM);
        finish(program)?;
    }
    Ok(totals)
}

fn shares_follow_weights(kit: &Kit) -> Result<()> {
    let [[charged, waited], [charged_other, waited_other]] = compete(kit, [300, 100], &["long"])?;
    let times = format!(
        "charged {charged:.2} s and {charged_other:.2} s, held back {waited:.2} s and {waited_other:.2} s for weights 3:1"
    );
    eprintln!("{times}");
    // On a busy machine the first program is not always ready, and the other one has its time. But while both are, they wait
    // for each other by their weights.
    ensure!((1.6..6.0).contains(&(waited_other / waited)), "{times}");
    ensure!(charged > charged_other, "{times}");
    Ok(())
}

/// Two equal machines with such work are charged for it equally, and while one is charged the other waits for its turn.
fn works_by_turns(kit: &Kit, mode: &str) -> Result<()> {
    let [one, other] = compete(kit, [100, 100], &[mode])?;
    ensure!((0.6..1.7).contains(&(one[0] / other[0])), "charged {:.2} s and {:.2} s", one[0], other[0]);
    for (held, charged) in [(one[1], other[0]), (other[1], one[0])] {
        // Less than all of that time: on a busy machine a program is not always ready when the other one begins.
        ensure!(held > charged / 4.0, "held back for {held:.2} s while the other one had {charged:.2} s");
    }
    Ok(())
}

/// The largest pause in a program's progress.
fn pause(list: &[(u64, u64)]) -> u64 {
    list.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or(u64::MAX)
}

fn nobody_waits_for_an_arbiter_that_is_killed(kit: &Kit) -> Result<()> {
    let mut arbiter = Arbiter::start(&kit.stack)?;
    let mut machines = [machine(kit, &arbiter, 100, vec![])?, machine(kit, &arbiter, 100, vec![])?];
    let [one, other] = [0, 1].map(|at| start(kit, &machines[at], "compete", &["6"]));
    let (one, other) = (one?, other?);
    for program in [&one, &other] {
        program.wait_for_stdout("\n", LIMIT)?;
    }
    thread::sleep(Duration::from_secs(1));
    arbiter.kill();
    thread::sleep(Duration::from_secs(1));
    arbiter.restart()?;
    for program in [one, other] {
        let list = progress(&finish(program)?.stdout);
        ensure!(pause(&list) < LOSS.as_millis() as u64, "it stood still: {list:?}");
    }
    for machine in &mut machines {
        let daemon = daemon(machine)?;
        daemon.wait_until("the new arbiter is found", SETTLE, |daemon| connections(&daemon.log()) == 2)?;
        let said = daemon.log().matches("the arbiter of GPU time has ended").count();
        ensure!(said == 1, "it was said {said} times\n{}", daemon.log());
    }
    Ok(())
}

fn nobody_waits_for_a_machine_that_is_killed(kit: &Kit) -> Result<()> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let mut victim = machine(kit, &arbiter, 9000, vec![])?;
    let other = machine(kit, &arbiter, 1, vec![])?;
    let killed = start(kit, &victim, "compete", &["60"])?;
    killed.wait_for_stdout("\n", LIMIT)?;
    let program = start(kit, &other, "compete", &["4"])?;
    program.wait_for_stdout("\n", LIMIT)?;
    thread::sleep(Duration::from_millis(500));
    daemon(&mut victim)?.kill();
    let list = progress(&finish(program)?.stdout);
    ensure!(list.len() > 10, "it stood still: {list:?}");
    killed.finish(LOSS)?;
    Ok(())
}
