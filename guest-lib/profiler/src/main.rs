// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-cuda-prof PROGRAM ARGUMENTS…` runs a program and prints tables of its kernels, copies and calls when it has ended.
//! `vhost-cuda-prof --pid N` does so for a while of a program that runs already ([`attach`]).

mod attach;
mod collector;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;
use std::{env, io};

use anyhow::{Context, Result};
use clap::Parser;
use vhost_cuda_profile::table::Tables;

use collector::Collector;

/// The library that is loaded into the program.
const INJECTION: &str = "libvhost-cuda-injection.so";
/// The libraries' folder, relative to this program's folder: as installed, and as built.
const FOLDERS: [&str; 2] = ["../lib/vhost-cuda", "../lib"];
/// The variables by which CUDA and NVTX find that library.
const VARIABLES: [&str; 2] = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"];
/// The socket's name, beside the link to that library, and a file that is there if there will be a timeline.
const SOCKET: &str = "socket";
const TIMELINE: &str = "timeline";
/// The exit status for a program that was found but does not start, for one that was not found, and for a profile that cannot be
/// made.
const CANNOT_START: u8 = 126;
const NOT_FOUND: u8 = 127;
const FAILED: u8 = 125;

/// The times that may be recorded, in seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=600.0;

/// Runs a CUDA program, and prints tables of its kernels, copies and calls when it has ended. With --pid, of one that runs already.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// Record a program of yours that runs already, for a while.
    #[arg(long, value_name = "PID", conflicts_with = "program", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// The time to record with --pid, 0.1 to 600.
    #[arg(long, value_name = "SECONDS", conflicts_with = "program", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// Write a timeline for Perfetto (ui.perfetto.dev) into this file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the tables into this file. Default: standard error.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the tables as comma-separated values.
    #[arg(long)]
    csv: bool,
    /// Write the tables as a JSON object.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// The program, with its arguments. For programs with a static runtime: `vhost-cuda-run PROGRAM ARGUMENTS…`.
    #[arg(required_unless_present = "pid", trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(&arguments).unwrap_or_else(|error| {
        eprintln!("vhost-cuda-prof: {error:#}");
        ExitCode::from(FAILED)
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().filter(|number| SECONDS.contains(number));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("a number from {} to {}", SECONDS.start(), SECONDS.end()))
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(pid) = arguments.pid {
        write(arguments, &attach::record(pid, arguments.seconds, arguments.trace.as_deref())?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let injection = find_injection()?;
    // Its owner only may enter it, so that no other user reads or sends events.
    let folder = tempfile::Builder::new().prefix("vhost-cuda-prof-").tempdir()?;
    let link = folder.path().join(INJECTION);
    symlink(&injection, &link)?;
    if arguments.trace.is_some() {
        File::create(folder.path().join(TIMELINE))?;
    }
    let collector = Collector::listen(&folder.path().join(SOCKET), arguments.trace.as_deref())?;
    let [program, rest @ ..] = &arguments.program[..] else { return Ok(ExitCode::from(NOT_FOUND)) };
    let mut command = Command::new(program);
    command.args(rest).envs(VARIABLES.map(|variable| (variable, &link)));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("vhost-cuda-prof: cannot start {}: {error}", program.display());
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if is_missing { NOT_FOUND } else { CANNOT_START }));
        }
    };
    // Ctrl+C ends the program, and the tables follow.
    // SAFETY: a plain call; no handler runs.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let status = child.wait()?;
    let tables = collector.finish()?;
    write(arguments, &tables)?;
    Ok(of_status(status))
}

fn write(arguments: &Arguments, tables: &Tables) -> Result<()> {
    let text = match (arguments.json, arguments.csv) {
        (true, _) => tables.to_json(),
        (_, true) => tables.to_csv(),
        _ => tables.to_text(),
    };
    match &arguments.output {
        Some(file) => fs::write(file, text).with_context(|| format!("Cannot write {}", file.display())),
        None => {
            eprint!("{text}");
            Ok(())
        }
    }
}

/// Returns the exit status as shells report it.
fn of_status(status: ExitStatus) -> ExitCode {
    let number = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(FAILED.into());
    ExitCode::from(u8::try_from(number).unwrap_or(FAILED))
}

/// Returns the library that belongs to this program.
fn find_injection() -> Result<PathBuf> {
    let own = env::current_exe().context("Cannot find its own file")?;
    let own = own.parent().unwrap_or(Path::new("/"));
    let candidates = FOLDERS.map(|folder| own.join(folder).join(INJECTION));
    let found = candidates.iter().find_map(|candidate| candidate.canonicalize().ok());
    found.with_context(|| {
        format!("There is no {}: install vhost-cuda's guest libraries there", candidates[0].display())
    })
}

/// Creates the file of a timeline.
fn create(file: &Path) -> Result<File> {
    File::create(file).with_context(|| format!("Cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_program_are_its_own() {
        let arguments = Arguments::parse_from(["vhost-cuda-prof", "--csv", "python3", "--json", "x.py"]);
        assert_eq!(arguments.program, ["python3", "--json", "x.py"]);
        assert!(arguments.csv && !arguments.json);
    }

    #[test]
    fn a_running_program_stands_in_place_of_one_to_start() {
        let parse = |text: &str| Arguments::try_parse_from(text.split(' '));
        let arguments = parse("vhost-cuda-prof --pid 7 --seconds 0.5").unwrap();
        assert_eq!((arguments.pid, arguments.seconds), (Some(7), Duration::from_millis(500)));
        for wrong in [
            "",
            " --pid 7 true",
            " --pid 0",
            " --pid 7 --seconds 0",
            " --pid 7 --seconds nan",
            " --seconds 1 true",
        ] {
            assert!(parse(&format!("vhost-cuda-prof{wrong}")).is_err(), "{wrong}");
        }
    }
}
