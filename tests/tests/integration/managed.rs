// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Long managed allocations use device memory as long as it suffices. The program's view is the same in both cases
//! (`managed_moves` of the table), so this reads the library's messages.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::cases::CASES;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::running::{Outcome, run};
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{Kit, Suite};

const LIMIT: Duration = Duration::from_secs(120);
const PROGRAM: &str = "managed_moves";
/// The library's messages about an allocation that moves, and about one that does not.
const MOVES: &str = "Managed memory of";
const STAYS: &str = "of managed memory stay in host memory";

pub fn collect(suite: &mut Suite) {
    // SAFETY: no argument, no effect.
    if unsafe { libc::geteuid() } == 0 {
        suite.test("managed_memory_moves", managed_memory_moves);
    } else {
        suite.skip("managed_memory_moves", "only root may have userfaultfd(2) everywhere");
    }
    suite.test("managed_memory_stays_where_there_is_no_other", managed_memory_stays_where_there_is_no_other);
}

/// Runs the program, which gives the answers of the table, with some more environment.
fn outcome(kit: &Kit, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Outcome> {
    let mut options = DaemonOptions::default();
    options.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let route = Route::through(&kit.stack, Daemon::start(&kit.stack, &options)?);
    let mut command = route.command(&kit.programs.get(PROGRAM)?);
    command.env("VIRTIO_CUDA_LOG", "libcuda=debug").envs(variables.iter().copied());
    let outcome = run(&mut command, "", LIMIT)?;
    outcome.expect_exit(0)?;
    let case = CASES.iter().find(|case| case.name == PROGRAM).context("no such case")?;
    ensure!(case.expected_stdout() == Some(&*outcome.stdout), "{outcome}");
    Ok(outcome)
}

fn managed_memory_moves(kit: &Kit) -> Result<()> {
    let outcome = outcome(kit, &[], &[])?;
    ensure!(
        outcome.stderr.contains(MOVES) && !outcome.stderr.contains(STAYS),
        "not all of it moves\n{outcome}"
    );
    Ok(())
}

fn managed_memory_stays_where_there_is_no_other(kit: &Kit) -> Result<()> {
    let variable = outcome(kit, &[], &[("VIRTIO_CUDA_MANAGED", "0")])?;
    ensure!(!variable.stderr.contains(MOVES), "VIRTIO_CUDA_MANAGED=0 has no effect\n{variable}");
    // The program uses up to 24 MiB of it at once.
    let limited = outcome(kit, &["--memory-limit", "20M"], &[])?;
    ensure!(limited.stderr.contains(STAYS), "there is more device memory than the limit\n{limited}");
    Ok(())
}
