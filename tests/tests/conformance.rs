// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Every program of the table in every way to reach a device on this machine. The output must be the expected one,
//! and the description of the device must match the reference.

use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Result, ensure};
use vhost_cuda_tests::cases::{CASES, Case, Stdout, Weight};
use vhost_cuda_tests::running::{Outcome, Running};
use vhost_cuda_tests::stack::{Device, Route, Way, missing_library};
use vhost_cuda_tests::suite::{self, Kit, Suite};
use vhost_cuda_tests::verdict::{self, Answering};

/// The maximum time that one program may take.
const LIMIT: Duration = Duration::from_secs(180);
/// Maximum delay of the daemon's log.
const LOG_LAG: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    suite::run("conformance", |suite| {
        for way in Way::ALL {
            collect(suite, way);
        }
        Ok(())
    })
}

fn collect(suite: &mut Suite, way: Way) {
    let missing = way.missing(&suite.kit().programs);
    if let Some(why) = &missing {
        suite.say_skipped(way.name(), why);
    }
    for case in CASES {
        let name = format!("{}::{}", way.name(), case.name);
        let unbuilt = suite.kit().programs.missing(case.program);
        let missing = missing.clone().or(unbuilt).or_else(|| no_library(way, case));
        match missing.or_else(|| not_ours(way, case)).or_else(|| too_heavy(case)) {
            Some(why) => suite.skip(name, &why),
            None => suite.test(name, move |kit| check(kit, way, case)),
        }
    }
}

/// The rules were written from the answers of NVIDIA's driver. Some depend on calls before them.
fn not_ours(way: Way, case: &Case) -> Option<String> {
    if let Some(why) = case.not_on_gpus.filter(|_| way.device() == Device::Native) {
        return Some(why.to_owned());
    }
    let nvidias = matches!(way, Way::Native | Way::RuntimeOnNative);
    let rules = matches!(case.stdout, Stdout::Rules | Stdout::RulesOfLibrary);
    (nvidias && rules).then(|| "the rules are for this project's libraries".to_owned())
}

fn no_library(way: Way, case: &Case) -> Option<String> {
    (way.device() == Device::Native).then(|| missing_library(case.library)).flatten()
}

fn too_heavy(case: &Case) -> Option<String> {
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

fn check(kit: &Kit, way: Way, case: &'static Case) -> Result<()> {
    let route = Route::open(way, &kit.stack, &kit.programs)?;
    let outcomes = run(kit, &route, case)?;
    for outcome in &outcomes {
        verdict::check(case, outcome, Answering::on(way))?;
    }
    if let Some(daemon) = &route.daemon {
        ensure!(daemon.log().contains("front-end connected"), "no program came to the daemon");
    }
    if way.device() == Device::Emulated {
        for text in case.diagnostics_have {
            wait_for_diagnostics(&route, &outcomes, text)?;
        }
    } else if case.stdout == Stdout::OfDevice
        && way != Way::Native
        && Way::Native.missing(&kit.programs).is_none()
    {
        let native = run(kit, &Route::open(Way::Native, &kit.stack, &kit.programs)?, case)?;
        ensure!(outcomes[0].stdout == native[0].stdout, "natively:\n{}\nhere:\n{}", native[0], outcomes[0]);
    }
    Ok(())
}

fn run(kit: &Kit, route: &Route, case: &Case) -> Result<Vec<Outcome>> {
    let program = kit.programs.get(case.program)?;
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

fn wait_for_diagnostics(route: &Route, outcomes: &[Outcome], text: &str) -> Result<()> {
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
