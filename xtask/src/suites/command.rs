// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command: its arguments, and the table of results.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::prepare::Prepared;
use super::running::{self, Plan};
use super::table::{Suite, suites};
use super::verdicts::{Verdict, Verdicts};
use crate::conformance::{Cudart, Ready, Toolkit, Way};
use crate::daemon::{Device, has_gpu};
use crate::paths::Paths;
use crate::run::new_log_folder;
use crate::setup::kernel::Flavour;
use crate::{build, setup};

/// The suites to fetch and run.
#[derive(Debug, Args)]
pub struct SuitesArguments {
    /// Only these suites, with a comma between them
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// The ways to a device, with a comma between them; else virtio-user, and native where there is a GPU
    #[arg(long, value_enum, value_delimiter = ',')]
    ways: Vec<Way>,
    /// The GPU of virtio-user and vm: `auto` (a real one if there is one), `emulated`, or the path of a libcuda.so.1
    #[arg(long, default_value = "auto")]
    device: String,
    /// Where the suites are, or are put
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// A Python that has the packages; else a virtual environment gets them
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// A checkout of NVIDIA/cuda-python, instead of fetching its tests
    #[arg(long, value_name = "FOLDER")]
    checkout: Option<PathBuf>,
    /// More folders with libraries that the suites need, as NVRTC
    #[arg(long, value_name = "FOLDER")]
    libraries: Vec<PathBuf>,
    /// Seconds that one program may take: a file of Python tests, or all of a Rust suite
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Programs at a time; else one for each CPU
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
}

/// Runs the suites. 1 if a test failed that the table does not know.
pub fn run(paths: &Paths, arguments: &SuitesArguments) -> Result<u8> {
    let suites = suites(&arguments.only)?;
    let folder = arguments.folder.clone().unwrap_or_else(|| paths.target.join("suites"));
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let usual = || if has_gpu() { vec![Way::Native, Way::VirtioUser] } else { vec![Way::VirtioUser] };
    let ways = if arguments.ways.is_empty() { usual() } else { arguments.ways.clone() };
    if ways.contains(&Way::Native) && !has_gpu() {
        bail!("There is no GPU here for the way native");
    }
    let emulated = Device(arguments.device.clone()).is_emulated();
    let mut libraries = stack(paths, &ways, &arguments.libraries)?;
    if emulated {
        libraries = vec![without_linker(&folder.join("libraries"), &libraries)?];
    }
    let prepared = Prepared::new(paths, &suites, &folder, arguments.python.as_deref())?;
    let logs = new_log_folder(paths)?;
    let jobs = arguments.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let ready = Ready::new(paths, &ways, &arguments.device, libraries, jobs, &logs)?;
    let output = folder.join("outputs");
    let plan =
        Plan { prepared: &prepared, output: &output, limit: Duration::from_secs(arguments.timeout), jobs };
    let mut report = Report::default();
    for suite in &suites {
        let units = prepared.units(paths, suite, arguments.checkout.as_deref())?;
        for &way in &ways {
            let verdicts = running::run(&plan, &ready, suite, way, &units).with_context(|| {
                format!("{} on {}; the logs are in {}", suite.name, way.name(), logs.display())
            })?;
            report.add(suite, way, emulated, &verdicts);
        }
    }
    ready.stop()?;
    let text = report.text();
    fs::write(folder.join("results.md"), &text)?;
    println!("{text}\nOutputs: {}; logs: {}", output.display(), logs.display());
    Ok(u8::from(report.unknown > 0))
}

/// Builds everything that the ways need. Returns the folders with NVRTC.
fn stack(paths: &Paths, ways: &[Way], more: &[PathBuf]) -> Result<Vec<PathBuf>> {
    build::for_programs(paths, ways.contains(&Way::Vm).then_some(Flavour::Small))?;
    let given =
        more.iter().map(|folder| folder.canonicalize().context("Cannot open a folder with libraries"));
    let mut libraries = given.collect::<Result<Vec<_>>>()?;
    if paths.bundle.is_none() {
        setup::run(paths, &[setup::Part::Nvcc])?;
        libraries.extend_from_slice(Toolkit::find(paths, Cudart::Shared, &[])?.libraries());
    }
    Ok(libraries)
}

/// Returns a folder with the contents of `folders` except nvJitLink, whose machine code the emulator cannot execute.
/// A program that does not find it links through the driver.
fn without_linker(folder: &Path, folders: &[PathBuf]) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("Cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    for from in folders {
        let entries = fs::read_dir(from).with_context(|| format!("Cannot list {}", from.display()))?;
        for entry in entries {
            let entry = entry?;
            let to = folder.join(entry.file_name());
            if !entry.file_name().to_string_lossy().starts_with("libnvJitLink") && !to.exists() {
                symlink(entry.path(), &to).with_context(|| format!("Cannot create {}", to.display()))?;
            }
        }
    }
    Ok(folder.to_owned())
}

#[derive(Default)]
struct Report {
    rows: String,
    failures: String,
    unknown: usize,
}

impl Report {
    fn add(&mut self, suite: &Suite, way: Way, emulated: bool, verdicts: &Verdicts) {
        let count = |wanted| verdicts.values().filter(|verdict| **verdict == wanted).count();
        let (mut known, mut unknown) = (0, 0);
        let failed =
            verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed | Verdict::Unfinished));
        for (test, verdict) in failed {
            let why = suite.why(test, way, emulated);
            if why.is_some() {
                known += 1
            } else {
                unknown += 1
            }
            let what = if *verdict == Verdict::Failed { "failed" } else { "did not end" };
            let why = why.map_or("**not known**", |why| why);
            let _ = writeln!(self.failures, "| {} | {} | `{test}` | {what}: {why} |", suite.name, way.name());
        }
        let (passed, skipped) = (count(Verdict::Passed), count(Verdict::Skipped));
        let row = format!(
            "| {} | {} | {} | {passed} | {skipped} | {known} | {unknown} |",
            suite.name,
            way.name(),
            verdicts.len()
        );
        eprintln!("{row}");
        let _ = writeln!(self.rows, "{row}");
        self.unknown += unknown;
    }

    fn text(&self) -> String {
        format!(
            "| suite | way | tests | passed | skipped | known failures | other failures |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n{}\n| suite | way | test | |\n| --- | --- | --- | --- |\n{}",
            self.rows, self.failures
        )
    }
}
