// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bench --swap`: two programs that do not fit on the card together take turns.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::lines::{Program, request};
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::virtio_user::VirtioUser;

/// The programs, each of which is a machine of its own.
const PROGRAMS: usize = 2;
/// The time of a turn: on a GPU, and on the emulator.
const TURN: Duration = Duration::from_secs(10);
const TURN_EMULATED: Duration = Duration::from_millis(500);
/// The seconds after which the program whose turn is over may leave the card.
const IDLE: &str = "0.3";
/// The time before each program starts.
const SETTLE: Duration = Duration::from_secs(2);
/// The memory of a chunk, of which each step changes a word.
const CHUNK_MIB: u64 = 2;

/// Everything that a run needs.
pub struct Bench<'a> {
    /// The folders.
    pub paths: &'a Paths,
    /// The GPU.
    pub device: Device,
    /// The program, which is that of [`super::suspend`].
    pub program: PathBuf,
    /// The folder for logs.
    pub logs: PathBuf,
    /// The memory of each program, in MiB.
    pub size: u64,
    /// The number of turns.
    pub turns: u32,
}

/// A program, and what it must find in its memory.
struct Machine {
    program: Program,
    /// The sum of its words, of which the lower 32 bits are exact whatever overflows.
    sum: u32,
}

/// What became of a turn, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    all: f64,
    /// The first step, which brings the memory back.
    first: f64,
    steps: u64,
}

impl Bench<'_> {
    /// Lets the programs take turns, and prints what part of the time they worked. Errors: also contents that have changed.
    pub fn run(&self) -> Result<()> {
        let logs = self.logs.display();
        self.turns().with_context(|| format!("{} MiB each: logs in {logs}", self.size))
    }

    fn turns(&self) -> Result<()> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-control-").tempdir()?;
        let control = folder.path().join("control");
        let mut config = DaemonConfig::new(self.device.clone());
        let options = ["--suspend-after", IDLE, "--control", &control.display().to_string()];
        config.arguments.extend(options.map(str::to_owned));
        let beside = VirtioUser::start(self.paths, config, &self.logs)?;
        let turn = if self.device.is_emulated() { TURN_EMULATED } else { TURN };
        let mut machines = Vec::new();
        for seed in 1..=PROGRAMS {
            // The program before makes room once it is idle.
            thread::sleep(SETTLE);
            let mut command = beside.command(self.paths, &self.program);
            command.arg(self.size.to_string()).env("CUDA_VISIBLE_DEVICES", "0");
            let mut program = Program::start(&mut command)?;
            program.ask(&format!("fill {seed}"))?;
            let sum = sum(&mut program)?;
            machines.push(Machine { program, sum });
        }
        let mut turns = Vec::new();
        println!(
            "| turn | machine | first step, s | steps | seconds |\n| ---: | ---: | ---: | ---: | ---: |"
        );
        let begin = Instant::now();
        for number in 0..self.turns {
            let index = number as usize % PROGRAMS;
            let done = machines[index].work(turn, self.size).with_context(|| format!("turn {number}"))?;
            println!("| {number} | {index} | {:.3} | {} | {:.3} |", done.first, done.steps, done.all);
            turns.push(done);
        }
        let all = begin.elapsed().as_secs_f64();
        let status = request(&control, r#"{"do":"status"}"#)?;
        for machine in machines {
            machine.program.finish()?;
        }
        beside.stop()?;
        let worked: f64 = turns.iter().map(Turn::worked).sum();
        let longest = turns.iter().map(|turn| turn.first).fold(0.0, f64::max);
        println!(
            "\n{PROGRAMS} machines, {} MiB each, {} turns in {all:.1} s: {:.1} % of the time is work, the longest \
             first step took {longest:.2} s, all contents are right",
            self.size,
            turns.len(),
            worked / all.max(1e-9) * 100.0
        );
        println!("<!-- {status} -->");
        Ok(())
    }
}

impl Machine {
    /// Changes all chunks and reads all words, again and again.
    fn work(&mut self, time: Duration, size: u64) -> Result<Turn> {
        let begin = Instant::now();
        let mut turn = Turn::default();
        while turn.steps < 2 || begin.elapsed() < time {
            self.program.ask("touch 100")?;
            let found = sum(&mut self.program)?;
            self.sum = self.sum.wrapping_add((size / CHUNK_MIB) as u32);
            ensure!(
                found == self.sum,
                "The memory has changed: the sum of its words must be {}, and is {found}",
                self.sum
            );
            turn.steps += 1;
            if turn.steps == 1 {
                turn.first = begin.elapsed().as_secs_f64();
            }
        }
        turn.all = begin.elapsed().as_secs_f64();
        Ok(turn)
    }
}

impl Turn {
    /// The time of its steps, if the first one takes as long as each of the others but for the move.
    fn worked(&self) -> f64 {
        let others = self.all - self.first;
        let step = others / (self.steps.max(2) - 1) as f64;
        others + step.min(self.first)
    }
}

/// The lower half of the sum of the program's words.
fn sum(program: &mut Program) -> Result<u32> {
    let answer = program.ask("sum")?;
    answer.parse::<u64>().map(|sum| sum as u32).with_context(|| format!("No sum: {answer}"))
}
