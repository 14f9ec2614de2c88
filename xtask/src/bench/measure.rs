// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the benchmark in every place that this machine has.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::cpu::Tree;
use super::profile::{Bench as BenchOfProfiles, PROGRAM as PROGRAM_OF_PROFILES};
use super::record::{Behind, Recorder};
use super::replace::{Bench as BenchOfReplacements, PROGRAM as PROGRAM_OF_REPLACEMENTS};
use super::report::{Measured, Metric, Place, Report};
use super::rounds::middle;
use super::shares::{Bench, PROGRAM as PROGRAM_OF_SHARES, Place as PlaceOfShares};
use super::suspend::{Bench as BenchOfSuspend, PROGRAM as PROGRAM_OF_SUSPEND};
use super::swap::Bench as BenchOfSwap;
use super::{promises, table};
use crate::build;
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::programs::libraries_of;
use crate::progress::{duration, output_of};
use crate::run::new_log_folder;
use crate::setup::Part as SetupPart;
use crate::setup::kernel::Flavour;
use crate::setup::nvcc::Nvcc;
use crate::virtio_user::VirtioUser;
use crate::vm::{GuestCommand, Vm, VmConfig};
use crate::{program, setup};

/// The benchmark, below the repository.
const PROGRAM: &str = "tests/bench/calls.cu";
/// Time limit in a guest.
const LIMIT: Duration = Duration::from_secs(1800);
/// The number of fresh processes whose first call is measured, and the option that makes the program one of them.
const FIRST_CALLS: usize = 10;
const FIRST_CALL: &str = "--first-call";
const FIRST_METRIC: &str = "first_call";

/// The metrics to measure.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// The GPU: `auto` (a real one if there is one), `emulated`, or the path of a libcuda.so.1
    #[arg(long, default_value = "auto")]
    device: String,
    /// The guest's kernel, in the place `vm`
    #[arg(long, value_enum, default_value_t)]
    kernel: Flavour,
    /// Only these places, with a comma between them
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PLACES")]
    only: Vec<Place>,
    /// Instead: programs of several daemons that compete for the GPU, in these places, with a comma between them (all)
    #[arg(
        long,
        value_enum,
        value_name = "PLACES",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "native,no-arbiter,shares",
        conflicts_with_all = ["only", "metrics", "max_copy", "json"]
    )]
    shares: Vec<PlaceOfShares>,
    /// Instead: how fast the device memory of a suspended session moves, for these sizes in MiB, with a comma between them
    #[arg(
        long,
        value_name = "MIB",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "1024,16384",
        value_parser = clap::value_parser!(u64).range(2..=1 << 20),
        conflicts_with_all = ["only", "metrics", "max_copy", "json", "quick", "shares"]
    )]
    suspend: Vec<u64>,
    /// With --suspend: host memory for the contents is there ahead of need
    #[arg(long, requires = "suspend")]
    suspend_pool: bool,
    /// Instead: two programs with so many MiB each, which do not fit on the card together, take `--rounds` turns of 10 s
    #[arg(
        long,
        value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(2..=1 << 20),
        conflicts_with_all = ["only", "metrics", "max_copy", "json", "quick", "shares", "suspend", "gpus"]
    )]
    swap: Option<u64>,
    /// With --shares: the machines compete for so many GPUs at once. With --suspend: the program has memory of that size on so many
    #[arg(long, value_name = "NUMBER", default_value_t = 1, conflicts_with_all = ["metrics", "replace"])]
    gpus: usize,
    /// Instead: how long programs pause while the daemon's program is replaced this often
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "100",
        value_parser = clap::value_parser!(u32).range(1..=100_000),
        conflicts_with_all = ["only", "metrics", "max_copy", "json", "quick", "shares", "suspend", "rounds"]
    )]
    replace: Option<u32>,
    /// Instead: how much slower a program is while it is profiled, and how true the profile is
    #[arg(
        long,
        conflicts_with_all = ["only", "metrics", "max_copy", "json", "shares", "suspend", "replace"]
    )]
    profile: bool,
    /// With --profile: folders with NVIDIA's CUPTI of this machine; else those that were installed with pip for python3
    #[arg(long, value_name = "FOLDER", requires = "profile")]
    libraries: Vec<PathBuf>,
    /// With --shares: only rows whose names contain this text; may be repeated
    #[arg(long, value_name = "TEXT", requires = "shares")]
    rows: Vec<String>,
    /// Fewer samples and small copies only
    #[arg(long)]
    quick: bool,
    /// Only metrics whose names begin so, with a comma between them
    #[arg(long, value_delimiter = ',', value_name = "BEGINNINGS")]
    metrics: Vec<String>,
    /// No copies of more bytes
    #[arg(long, value_name = "BYTES")]
    max_copy: Option<u64>,
    /// Number of rounds, in which the places take turns; the median of each metric counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail if a ratio to native breaks a limit of docs/specification.md
    #[arg(long, conflicts_with_all = ["quick", "shares", "suspend", "replace", "profile"])]
    check: bool,
}

/// Builds, measures, prints the table.
pub fn run(paths: &Paths, arguments: &BenchArguments) -> Result<()> {
    if !arguments.shares.is_empty() {
        return shares(paths, arguments);
    }
    if !arguments.suspend.is_empty() {
        return suspend(paths, arguments);
    }
    if let Some(size) = arguments.swap {
        return swap(paths, arguments, size);
    }
    if let Some(replacements) = arguments.replace {
        return replace(paths, arguments, replacements);
    }
    if arguments.profile {
        return profile(paths, arguments);
    }
    let places = places(&arguments.only);
    prepare(paths, &places, arguments.kernel)?;
    let program = program::compile(paths, &paths.root.join(PROGRAM))?;
    let logs = new_log_folder(paths)?;
    let wanted = &Wanted::new(arguments);
    let device = Device(arguments.device.clone());
    let mut report = Report { date: date()?, machine: machine(), ..Report::default() };
    let mut rounds: BTreeMap<Place, Vec<Measured>> = BTreeMap::new();
    for (round, &place) in
        (1..=arguments.rounds).flat_map(|round| places.iter().map(move |place| (round, place)))
    {
        let started = Instant::now();
        let measured = match place {
            Place::Native => native(paths, &program, wanted),
            Place::VirtioUser => virtio_user(paths, device.clone(), &program, wanted, &logs),
            Place::Vm => in_vm(paths, device.clone(), arguments.kernel, &program, wanted, &logs),
        };
        let measured = measured.with_context(|| format!("{}: logs in {}", place.name(), logs.display()))?;
        let name = place.name();
        eprintln!("{name:16} measured  {}  ({round} of {})", duration(started.elapsed()), arguments.rounds);
        rounds.entry(place).or_default().push(measured);
    }
    report.places = rounds.into_iter().map(|(place, rounds)| (place, middle(rounds))).collect();
    print!("{}", table::table(&report));
    if let Some(file) = &arguments.json {
        report.write(file)?;
    }
    if arguments.check {
        promises::check(&report)?;
    }
    Ok(())
}

fn shares(paths: &Paths, arguments: &BenchArguments) -> Result<()> {
    prepare(paths, &[Place::VirtioUser], Flavour::Small)?;
    let program = program::compile(paths, &paths.root.join(PROGRAM_OF_SHARES))?;
    let (device, logs) = (Device(arguments.device.clone()), new_log_folder(paths)?);
    let (places, rows) = (&arguments.shares, &arguments.rows);
    let BenchArguments { quick, rounds, gpus, .. } = *arguments;
    Bench { paths, device, program, logs, places, rows, quick, rounds, gpus }.run()
}

fn suspend(paths: &Paths, arguments: &BenchArguments) -> Result<()> {
    prepare(paths, &[Place::VirtioUser], Flavour::Small)?;
    let program = program::compile(paths, &paths.root.join(PROGRAM_OF_SUSPEND))?;
    let (device, logs) = (Device(arguments.device.clone()), new_log_folder(paths)?);
    let BenchArguments { suspend: sizes, rounds, gpus, suspend_pool, .. } = arguments;
    let (rounds, gpus, has_pool) = (*rounds, *gpus, *suspend_pool);
    BenchOfSuspend { paths, device, program, logs, sizes, rounds, gpus, has_pool }.run()
}

fn swap(paths: &Paths, arguments: &BenchArguments, size: u64) -> Result<()> {
    prepare(paths, &[Place::VirtioUser], Flavour::Small)?;
    let program = program::compile(paths, &paths.root.join(PROGRAM_OF_SUSPEND))?;
    let (device, logs) = (Device(arguments.device.clone()), new_log_folder(paths)?);
    BenchOfSwap { paths, device, program, logs, size, turns: arguments.rounds }.run()
}

fn replace(paths: &Paths, arguments: &BenchArguments, replacements: u32) -> Result<()> {
    prepare(paths, &[Place::VirtioUser], Flavour::Small)?;
    let program = program::compile(paths, &paths.root.join(PROGRAM_OF_REPLACEMENTS))?;
    let (device, logs) = (Device(arguments.device.clone()), new_log_folder(paths)?);
    BenchOfReplacements { paths, device, program, logs, replacements }.run()
}

fn profile(paths: &Paths, arguments: &BenchArguments) -> Result<()> {
    prepare(paths, &[Place::VirtioUser], Flavour::Small)?;
    let program = program::compile(paths, &paths.root.join(PROGRAM_OF_PROFILES))?;
    let (device, logs) = (Device(arguments.device.clone()), new_log_folder(paths)?);
    let found = match arguments.libraries.is_empty() {
        true => libraries_of(Path::new("python3"))?,
        false => arguments.libraries.clone(),
    };
    let (seconds, rounds) = (if arguments.quick { 0.3 } else { 2.0 }, arguments.rounds);
    BenchOfProfiles { paths, device, program, logs, libraries: &found, seconds, rounds }.run()
}

/// The metrics to measure.
struct Wanted {
    /// First calls, each of a process of its own.
    first: bool,
    /// Anything else.
    others: bool,
    /// The program's options for that.
    options: Vec<String>,
}

impl Wanted {
    fn new(arguments: &BenchArguments) -> Self {
        let mut options = Vec::new();
        if arguments.quick {
            options.push("--quick".to_owned());
        }
        if let Some(bytes) = arguments.max_copy {
            options.extend(["--max-copy".to_owned(), bytes.to_string()]);
        }
        for beginning in &arguments.metrics {
            options.extend(["--metric".to_owned(), beginning.clone()]);
        }
        let is_first = |beginning: &String| FIRST_METRIC.starts_with(beginning.as_str());
        let all = arguments.metrics.is_empty();
        Self {
            first: all || arguments.metrics.iter().any(is_first),
            others: all || !arguments.metrics.iter().all(is_first),
            options,
        }
    }
}

fn places(wanted: &[Place]) -> Vec<Place> {
    let all = [Place::Native, Place::VirtioUser, Place::Vm];
    let wanted = all.into_iter().filter(|place| wanted.is_empty() || wanted.contains(place));
    wanted
        .filter(|place| {
            let missing = *place == Place::Native && !Path::new("/dev/nvidiactl").exists();
            if missing {
                eprintln!("{:16} skipped: there is no NVIDIA GPU here (/dev/nvidiactl)", place.name());
            }
            !missing
        })
        .collect()
}

/// Sets up and builds what `places` need.
fn prepare(paths: &Paths, places: &[Place], kernel: Flavour) -> Result<()> {
    let (parts, built): (&[_], &[_]) = if places.contains(&Place::Vm) {
        (&[], &[])
    } else {
        (&[SetupPart::Debian, SetupPart::Nvcc], &build::FIRST)
    };
    setup::run(paths, parts)?;
    if let Some(part) = setup::kernel_part(kernel).filter(|_| places.contains(&Place::Vm)) {
        setup::run(paths, &[part])?;
    }
    build::run(paths, built, kernel).map(drop)
}

/// NVIDIA's runtime and driver.
fn native(paths: &Paths, program: &Path, wanted: &Wanted) -> Result<Measured> {
    let libraries = Nvcc::find(paths)?.libraries();
    measure(Behind::default(), wanted, |options, output| {
        let mut command = Command::new(program);
        stream(command.args(options).env("LD_LIBRARY_PATH", &libraries), output)
    })
}

fn virtio_user(
    paths: &Paths,
    device: Device,
    program: &Path,
    wanted: &Wanted,
    logs: &Path,
) -> Result<Measured> {
    let beside = VirtioUser::start(paths, DaemonConfig::new(device), logs)?;
    let behind = Behind { daemon: beside.daemon_id().map(Tree), qemu: None };
    let measured = measure(behind, wanted, |options, output| {
        stream(beside.command(paths, program).args(options), output)
    })?;
    beside.stop()?;
    Ok(measured)
}

fn in_vm(
    paths: &Paths,
    device: Device,
    kernel: Flavour,
    program: &Path,
    wanted: &Wanted,
    logs: &Path,
) -> Result<Measured> {
    let mut config = VmConfig::new(device);
    config.kernel = kernel;
    config.memory = "4G".to_owned();
    let vm = Vm::boot(paths, config, logs)?;
    let behind = Behind { daemon: vm.daemon().id().map(Tree), qemu: Some(Tree(vm.qemu_id())) };
    let mut measured = measure(behind, wanted, |options, output| {
        let command = GuestCommand::new(program).arguments(options.iter().map(OsString::from));
        let running = vm.start(&command)?;
        running.input().close()?;
        let mut errors = Vec::new();
        match running.wait(Some(LIMIT), output, &mut errors)? {
            0 => Ok(()),
            status => {
                let errors = String::from_utf8_lossy(&errors);
                bail!("The benchmark ended with {status} in the guest: {}", errors.trim())
            }
        }
    })?;
    measured.accelerator = Some(vm.accelerator().name().to_owned());
    measured.kernel = Some(kernel.name().to_owned());
    vm.shut_down()?;
    Ok(measured)
}

/// Runs the program once for each first call, then for everything else. `run` runs it with these options.
fn measure(
    behind: Behind,
    wanted: &Wanted,
    run: impl Fn(&[&str], &mut dyn Write) -> Result<()>,
) -> Result<Measured> {
    let mut recorder = Recorder::new(behind);
    let first = wanted.first.then(|| first_calls(behind, &run)).transpose()?;
    if !wanted.others {
        return Ok(Measured { metrics: first.into_iter().collect(), ..Measured::default() });
    }
    run(&wanted.options.iter().map(String::as_str).collect::<Vec<_>>(), &mut recorder)?;
    let mut measured = recorder.finish()?;
    measured.metrics.splice(0..0, first);
    Ok(measured)
}

/// Measures the first calls of fresh processes, each with a warm worker. The CPU time of the daemon's side includes
/// the start of the next warm worker.
fn first_calls(behind: Behind, run: &impl Fn(&[&str], &mut dyn Write) -> Result<()>) -> Result<Metric> {
    let mut metrics = Vec::new();
    wait_warm(behind)?;
    let before = behind.daemon.map(Tree::cpu_us);
    for _ in 0..FIRST_CALLS {
        let mut recorder = Recorder::default();
        run(&[FIRST_CALL], &mut recorder)?;
        metrics.extend(recorder.finish()?.metrics);
        wait_warm(behind)?;
    }
    let after = behind.daemon.map(Tree::cpu_us);
    metrics.sort_by(|a, b| a.median.total_cmp(&b.median));
    let count = metrics.len();
    let at = |percent: usize| metrics[(count - 1) * percent / 100].median;
    let mut first = metrics[(count - 1) / 2].clone();
    (first.p10, first.p90) = (at(10), at(90));
    (first.samples, first.calls) = (count as u64, count as u64);
    first.cpu_us = metrics.iter().map(|metric| metric.cpu_us).sum::<f64>() / count as f64;
    first.host_cpu_us = before.zip(after).map(|(before, after)| (after - before) / count as f64);
    Ok(first)
}

/// Waits until the daemon has a worker ready.
fn wait_warm(behind: Behind) -> Result<()> {
    behind.daemon.map_or(Ok(()), |daemon| daemon.wait_warm(1))
}

/// Runs a command and copies its output to `output` as it arrives. Returns an error unless the command succeeds.
fn stream(command: &mut Command, output: &mut dyn Write) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("Cannot start {name}"))?;
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let errors = thread::spawn(move || {
        let mut text = String::new();
        // Unreadable output is not shown.
        let _ = stderr.as_mut().map(|stderr| stderr.read_to_string(&mut text));
        text
    });
    let copied = io::copy(stdout.as_mut().context("No output")?, output);
    drop(stdout);
    let status = child.wait()?;
    let errors = errors.join().unwrap_or_default();
    if !status.success() {
        bail!("{name} ended with {status}: {}", errors.trim());
    }
    copied.map(drop).context("Cannot read the benchmark's output")
}

fn date() -> Result<String> {
    output_of(Command::new("date").args(["-u", "+%F"]))
}

/// Processor and how many of them.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown processor");
    let count = thread::available_parallelism().map_or(1, usize::from);
    format!("{count} CPUs ({})", model.trim_start_matches([' ', '\t', ':']))
}
