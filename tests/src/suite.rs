// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The frame of a test binary: one trial per row, and every skipped test is reported.

use std::process::ExitCode;
use std::sync::{Arc, RwLock};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::daemon::gpu_exists;
use crate::effort;
use crate::program::Programs;
use crate::stack::Stack;

/// The tools that every trial of a level uses.
#[derive(Debug)]
pub struct Kit {
    /// The stack under test.
    pub stack: Stack,
    /// The programs.
    pub programs: Programs,
}

/// Held by each test while it runs.
static PROCESSORS: RwLock<()> = RwLock::new(());

/// Collects the trials of a level.
#[derive(Debug)]
pub struct Suite {
    level: &'static str,
    kit: Arc<Kit>,
    trials: Vec<Trial>,
    skipped: Vec<String>,
}

impl Suite {
    /// Adds a test.
    pub fn test(&mut self, name: impl Into<String>, body: impl FnOnce(&Kit) -> Result<()> + Send + 'static) {
        self.add(name, move |kit| {
            let _with_others = PROCESSORS.read();
            body(kit)
        });
    }

    /// Adds a test that measures the free memory of a GPU, where there is one: then no other test of the level runs
    /// at the same time.
    pub fn test_alone_on_gpu(
        &mut self,
        name: impl Into<String>,
        body: impl FnOnce(&Kit) -> Result<()> + Send + 'static,
    ) {
        if gpu_exists() {
            self.test_alone(name, body);
        } else {
            self.test(name, body);
        }
    }

    /// Adds a test that compares speeds: no other test of the level runs beside it.
    pub fn test_alone(
        &mut self,
        name: impl Into<String>,
        body: impl FnOnce(&Kit) -> Result<()> + Send + 'static,
    ) {
        self.add(name, move |kit| {
            let _alone = PROCESSORS.write();
            body(kit)
        });
    }

    fn add(&mut self, name: impl Into<String>, body: impl FnOnce(&Kit) -> Result<()> + Send + 'static) {
        let kit = self.kit.clone();
        self.trials
            .push(Trial::test(name, move || body(&kit).map_err(|error| Failed::from(format!("{error:#}")))));
    }

    /// Lists a test as ignored, and reports the reason.
    pub fn skip(&mut self, name: impl Into<String>, why: &str) {
        let why = why.to_owned();
        let name = name.into();
        self.trials.push(Trial::test(name, move || Err(Failed::from(why))).with_ignored_flag(true));
    }

    /// Reports why a group of tests is skipped; each is listed by [`Suite::skip`].
    pub fn say_skipped(&mut self, what: &str, why: &str) {
        self.skipped.push(format!("skipped: {}: {what}: {why}", self.level));
    }

    /// The tools of the tests.
    pub fn kit(&self) -> &Kit {
        &self.kit
    }
}

/// As [`run`], but one test at a time, in the order in which they were added: they share a machine.
pub fn run_in_order(level: &'static str, collect: impl FnOnce(&mut Suite) -> Result<()>) -> ExitCode {
    run_with_threads(level, 1, collect)
}

/// Runs the level that `collect` fills. Without a stack it fails.
pub fn run(level: &'static str, collect: impl FnOnce(&mut Suite) -> Result<()>) -> ExitCode {
    // Two at once even on one core, because the tests mostly wait for processes.
    run_with_threads(level, 2, collect)
}

fn run_with_threads(
    level: &'static str,
    threads: usize,
    collect: impl FnOnce(&mut Suite) -> Result<()>,
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let collected = prepare().and_then(|kit| {
        let mut suite = Suite { level, kit: Arc::new(kit), trials: Vec::new(), skipped: Vec::new() };
        collect(&mut suite)?;
        Ok(suite)
    });
    match collected {
        Ok(mut suite) => {
            for line in &suite.skipped {
                println!("{line}");
            }
            if threads > 1
                && let Ok(Some(seed)) = effort::seed()
            {
                fastrand::Rng::with_seed(seed).shuffle(&mut suite.trials);
            }
            arguments.test_threads.get_or_insert(threads);
            libtest_mimic::run(&arguments, suite.trials).exit_code()
        }
        Err(error) => {
            let message = format!("{error:#}");
            let trial = Trial::test(level, move || Err(Failed::from(message)));
            libtest_mimic::run(&Arguments { filter: None, ..arguments }, vec![trial]).exit_code()
        }
    }
}

fn prepare() -> Result<Kit> {
    Ok(Kit { stack: Stack::from_environment()?, programs: Programs::from_environment()? })
}
