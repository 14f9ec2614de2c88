// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command: its arguments, and what happens in which order.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::built::{self, Built, State};
use super::results::Results;
use super::running::{self, Plan, for_each};
use super::table::Table;
use super::toolkit::{Cudart, Toolkit};
use super::ways::{Ready, Way};
use super::{compile, discover};
use crate::daemon::Device;
use crate::paths::Paths;
use crate::run::new_log_folder;
use crate::setup::kernel::Flavour;
use crate::{build, setup};

/// The programs to compile and run.
#[derive(Debug, Args)]
pub struct ConformanceArguments {
    /// Folders with CUDA sources: NVIDIA's cuda-samples, PolyBench-ACC, or your own
    #[arg(value_name = "DIR", required_unless_present = "built")]
    folders: Vec<PathBuf>,
    /// Only these programs, with a comma between them
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Linking of NVIDIA's runtime
    #[arg(long, value_enum, default_value = "shared")]
    cudart: Cudart,
    /// Compile, but do not run
    #[arg(long)]
    build_only: bool,
    /// Run what `--build-only` left in this folder: needs neither sources nor nvcc
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["folders", "build_only"])]
    built: Option<PathBuf>,
    /// Programs, results and their outputs go here
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// The ways to a device, with a comma between them; else all that this machine allows but vm
    #[arg(long, value_enum, value_delimiter = ',')]
    ways: Vec<Way>,
    /// The GPU of virtio-user and vm: `auto` (a real one if there is one), `emulated`, or the path of a libcuda.so.1
    #[arg(long, default_value = "auto")]
    device: String,
    /// Where there is no GPU: compare with the native runs in this results.json
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Leave out what the results.json in the output folder already has
    #[arg(long)]
    resume: bool,
    /// More folders with libraries that programs need, as NVRTC
    #[arg(long, value_name = "FOLDER")]
    libraries: Vec<PathBuf>,
    /// Seconds that a program may take; the table has exceptions
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    timeout: u64,
    /// Programs that are compiled or run at a time; as many as there are processors, else
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Arguments, reasons and masks, instead of those in tests/conformance/suites.toml
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

/// Compiles, runs, prints the table; the exit status is 1 if one of our ways gave something wrong.
pub fn run(paths: &Paths, arguments: &ConformanceArguments) -> Result<u8> {
    let table = Table::load(arguments.table.as_deref())?;
    let output = arguments.output.clone().unwrap_or_else(|| paths.target.join("conformance"));
    fs::create_dir_all(&output).with_context(|| format!("Cannot create {}", output.display()))?;
    let output = output.canonicalize()?;
    let ways = if arguments.ways.is_empty() { Way::usual() } else { arguments.ways.clone() };
    prepare(paths, arguments, &ways)?;
    let mut libraries = absolute(&arguments.libraries)?;
    let (programs, list) = match &arguments.built {
        Some(folder) => {
            let folder =
                folder.canonicalize().with_context(|| format!("Cannot open {}", folder.display()))?;
            let list = built::load(&folder, &arguments.only)?;
            libraries.push(folder.join("lib"));
            (folder, list)
        }
        None => {
            let toolkit = Toolkit::find(paths, arguments.cudart, &libraries)?;
            libraries = toolkit.libraries().to_vec();
            let list = compile_all(&toolkit, &table, arguments, &output)?;
            (output.clone(), list)
        }
    };
    if arguments.build_only {
        return Ok(report_builds(&list, &output));
    }
    let file = output.join("results.json");
    let known = if arguments.resume && file.exists() { Results::load(&file)? } else { Results::default() };
    let reference = arguments.reference.as_deref().map(Results::load).transpose()?;
    let logs = new_log_folder(paths)?;
    let jobs = jobs(arguments);
    let ready = Ready::new(paths, &ways, &arguments.device, libraries, jobs, &logs)?;
    let plan = Plan {
        table: &table,
        programs: &programs,
        output: &output,
        ways: &ways,
        emulated: Device(arguments.device.clone()).is_emulated(),
        reference: reference.as_ref(),
        known,
        limit: Duration::from_secs(arguments.timeout),
        jobs,
    };
    let results =
        running::run(&plan, &ready, &list).with_context(|| format!("The logs are in {}", logs.display()))?;
    ready.stop()?;
    println!("{}", results.table());
    println!("Results and outputs: {}; logs: {}", output.display(), logs.display());
    Ok(u8::from(results.any_failed()))
}

/// Builds everything that the ways need; with a guest nothing else is needed.
fn prepare(paths: &Paths, arguments: &ConformanceArguments, ways: &[Way]) -> Result<()> {
    if ways.contains(&Way::Vm) && !arguments.build_only {
        setup::run(paths, &[])?;
        build::run(paths, &[], Flavour::Small)?;
        return Ok(());
    }
    if arguments.built.is_none() {
        setup::run(paths, &[setup::Part::Nvcc])?;
    }
    let mut parts = vec![build::Part::GuestLib];
    if !arguments.build_only {
        // The emulator is also a device of the daemon's.
        parts.extend([build::Part::Emulator, build::Part::EmulatorLibraries]);
        parts.extend(ways.contains(&Way::VirtioUser).then_some(build::Part::Daemon));
    }
    build::run(paths, &parts, Flavour::Small).map(drop)
}

fn compile_all(
    toolkit: &Toolkit,
    table: &Table,
    arguments: &ConformanceArguments,
    output: &Path,
) -> Result<Vec<Built>> {
    let found = discover::programs(table, &arguments.folders, &arguments.only)?;
    if found.is_empty() {
        bail!("There are no CUDA programs");
    }
    let list = Mutex::new(Vec::new());
    for_each(jobs(arguments), &found, |program| {
        let built = compile::compile(toolkit, program, output)?;
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(built);
        let built = &list[list.len() - 1];
        match &built.state {
            State::Built => eprintln!("[{}/{}] {} built", list.len(), found.len(), built.name),
            State::Skipped(why) => {
                eprintln!("[{}/{}] {} skipped: {why}", list.len(), found.len(), built.name)
            }
            State::Failed(why) => eprintln!("[{}/{}] {} FAILED: {why}", list.len(), found.len(), built.name),
        }
        Ok(())
    })?;
    let mut list = list.into_inner().unwrap_or_else(PoisonError::into_inner);
    list.sort_by(|a, b| (&a.suite, &a.name).cmp(&(&b.suite, &b.name)));
    if arguments.only.is_empty() {
        built::save(output, &list)?;
    } else {
        built::merge(output, &list)?;
    }
    Ok(list)
}

fn report_builds(list: &[Built], output: &Path) -> u8 {
    let count = |is: fn(&State) -> bool| list.iter().filter(|built| is(&built.state)).count();
    let failed = count(|state| matches!(state, State::Failed(_)));
    let (built, skipped) =
        (count(|state| *state == State::Built), count(|state| matches!(state, State::Skipped(_))));
    println!("{built} built, {failed} failed, {skipped} skipped: {}", output.display());
    u8::from(failed > 0)
}

fn jobs(arguments: &ConformanceArguments) -> usize {
    arguments.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

fn absolute(folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let absolute =
        |folder: &PathBuf| folder.canonicalize().with_context(|| format!("Cannot open {}", folder.display()));
    folders.iter().map(absolute).collect()
}
