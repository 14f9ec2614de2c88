// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The whole stack in a virtual machine: the table of programs, the life of module, device and daemon, and the
//! driver alone.

mod alone;
mod balloon;
mod changes;
mod crash;
mod driver;
mod guest;
mod life;
mod moved;
mod shares;
mod users;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use vhost_cuda_tests::running::{Ended, Outcome};
use vhost_cuda_tests::{daemon, suite};
use xtask::daemon::Device;
use xtask::paths::Paths;
use xtask::setup::kernel::Flavour;
use xtask::vm::{GuestCommand, Output, Survivor, Vm, VmConfig};

/// The maximum time that one program may take: the guest may be an emulated one.
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    suite::run_in_order("vm", |suite| {
        let shared = SharedVm::default();
        guest::collect(suite, &shared);
        users::collect(suite, &shared);
        life::collect(suite, &shared);
        // The other tests have machines of their own.
        suite.begin_chain();
        alone::collect(suite);
        balloon::collect(suite);
        shares::collect(suite);
        changes::collect(suite);
        moved::collect(suite);
        crash::collect(suite);
        driver::collect(suite);
        Ok(())
    })
}

/// One machine that many tests use, one after the other; booted by the first.
#[derive(Clone, Default)]
struct SharedVm(Arc<Mutex<Option<Vm>>>);

impl SharedVm {
    fn with<T>(&self, body: impl FnOnce(&Vm) -> Result<T>) -> Result<T> {
        let mut slot = self.slot();
        if slot.is_none() {
            *slot = Some(boot("shared", |config| config.memory = "4G".into())?);
        }
        let vm = slot.as_ref().context("The machine did not boot")?;
        let result = body(vm);
        if !vm.is_running()? {
            *slot = None;
            return result.and_then(|_| bail!("the machine is gone")).context("QEMU has ended");
        }
        result
    }

    /// Takes the machine away; the next test boots another.
    fn take(&self) -> Option<Vm> {
        self.slot().take()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Vm>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Boots a machine on the GPU if there is one, else on the emulator; its logs lie in the stack's `log` folder.
fn boot(name: &str, change: impl FnOnce(&mut VmConfig)) -> Result<Vm> {
    boot_at(&Paths::discover()?, name, change)
}

fn boot_at(paths: &Paths, name: &str, change: impl FnOnce(&mut VmConfig)) -> Result<Vm> {
    boot_after(paths, name, None, change)
}

/// As [`boot_at`], at the daemon that another machine has left, if there is one.
fn boot_after(
    paths: &Paths,
    name: &str,
    survivor: Option<Survivor>,
    change: impl FnOnce(&mut VmConfig),
) -> Result<Vm> {
    let config = configure(change)?;
    let logs = logs_of(paths, name);
    // Logs are appended to: an older run's must not pass for this one's.
    if logs.exists() && survivor.is_none() {
        std::fs::remove_dir_all(&logs)?;
    }
    Vm::boot_at(paths, config, &logs, survivor)
}

/// The configuration of a machine of these tests.
fn configure(change: impl FnOnce(&mut VmConfig)) -> Result<VmConfig> {
    let mut config = VmConfig::new(Device(daemon::device()));
    config.kernel = guest_kernel()?;
    config.daemon.arguments.extend(["--log-level".into(), "debug".into()]);
    change(&mut config);
    Ok(config)
}

/// The folder for a machine's logs.
fn logs_of(paths: &Paths, name: &str) -> PathBuf {
    paths.stack.join("log").join(format!("test-{name}"))
}

/// The kernel that `VHOST_CUDA_GUEST_KERNEL` names, else the small one.
fn guest_kernel() -> Result<Flavour> {
    match std::env::var("VHOST_CUDA_GUEST_KERNEL").ok().filter(|name| !name.is_empty()) {
        None => Ok(Flavour::default()),
        Some(name) => {
            let known = Flavour::value_variants()
                .iter()
                .find(|flavour| flavour.to_possible_value().is_some_and(|value| value.get_name() == name));
            known.copied().with_context(|| format!("VHOST_CUDA_GUEST_KERNEL={name} is no kernel of xtask"))
        }
    }
}

/// The result of a command in the guest, in the terms of the other levels.
fn outcome(output: Output, elapsed: Duration) -> Outcome {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let ended = match output.status {
        status @ 129..=192 => Ended::Signal(status - 128),
        status => Ended::Exit(status),
    };
    Outcome { stdout: text(output.stdout), stderr: text(output.stderr), ended, elapsed }
}

fn run(vm: &Vm, command: &GuestCommand) -> Result<Outcome> {
    let started = std::time::Instant::now();
    let output = vm.run(&command.clone().limit(LIMIT))?;
    Ok(outcome(output, started.elapsed()))
}

/// Runs a line in the guest that must fail, and returns its output.
fn shell_fails(vm: &Vm, line: &str) -> Result<String> {
    let outcome = run(vm, &GuestCommand::shell(line))?;
    ensure!(outcome.ended != Ended::Exit(0), "`{line}` succeeded\n{outcome}");
    Ok(outcome.stderr)
}
