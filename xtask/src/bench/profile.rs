// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bench --profile`: how much slower a program is while it is profiled, and how true its profile is, natively beside
//! ours.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lines::Program;
use crate::build::Stack;
use crate::daemon::{DaemonConfig, Device, has_gpu};
use crate::paths::Paths;
use crate::setup::nvcc::Nvcc;
use crate::virtio_user::VirtioUser;

/// The program, below the repository.
pub const PROGRAM: &str = "tests/bench/profile.cu";
/// The kernels of the measured launches, in nanoseconds.
const KERNELS: [u64; 2] = [0, 20_000];
/// The time that passes until a recording of the operator's has begun.
const BEGIN: Duration = Duration::from_millis(500);

/// Everything that a run needs.
pub struct Bench<'a> {
    /// The folders.
    pub paths: &'a Paths,
    /// The GPU of our way.
    pub device: Device,
    /// The program.
    pub program: PathBuf,
    /// The folder for logs.
    pub logs: PathBuf,
    /// The folders of the host's CUPTI.
    pub libraries: &'a [PathBuf],
    /// Seconds per figure.
    pub seconds: f64,
    /// Runs of each state.
    pub rounds: u32,
}

/// Microseconds per launch of each kernel, of all rounds, by state.
type Rows = Vec<(&'static str, Vec<[f64; KERNELS.len()]>)>;

impl Bench<'_> {
    /// Measures, and prints the table.
    pub fn run(&self) -> Result<()> {
        println!(
            "| way | state | empty kernels, us per launch | kernels of 20 us |\n| --- | --- | --- | --- |"
        );
        let mut truth = Vec::new();
        if has_gpu() {
            let folders: Vec<PathBuf> = [Nvcc::find(self.paths)?.libraries()]
                .into_iter()
                .chain(self.libraries.iter().cloned())
                .collect();
            let mut command = Command::new(&self.program);
            command.env("LD_LIBRARY_PATH", std::env::join_paths(folders)?);
            let mut rows = Rows::new();
            truth.push(("native", self.measure(&mut command, &mut rows, None)?));
            print("native", &rows);
        }
        let folder = tempfile::Builder::new().prefix("vhost-cuda-control-").tempdir()?;
        let control = folder.path().join("control");
        let mut config = DaemonConfig::new(self.device.clone());
        config.add_libraries(self.libraries);
        config.arguments.extend(["--control".to_owned(), control.display().to_string()]);
        let beside = VirtioUser::start(self.paths, config, &self.logs)?;
        let mut rows = Rows::new();
        let mut command = beside.command(self.paths, &self.program);
        truth.push(("virtio-user", self.measure(&mut command, &mut rows, Some(&control))?));
        let mut command = beside.command(self.paths, Stack::new(self.paths).profiler());
        command.arg("--output").arg(self.logs.join("profile.txt")).arg(&self.program);
        let mut program = Program::start(&mut command)?;
        self.launches(&mut program, "vhost-cuda-prof", &mut rows)?;
        program.finish()?;
        beside.stop()?;
        print("virtio-user", &rows);
        println!(
            "\n| way | records of 1 ms beside the kernels' own clock, largest difference | clocks differ by less than | \
             ends after the answer, seen after the begin |"
        );
        println!("| --- | ---: | ---: | ---: |");
        for (way, [difference, before, after]) in truth {
            let most = f64::max(before, after);
            println!("| {way} | {difference:.2} % | {most:.1} us | {before:.1} us, {after:.1} us |");
        }
        Ok(())
    }

    /// Measures a program without and with CUPTI, and on our way with a recording of the operator's. Returns the difference of its
    /// records in percent, and how far the clocks may differ in both directions, in microseconds.
    fn measure(&self, command: &mut Command, rows: &mut Rows, control: Option<&Path>) -> Result<[f64; 3]> {
        let mut program = Program::start(command)?;
        self.launches(&mut program, "off", rows)?;
        if let Some(control) = control {
            let mut trace = self.trace(control)?;
            self.launches(&mut program, "ctl trace", rows)?;
            trace.kill()?;
            trace.wait()?;
            thread::sleep(BEGIN);
            self.launches(&mut program, "off after ctl trace", rows)?;
        }
        program.ask("begin")?;
        self.launches(&mut program, "CUPTI in the program", rows)?;
        let truth = program.ask("kernels 50")?;
        program.ask("end")?;
        self.launches(&mut program, "off after CUPTI", rows)?;
        program.finish()?;
        let figures: Option<Vec<f64>> = truth.split(' ').map(|word| word.parse().ok()).collect();
        figures
            .and_then(|figures| figures.try_into().ok())
            .with_context(|| format!("The program says: {truth}"))
    }

    fn launches(&self, program: &mut Program, state: &'static str, rows: &mut Rows) -> Result<()> {
        let mut rounds = Vec::new();
        for _ in 0..self.rounds {
            let mut figures = [0.0; KERNELS.len()];
            for (figure, kernel) in figures.iter_mut().zip(KERNELS) {
                let answer = program.ask(&format!("launch {} {kernel}", self.seconds))?;
                *figure = answer.parse().with_context(|| format!("The program says: {answer}"))?;
            }
            rounds.push(figures);
        }
        rows.push((state, rounds));
        Ok(())
    }

    /// Begins a recording of all programs, which lasts until it is killed.
    fn trace(&self, control: &Path) -> Result<Child> {
        let mut command = Command::new(Stack::new(self.paths).daemon());
        command.arg("ctl").arg("--control").arg(control).args(["trace", "--all", "--seconds", "600"]);
        let child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("Cannot start ctl")?;
        thread::sleep(BEGIN);
        Ok(child)
    }
}

/// Prints the smallest figures, and the largest ones behind them.
fn print(way: &str, rows: &Rows) {
    for (state, rounds) in rows {
        let cell = |kernel: usize| {
            let figures = rounds.iter().map(|figures| figures[kernel]);
            let (least, most) = (figures.clone().fold(f64::MAX, f64::min), figures.fold(0.0, f64::max));
            format!("{least:.3} ({most:.3})")
        };
        println!("| {way} | {state} | {} | {} |", cell(0), cell(1));
    }
}
