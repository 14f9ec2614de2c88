// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bench --replace`: how long programs pause while the daemon's program is replaced under them.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::lines::{Program, request};
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::virtio_user::VirtioUser;

/// The program, below the repository.
pub const PROGRAM: &str = "tests/bench/replace.cu";
/// The number of programs.
const PROGRAMS: usize = 8;
/// What its threads do.
const WORK: [&str; 3] = ["launch", "launch and wait", "register memory and give it back"];
/// The pause after a replacement.
const PAUSE: Duration = Duration::from_millis(100);

/// The pauses of all programs, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Pauses {
    count: u64,
    longest: f64,
    /// The largest 99.9th percentile of a program.
    rare: f64,
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
    /// The number of replacements.
    pub replacements: u32,
}

impl Bench<'_> {
    /// Measures the programs beside replacements, and then for the same time without, and prints both.
    pub fn run(&self) -> Result<()> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-control-").tempdir()?;
        let control = folder.path().join("control");
        let mut config = DaemonConfig::new(self.device.clone());
        config.arguments.extend(["--control".to_owned(), control.display().to_string()]);
        let beside = VirtioUser::start(self.paths, config, &self.logs)?;
        let start = |_| Program::start(&mut beside.command(self.paths, &self.program));
        let mut programs = (0..PROGRAMS).map(start).collect::<Result<Vec<_>>>()?;
        // All of them have begun.
        for _ in 0..2 {
            figures(&mut programs)?;
            thread::sleep(PAUSE);
        }
        let begin = Instant::now();
        let mut times = (0..self.replacements).map(|_| replace(&control)).collect::<Result<Vec<_>>>()?;
        let time = begin.elapsed();
        let with = figures(&mut programs)?;
        thread::sleep(time);
        let without = figures(&mut programs)?;
        programs.into_iter().try_for_each(Program::finish)?;
        beside.stop()?;
        times.sort_by(f64::total_cmp);
        let middle = times.get(times.len() / 2).copied().unwrap_or_default();
        let last = times.last().copied().unwrap_or_default();
        println!(
            "{PROGRAMS} programs, {} replacements in {:.1} s: {middle:.0} ms each, the longest {last:.0} ms\n",
            times.len(),
            time.as_secs_f64()
        );
        println!(
            "| what | beside replacements | longest, ms | 99.9 %, ms | without | longest, ms | 99.9 %, ms |"
        );
        println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
        for ((name, with), without) in WORK.iter().zip(with).zip(without) {
            println!("| {name} | {} | {} |", with.cells(), without.cells());
        }
        Ok(())
    }
}

impl Pauses {
    fn cells(&self) -> String {
        format!("{} | {:.1} | {:.1}", self.count, self.longest, self.rare)
    }
}

/// Replaces the daemon's program. Returns the milliseconds that it took.
fn replace(control: &Path) -> Result<f64> {
    let begin = Instant::now();
    let answer = request(control, r#"{"do":"replace"}"#)?;
    let time = begin.elapsed().as_secs_f64() * 1e3;
    ensure!(answer["ok"] == true, "The daemon was not replaced: {answer}");
    thread::sleep(PAUSE);
    Ok(time)
}

/// Asks all programs for their figures since the last time.
fn figures(programs: &mut [Program]) -> Result<[Pauses; WORK.len()]> {
    let mut all = [Pauses::default(); WORK.len()];
    for program in programs {
        let line = program.ask("figures")?;
        let words: Vec<f64> = line
            .split_whitespace()
            .map(|word| word.parse().with_context(|| format!("A figure of the program: {line}")))
            .collect::<Result<_>>()?;
        ensure!(words.len() == all.len() * 3, "Figures of the program: {line}");
        for (pauses, words) in all.iter_mut().zip(words.chunks_exact(3)) {
            pauses.count += words[0] as u64;
            pauses.longest = pauses.longest.max(words[1]);
            pauses.rare = pauses.rare.max(words[2]);
        }
    }
    Ok(all)
}
