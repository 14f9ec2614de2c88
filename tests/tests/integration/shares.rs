// SPDX-License-Identifier: Apache-2.0 OR MIT

//! GPU time that several daemons share by weights.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_tests::arbiter::Arbiter;
use vhost_cuda_tests::daemon::{DaemonOptions, is_emulated};
use vhost_cuda_tests::metrics::{page, values};
use vhost_cuda_tests::running::{Outcome, Running};
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, LOSS, SETTLE, daemon, route, start};

/// The rounds of which two machines must have shared the GPU in one.
const ROUNDS: usize = 5;
/// The seconds for which a machine is charged, and those for which it is held back.
const TOTALS: [&str; 2] = ["vhost_cuda_gpu_contended_seconds_total", "vhost_cuda_gpu_held_seconds_total"];

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

/// Kernels that ended in the time in which both worked.
fn in_common([one, other]: [&[(u64, u64)]; 2]) -> Result<[u64; 2]> {
    let ends = |list: &[(u64, u64)]| Some((list.first()?.0, list.last()?.0));
    let (one_ends, other_ends) = ends(one).zip(ends(other)).context("a program did not get on")?;
    let (from, to) = (one_ends.0.max(other_ends.0), one_ends.1.min(other_ends.1));
    ensure!(to > from + 1500, "the programs worked side by side for {from} to {to} only");
    Ok([one, other].map(|list| {
        // Without the beginning.
        let within =
            || list.iter().filter(|(time, _)| (from + 300..=to).contains(time)).map(|(_, count)| count);
        within().max().unwrap_or(&0) - within().min().unwrap_or(&0)
    }))
}

fn finish(program: Running) -> Result<Outcome> {
    let outcome = program.finish(LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.ends_with("right\n"), "{outcome}");
    Ok(outcome)
}

fn shares_follow_weights(kit: &Kit) -> Result<()> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let machines = [machine(kit, &arbiter, 300, vec![])?, machine(kit, &arbiter, 100, vec![])?];
    let [one, other] = [0, 1].map(|at| start(kit, &machines[at], "compete", &["5"]));
    let outcomes = [finish(one?)?, finish(other?)?];
    let [one, other] = [0, 1].map(|at| progress(&outcomes[at].stdout));
    let [one, other] = in_common([&one, &other])?;
    let ratio = one as f64 / other.max(1) as f64;
    // Other programs may work on the same processors.
    ensure!((1.7..6.0).contains(&ratio), "{one} and {other} kernels for weights 3:1");
    Ok(())
}

/// Two equal machines with such work are charged for it, and each waits for the other one's turn. How much of a round
/// they work at the same time depends on other tests, so a round may be repeated.
fn works_by_turns(kit: &Kit, mode: &str) -> Result<()> {
    let arbiter = Arbiter::start(&kit.stack)?;
    let folder = tempfile::tempdir()?;
    let sockets = [0, 1].map(|at| folder.path().join(at.to_string()));
    let machine = |at: usize| {
        machine(kit, &arbiter, 100, ["--metrics".to_owned(), sockets[at].display().to_string()].to_vec())
    };
    let machines = [machine(0)?, machine(1)?];
    let mut totals = [[0.0; 2]; 2];
    for _ in 0..ROUNDS {
        let [one, other] = [0, 1].map(|at| start(kit, &machines[at], "compete", &["4", mode]));
        for program in [one?, other?] {
            finish(program)?;
        }
        let before = totals;
        for (socket, totals) in sockets.iter().zip(&mut totals) {
            let shown = page(socket, "/metrics")?;
            *totals = TOTALS.map(|metric| values(&shown, metric).iter().sum());
        }
        let of_round =
            totals.as_flattened().iter().zip(before.as_flattened()).map(|(now, before)| now - before);
        if of_round.into_iter().all(|seconds| seconds > 0.5) {
            return Ok(());
        }
    }
    bail!("seconds charged and held back of each machine after {ROUNDS} rounds: {totals:?}")
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
