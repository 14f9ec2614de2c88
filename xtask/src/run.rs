// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask run`: a person's own program in the guest, or beside the daemon without one.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::build::{self, Stack};
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::setup;
use crate::setup::kernel::Flavour;
use crate::virtio_user::VirtioUser;
use crate::vm::{GuestCommand, Input, Running, Vm, VmConfig};

/// The number of runs whose logs are kept.
const KEPT_LOGS: usize = 10;
/// Bytes of standard input that are read at a time.
const INPUT_CHUNK: usize = 16 * 1024;
/// The exit status when the program did not get to run, or was lost: what container tools use, too.
const STACK_FAILED: u8 = 125;
/// Names and prefixes of variables that cargo and rustup set for us, and not the user for the program.
const NOT_PASSED: [&str; 5] =
    ["CARGO", "CARGO_", "RUSTUP_TOOLCHAIN", "RUST_RECURSION_COUNT", "LD_LIBRARY_PATH"];

/// The transport from a program to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// In a virtual machine, through the driver.
    Vm,
    /// On this machine, through the same queues but without a guest.
    VirtioUser,
}

/// The program to run, and the place.
#[derive(Debug, Clone, Args)]
pub struct RunArguments {
    /// The GPU: `auto` (a real one if there is one), `emulated`, or the path of a libcuda.so.1
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// The transport from the program to the daemon
    #[arg(long, value_enum, default_value = "vm")]
    pub transport: Transport,
    /// The guest's kernel
    #[arg(long, value_enum, default_value_t)]
    pub kernel: Flavour,
    /// The guest's memory
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub mem: String,
    /// Folders with NVIDIA's libraries (cuBLAS, cuDNN, …) of this machine, beside those that it finds by itself
    #[arg(long, value_name = "FOLDER")]
    pub libraries: Vec<PathBuf>,
    /// The guest's processors, and the device's request queues
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub smp: u32,
    /// Program and arguments; in the guest it sees this machine's files, but what it writes there is lost
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Runs the program; its exit status, or 128 and the signal that killed it, or [`STACK_FAILED`].
pub fn run(paths: &Paths, arguments: &RunArguments) -> u8 {
    match try_run(paths, arguments) {
        Ok(status) => u8::try_from(status).unwrap_or(u8::MAX),
        Err(error) => {
            eprintln!("error: {error:#}");
            STACK_FAILED
        }
    }
}

fn try_run(paths: &Paths, arguments: &RunArguments) -> Result<i32> {
    prepare(paths, arguments)?;
    let logs = new_log_folder(paths)?;
    let result = match arguments.transport {
        Transport::Vm => in_vm(paths, arguments, &logs),
        Transport::VirtioUser => beside_daemon(paths, arguments, &logs),
    };
    result.with_context(|| format!("The logs are in {}", logs.display()))
}

/// Sets up and builds missing parts that the options need.
fn prepare(paths: &Paths, arguments: &RunArguments) -> Result<()> {
    let stack = Stack::new(paths);
    let common = [stack.daemon(), stack.launcher(), stack.emulator()];
    let in_guest = arguments.transport == Transport::Vm;
    let is_missing = |path: &PathBuf| !path.exists();
    let misses_guest =
        in_guest && (is_missing(&stack.module(arguments.kernel)) || is_missing(&stack.agent()));
    if paths.bundle.is_some() || !(common.iter().any(is_missing) || misses_guest) {
        return Ok(());
    }
    if !in_guest {
        setup::run(paths, &[])?;
    }
    build::for_programs(paths, in_guest.then_some(arguments.kernel))
}

/// A folder for the logs of one run; the oldest ones go.
pub fn new_log_folder(paths: &Paths) -> Result<PathBuf> {
    let folder = paths.stack.join("log");
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    let runs = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut runs: Vec<PathBuf> = runs
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"run-")))
        .collect();
    runs.sort();
    for old in runs.iter().take(runs.len().saturating_sub(KEPT_LOGS - 1)) {
        // Another run may have removed it, or it belongs to somebody else.
        let _ = fs::remove_dir_all(old);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let new = folder.join(format!("run-{now}-{}", std::process::id()));
    fs::create_dir(&new)?;
    Ok(new)
}

/// The environment that a person's program expects.
pub fn passed_environment(paths: &Paths) -> Vec<(OsString, OsString)> {
    let passed = env::vars_os().filter(|(name, _)| {
        !NOT_PASSED.iter().any(|own| match own.strip_suffix('_') {
            Some(_) => name.as_encoded_bytes().starts_with(own.as_bytes()),
            None => name.as_os_str() == OsStr::new(own),
        })
    });
    // Cargo has put its own folders in front of those that the person set.
    let libraries = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let is_cargos = |folder: &PathBuf| {
        folder.starts_with(&paths.target) || folder.components().any(|part| part.as_os_str() == ".rustup")
    };
    let own =
        env::split_paths(&libraries).filter(|folder| !is_cargos(folder) && !folder.as_os_str().is_empty());
    let libraries = env::join_paths(own).unwrap_or_default();
    passed.chain((!libraries.is_empty()).then(|| ("LD_LIBRARY_PATH".into(), libraries))).collect()
}

fn in_vm(paths: &Paths, arguments: &RunArguments, logs: &Path) -> Result<i32> {
    let mut config = VmConfig::new(Device(arguments.device.clone()));
    config.kernel = arguments.kernel;
    config.memory.clone_from(&arguments.mem);
    config.cpus = arguments.smp;
    config.daemon.queues = arguments.smp.clamp(1, 16);
    config.daemon.arguments.extend(libraries(arguments));
    let vm = Vm::boot(paths, config, logs)?;
    if !vm.problems().is_empty() {
        bail!("The guest is not complete: {}", vm.problems().join("; "));
    }
    let command = GuestCommand::new(Stack::new(paths).launcher())
        .arguments([program(&arguments.command[0])?])
        .arguments(&arguments.command[1..])
        .whole_environment(passed_environment(paths))
        .directory(env::current_dir()?);
    let running = vm.start(&command)?;
    forward_signals(&running)?;
    forward_input(running.input());
    let status = running.wait(None, &mut io::stdout(), &mut io::stderr())?;
    vm.shut_down()?;
    Ok(status)
}

/// The daemon's options for NVIDIA's libraries.
fn libraries(arguments: &RunArguments) -> impl Iterator<Item = String> {
    arguments.libraries.iter().flat_map(|folder| ["--libraries".to_owned(), folder.display().to_string()])
}

/// A name with a slash is a path from here, and any other is searched for, both as in a shell.
fn program(name: &OsStr) -> Result<OsString> {
    if name.as_encoded_bytes().contains(&b'/') && !Path::new(name).exists() {
        bail!("{} does not exist", Path::new(name).display());
    }
    Ok(name.to_owned())
}

fn forward_signals(running: &Running) -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let send = running.signals();
    thread::spawn(move || {
        for signal in &mut signals {
            // It fails when the guest has ended, which ends us anyway.
            let _ = send(signal);
        }
    });
    Ok(())
}

fn forward_input(input: Input) {
    thread::spawn(move || -> Result<()> {
        let mut buffer = vec![0; INPUT_CHUNK];
        loop {
            let count = io::stdin().read(&mut buffer)?;
            if count == 0 {
                return input.close();
            }
            if !input.write(&buffer[..count])? {
                return Ok(());
            }
        }
    });
}

fn beside_daemon(paths: &Paths, arguments: &RunArguments, logs: &Path) -> Result<i32> {
    let mut config = DaemonConfig::new(Device(arguments.device.clone()));
    config.queues = arguments.smp.clamp(1, 16);
    config.arguments.extend(libraries(arguments));
    let beside = VirtioUser::start(paths, config, logs)?;
    let program = program(&arguments.command[0])?;
    let mut command = beside.command(paths, Stack::new(paths).launcher());
    command.arg(&program).args(&arguments.command[1..]);
    // The terminal sends its signals to the program as well; we stay to clean up after it.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let mut child = command
        .spawn()
        .with_context(|| format!("Cannot start {}", Path::new(command.get_program()).display()))?;
    let id = child.id() as i32;
    thread::spawn(move || {
        for signal in &mut signals {
            if signal == SIGTERM {
                // SAFETY: kill takes no memory; we end as soon as the child is waited for, so the id is the child's.
                unsafe { libc::kill(id, signal) };
            }
        }
    });
    let status = child.wait()?;
    beside.stop()?;
    io::stdout().flush()?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
}
