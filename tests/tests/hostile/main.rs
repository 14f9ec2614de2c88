// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A malicious driver: every malformed chain, request and call is refused correctly, and the daemon continues to
//! serve others.

mod arrays;
mod calls;
mod chains;
mod contents;
mod exhaustion;
mod external;
mod faults;
mod floods;
mod graphs;
mod kills;
mod lanes;
mod limits;
mod management;
mod races;
mod references;
mod requests;
mod sandbox;
mod soak;
mod takeover;
mod vendor;
mod walls;
mod windows;
mod worker;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::frontend::{FakeFrontend, PATIENCE};
use vhost_cuda_tests::suite::{self, Kit, Suite};

fn main() -> ExitCode {
    suite::run("hostile", |suite| {
        chains::collect(suite);
        races::collect(suite);
        references::collect(suite);
        requests::collect(suite);
        calls::collect(suite);
        arrays::collect(suite);
        graphs::collect(suite);
        contents::collect(suite);
        windows::collect(suite);
        external::collect(suite);
        lanes::collect(suite);
        limits::collect(suite);
        management::collect(suite);
        floods::collect(suite);
        exhaustion::collect(suite);
        sandbox::collect(suite);
        worker::collect(suite);
        faults::collect(suite);
        kills::collect(suite);
        soak::collect(suite);
        vendor::collect(suite);
        walls::collect(suite);
        requests::watching::collect(suite);
        takeover::collect(suite);
        Ok(())
    })
}

/// Adds a test that attacks a daemon of its own; afterwards the daemon must still run and serve others.
fn attack(suite: &mut Suite, name: &str, body: fn(&mut Target) -> Result<()>) {
    attack_with(suite, name, DaemonOptions::default(), body);
}

fn attack_with(
    suite: &mut Suite,
    name: &str,
    options: DaemonOptions,
    body: impl FnOnce(&mut Target) -> Result<()> + Send + 'static,
) {
    suite.test(name, move |kit: &Kit| {
        let mut target = Target { daemon: Daemon::start(&kit.stack, &options)? };
        let result = body(&mut target);
        // The resources of the test's last connection come back a moment after it has ended.
        let served = target.daemon.wait_until("others are served", PATIENCE, |daemon| {
            FakeFrontend::behave(&daemon.socket()).is_ok()
        });
        let running = target.daemon.is_running();
        let running = if running { Ok(()) } else { Err(anyhow!("The daemon has ended")) };
        result
            .and(served)
            .and(running)
            .map_err(|error| anyhow!("{error:#}\n--- daemon\n{}", tail(&target.daemon.log())))
    });
}

/// The attacked daemon.
struct Target {
    daemon: Daemon,
}

impl Target {
    fn connect(&self) -> Result<FakeFrontend> {
        FakeFrontend::connect(&self.daemon.socket())
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
