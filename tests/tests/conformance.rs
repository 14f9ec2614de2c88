// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Every program of the table in every way to reach a device on this machine. The output must be the expected one,
//! and the description of the device must match the reference.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use vhost_cuda_tests::cases::{CASES, Case, Stdout};
use vhost_cuda_tests::runs;
use vhost_cuda_tests::stack::{Device, Route, Way, missing_library};
use vhost_cuda_tests::suite::{self, Kit, Suite};
use vhost_cuda_tests::verdict::{self, Answering};

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
        match missing.or_else(|| not_ours(way, case)).or_else(|| runs::too_heavy(case)) {
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
    if way == Way::RuntimeOnNative && case.library.contains(&"libcupti.so.13") {
        return Some("NVIDIA's CUPTI does not see the calls of this project's runtime".to_owned());
    }
    let nvidias = matches!(way, Way::Native | Way::RuntimeOnNative);
    let rules = matches!(case.stdout, Stdout::Rules | Stdout::RulesOfLibrary);
    (nvidias && rules).then(|| "the rules are for this project's libraries".to_owned())
}

fn no_library(way: Way, case: &Case) -> Option<String> {
    (way.device() == Device::Native).then(|| missing_library(case.library)).flatten()
}

fn check(kit: &Kit, way: Way, case: &'static Case) -> Result<()> {
    let route = Route::open(way, &kit.stack, &kit.programs)?;
    let outcomes = runs::run(&kit.programs, &route, case)?;
    for outcome in &outcomes {
        verdict::check(case, outcome, Answering::on(way))?;
    }
    if let Some(daemon) = &route.daemon {
        ensure!(daemon.log().contains("front-end connected"), "no program came to the daemon");
    }
    if way.device() == Device::Emulated {
        runs::wait_for_diagnostics(&route, &outcomes, case)?;
    } else if case.stdout == Stdout::OfDevice
        && way != Way::Native
        && Way::Native.missing(&kit.programs).is_none()
    {
        let native = runs::run(&kit.programs, &Route::open(Way::Native, &kit.stack, &kit.programs)?, case)?;
        ensure!(outcomes[0].stdout == native[0].stdout, "natively:\n{}\nhere:\n{}", native[0], outcomes[0]);
    }
    Ok(())
}
