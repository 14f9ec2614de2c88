// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `move-program --moves N -- PROGRAM …`: runs a program beside a daemon, and again while it moves between two daemons at random moments,
//! until it has moved so often. Its output must be the same, to the byte.

use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions};
use vhost_cuda_tests::mover::Mover;
use vhost_cuda_tests::random_moves::{Moments, Moves, while_moving};
use vhost_cuda_tests::running::Running;
use vhost_cuda_tests::stack::{Route, SOCKET_VARIABLE, Stack};

/// Lines of each daemon's log that explain a failure.
const LOG_LINES: usize = 60;
/// A part of the lines with reasons for which a program stays.
const STAYS: &str = "device state: ";
/// The least time for a run that began before the time was over.
const LAST_RUN: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
struct Arguments {
    /// The number of moves
    #[arg(long, default_value_t = 20)]
    moves: u64,
    /// The seed of the moments
    #[arg(long, default_value_t = 55)]
    seed: u64,
    /// The maximum pause between two moves, in milliseconds, instead of one that follows from the time of a run
    #[arg(long)]
    pause: Option<u64>,
    /// The time after which the program does not start again
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Options of both daemons, beside those of VHOST_CUDA_DAEMON_ARGUMENTS
    #[arg(long, allow_hyphen_values = true)]
    daemon: Vec<String>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let (begun, limit) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let stack = Stack::from_environment()?;
    let options = DaemonOptions { arguments: arguments.daemon.clone(), ..DaemonOptions::default() };
    let (first, second) = (Daemon::start(&stack, &options)?, Daemon::start(&stack, &options)?);
    let sockets = [first.socket(), second.socket()];
    let route = Route::through(&stack, first);
    let mover = Mover::start(&sockets[0])?;
    let start = |socket| {
        let mut command: Command = route.command(&stack.launcher());
        Running::start(command.args(&arguments.command).env(SOCKET_VARIABLE, socket), "")
    };
    let expected = start(sockets[0].clone())?.finish(limit)?;
    expected.expect_exit(0)?;
    ensure!(!expected.stdout.is_empty(), "it prints nothing: there is nothing to compare");
    println!("without moves: {:.2?}, {} bytes of output", expected.elapsed, expected.stdout.len());

    let usual = 2 * expected.elapsed / u32::try_from(arguments.moves.max(1))?;
    let pause = arguments.pause.map_or(usual, Duration::from_millis);
    let moments = Moments { seed: arguments.seed, times: 0, pause, most: arguments.moves };
    let (moves, mut runs) = (Moves::default(), 0);
    let result = while_moving(&mover, &sockets, moments, &moves, || {
        while runs == 0 || (moves.count() < arguments.moves && begun.elapsed() < limit) {
            runs += 1;
            let before = moves.count();
            let outcome = start(mover.socket())?.finish(LAST_RUN.max(10 * expected.elapsed))?;
            outcome.expect_exit(0)?;
            ensure!(outcome.stdout == expected.stdout, "without moves:\n{expected}\nwith them:\n{outcome}");
            println!(
                "run {runs}: {:.2?}, {} moves, the same output",
                outcome.elapsed,
                moves.count() - before
            );
        }
        Ok(())
    });
    println!("{moves:?} in {runs} runs, seed {}", arguments.seed);
    for log in [route.daemon.as_ref().map(Daemon::log).unwrap_or_default(), second.log()] {
        let lines: Vec<&str> = log.lines().collect();
        lines.iter().filter(|line| line.contains(STAYS)).for_each(|line| println!("{line}"));
        if result.is_err() {
            eprintln!("--- a daemon\n{}", lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"));
        }
    }
    result?;
    ensure!(moves.count() >= arguments.moves, "it has moved {} times only", moves.count());
    Ok(())
}
