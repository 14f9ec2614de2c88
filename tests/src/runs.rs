// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Runs of the table's cases on a way to a device.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::cases::{Case, Weight};
use crate::program::Programs;
use crate::running::{Outcome, Running};
use crate::stack::Route;

/// The maximum time that one program may take.
const LIMIT: Duration = Duration::from_secs(180);
/// Maximum delay of the daemon's log.
const LOG_LAG: Duration = Duration::from_secs(2);

/// Returns the reason for which this machine has not enough memory for `case` now, if so.
pub fn too_heavy(case: &Case) -> Option<String> {
    let gib = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? >> 20)
    })?;
    let needed = match case.weight {
        Weight::Light => return None,
        Weight::Heavy => 3,
        Weight::Huge => 8,
    };
    (gib < needed).then(|| format!("needs {needed} GiB of free memory, there are {gib}"))
}

/// Runs the processes of `case` at the same time to their ends.
pub fn run(programs: &Programs, route: &Route, case: &Case) -> Result<Vec<Outcome>> {
    let program = programs.get(case.program)?;
    let started = (0..case.at_once).map(|index| {
        let mut command = route.command(&program);
        command.args(case.args);
        if case.at_once > 1 {
            command.arg((index + 1).to_string());
        }
        Running::start(&mut command, case.stdin)
    });
    let running = started.collect::<Result<Vec<_>>>()?;
    running.into_iter().map(|process| process.finish(LIMIT)).collect()
}

/// Waits until the programs or the daemon's log have all [`Case::diagnostics_have`].
pub fn wait_for_diagnostics(route: &Route, outcomes: &[Outcome], case: &Case) -> Result<()> {
    case.diagnostics_have.iter().try_for_each(|text| wait_for(route, outcomes, text))
}

fn wait_for(route: &Route, outcomes: &[Outcome], text: &str) -> Result<()> {
    let deadline = Instant::now() + LOG_LAG;
    loop {
        let log = route.daemon.as_ref().map(|daemon| daemon.log()).unwrap_or_default();
        if log.contains(text) || outcomes.iter().any(|outcome| outcome.stderr.contains(text)) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "nobody says `{text}`\n{}\n--- daemon\n{log}", outcomes[0]);
        thread::sleep(Duration::from_millis(20));
    }
}
