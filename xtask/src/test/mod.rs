// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask test`: every level of tests that this machine allows.

mod cargo;
mod unit;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, fs, hint, thread};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::build::before::Before;
use crate::build::{Sanitized, Selection, Stack};
use crate::paths::Paths;
use crate::progress::duration;
use crate::setup::kernel::Flavour;
use crate::setup::nvcc_older;
use crate::{build, setup};
use cargo::{cargo_test, tell_effort, tell_places};

/// The package of all levels but the first.
const PACKAGE: &str = "vhost-cuda-tests";

/// A level of tests; each needs more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Each crate for itself.
    Unit,
    /// Daemon and libraries together, without a guest.
    Integration,
    /// CUDA programs: the same answers everywhere.
    Conformance,
    /// A guest that lies.
    Hostile,
    /// In a guest.
    Vm,
    /// This release and the one before together; only on request.
    Pair,
    /// The device plugin in a cluster of Kubernetes; only on request. Needs root.
    Kubernetes,
    /// A timeline in Perfetto's user interface; only on request. Needs Chromium.
    Timeline,
}

/// The levels of a plain `test`.
const USUAL: [Level; 5] = [Level::Unit, Level::Integration, Level::Conformance, Level::Hostile, Level::Vm];

impl Level {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// The tests to run.
#[derive(Debug, Clone, Args)]
pub struct TestArguments {
    /// Only these levels, with a comma between them
    #[arg(long, value_enum, value_delimiter = ',')]
    level: Vec<Level>,
    /// The guest's kernel, for level vm
    #[arg(long, value_enum, default_value_t)]
    kernel: Flavour,
    /// Build the daemon, the workers and the emulator with a sanitizer; for levels hostile, integration and conformance
    #[arg(long, value_enum)]
    sanitize: Option<Sanitizer>,
    /// Run the tests of a level in random order, and print its seed; with SEED in the order of that seed. Not for level vm
    #[arg(long, value_name = "SEED", num_args = 0..=1)]
    shuffle: Option<Option<u64>>,
    /// Run the levels so many times, each time with the next seed
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    repeat: u64,
    /// Rounds of tests that repeat something: races, kills, crash, suspended
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Seconds of tests that run for a time: soak, stress
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// The commit of the release before, with all its digits, for level pair; else the one in tests/release-before
    #[arg(long, value_name = "COMMIT")]
    before: Option<String>,
    /// Leave the emulator's own tests out of level unit if they have passed with the same inputs on this machine
    #[arg(long)]
    if_changed: bool,
    /// Keep so many processors busy meanwhile
    #[arg(long, value_name = "PROCESSORS", default_value_t = 0)]
    busy: usize,
    /// For the test programs: a part of a test's name, --nocapture …
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// A sanitizer of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sanitizer {
    /// AddressSanitizer.
    Address,
}

impl TestArguments {
    /// Levels whose daemons can run with a sanitizer.
    fn check_sanitizer(&self, paths: &Paths) -> Result<()> {
        if self.sanitize.is_none() {
            return Ok(());
        }
        if paths.bundle.is_some() {
            bail!("--sanitize compiles: it needs the repository, not a bundle");
        }
        let allowed = [Level::Hostile, Level::Integration, Level::Conformance];
        if self.level.is_empty() || self.level.iter().any(|level| !allowed.contains(level)) {
            bail!("--sanitize needs --level hostile, integration or conformance");
        }
        Ok(())
    }
}

enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(formatter, "passed"),
            Self::Failed => write!(formatter, "FAILED"),
            Self::Skipped(why) => write!(formatter, "skipped: {why}"),
        }
    }
}

/// Sets up, builds and runs the levels; the exit status is 1 if one of them failed.
pub fn run(paths: &Paths, arguments: &TestArguments) -> Result<u8> {
    arguments.check_sanitizer(paths)?;
    setup::run(paths, &[])?;
    if let Some(part) = setup::kernel_part(arguments.kernel) {
        setup::run(paths, &[part])?;
    }
    for release in nvcc_older::ALL {
        if let Err(error) = setup::run(paths, &[setup::Part::NvccOlder(release)]) {
            // It comes from packages that not every mirror has. The tests list the programs that they leave out.
            eprintln!("without programs of CUDA {}: {error:#}", release.major);
        }
    }
    let stack = build::run(paths, &[], arguments.kernel)?;
    if arguments.level.contains(&Level::Kubernetes) {
        setup::run(paths, &[setup::Part::Kubernetes])?;
        name_cluster(paths, &stack)?;
    }
    if arguments.level.contains(&Level::Timeline) {
        setup::run(paths, &[setup::Part::Perfetto])?;
        link_into(&stack, "perfetto", &setup::perfetto::find(paths))?;
    }
    let sanitized = arguments.sanitize.map(|_| Sanitized::build(paths, &stack)).transpose()?;
    let levels = if arguments.level.is_empty() { &USUAL[..] } else { &arguments.level };
    let seed = arguments.shuffle.map(|seed| seed.unwrap_or_else(any_seed));
    let _load = Load::start(arguments.busy);
    let mut outcomes: Vec<(Level, Outcome, Duration)> = Vec::new();
    for round in 0..arguments.repeat {
        let arguments = TestArguments { shuffle: seed.map(|seed| Some(seed + round)), ..arguments.clone() };
        for level in levels {
            eprintln!("\n==== {} ====", level.name());
            if let Some(Some(seed)) = arguments.shuffle {
                eprintln!("the order of --shuffle {seed}");
            }
            let started = Instant::now();
            let outcome = match &sanitized {
                Some(sanitized) => run_sanitized(paths, sanitized, *level, &arguments)?,
                None => run_level(paths, &stack, *level, &arguments)?,
            };
            outcomes.push((*level, outcome, started.elapsed()));
        }
    }
    println!();
    for (level, outcome, time) in &outcomes {
        println!("{:12} {outcome}  {}", level.name(), duration(*time));
    }
    Ok(u8::from(outcomes.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed))))
}

/// A seed that differs from run to run.
fn any_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs() % 1_000_000)
}

/// Threads that use processors until this is dropped.
struct Load {
    ended: Arc<AtomicBool>,
}

impl Load {
    fn start(threads: usize) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..threads {
            let ended = ended.clone();
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        Self { ended }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn run_level(paths: &Paths, stack: &Stack, level: Level, arguments: &TestArguments) -> Result<Outcome> {
    let name = level.name();
    if let Some(bundle) = &paths.bundle {
        return bundled_level(bundle, stack, level, arguments);
    }
    if level == Level::Unit {
        return unit::run(paths, stack, arguments);
    }
    if level == Level::Pair
        && let Some(why) = name_before(paths, stack, arguments)?
    {
        return Ok(Outcome::Skipped(why));
    }
    let source = paths.root.join("tests/tests").join(&name);
    if !source.is_dir() && !source.with_extension("rs").exists() {
        return Ok(Outcome::Skipped("nobody has written it yet".to_owned()));
    }
    let passed = cargo_test(paths, stack, Selection::Workspace, &["--test", &name], arguments, None)?;
    Ok(if passed { Outcome::Passed } else { Outcome::Failed })
}

fn run_sanitized(
    paths: &Paths,
    sanitized: &Sanitized,
    level: Level,
    arguments: &TestArguments,
) -> Result<Outcome> {
    let name = level.name();
    let test = ["--test", &name];
    let passed =
        cargo_test(paths, &sanitized.stack, Selection::Workspace, &test, arguments, Some(sanitized))?;
    sanitized.check()?;
    Ok(if passed { Outcome::Passed } else { Outcome::Failed })
}

/// Links the cluster's programs into the stack, where the tests look for them.
fn name_cluster(paths: &Paths, stack: &Stack) -> Result<()> {
    link_into(stack, "kubernetes", &setup::kubernetes::find(paths)?)
}

/// Builds the release before and links it into the stack. Returns the reason for which its sources are not here, if so.
fn name_before(paths: &Paths, stack: &Stack, arguments: &TestArguments) -> Result<Option<String>> {
    let named = || build::before::commit(&paths.root);
    let commit = arguments.before.clone().map_or_else(named, Ok)?;
    match build::before::build(paths, &commit)? {
        Before::Missing(why) => Ok(Some(why)),
        Before::Built(folder) => link_into(stack, "before", &folder).map(|()| None),
    }
}

fn link_into(stack: &Stack, name: &str, target: &Path) -> Result<()> {
    let link = stack.folder.join(name);
    let _ = fs::remove_file(&link);
    symlink(target, &link).with_context(|| format!("Cannot create {}", link.display()))
}

/// Runs the test program that the bundle carries for this level.
fn bundled_level(bundle: &Path, stack: &Stack, level: Level, arguments: &TestArguments) -> Result<Outcome> {
    let program = bundle.join("tests").join(level.name());
    if !program.exists() {
        return Ok(Outcome::Skipped("the bundle has no program for it".to_owned()));
    }
    let mut command = Command::new(&program);
    command.args(&arguments.arguments).current_dir(bundle);
    command.env("VHOST_CUDA_BUNDLE", bundle);
    tell_effort(&mut command, arguments);
    tell_places(&mut command, stack, arguments.kernel);
    let passed = command.status().with_context(|| format!("Cannot start {}", program.display()))?.success();
    Ok(if passed { Outcome::Passed } else { Outcome::Failed })
}
