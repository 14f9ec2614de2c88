// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Errors that come late reach the program.

use anyhow::{Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{finish, route};

pub fn collect(suite: &mut Suite) {
    suite.test("posted_errors_reach_the_program", posted_errors_reach_the_program);
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
