// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask bench --suspend`: how fast the device memory of a program moves to host memory and back.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::lines::{Program, request};
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::virtio_user::VirtioUser;

/// The program, below the repository.
pub const PROGRAM: &str = "tests/bench/suspend.cu";
/// The steps of a round, in their order.
const STEPS: [&str; 6] = [
    "out, to new pages of host memory",
    "back",
    "out, all changed, to pages that are there",
    "out, nothing changed",
    "first kernel, 100 MiB, where it brings the memory back",
    "out, 1 % changed",
];
/// Host memory beyond the contents: temporary memory, and the room for rounding.
const SPARE_MIB: u64 = 1024;

/// The time of a step, and the bytes that it moved and copied.
#[derive(Clone, Copy, Debug, Default)]
struct Figure {
    seconds: f64,
    moved: u64,
    copied: u64,
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
    /// Sizes of device memory, in MiB.
    pub sizes: &'a [u64],
    /// Runs of each size, each with a new program.
    pub rounds: u32,
}

impl Bench<'_> {
    /// Runs all sizes, and prints the figures of each round.
    pub fn run(&self) -> Result<()> {
        println!(
            "| MiB | what | seconds | GB moved | GB copied | GB/s |\n| ---: | --- | --- | ---: | ---: | --- |"
        );
        for &size in self.sizes {
            let (mut rounds, mut links) = (Vec::new(), Vec::new());
            for _ in 0..self.rounds {
                let (figures, link) = self
                    .round(size)
                    .with_context(|| format!("{size} MiB: logs in {}", self.logs.display()))?;
                rounds.push(figures);
                links.push(link);
            }
            for (index, step) in STEPS.iter().enumerate() {
                let all: Vec<Figure> = rounds.iter().map(|figures| figures[index]).collect();
                println!("| {size} | {step} | {}", line(&all));
            }
            println!("| {size} | the link alone, out and in | | | | {} |", links.join(", "));
        }
        Ok(())
    }

    /// Returns the figures of the steps, and the rates of the link.
    fn round(&self, size: u64) -> Result<([Figure; STEPS.len()], String)> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-control-").tempdir()?;
        let socket = folder.path().join("control");
        let mut config = DaemonConfig::new(self.device.clone());
        let memory = format!("{}M", size + SPARE_MIB);
        config.arguments.extend([
            "--control".to_owned(),
            socket.display().to_string(),
            "--suspend-memory".to_owned(),
            memory,
        ]);
        let beside = VirtioUser::start(self.paths, config, &self.logs)?;
        let mut program = Program::start(beside.command(self.paths, &self.program).arg(size.to_string()))?;
        let link = program.ask("link")?;
        program.ask("fill 1")?;
        let out_new = ask(&socket, "suspend")?;
        let back = ask(&socket, "resume")?;
        program.ask("fill 2")?;
        let before = program.ask("sum")?;
        let out_again = ask(&socket, "suspend")?;
        ask(&socket, "resume")?;
        let unchanged = ask(&socket, "suspend")?;
        let first: f64 = program.ask("first")?.parse().context("The time of the first kernel")?;
        let after = program.ask("sum")?;
        ensure!(before == after, "The memory has changed: the sum of its words was {before}, and is {after}");
        program.ask("touch 1")?;
        let touched = program.ask("sum")?;
        let some = ask(&socket, "suspend")?;
        let found = program.ask("sum")?;
        ensure!(
            found == touched,
            "The memory has changed: the sum of its words was {touched}, and is {found}"
        );
        program.finish()?;
        beside.stop()?;
        let first = Figure { seconds: first / 1e6, copied: 0, ..unchanged };
        Ok(([out_new, Figure { moved: out_new.moved, ..back }, out_again, unchanged, first, some], link))
    }
}

/// Lets the daemon move all sessions. Errors: it could not.
fn ask(control: &Path, what: &str) -> Result<Figure> {
    let begin = Instant::now();
    let answer = request(control, &format!("{{\"do\":\"{what}\",\"all\":true,\"timeout_ms\":60000}}"))?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(answer["ok"] == true, "The daemon did not {what}: {answer}");
    let figure =
        |name: &str| answer["sessions"][0][name].as_u64().with_context(|| format!("No {name} in {answer}"));
    Ok(Figure { seconds, moved: figure("suspended_bytes")?, copied: figure("copied_bytes")? })
}

fn line(all: &[Figure]) -> String {
    let each = |text: fn(&Figure) -> String| all.iter().map(text).collect::<Vec<_>>().join(", ");
    let [moved, copied] = [|figure: &Figure| figure.moved, |figure: &Figure| figure.copied]
        .map(|of| all.iter().map(of).max().unwrap_or(0) as f64 / 1e9);
    let rates = each(|figure| format!("{:.1}", figure.moved as f64 / 1e9 / figure.seconds.max(1e-9)));
    format!("{} | {moved:.2} | {copied:.2} | {rates} |", each(|figure| format!("{:.3}", figure.seconds)))
}
