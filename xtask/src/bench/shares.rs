// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bench --shares`: programs of several daemons compete for a GPU, by weights and natively.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use super::competition::{Figures, Period, Run};
use super::cpu::Tree;
use crate::build::Stack;
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::process::{Process, read_lossy, wait_for_socket};
use crate::progress::output_of;
use crate::setup::nvcc::Nvcc;
use crate::virtio_user::VirtioUser;

/// The program, below the repository.
pub const PROGRAM: &str = "tests/bench/shares.cu";
/// Time limit for the arbiter to listen.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The length of a run, of a quick one, and of one without an arbiter, in seconds.
const SECONDS: u32 = 9;
const SECONDS_QUICK: u32 = 4;
/// The maximum number of kernels that a program keeps in flight, and their total length in microseconds. Work in
/// flight delays a competitor that arrives.
const MAX_DEPTH: u32 = 64;
const MAX_QUEUE_US: u32 = 100_000;
/// The name of the table of [`Bench::alone`].
const ALONE: &str = "one machine alone";

/// The processes of a virtual machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Its weight.
    pub weight: u32,
    /// Number of processes, each with kernels of so many microseconds.
    processes: usize,
    kernel_us: u32,
    /// They wait for each kernel.
    waits: bool,
}

/// Machines that compete.
struct Case {
    name: &'static str,
    machines: Vec<Machine>,
}

const fn machine(weight: u32, kernel_us: u32) -> Machine {
    Machine { weight, processes: 1, kernel_us, waits: false }
}

fn cases() -> Vec<Case> {
    let case = |name, machines: &[Machine]| Case { name, machines: machines.to_vec() };
    vec![
        case("1:1, 1 ms", &[machine(1, 1000); 2]),
        case("3:1, 1 ms", &[machine(3, 1000), machine(1, 1000)]),
        case("1:2, 1 ms", &[machine(1, 1000), machine(2, 1000)]),
        case("1:2:4, 1 ms", &[machine(1, 1000), machine(2, 1000), machine(4, 1000)]),
        case("1:1:1:1, 1 ms", &[machine(1, 1000); 4]),
        case("1:1, 0.1 ms waited for", &[Machine { waits: true, ..machine(1, 100) }; 2]),
        case(
            "1:1, 0.1 ms waited for, beside 20 ms",
            &[Machine { waits: true, ..machine(1, 100) }, machine(1, 20_000)],
        ),
        case(
            "1:1, three processes beside one",
            &[Machine { processes: 3, ..machine(1, 1000) }, machine(1, 1000)],
        ),
    ]
}

/// The place in which the programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// On the host.
    Native,
    /// A daemon for each machine, without an arbiter.
    #[value(name = "no-arbiter")]
    Unshared,
    /// A daemon for each machine, and an arbiter.
    #[value(name = "shares")]
    Shared,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Unshared => "no arbiter",
            Self::Shared => "shares",
        }
    }
}

/// Everything that a run needs.
pub struct Bench<'a> {
    /// The folders.
    pub paths: &'a Paths,
    /// The GPU.
    pub device: Device,
    /// The program.
    pub program: PathBuf,
    /// The folder for logs.
    pub logs: PathBuf,
    /// The places to measure.
    pub places: &'a [Place],
    /// Runs only the cases whose names contain one of these texts. An empty list runs all cases.
    pub rows: &'a [String],
    /// Shorter runs.
    pub quick: bool,
    /// Runs of each case.
    pub rounds: u32,
    /// The number of GPUs. The machines compete for all of them at once, each with its processes on each GPU.
    pub gpus: usize,
}

impl Bench<'_> {
    /// Runs all cases, and prints the figures of each run.
    pub fn run(&self) -> Result<()> {
        let has_gpu = Path::new("/dev/nvidiactl").exists() && self.device != Device::emulated();
        let steps = self.calibrate(has_gpu)?;
        eprintln!("{steps} steps take a millisecond");
        if has_gpu {
            eprintln!(
                "{}",
                output_of(self.native()?.args(["--events", "--steps", &(steps / 10).to_string()]))?
            );
        }
        println!(
            "| machines | place | shares in % | largest error in 1 s | in 100 ms | use of the GPU in % | p99 period in ms |\n\
             | --- | --- | --- | ---: | ---: | ---: | --- |"
        );
        for case in cases().iter().filter(|case| self.wants(case.name)) {
            for &place in self.places.iter().filter(|&&place| place != Place::Native || has_gpu) {
                let name = format!("{}, {}", case.name, place.name());
                let mut of_gpus: Vec<Vec<Figures>> = (0..self.gpus).map(|_| Vec::new()).collect();
                for _ in 0..self.rounds {
                    let runs = self
                        .compete(case, place, steps)
                        .with_context(|| format!("{name}: logs in {}", self.logs.display()))?;
                    for (gpu, run) in runs.iter().enumerate() {
                        let course: Vec<String> =
                            run.course()?.iter().map(|share| format!("{share:.1}")).collect();
                        eprintln!(
                            "{name}, GPU {gpu}: the first machine's share in each second: {} %",
                            course.join(", ")
                        );
                        of_gpus[gpu].push(run.figures()?);
                    }
                }
                for (gpu, figures) in of_gpus.iter().enumerate() {
                    println!("| {}, GPU {gpu} | {} | {}", case.name, place.name(), line(figures));
                }
            }
        }
        if self.wants(ALONE) { self.alone() } else { Ok(()) }
    }

    fn wants(&self, name: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|row| name.contains(row.as_str()))
    }

    fn seconds(&self, place: Place) -> u32 {
        if self.quick || place != Place::Shared { SECONDS_QUICK } else { SECONDS }
    }

    /// Steps of a kernel that take a millisecond.
    fn calibrate(&self, has_gpu: bool) -> Result<u64> {
        let text = if has_gpu {
            output_of(self.native()?.arg("--calibrate"))?
        } else {
            let beside = VirtioUser::start(self.paths, DaemonConfig::new(self.device.clone()), &self.logs)?;
            let text = output_of(beside.command(self.paths, &self.program).arg("--calibrate"))?;
            beside.stop()?;
            text
        };
        text.trim().parse().with_context(|| format!("Cannot calibrate: {text}"))
    }

    fn native(&self) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.env("LD_LIBRARY_PATH", Nvcc::find(self.paths)?.libraries());
        Ok(command)
    }

    /// Returns the run of each GPU.
    fn compete(&self, case: &Case, place: Place, steps: u64) -> Result<Vec<Run>> {
        let arbiter = (place == Place::Shared).then(|| Arbiter::start(self.paths)).transpose()?;
        let daemons = match place {
            Place::Native => Vec::new(),
            _ => case
                .machines
                .iter()
                .map(|machine| self.daemon(arbiter.as_ref(), machine))
                .collect::<Result<_>>()?,
        };
        for (daemon, machine) in daemons.iter().zip(&case.machines) {
            daemon.daemon_id().map_or(Ok(()), |id| Tree(id).wait_warm(machine.processes * self.gpus))?;
        }
        let mut programs = Vec::new();
        for (index, machine) in case.machines.iter().enumerate() {
            for gpu in (0..machine.processes).flat_map(|_| 0..self.gpus) {
                let mut command = match daemons.get(index) {
                    Some(daemon) => daemon.command(self.paths, &self.program),
                    None => self.native()?,
                };
                command.env("CUDA_VISIBLE_DEVICES", gpu.to_string());
                let count = (steps * u64::from(machine.kernel_us) / 1000).max(1);
                command.args(["--steps", &count.to_string(), "--seconds", &self.seconds(place).to_string()]);
                let depth = (MAX_QUEUE_US / machine.kernel_us.max(1)).clamp(2, MAX_DEPTH);
                command.args(["--depth", &depth.to_string()]);
                if machine.waits {
                    command.arg("--wait");
                }
                programs.push((index, gpu, Program::start(command)?));
            }
        }
        let new_run = || Run::new(case.machines.iter().map(|machine| (machine.weight, machine.kernel_us)));
        let mut runs: Vec<Run> = (0..self.gpus).map(|_| new_run()).collect();
        for (index, gpu, program) in programs {
            runs[gpu].add(index, program.finish()?);
        }
        daemons.into_iter().try_for_each(VirtioUser::stop)?;
        arbiter.map_or(Ok(()), |arbiter| arbiter.show())?;
        Ok(runs)
    }

    fn daemon(&self, arbiter: Option<&Arbiter>, machine: &Machine) -> Result<VirtioUser> {
        let mut config = DaemonConfig::new(self.device.clone());
        let workers = machine.processes * self.gpus;
        config.arguments.extend(["--warm-workers".to_owned(), workers.to_string()]);
        if let Some(arbiter) = arbiter {
            config.arguments.extend(["--arbiter".to_owned(), arbiter.socket.display().to_string()]);
            config.arguments.extend(["--share".to_owned(), machine.weight.to_string()]);
        }
        VirtioUser::start(self.paths, config, &self.logs)
    }

    /// Launches of a single machine, with and without an arbiter.
    fn alone(&self) -> Result<()> {
        println!(
            "\n| {ALONE} | launches per second | launch and wait in us (median) |\n| --- | ---: | ---: |"
        );
        for shared in [false, true] {
            let (mut launches, mut waits) = (Vec::new(), Vec::new());
            for _ in 0..self.rounds {
                let arbiter = shared.then(|| Arbiter::start(self.paths)).transpose()?;
                let daemon = self.daemon(arbiter.as_ref(), &machine(1, 0))?;
                daemon.daemon_id().map_or(Ok(()), |id| Tree(id).wait_warm(1))?;
                launches.push(1e9 / self.period_of_one(&daemon, false)?.mean);
                waits.push(self.period_of_one(&daemon, true)?.median / 1e3);
                daemon.stop()?;
            }
            let name = if shared { "with an arbiter" } else { "without an arbiter" };
            println!("| {name} | {} | {} |", each(&launches, 0), each(&waits, 1));
        }
        Ok(())
    }

    /// Returns the time between the kernels of a program without competition.
    fn period_of_one(&self, daemon: &VirtioUser, waits: bool) -> Result<Period> {
        let mut command = daemon.command(self.paths, &self.program);
        command.args(["--steps", "1", "--seconds", "3"]);
        if waits {
            command.arg("--wait");
        }
        let mut run = Run::new([(1, 0)]);
        run.add(0, Program::start(command)?.finish()?);
        run.period()
    }
}

/// The figures of several runs: those of machines are from the run with the largest error.
fn line(runs: &[Figures]) -> String {
    let Some(worst) = runs.iter().max_by(|one, other| one.error_1s.total_cmp(&other.error_1s)) else {
        return String::new();
    };
    let of = |figure: fn(&Figures) -> f64| each(&runs.iter().map(figure).collect::<Vec<_>>(), 1);
    format!(
        "{} | {} | {} | {} | {} |",
        each(&worst.shares, 1),
        of(|run| run.error_1s),
        of(|run| run.error_100ms),
        of(|run| run.used),
        each(&worst.p99_ms, 2)
    )
}

fn each(figures: &[f64], decimals: usize) -> String {
    figures.iter().map(|figure| format!("{figure:.decimals$}")).collect::<Vec<_>>().join(", ")
}

/// An arbiter, which ends with the value.
struct Arbiter {
    socket: PathBuf,
    log: PathBuf,
    _process: Process,
    _folder: tempfile::TempDir,
}

impl Arbiter {
    fn start(paths: &Paths) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-arbiter-").tempdir()?;
        let socket = folder.path().join("socket");
        let log = folder.path().join("log");
        let mut command = Command::new(Stack::new(paths).daemon());
        command.arg("arbiter").arg("--socket").arg(&socket).args(["--log-level", "debug"]);
        let mut process = Process::start("arbiter", command, &log)?;
        wait_for_socket(&mut process, &socket, START_LIMIT)?;
        Ok(Self { socket, log, _process: process, _folder: folder })
    }

    /// Shows the last account of each machine on each GPU.
    fn show(&self) -> Result<()> {
        let log = read_lossy(&self.log)?;
        let mut accounts = BTreeMap::new();
        for line in log.lines() {
            if let Some((_, account)) = line.split_once("machine ")
                && let Some((holder, account)) = account.split_once(": charged")
            {
                accounts.insert(holder, account);
            }
        }
        accounts.iter().for_each(|(holder, account)| eprintln!("machine {holder}: charged{account}"));
        Ok(())
    }
}

/// A program that competes. It writes to a file, which takes all that it prints while it runs.
struct Program {
    child: Child,
    output: File,
}

impl Program {
    fn start(mut command: Command) -> Result<Self> {
        let output = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?);
        Ok(Self { child: command.spawn().context("Cannot start a program")?, output })
    }

    /// When its kernels ended.
    fn finish(mut self) -> Result<Vec<u64>> {
        let status = self.child.wait()?;
        ensure!(status.success(), "A program ended with {status}");
        self.output.rewind()?;
        let text = io::read_to_string(self.output)?;
        text.lines().map(|line| line.parse().with_context(|| format!("Not a time: {line}"))).collect()
    }
}
