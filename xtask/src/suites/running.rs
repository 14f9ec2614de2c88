// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the programs of a suite on a way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::prepare::{Prepared, Unit};
use super::table::Suite;
use super::verdicts::{Verdict, Verdicts, of_pytest, of_rust};
use crate::conformance::{Invocation, Ready, Way, for_each};

/// Exit statuses of pytest: all passed, some failed, no tests.
const ENDED: [i32; 3] = [0, 1, 5];
/// Exit statuses of cargo's test programs.
const RUST_ENDED: [i32; 2] = [0, 101];

/// Options of suites.
pub struct Plan<'a> {
    /// The folders of the suites.
    pub prepared: &'a Prepared,
    /// The folder for outputs.
    pub output: &'a Path,
    /// Time limit per program.
    pub limit: Duration,
    /// Programs at a time.
    pub jobs: usize,
}

/// All verdicts of a suite on a way; an error if its programs used another driver library than ours.
pub fn run(plan: &Plan<'_>, ready: &Ready, suite: &Suite, way: Way, units: &[Unit]) -> Result<Verdicts> {
    let before = ready.ended_sessions(way)?;
    let all = Mutex::new(Verdicts::new());
    for_each(plan.jobs, units, |unit| {
        let verdicts = one(plan, ready, suite, way, unit)?;
        all.lock().unwrap_or_else(PoisonError::into_inner).extend(verdicts);
        Ok(())
    })?;
    if before.is_some() && ready.ended_sessions(way)? == before {
        bail!("No program reached the daemon: another libcuda.so than ours was found first");
    }
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// A process for each file: an error that stays in a context is that file's.
fn one(plan: &Plan<'_>, ready: &Ready, suite: &Suite, way: Way, unit: &Unit) -> Result<Verdicts> {
    let plugins = plan.prepared.folder.join("plugins");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut environment = BTreeMap::new();
    let (program, arguments, name): (&Path, Vec<String>, &str) = match unit {
        Unit::Rust(program, None) => (program, vec!["--test-threads=1".to_owned()], "tests"),
        Unit::Rust(program, Some(test)) => {
            let arguments = [test.as_str(), "--exact", "--ignored"];
            (program, arguments.map(str::to_owned).to_vec(), test)
        }
        Unit::Python(file, stem) => {
            environment.insert("PYTHONPATH".to_owned(), text(&plugins));
            environment.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
            let mut arguments: Vec<_> =
                ["-m", "pytest", "-v", "-p", "no:cacheprovider"].map(str::to_owned).to_vec();
            arguments.extend(suite.plugin.iter().flat_map(|plugin| ["-p".to_owned(), plugin.clone()]));
            arguments.extend(["-c".to_owned(), text(&plugins.join("pytest.ini"))]);
            arguments.extend(["--rootdir".to_owned(), text(&plan.prepared.folder)]);
            arguments.extend(file.iter().cloned());
            (&plan.prepared.python, arguments, stem)
        }
    };
    let folder = program.parent().context("A program has no folder")?;
    let file = program.file_name().context("A program has no name")?.to_string_lossy();
    let invocation = Invocation {
        program: &file,
        folder,
        arguments: &arguments,
        environment: &environment,
        limit: plan.limit,
    };
    let outcome = ready.run(way, &invocation)?;
    let log: PathBuf =
        plan.output.join(&suite.name).join(name.replace("::", ".")).with_added_extension(way.name());
    fs::create_dir_all(log.parent().context("A log has no folder")?)?;
    fs::write(&log, format!("{}{}", outcome.stdout, outcome.stderr))?;
    let (mut verdicts, ended) = match unit {
        Unit::Rust(_, None) => (of_rust(&outcome.stdout), RUST_ENDED.as_slice()),
        // Most others are filtered out, and ignored when all are run.
        Unit::Rust(_, Some(test)) => {
            let mut verdicts = of_rust(&outcome.stdout);
            verdicts.retain(|name, _| name == test);
            (verdicts, RUST_ENDED.as_slice())
        }
        Unit::Python(_, stem) => (of_pytest(&outcome.stdout, stem), ENDED.as_slice()),
    };
    if !outcome.status.is_some_and(|status| ended.contains(&status)) {
        let how = outcome.status.map_or("took too long".to_owned(), |status| format!("ended with {status}"));
        verdicts.insert(format!("{name} ({how})"), Verdict::Unfinished);
    }
    Ok(verdicts)
}
