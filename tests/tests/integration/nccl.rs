// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The emulator's NCCL with several devices, alone and through the daemon.

use anyhow::{Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::stack::{Route, Way};
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, route};

const DEVICES: (&str, &str) = ("CUDA_EMULATOR_DEVICES", "3");
/// The arguments of `nccl_ranks`.
const MODES: [&[&str]; 4] = [&["all", "2"], &["all", "3"], &["processes", "3"], &["lost"]];

/// Adds the tests.
pub fn collect(suite: &mut Suite) {
    suite.test("ranks_are_devices_of_the_emulator", ranks_are_devices_of_the_emulator);
    suite.test("ranks_are_devices_of_a_worker", ranks_are_devices_of_a_worker);
}

fn ranks_are_devices_of_the_emulator(kit: &Kit) -> Result<()> {
    check(kit, &Route::open(Way::Emulator, &kit.stack, &kit.programs)?)
}

fn ranks_are_devices_of_a_worker(kit: &Kit) -> Result<()> {
    let environment = vec![(DEVICES.0.into(), DEVICES.1.into())];
    check(kit, &route(kit, &DaemonOptions { device: "emulated".into(), environment, ..Default::default() })?)
}

fn check(kit: &Kit, route: &Route) -> Result<()> {
    for arguments in MODES {
        let mut command = route.command(&kit.programs.get("nccl_ranks")?);
        let outcome = run(command.args(arguments).env(DEVICES.0, DEVICES.1), "", LIMIT)?;
        outcome.expect_exit(0)?;
        ensure!(outcome.stdout == "ok\n", "{arguments:?}: {outcome}");
    }
    Ok(())
}
