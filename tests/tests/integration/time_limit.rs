// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `--time-limit`: work that takes too long ends its session, and nothing else.

use anyhow::{Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::running::Running;
use vhost_cuda_tests::stack::Route;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, expect_good, finish, route, start};

/// Less than `long_work patient` takes.
const SECONDS: &str = "1.5";

pub fn collect(suite: &mut Suite) {
    suite.test("work_that_takes_too_long_ends_its_session", work_that_takes_too_long_ends_its_session);
    suite.test("much_work_and_long_waits_are_allowed", much_work_and_long_waits_are_allowed);
    suite.test("no_kernel_is_forgotten_among_many", no_kernel_is_forgotten_among_many);
}

fn limited(kit: &Kit) -> Result<Route> {
    let arguments = ["--time-limit", SECONDS].map(str::to_owned).to_vec();
    route(kit, &DaemonOptions { arguments, ..Default::default() })
}

fn work_that_takes_too_long_ends_its_session(kit: &Kit) -> Result<()> {
    let route = limited(kit)?;
    for how in ["endless", "graph"] {
        let mut command = route.command(&kit.programs.get("long_work")?);
        let outcome = Running::start(command.arg(how).env("VIRTIO_CUDA_LOG", "error"), "")?.finish(LIMIT)?;
        outcome.expect_exit(0)?;
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        let timeout = "cudaErrorLaunchTimeout";
        let expected = ["started".into()]
            .into_iter()
            .chain(["synchronize", "malloc", "of another thread"].map(|call| format!("{call}: {timeout}")));
        ensure!(expected.eq(lines.iter().copied()), "{how}:\n{outcome}");
        ensure!(outcome.stderr.contains("--time-limit"), "{how} does not say why:\n{outcome}");
        // The next session is not concerned.
        expect_good(kit, &route, "add_one")?;
    }
    Ok(())
}

fn much_work_and_long_waits_are_allowed(kit: &Kit) -> Result<()> {
    let route = limited(kit)?;
    let endless = start(kit, &route, "long_work", &["endless"])?;
    let patient = finish(kit, &route, "long_work", &["patient"])?;
    patient.expect_exit(0)?;
    ensure!(patient.stdout == "right\n", "{patient}");
    let endless = endless.finish(LIMIT)?;
    ensure!(endless.stdout.contains("synchronize: cudaErrorLaunchTimeout"), "{endless}");
    Ok(())
}

fn no_kernel_is_forgotten_among_many(kit: &Kit) -> Result<()> {
    let route = limited(kit)?;
    for program in ["crowds", "capture", "graphs", "events_streams", "per_thread_stream", "threads_share"] {
        expect_good(kit, &route, program)?;
    }
    Ok(())
}
