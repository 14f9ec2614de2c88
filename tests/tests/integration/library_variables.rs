// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Environment variables of NVIDIA's libraries: a library in the worker sees those of the program that may pass. The
//! library is a small one of this test, which reports the variables that it sees.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, route};

/// A cuRAND whose version counts variables: 1 for one that passes with the program's value, 10 for one that refers to
/// a file, 100 for one with a path as its value, 1000 for one of the daemon's environment.
const LIBRARY: &str = r#"
#include <stdlib.h>
#include <string.h>
int curandGetVersion(int *version) {
    const char *override = getenv("NVIDIA_TF32_OVERRIDE");
    *version = (override && !strcmp(override, "0")) + (getenv("CUBLASLT_LOG_FILE") ? 10 : 0)
        + (getenv("NCCL_DEBUG") ? 100 : 0) + (getenv("CUSPARSE_LOG_LEVEL") ? 1000 : 0);
    return 0;
}
"#;
/// Prints that version.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void *library = dlopen("libcurand.so.10", RTLD_NOW);
    int (*version)(int *) = library ? (int (*)(int *))dlsym(library, "curandGetVersion") : 0;
    int seen = -1;
    if (!version || version(&seen)) return 1;
    printf("%d\n", seen);
    return 0;
}
"#;

/// Adds the tests.
pub fn collect(suite: &mut Suite) {
    suite.test("libraries_see_the_programs_variables", libraries_see_the_programs_variables);
}

/// Compiles a C source to a file of that name in the folder.
pub fn compile(folder: &Path, name: &str, source: &str, arguments: &[&str]) -> Result<()> {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source)?;
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(folder.join(name)).arg(&file).args(arguments);
    run(&mut cc, "", LIMIT)?.expect_exit(0)
}

fn libraries_see_the_programs_variables(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    compile(folder.path(), "libcurand.so.10", LIBRARY, &["-shared", "-fPIC"])?;
    compile(folder.path(), "program", PROGRAM, &["-ldl"])?;
    let route = route(
        kit,
        &DaemonOptions {
            device: "emulated".into(),
            arguments: vec!["--libraries".into(), folder.path().display().to_string()],
            environment: vec![("CUSPARSE_LOG_LEVEL".into(), "5".into())],
            ..Default::default()
        },
    )?;
    let seen = |variables: &[(&str, &str)], expected: &str| -> Result<()> {
        let mut command = route.command(&folder.path().join("program"));
        let outcome = run(command.envs(variables.iter().copied()), "", LIMIT)?;
        outcome.expect_exit(0)?;
        ensure!(outcome.stdout == expected, "{variables:?}: {outcome}");
        Ok(())
    };
    seen(&[], "0\n")?;
    seen(&[("NVIDIA_TF32_OVERRIDE", "0")], "1\n")?;
    seen(&[("NVIDIA_TF32_OVERRIDE", "0"), ("CUBLASLT_LOG_FILE", "log")], "1\n")?;
    seen(&[("NVIDIA_TF32_OVERRIDE", "0"), ("NCCL_DEBUG", "/tmp/log")], "1\n")?;
    seen(&[("NCCL_DEBUG", "INFO"), ("CUSPARSE_LOG_LEVEL", "1")], "1100\n")?;
    // The next program's worker knows nothing of the last one's.
    seen(&[], "0\n")
}
