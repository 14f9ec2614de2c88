// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask deny`: licences, sources and known vulnerabilities of the dependencies, by the rules of `deny.toml`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::progress::Step;
use crate::setup;

/// Checks that need no network.
const OFFLINE: [&str; 3] = ["licenses", "bans", "sources"];

/// Installs cargo-deny, then runs its checks. The check of vulnerabilities needs the RustSec database from the network. Without
/// it the command warns and succeeds.
pub fn run(paths: &Paths) -> Result<()> {
    let program = setup::deny(paths)?;
    let step = Step::new("deny", &paths.setup_logs())?;
    step.run(cargo_deny(paths, &program).arg("check").args(OFFLINE))
        .context("A dependency breaks a rule of deny.toml")?;
    if step.run(cargo_deny(paths, &program).args(["fetch", "db"])).is_err() {
        eprintln!("warning: vulnerabilities are not checked: the RustSec database cannot be fetched");
        step.done(&OFFLINE.join(", "));
        return Ok(());
    }
    step.run(cargo_deny(paths, &program).args(["check", "--disable-fetch", "advisories"]))
        .context("A dependency has a known vulnerability, or was withdrawn")?;
    step.done(&format!("{}, advisories", OFFLINE.join(", ")));
    Ok(())
}

fn cargo_deny(paths: &Paths, program: &PathBuf) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&paths.root).args(["--color", "never", "--log-level", "warn"]);
    command
}
