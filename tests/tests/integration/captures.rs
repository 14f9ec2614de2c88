// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls of NVIDIA's libraries while their stream captures. NVIDIA's cuSPARSE lets a graph write a product to host memory, which
//! would be the worker's memory of a call that is over; so that answers `CUSPARSE_STATUS_NOT_SUPPORTED` (10). cuDNN's loss with labels
//! in host memory answers `CUDNN_STATUS_NOT_SUPPORTED` (3000).

use anyhow::{Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, route};

const EXPECTED: &str = "result in device memory: 0\nresult in host memory: 10\n";

pub fn collect(suite: &mut Suite) {
    suite.test("labels_in_host_memory_are_not_captured", labels_in_host_memory_are_not_captured);
    suite.test("results_in_host_memory_are_not_captured", results_in_host_memory_are_not_captured);
}

fn results_in_host_memory_are_not_captured(kit: &Kit) -> Result<()> {
    ends_with(kit, "sparse_vectors", EXPECTED)
}

fn labels_in_host_memory_are_not_captured(kit: &Kit) -> Result<()> {
    ends_with(kit, "dnn_ctc", "captured, labels in device memory: 0\ncaptured, labels in host memory: 3000\n")
}

/// Checks the last lines that a program prints with the argument `captured`.
fn ends_with(kit: &Kit, program: &str, expected: &str) -> Result<()> {
    let options = DaemonOptions { device: "emulated".into(), ..Default::default() };
    let route = route(kit, &options)?;
    let mut command = route.command(&kit.programs.get(program)?);
    let outcome = run(command.arg("captured"), "", LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.ends_with(expected), "{outcome}");
    Ok(())
}
