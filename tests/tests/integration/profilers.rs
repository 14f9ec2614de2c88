// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Profilers on a host without CUPTI: they get CUPTI's own error, and the program continues. `activities` of the
//! table tests the rest.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use vhost_cuda_tests::daemon::{DaemonOptions, is_emulated};
use vhost_cuda_tests::running::run;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, SETTLE, route};

/// Prints the result of each call: of CUPTI before and after `cuInit`, then of CUDA, then the records.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static void *cupti, *cuda;
typedef int (*Call)();
static Call find(const char *name) {
    void *found = dlsym(cupti, name);
    if (!found) found = dlsym(cuda, name);
    if (!found) { printf("no %s\n", name); exit(1); }
    return (Call)found;
}
static int calls, works;
static void request(uint8_t **buffer, size_t *bytes, size_t *records) {
    *bytes = 1 << 16, *buffer = aligned_alloc(8, *bytes), *records = 0;
}
static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid) {
    uint8_t *record = 0;
    while (!find("cuptiActivityGetNextRecord")(buffer, valid, &record)) *(uint32_t *)record == 4 ? calls++ : works++;
    free(buffer);
}
int main(void) {
    cupti = dlopen("libcupti.so.13", RTLD_NOW), cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cupti || !cuda) return 1;
    Call enable = find("cuptiActivityEnable");
    uint64_t memory = 0;
    void *context = 0;
    size_t dropped = 9;
    printf("kernels %d, no such kind %d, calls %d\n", enable(10), enable(99), enable(4));
    printf("callbacks %d\n", find("cuptiActivityRegisterCallbacks")(request, complete));
    printf("cuInit %d, context %d", find("cuInit")(0), find("cuDevicePrimaryCtxRetain")(&context, 0));
    printf(", current %d\n", find("cuCtxSetCurrent")(context));
    for (int i = 0; i < 3; i++) printf("copies %d\n", enable(1));
    printf("memory %d", find("cuMemAlloc_v2")(&memory, (size_t)64));
    printf(", fill %d", find("cuMemsetD8_v2")(memory, 1, (size_t)64));
    printf(", wait %d\n", find("cuCtxSynchronize")());
    printf("disable %d %d", find("cuptiActivityDisable")(10), find("cuptiActivityDisable")(4));
    printf(", flush %d", find("cuptiActivityFlushAll")(0));
    printf(", lost %d", find("cuptiActivityGetNumDroppedRecords")(0, 0, &dropped));
    printf(" %zu\n", dropped);
    printf("recorded: calls %s, works %d\n", calls >= 6 ? "all" : "NOT all", works);
    return 0;
}
"#;
/// 27 is `CUPTI_ERROR_NOT_SUPPORTED`, 21 `CUPTI_ERROR_INVALID_KIND`.
const EXPECTED: &str = "kernels 27, no such kind 21, calls 0
callbacks 0
cuInit 0, context 0, current 0
copies 27
copies 27
copies 27
memory 0, fill 0, wait 0
disable 0 0, flush 0, lost 0 0
recorded: calls all, works 0
";

/// Adds the tests.
pub fn collect(suite: &mut Suite) {
    let name = "profilers_on_a_host_without_cupti";
    if is_emulated() {
        suite.test(name, without_cupti);
    } else {
        suite.skip(name, "the host may have a CUPTI in its usual folders");
    }
}

fn without_cupti(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    fs::write(&source, PROGRAM)?;
    let mut cc = Command::new("cc");
    cc.arg("-w").arg("-o").arg(&program).arg(&source).arg("-ldl");
    run(&mut cc, "", LIMIT)?.expect_exit(0)?;
    // An empty folder in place of the emulator's libraries.
    let arguments = vec!["--libraries".into(), folder.path().display().to_string()];
    let mut route =
        route(kit, &DaemonOptions { device: "emulated".into(), arguments, ..Default::default() })?;
    let outcome = run(&mut route.command(&program), "", LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout == EXPECTED, "{outcome}");
    let daemon = crate::daemon(&mut route)?;
    let named = |log: &str| {
        log.lines().filter(|line| line.contains("WARN") && line.contains("libcupti.so.13")).count()
    };
    // The daemon reads a worker's messages in a thread of their own.
    daemon.wait_until("the log names the library", SETTLE, |daemon| named(&daemon.log()) > 0)?;
    let log = daemon.log();
    let lines = named(&log);
    ensure!(lines == 1, "the log names the missing library {lines} times, not once:\n{log}");
    Ok(())
}
