// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls of NVIDIA's libraries while their stream captures. NVIDIA's cuSPARSE lets a graph write a product to host memory, which
//! would be the worker's memory of a call that is over; so that answers `CUSPARSE_STATUS_NOT_SUPPORTED` (10).

use anyhow::{Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, route};

const EXPECTED: &str = "result in device memory: 0\nresult in host memory: 10\n";

pub fn collect(suite: &mut Suite) {
    suite.test("results_in_host_memory_are_not_captured", results_in_host_memory_are_not_captured);
}

fn results_in_host_memory_are_not_captured(kit: &Kit) -> Result<()> {
    let options = DaemonOptions { device: "emulated".into(), ..Default::default() };
    let route = route(kit, &options)?;
    let mut command = route.command(&kit.programs.get("sparse_vectors")?);
    let outcome = run(command.arg("captured"), "", LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout == EXPECTED, "{outcome}");
    Ok(())
}
