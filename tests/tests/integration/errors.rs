// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Errors that come late reach the program, and an error that breaks a context harms no other one.

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::running::{Outcome, run};
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, finish, route};

/// The maximum number of calls of 100 rounds that need none.
const FEW_CALLS: usize = 50;

pub fn collect(suite: &mut Suite) {
    suite.test("posted_errors_reach_the_program", posted_errors_reach_the_program);
    suite.test("a_broken_device_slows_no_other_down", a_broken_device_slows_no_other_down);
    suite.test("a_device_works_after_its_reset", a_device_works_after_its_reset);
}

fn posted_errors_reach_the_program(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let outcome = finish(kit, &route, "posted_errors", &[])?;
    outcome.expect_exit(0)?;
    let expected = "full: 2\n\
                    at once: 2, then 0\n\
                    with a deferred free: 2, then 0\n\
                    with the first launch: 2, then 0\n\
                    the next launch: 7\n\
                    with a long copy: 2, then 0\n\
                    of a thread that has ended: 2, then 0\n\
                    another thread: 0\n\
                    this thread: 2, then 0\n";
    ensure!(outcome.stdout == expected, "not:\n{expected}\n{outcome}");
    Ok(())
}

/// Runs the program with an emulator that has `variable`.
fn broken_device(kit: &Kit, (name, value): (&str, &str), mode: &str) -> Result<Outcome> {
    let environment = vec![(name.into(), value.into())];
    let options = DaemonOptions { device: "emulated".into(), environment, ..DaemonOptions::default() };
    let route = route(kit, &options)?;
    let mut command = route.command(&kit.programs.get("broken_device")?);
    command.args([mode]).env("VIRTIO_CUDA_LOG", "trace").env("VIRTIO_CUDA_STAGING", "2");
    let outcome = run(&mut command, "", LIMIT)?;
    outcome.expect_exit(0)?;
    Ok(outcome)
}

/// Expects at most so many calls in this part of the program, of 100 rounds, and a copy through staging memory after it. Returns the
/// number of calls.
fn expect_fast(outcome: &Outcome, part: &str, most: usize) -> Result<usize> {
    let (_, rest) = outcome.stderr.split_once(&format!("BEGIN {part}\n")).context("no such part")?;
    let (rounds, rest) = rest.split_once(&format!("END {part}\n")).context("the part does not end")?;
    // `session_*` rows are the transport's own, which come when threads have to be woken.
    let is_call = |line: &&str| line.contains("client::call] ") && !line.contains("] session_");
    let calls = rounds.lines().filter(is_call).count();
    ensure!(calls <= most, "{part}: {calls} calls\n{outcome}");
    let copies = rest.split("BEGIN").next().unwrap_or_default();
    let staged = copies.lines().any(|line| line.contains("client::call] cuMemcpyAsync"));
    ensure!(staged, "{part}: no copy through staging memory\n{outcome}");
    Ok(calls)
}

fn a_broken_device_slows_no_other_down(kit: &Kit) -> Result<()> {
    let outcome = broken_device(kit, ("CUDA_EMULATOR_DEVICES", "2"), "other")?;
    let expected =
        "before: right\nbroken: 700\nbeside it: right\nreset: 0\nmalloc: 700\nafter its reset: right\n";
    ensure!(outcome.stdout == expected, "not:\n{expected}\n{outcome}");
    // With two contexts, waits and frees are calls in each round, and allocations are not.
    let before = expect_fast(&outcome, "before", 250)?;
    expect_fast(&outcome, "beside it", before + 20)?;
    expect_fast(&outcome, "after its reset", FEW_CALLS).map(drop)
}

/// With a driver that recovers, as an H200's does not.
fn a_device_works_after_its_reset(kit: &Kit) -> Result<()> {
    let outcome = broken_device(kit, ("CUDA_EMULATOR_RECOVERS", "1"), "reset")?;
    let expected =
        "before: right\nbroken: 700\nreset: 0\nafter: right\nreset: 0\nafter the second reset: right\n";
    ensure!(outcome.stdout == expected, "not:\n{expected}\n{outcome}");
    let parts = ["before", "after", "after the second reset"];
    parts.iter().try_for_each(|part| expect_fast(&outcome, part, FEW_CALLS).map(drop))
}
