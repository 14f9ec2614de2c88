// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask demo`: from nothing to a CUDA program that runs in a guest.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::build::Stack;
use crate::build::quick::KERNEL;
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::progress::{duration, say, side_by_side};
use crate::run::{new_log_folder, passed_environment};
use crate::setup::kernel::Flavour;
use crate::virtio_user::VirtioUser;
use crate::vm::{GuestCommand, Vm, VmConfig};
use crate::{build, program, setup};

/// The program, below the repository.
const PROGRAM: &str = "tests/cuda/add_one.cu";
/// Time limit.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the program beside the daemon, then in a virtual machine. The first needs neither QEMU nor a kernel, so that its output
/// appears early. Each ends with a line about the device that executed it and the time that it took. On a machine that has built
/// nothing, the guest has a stock kernel: besides this project, only QEMU is compiled.
pub fn run(paths: &Paths, device: &str) -> Result<u8> {
    // An optimised stack takes minutes to compile, so an existing one is used.
    let is_built = Stack::new(paths).emulator().exists();
    let paths = if is_built { paths.clone() } else { paths.quick() };
    let logs = new_log_folder(&paths)?;
    let result = both(&paths, device, &logs);
    result.with_context(|| format!("The logs are in {}", logs.display()))
}

fn both(paths: &Paths, device: &str, logs: &Path) -> Result<u8> {
    let mut clock = Clock::default();
    let program = prepare_first(paths, &mut clock)?;
    let beside = logs.join("without-a-virtual-machine");
    fs::create_dir(&beside).with_context(|| format!("Cannot create {}", beside.display()))?;
    let (status, facts) = beside_daemon(paths, device, &program, &beside, &mut clock)?;
    end_stage(status, &facts.sentence()?, &mut clock)?;
    if status != 0 {
        return Ok(u8::try_from(status).unwrap_or(u8::MAX));
    }

    say(&format!("{:16} setup and build for the same program in a virtual machine", "next"));
    prepare_vm(paths, &mut clock)?;
    let (status, facts) = in_vm(paths, device, &program, logs, &mut clock)?;
    end_stage(status, &facts.sentence()?, &mut clock)?;
    if paths.is_quick() {
        println!(
            "The demo's stack is not optimised; `cargo xtask run` and the other commands build one that is."
        );
    }
    Ok(u8::try_from(status).unwrap_or(u8::MAX))
}

/// Sets up and builds the parts for a program without a virtual machine. Returns the compiled program.
fn prepare_first(paths: &Paths, clock: &mut Clock) -> Result<PathBuf> {
    let source = paths.root.join(PROGRAM);
    // They have the linker that cargo calls.
    setup::run(paths, &[setup::Part::Debian])?;
    clock.stop("packages");
    let downloads = [setup::Part::Nvcc, setup::Part::Zig];
    if !paths.is_quick() {
        setup::run(paths, &downloads)?;
        clock.stop("setup");
        build::run(paths, &build::FIRST, Flavour::Small)?;
        clock.stop("build");
        let program = program::compile(paths, &source)?;
        clock.stop("compile");
        return Ok(program);
    }
    let (mut program, mut compiled) = (None, None);
    side_by_side(vec![
        Box::new(|| {
            setup::run(paths, &downloads)?;
            program = Some(program::compile(paths, &source)?);
            Ok(())
        }),
        Box::new(|| {
            compiled = Some(build::quick::compile(paths)?);
            Ok(())
        }),
    ])?;
    compiled.context("Nothing was compiled")?.link(paths)?;
    clock.stop("setup and build");
    program.context("The program was not compiled")
}

/// Sets up and builds the additional parts for a virtual machine.
fn prepare_vm(paths: &Paths, clock: &mut Clock) -> Result<()> {
    if paths.is_quick() {
        setup::rust::source(paths)?;
        side_by_side(vec![
            Box::new(|| setup::run(paths, &[setup::Part::Qemu, setup::Part::Kernel(KERNEL)])),
            Box::new(|| build::quick::compile_for_guest(paths)),
        ])?;
        clock.stop("setup");
        build::quick::build_module(paths)?;
    } else {
        setup::run(paths, &[])?;
        clock.stop("setup");
        build::run(paths, &[], Flavour::Small)?;
    }
    clock.stop("build");
    Ok(())
}

/// Prints a stage's last line.
fn end_stage(status: i32, sentence: &str, clock: &mut Clock) -> Result<()> {
    if status != 0 {
        eprintln!("{PROGRAM} ended with {status}");
    }
    println!("{sentence}; {}", clock.times.join(", "));
    clock.times.clear();
    Ok(io::stdout().flush()?)
}

/// Runs the program on this machine, over the daemon's socket.
fn beside_daemon(
    paths: &Paths,
    device: &str,
    program: &Path,
    logs: &Path,
    clock: &mut Clock,
) -> Result<(i32, Facts)> {
    let daemon = VirtioUser::start(paths, DaemonConfig::new(Device(device.to_owned())), logs)?;
    eprintln!("{:16} {PROGRAM} without a virtual machine", "running");
    let status = daemon.command(paths, program).status().context("Cannot start the program")?;
    daemon.stop()?;
    clock.stop("run");
    let log = fs::read_to_string(logs.join("daemon.log"))?;
    let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok((status, Facts::of(&log, "without a virtual machine".to_owned())))
}

/// Boots, runs the program, switches off.
fn in_vm(
    paths: &Paths,
    device: &str,
    program: &Path,
    logs: &Path,
    clock: &mut Clock,
) -> Result<(i32, Facts)> {
    let mut config = VmConfig::new(Device(device.to_owned()));
    if paths.is_quick() {
        config.kernel = KERNEL;
    }
    let vm = Vm::boot(paths, config, logs)?;
    if !vm.problems().is_empty() {
        bail!("The guest is not complete: {}", vm.problems().join("; "));
    }
    clock.stop("boot");
    let accelerator = vm.accelerator();
    eprintln!("{:16} {PROGRAM} in a guest under {accelerator:?}", "running");
    let command = GuestCommand::new(program).whole_environment(passed_environment(paths));
    let running = vm.start(&command)?;
    running.input().close()?;
    let status = running.wait(Some(LIMIT), &mut io::stdout(), &mut io::stderr())?;
    clock.stop("run");
    vm.shut_down()?;
    clock.stop("stop");
    let log = fs::read_to_string(logs.join("daemon.log"))?;
    Ok((status, Facts::of(&log, format!("guest under {accelerator:?}"))))
}

/// Measures one stage after the other.
struct Clock {
    last: Instant,
    times: Vec<String>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { last: Instant::now(), times: Vec::new() }
    }
}

impl Clock {
    fn stop(&mut self, stage: &str) {
        self.times.push(format!("{stage} {}", duration(self.last.elapsed())));
        self.last = Instant::now();
    }
}

/// Facts about a run, from the daemon's log.
struct Facts {
    device: Option<String>,
    calls: u64,
    /// The place in which the program ran.
    place: String,
}

impl Facts {
    fn of(log: &str, place: String) -> Self {
        Self { device: device_name(log), calls: calls(log), place }
    }

    fn sentence(&self) -> Result<String> {
        let device =
            self.device.as_deref().context("The daemon's log does not say what executed the calls")?;
        if self.calls == 0 {
            bail!("No call has crossed to the daemon: the program ran on something else");
        }
        Ok(format!("executed by {device}, {}, {} calls crossed", self.place, self.calls))
    }
}

/// From `CUDA driver 13.0, 1 device(s): NAME`, or else the library that `executing CUDA calls with PATH` names.
fn device_name(log: &str) -> Option<String> {
    let after = |text: &str| log.lines().find_map(|line| Some(line.split_once(text)?.1.trim().to_owned()));
    after("device(s): ").or_else(|| after("executing CUDA calls with "))
}

/// The sum of `session … after N calls`.
fn calls(log: &str) -> u64 {
    let count = |line: &str| -> Option<u64> {
        let (before, _) = line.split_once(" calls")?;
        before.rsplit_once("after ")?.1.parse().ok()
    };
    log.lines().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "[x INFO vhost] executing CUDA calls with /e/libcuda.so.1\n\
        [x INFO vhost] session 9f (add_one, pid 7): closed after 23 calls, 0.0 MB in, 0.0 MB out, 0.1 s\n\
        [x INFO vhost] session a0 (other, pid 8): closed after 4 calls, 0.0 MB in, 0.0 MB out, 0.1 s\n";

    #[test]
    fn facts_come_from_the_log() {
        assert_eq!(calls(LOG), 27);
        assert_eq!(device_name(LOG).as_deref(), Some("/e/libcuda.so.1"));
        let named = format!("{LOG}[x INFO vhost] CUDA driver 13.0, 1 device(s): NVIDIA H200\n");
        assert_eq!(device_name(&named).as_deref(), Some("NVIDIA H200"));
    }

    #[test]
    fn a_run_without_calls_is_no_success() {
        let facts = Facts { device: Some("x".into()), calls: 0, place: String::new() };
        assert!(facts.sentence().is_err());
    }
}
