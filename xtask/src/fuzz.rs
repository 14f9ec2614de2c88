// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask fuzz`: libFuzzer drives the fuzz targets. Stable Rust suffices: LLVM's instrumentation is chosen by flags.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use vhost_cuda_fuzz::corpus;
use vhost_cuda_fuzz::targets::{TARGETS, feature};

use crate::paths::Paths;
use crate::progress::Step;

const PACKAGE: &str = "vhost-cuda-fuzz";
/// Build scripts and macros are not instrumented where a target is named.
const HOST: &str = "x86_64-unknown-linux-gnu";
/// Checks that release builds do not have.
const FLAGS: &str = "--cfg fuzzing -Cdebug-assertions -Coverflow-checks";
/// The compiler wrapper that libFuzzer needs, for the crates of this workspace: it reads all instrumented code after
/// each execution.
const WRAPPER: &str = "#!/bin/sh
# Not build scripts.
case \" $* \" in *\" --target \"*) ;; *) exec \"$@\" ;; esac
exec \"$@\" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
";
/// The maximum size in bytes of the inputs of one target in the repository.
const MAX_KEPT: usize = 128 << 10;
/// The longest input, in bytes.
const MAX_INPUT: usize = 1024;

/// The targets, and for how long.
#[derive(Debug, Args)]
pub struct FuzzArguments {
    /// The targets; without any, all of them
    #[arg(value_parser = targets().collect::<Vec<_>>())]
    targets: Vec<String>,
    /// Executions per target
    #[arg(long)]
    runs: Option<u64>,
    /// Seconds per target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Processes per target
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Add new inputs to those in the repository, without those that show nothing new
    #[arg(long)]
    keep: bool,
}

/// Fuzzes one target after the other; fails if there is a finding.
pub fn run(paths: &Paths, arguments: &FuzzArguments) -> Result<()> {
    let folder = paths.target.join("fuzz");
    let wanted =
        |target: &&str| arguments.targets.is_empty() || arguments.targets.iter().any(|one| one == target);
    let wanted: Vec<&str> = targets().filter(wanted).collect();
    let mut programs = HashMap::new();
    for target in &wanted {
        let feature = feature_of(target)?;
        if !programs.contains_key(feature) {
            programs.insert(feature, build(paths, &folder, feature)?);
        }
    }
    let mut failed = Vec::new();
    for target in wanted {
        let fuzzer = Fuzzer::new(&folder, &programs[feature_of(target)?], target)?;
        let (executions, good) = fuzzer.run(arguments)?;
        println!("{target:<10} {executions:>12} executions{}", if good { "" } else { ", and a finding" });
        if !good {
            failed.push(target);
        }
        if arguments.keep {
            fuzzer.keep()?;
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let findings = folder.join("findings");
    bail!(
        "Findings of {}: {} has the inputs, and the logs beside them say what happened. Mend the code, and add the input to \
         tests/fuzz/corpora",
        failed.join(", "),
        findings.display()
    )
}

fn targets() -> impl Iterator<Item = &'static str> {
    TARGETS.into_iter().flat_map(|(_, targets)| targets.iter().copied())
}

fn feature_of(target: &str) -> Result<&'static str> {
    feature(target).with_context(|| format!("{target} is no target"))
}

/// Builds the program that has the targets of a feature.
fn build(paths: &Paths, folder: &Path, feature: &str) -> Result<PathBuf> {
    let step = Step::new(&format!("fuzz-{feature}"), &paths.build_logs())?;
    fs::create_dir_all(folder).with_context(|| format!("Cannot make {}", folder.display()))?;
    let wrapper = folder.join("instrumented");
    fs::write(&wrapper, WRAPPER)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&paths.root).args(["build", "--release", "--package", PACKAGE, "--target", HOST]);
    cargo.args(["--features", feature, "--target-dir"]).arg(folder);
    cargo
        .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    step.run(&mut cargo)?;
    step.done("built with instrumentation");
    let program = folder.join(feature);
    // Another run may use it.
    let _ = fs::remove_file(&program);
    fs::copy(folder.join(HOST).join("release").join(PACKAGE), &program)?;
    Ok(program)
}

/// One target.
struct Fuzzer<'a> {
    program: &'a Path,
    target: &'a str,
    /// All inputs that showed something new, a file each.
    inputs: PathBuf,
    findings: PathBuf,
}

impl<'a> Fuzzer<'a> {
    /// With the inputs of the repository, and those of earlier runs.
    fn new(folder: &Path, program: &'a Path, target: &'a str) -> Result<Self> {
        let (inputs, findings) = (folder.join("inputs").join(target), folder.join("findings"));
        for folder in [&inputs, &findings] {
            fs::create_dir_all(folder).with_context(|| format!("Cannot make {}", folder.display()))?;
        }
        for (index, input) in corpus::read(target).unwrap_or_default().iter().enumerate() {
            fs::write(inputs.join(format!("kept-{index}")), input)?;
        }
        Ok(Self { program, target, inputs, findings })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).arg(format!("--target={}", self.target));
        command.args([
            &format!("-max_len={MAX_INPUT}"),
            "-timeout=25",
            "-rss_limit_mb=3072",
            "-detect_leaks=0",
        ]);
        command.arg(format!("-artifact_prefix={}/{}-", self.findings.display(), self.target));
        command
    }

    fn log(&self, job: u64) -> PathBuf {
        self.findings.join(format!("{}.{job}.log", self.target))
    }

    /// Runs all jobs to their end. Returns the executions, and whether none has a finding.
    fn run(&self, arguments: &FuzzArguments) -> Result<(u64, bool)> {
        let jobs = arguments.jobs.max(1);
        let start = |job: u64| -> Result<Child> {
            let mut command = self.command();
            command.args(["-print_final_stats=1", "-reload=1"]);
            command.arg(format!("-max_total_time={}", arguments.seconds));
            if let Some(runs) = arguments.runs {
                command.arg(format!("-runs={}", runs.div_ceil(jobs)));
            }
            command.arg(&self.inputs).stderr(fs::File::create(self.log(job))?);
            command.spawn().context("Cannot start the fuzzer")
        };
        let children = (0..jobs).map(start).collect::<Result<Vec<_>>>()?;
        let (mut executions, mut good) = (0, true);
        for (job, mut child) in (0..jobs).zip(children) {
            good &= child.wait()?.success();
            executions += executed(&fs::read_to_string(self.log(job)).unwrap_or_default());
        }
        Ok((executions, good))
    }

    /// Replaces the inputs in the repository by the fewest that show as much.
    fn keep(&self) -> Result<()> {
        let merged = self.inputs.with_extension("merged");
        let _ = fs::remove_dir_all(&merged);
        fs::create_dir_all(&merged)?;
        let log = fs::File::create(self.findings.join(format!("{}.merge.log", self.target)))?;
        let status = self.command().arg("-merge=1").arg(&merged).arg(&self.inputs).stderr(log).status()?;
        if !status.success() {
            bail!("The inputs of {} cannot be merged: {status}", self.target);
        }
        let mut inputs = Vec::new();
        for file in fs::read_dir(&merged)? {
            inputs.push(fs::read(file?.path())?);
        }
        let kept = shortest(inputs, MAX_KEPT);
        println!("{:<10} {:>12} inputs kept", self.target, kept.len());
        Ok(corpus::write(self.target, kept)?)
    }
}

/// The shortest inputs, of so many bytes together.
fn shortest(mut inputs: Vec<Vec<u8>>, bytes: usize) -> Vec<Vec<u8>> {
    inputs.sort_by_key(Vec::len);
    let mut left = bytes;
    inputs
        .into_iter()
        .take_while(|input| left.checked_sub(input.len()).map(|rest| left = rest).is_some())
        .collect()
}

/// Returns the number of executions in a log of libFuzzer, or before the last progress if it ended with a finding.
fn executed(log: &str) -> u64 {
    let last = log.lines().rev().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let progress = || log.lines().rev().find_map(|line| line.strip_prefix('#')?.split_whitespace().next());
    last.map(str::trim).or_else(progress).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_read_from_logs() {
        let log = "#2\tINITED cov: 3\n#4096\tpulse  cov: 9\n";
        assert_eq!(executed(log), 4096);
        assert_eq!(executed(&format!("{log}stat::number_of_executed_units: 5000\n")), 5000);
        assert_eq!(executed(""), 0);
    }

    #[test]
    fn the_shortest_inputs_are_kept() {
        let inputs = [3, 1, 2].map(|length| vec![0; length]).to_vec();
        assert_eq!(shortest(inputs, 4), [vec![0; 1], vec![0; 2]]);
    }
}
