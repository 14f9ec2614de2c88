// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Files of NVIDIA's libraries that have no rows of their own to execute: cuDNN's sub-libraries, and names that are refused.

use anyhow::{Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, route};

const PARTS: &str = "\
libcudnn_graph.so.9: loaded
libcudnn_ops.so.9: loaded
libcudnn_cnn.so.9: loaded
libcudnn_adv.so.9: loaded
libcudnn_ext.so.9: loaded
libcudnn_engines_precompiled.so.9: loaded
libcudnn_engines_runtime_compiled.so.9: loaded
libcudnn_engines_tensor_ir.so.9: loaded
libcudnn_heuristic.so.9: loaded
version of libcudnn_cnn.so.9: 0
version of libcudnn_adv.so.9: 0
without the negative ones: 0 2 0 4
";

const REFUSED: &str = "\
cusolverMgCreate of libcusolverMg.so.12: 9
cusolverMgCreate of libcusolverMg.so.11: 9
cusolverDnXpolar: 9
cusparseSpMVOp: 10
cufftDeviceGetVersion: 16
cublasLtGroupedMatrixLayoutCreate: 15
ncclParamDumpAll: 5
";

pub fn collect(suite: &mut Suite) {
    suite.test("cudnns_sub_libraries_are_one_library", |kit| prints(kit, &[], PARTS));
    suite.test("names_that_are_not_served_are_refused", |kit| prints(kit, &["refused"], REFUSED));
}

fn prints(kit: &Kit, arguments: &[&str], expected: &str) -> Result<()> {
    let options = DaemonOptions { device: "emulated".into(), ..Default::default() };
    let route = route(kit, &options)?;
    let mut command = route.command(&kit.programs.get("sub_libraries")?);
    let outcome = run(command.args(arguments), "", LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout == expected, "{outcome}");
    Ok(())
}
