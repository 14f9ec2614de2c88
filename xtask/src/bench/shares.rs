// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bench --shares`: programs of several daemons compete for a GPU, by weights and natively.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::competition::{Figures, Run};
use crate::build::Stack;
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::process::{Process, wait_for_socket};
use crate::progress::output_of;
use crate::setup::nvcc::Nvcc;
use crate::virtio_user::VirtioUser;

/// The program, below the repository.
pub const PROGRAM: &str = "tests/bench/shares.cu";
/// Time limit for the arbiter to listen.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time for workers to become warm.
const WARM: Duration = Duration::from_secs(2);
/// Seconds of a run, and of a quick one.
const SECONDS: u32 = 12;
const SECONDS_QUICK: u32 = 5;

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
    /// Where to measure.
    pub places: &'a [Place],
    /// Shorter runs.
    pub quick: bool,
    /// Runs of each case.
    pub rounds: u32,
}

impl Bench<'_> {
    /// Runs all cases, and prints the figures of each run.
    pub fn run(&self) -> Result<()> {
        let has_gpu = Path::new("/dev/nvidiactl").exists() && self.device != Device::emulated();
        let steps = self.calibrate(has_gpu)?;
        eprintln!("{steps} steps take a millisecond");
        println!(
            "| machines | place | shares in % (goal) | error in 1 s | in 100 ms | use in % | p99 period in ms |\n\
             | --- | --- | --- | ---: | ---: | ---: | --- |"
        );
        for case in cases() {
            for &place in self.places.iter().filter(|&&place| place != Place::Native || has_gpu) {
                for _ in 0..self.rounds {
                    let run = self.compete(&case, place, steps).with_context(|| {
                        format!("{}, {}: logs in {}", case.name, place.name(), self.logs.display())
                    })?;
                    println!("| {} | {} | {}", case.name, place.name(), line(&case, &run.figures()?));
                }
            }
        }
        self.alone()
    }

    fn seconds(&self) -> u32 {
        if self.quick { SECONDS_QUICK } else { SECONDS }
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

    fn compete(&self, case: &Case, place: Place, steps: u64) -> Result<Run> {
        let arbiter = (place == Place::Shared).then(|| Arbiter::start(self.paths, &self.logs)).transpose()?;
        let daemons = match place {
            Place::Native => Vec::new(),
            _ => case
                .machines
                .iter()
                .map(|machine| self.daemon(arbiter.as_ref(), machine))
                .collect::<Result<_>>()?,
        };
        if !daemons.is_empty() {
            thread::sleep(WARM);
        }
        let mut programs = Vec::new();
        for (index, machine) in case.machines.iter().enumerate() {
            for _ in 0..machine.processes {
                let mut command = match daemons.get(index) {
                    Some(daemon) => daemon.command(self.paths, &self.program),
                    None => self.native()?,
                };
                let count = (steps * u64::from(machine.kernel_us) / 1000).max(1);
                command.args(["--steps", &count.to_string(), "--seconds", &self.seconds().to_string()]);
                if machine.waits {
                    command.arg("--wait");
                }
                programs.push((index, Program::start(command)?));
            }
        }
        let mut run = Run::new(case.machines.iter().map(|machine| (machine.weight, machine.kernel_us)));
        for (index, program) in programs {
            run.add(index, program.finish()?);
        }
        daemons.into_iter().try_for_each(VirtioUser::stop)?;
        Ok(run)
    }

    fn daemon(&self, arbiter: Option<&Arbiter>, machine: &Machine) -> Result<VirtioUser> {
        let mut config = DaemonConfig::new(self.device.clone());
        config.arguments.extend(["--warm-workers".to_owned(), machine.processes.to_string()]);
        if let Some(arbiter) = arbiter {
            config.arguments.extend(["--arbiter".to_owned(), arbiter.socket.display().to_string()]);
            config.arguments.extend(["--share".to_owned(), machine.weight.to_string()]);
        }
        VirtioUser::start(self.paths, config, &self.logs)
    }

    /// Launches of a single machine, with and without an arbiter.
    fn alone(&self) -> Result<()> {
        println!(
            "\n| one machine alone | launches per second | launch and wait in us (median) |\n| --- | ---: | ---: |"
        );
        for _ in 0..self.rounds {
            for shared in [false, true] {
                let arbiter = shared.then(|| Arbiter::start(self.paths, &self.logs)).transpose()?;
                let daemon = self.daemon(arbiter.as_ref(), &machine(1, 0))?;
                thread::sleep(WARM);
                let mut figures = Vec::new();
                for waits in [false, true] {
                    let mut command = daemon.command(self.paths, &self.program);
                    command.args(["--steps", "1", "--seconds", "4"]);
                    if waits {
                        command.arg("--wait");
                    }
                    let mut run = Run::new([(1, 0)]);
                    run.add(0, Program::start(command)?.finish()?);
                    figures.push(run.period()?);
                }
                let name = if shared { "with an arbiter" } else { "without" };
                println!("| {name} | {:.0} | {:.2} |", 1e9 / figures[0].mean, figures[1].median / 1e3);
                daemon.stop()?;
            }
        }
        Ok(())
    }
}

fn line(case: &Case, figures: &Figures) -> String {
    let total: u32 = case.machines.iter().map(|machine| machine.weight).sum();
    let mut shares = String::new();
    for (machine, share) in case.machines.iter().zip(&figures.shares) {
        let goal = 100.0 * f64::from(machine.weight) / f64::from(total);
        // Writing to a string cannot fail.
        let _ = write!(shares, "{share:.1} ({goal:.1}) ");
    }
    let periods: Vec<String> = figures.p99_ms.iter().map(|period| format!("{period:.2}")).collect();
    let Figures { error_1s, error_100ms, used, .. } = figures;
    format!("{shares}| {error_1s:.1} | {error_100ms:.1} | {used:.1} | {} |", periods.join(", "))
}

/// An arbiter, which ends with the value.
struct Arbiter {
    socket: PathBuf,
    _process: Process,
    _folder: tempfile::TempDir,
}

impl Arbiter {
    fn start(paths: &Paths, logs: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-arbiter-").tempdir()?;
        let socket = folder.path().join("socket");
        let mut command = Command::new(Stack::new(paths).daemon());
        command.arg("arbiter").arg("--socket").arg(&socket);
        let mut process = Process::start("arbiter", command, &logs.join("arbiter.log"))?;
        wait_for_socket(&mut process, &socket, START_LIMIT)?;
        Ok(Self { socket, _process: process, _folder: folder })
    }
}

/// A program that competes.
struct Program {
    child: Child,
    output: thread::JoinHandle<std::io::Result<String>>,
}

impl Program {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("Cannot start a program")?;
        let mut stdout = child.stdout.take().context("A program has no output")?;
        let output = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        });
        Ok(Self { child, output })
    }

    /// When its kernels ended.
    fn finish(mut self) -> Result<Vec<u64>> {
        let text = match self.output.join() {
            Ok(text) => text?,
            Err(_) => bail!("The output of a program was not read"),
        };
        let status = self.child.wait()?;
        if !status.success() {
            bail!("A program ended with {status}");
        }
        text.lines().map(|line| line.parse().with_context(|| format!("Not a time: {line}"))).collect()
    }
}
