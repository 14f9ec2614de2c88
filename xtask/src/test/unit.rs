// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Level unit: the tests of each crate for itself.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, pipe};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{Outcome, PACKAGE, TestArguments, cargo};
use crate::build::{EMULATOR, Selection, Stack};
use crate::emulator;
use crate::paths::Paths;
use crate::progress::{duration, output_of};
use crate::setup::inputs;

/// The test program of the lanes' hand-off. It has tests only where it is built with loom's atomics.
const MODEL: &str = "model";
/// All that it is made of, and what makes it.
const MODEL_SOURCES: [&str; 5] =
    ["protocol/ring", "Cargo.toml", "Cargo.lock", ".cargo", "xtask/src/test/unit.rs"];
/// Test programs that take longer are listed.
const LONG: Duration = Duration::from_secs(1);

/// Runs all of them, so that one run shows all faults. No documentation has tests, for which rustdoc would read each crate again.
pub(super) fn run(paths: &Paths, stack: &Stack, arguments: &TestArguments) -> Result<Outcome> {
    let programs = programs(paths)?;
    let own: Vec<&str> =
        ["--no-fail-fast", "--lib"].into_iter().chain(programs.iter().map(String::as_str)).collect();
    let mut report = Report::default();
    let mut passed = report.run(cargo::command(paths, stack, Selection::Workspace, &own, arguments)?)?;
    if arguments.if_changed && emulator::has_passed(paths) {
        println!("The emulator's tests have passed with the same inputs");
    } else {
        let own = ["--no-fail-fast", "--tests"];
        passed &= report.run(cargo::command(paths, stack, Selection::Emulator, &own, arguments)?)?;
    }
    // Tests that the command line selects are not the whole check.
    let if_changed = arguments.if_changed && arguments.arguments.is_empty();
    let check = || -> Result<()> {
        ensure!(report.run(model(paths, arguments))?, "The test program {MODEL} failed");
        Ok(())
    };
    let sources = || inputs::files(inputs::toolchain()?, &paths.root, &MODEL_SOURCES);
    if let Err(error) = inputs::unless_passed(paths, MODEL, if_changed, sources, check) {
        println!("{error:#}");
        passed = false;
    }
    println!("{}", report.text());
    Ok(if passed { Outcome::Passed } else { Outcome::Failed })
}

/// Arguments that name the test programs of all packages but the emulator's and that of the other levels. To leave a package out
/// would compile the others with other features.
fn programs(paths: &Paths) -> Result<BTreeSet<String>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--no-deps", "--format-version=1"]).current_dir(&paths.root);
    let metadata: Value = serde_json::from_str(&output_of(&mut cargo)?)?;
    let (mut programs, mut levels) = (BTreeSet::new(), BTreeSet::new());
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let is_of_levels = package["name"] == PACKAGE;
        if EMULATOR.iter().any(|name| package["name"] == *name) {
            continue;
        }
        for target in package["targets"].as_array().into_iter().flatten() {
            let name = target["name"].as_str().context("A target has no name")?;
            match target["kind"][0].as_str() {
                Some("test") if is_of_levels => drop(levels.insert(format!("--test={name}"))),
                Some("test") if name != MODEL => drop(programs.insert(format!("--test={name}"))),
                Some("bin") if target["test"] == true && has_tests(target)? => {
                    programs.insert(format!("--bin={name}"));
                }
                _ => {}
            }
        }
    }
    if let Some(name) = programs.intersection(&levels).next() {
        bail!("A test program has the name of a level: {name}");
    }
    Ok(programs)
}

/// A program of one file without tests need not be compiled as a test: its package's library has them.
fn has_tests(target: &Value) -> Result<bool> {
    let source = target["src_path"].as_str().context("A program has no source")?;
    let text = fs::read_to_string(source).with_context(|| format!("Cannot read {source}"))?;
    Ok(text.lines().any(|line| line.trim() == "#[test]" || (line.contains("mod ") && line.ends_with(';'))))
}

/// The hand-off of lanes in every interleaving: the same code, built with loom's atomics.
fn model(paths: &Paths, arguments: &TestArguments) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--release", "--package", "virtio-cuda-ring", "--test", MODEL, "--"]);
    // Other flags are another build of everything: it must not push the usual one out.
    cargo.current_dir(&paths.root).env("CARGO_TARGET_DIR", paths.target.join("model"));
    cargo.env("RUSTFLAGS", "--cfg loom").args(&arguments.arguments);
    cargo
}

/// The time that compiling and each test program took.
#[derive(Debug, Default)]
struct Report {
    compiling: Duration,
    programs: Vec<(String, Duration)>,
}

impl Report {
    /// Runs `cargo test`, prints its output, and returns whether the tests passed.
    fn run(&mut self, mut cargo: Command) -> Result<bool> {
        let (reader, writer) = pipe().context("Cannot create a pipe")?;
        cargo.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let started = Instant::now();
        let mut child = cargo.spawn().context("Cannot start cargo")?;
        // The command keeps the write ends of the pipe, which would never end.
        drop(cargo);
        let (mut program, mut begun) = (None, started);
        for line in BufReader::new(reader).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            if let Some(name) = running(&line) {
                self.end(program.replace(name), begun);
                begun = Instant::now();
            }
        }
        self.end(program, begun);
        Ok(child.wait()?.success())
    }

    /// Until cargo runs the first program, it compiles.
    fn end(&mut self, program: Option<String>, begun: Instant) {
        match program {
            Some(name) => self.programs.push((name, begun.elapsed())),
            None => self.compiling += begun.elapsed(),
        }
    }

    fn text(&self) -> String {
        let mut long: Vec<_> = self.programs.iter().filter(|(_, time)| *time > LONG).collect();
        long.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let list: Vec<String> =
            long.iter().map(|(name, time)| format!("{name} {}", duration(*time))).collect();
        let all = self.programs.iter().map(|(_, time)| *time).sum();
        format!(
            "compiled {}; {} test programs {}, of them {}",
            duration(self.compiling),
            self.programs.len(),
            duration(all),
            if list.is_empty() { "none long".to_owned() } else { list.join(", ") }
        )
    }
}

/// The name in `Running tests/lane.rs (target/release/deps/lane-0123456789abcdef)`.
fn running(line: &str) -> Option<String> {
    let path = line.trim_start().strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once('(')?.1;
    let name = path.rsplit('/').next()?;
    Some(name.rsplit_once('-').map_or(name, |(name, _)| name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_compiling_or_of_a_program() -> Result<()> {
        let script = "echo '   Compiling a v0.1.0 (/r/a)'; sleep 0.2; \
            echo '     Running unittests src/lib.rs (target/release/deps/a-0123456789abcdef)' >&2; sleep 1.1; \
            echo '     Running tests/b.rs (target/release/deps/b_c-0123456789abcdef)' >&2; exit 1";
        let mut report = Report::default();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        assert!(!report.run(command)?);
        assert!(report.compiling >= Duration::from_millis(200));
        assert_eq!(report.programs.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b_c"]);
        let text = report.text();
        assert!(text.contains("2 test programs") && text.contains("of them a 1.") && !text.contains("b_c"));
        Ok(())
    }

    #[test]
    fn every_unit_test_program_is_run() -> Result<()> {
        let programs = programs(&Paths::discover()?)?;
        for name in ["--test=repository", "--test=golden", "--bin=vhost-cuda-run"] {
            assert!(programs.contains(name), "{name}");
        }
        for name in ["--test=vm", "--test=model", "--test=execution", "--bin=xtask"] {
            assert!(!programs.contains(name), "{name}");
        }
        Ok(())
    }
}
