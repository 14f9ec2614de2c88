// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program: a daemon, or (hidden) one of its workers.

mod runtime;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use vhost_cuda::args::{ArbiterArgs, Args, Mode};
use vhost_cuda::confine::keeper;
use vhost_cuda::control::client;
use vhost_cuda::metrics::top;
use vhost_cuda::replace::enter;
use vhost_cuda::shares::arbiter;
use vhost_cuda::{config, daemon};

fn main() -> ExitCode {
    runtime::begun();
    let args = match config::arguments(std::env::args_os()) {
        Ok(args) => Args::parse_from(args),
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(Mode::Worker(args)) = &args.mode {
        return vhost_cuda_worker::run(args);
    }
    if let Some(Mode::Keeper) = &args.mode {
        return keeper::run();
    }
    if let Some(Mode::Arbiter(args)) = &args.mode {
        return arbitrate(args);
    }
    if let Some(Mode::Top(args)) = &args.mode {
        return exit_code(top::run(&args.metrics, Duration::from_secs(args.interval), args.count));
    }
    if let Some(Mode::Ctl(args)) = &args.mode {
        return exit_code(client::run(args));
    }
    if args.daemon.print_capabilities {
        println!("{}", daemon::CAPABILITIES);
        return ExitCode::SUCCESS;
    }
    if args.daemon.check_take_over {
        return exit_code(enter::check(&args.daemon));
    }
    if !start_log(&args.daemon.log_level) {
        return ExitCode::FAILURE;
    }
    match daemon::run(&args.daemon) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints an error of a command.
fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn arbitrate(args: &ArbiterArgs) -> ExitCode {
    if start_log(&args.arbiter_log_level)
        && let Err(error) = arbiter::run(&args.socket, args.users.clone())
    {
        log::error!("{error:#}");
    }
    ExitCode::FAILURE
}

/// Starts the log at the level with this name. Returns false if there is no such level.
fn start_log(level: &str) -> bool {
    let Ok(filter) = level.parse::<log::LevelFilter>() else {
        eprintln!("--log-level {level}: use off, error, warn, info, debug or trace");
        return false;
    };
    env_logger::Builder::new()
        .filter_level(filter)
        // Guests cause the messages that these libraries log at their own levels.
        .filter_module("virtio_queue", quiet(filter))
        .init();
    true
}

/// Limits libraries whose messages a guest can cause to debugging.
fn quiet(level: log::LevelFilter) -> log::LevelFilter {
    if level >= log::LevelFilter::Debug { level } else { log::LevelFilter::Off }
}
