// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The guest's driver alone: its self test (`guest-driver/selftest`) against a daemon that answers echoes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_tests::effort;
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::paths::Paths;
use xtask::vm::{GuestCommand, Output, Vm};

use crate::alone::{helper, with_daemon};
use crate::life::{FirstLine, kernel_log_is_clean, nothing_has_leaked};
use crate::users::HOST_ROOT;
use crate::{LIMIT, boot_at, run};

/// The self test's sources, below the repository.
const SOURCES: &str = "guest-driver/selftest";
/// The maximum time that its calls that are to be lost may take until they are all under way.
const READY: Duration = Duration::from_secs(60);
/// Duration of the stress, unless `cargo xtask test --seconds` chooses another.
const STRESS_SECONDS: u64 = 10;

pub fn collect(suite: &mut Suite) {
    let (name, stress_name) = ("driver::self_test", "driver::stress");
    match Paths::discover() {
        Ok(paths) if paths.root.join(SOURCES).is_dir() => {
            suite.test(name, self_test);
            suite.test(stress_name, stress);
        }
        // A bundle has no compiler either.
        _ => {
            suite.skip(name, "the driver's sources are not here");
            suite.skip(stress_name, "the driver's sources are not here");
        }
    }
}

/// A machine whose daemon answers echoes, and the self test; `folder` lives as long as the machine.
fn boot_echo(folder: &Path, name: &str, plugs: bool) -> Result<(Vm, PathBuf)> {
    let program = build(folder)?;
    let stack = folder.join("stack");
    fs::create_dir(&stack)?;
    let paths = with_daemon(&stack, &helper(env!("CARGO_BIN_EXE_echo-daemon"))?)?;
    let vm = boot_at(&paths, name, |config| {
        config.memory = "2G".into();
        config.plugs = plugs;
    })?;
    Ok((vm, program))
}

/// Several threads do anything at all with open files; the driver must survive, and keep nothing.
fn stress(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (vm, program) = boot_echo(folder.path(), "stress", false)?;
    let seconds = effort::seconds(STRESS_SECONDS)?;
    let command = GuestCommand::new(&program).arguments(["stress"]);
    let command = command.environment(effort::SECONDS, seconds.to_string());
    let output = vm.run(&command.limit(LIMIT + Duration::from_secs(seconds)))?;
    let said = String::from_utf8_lossy(&output.stdout);
    eprint!("{said}");
    ensure!(output.status == 0 && said.contains("ok stress"), "{said}");
    nothing_has_leaked(kit, &vm)?;
    kernel_log_is_clean(kit, &vm)?;
    vm.shut_down()
}

fn self_test(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (vm, program) = boot_echo(folder.path(), "driver", true)?;
    passes(&vm, &program, &[])?;
    passes(&vm, &program, &["full_rings"])?;
    vm.shell("echo 8 > /proc/sys/vm/nr_hugepages")?;
    passes(&vm, &program, &["huge_pages"])?;
    several_users(&vm, &program)?;
    losing_the_daemon(&vm, &program)?;
    passes(&vm, &program, &["die"])?;
    vm.daemon().restart()?;
    passes(&vm, &program, &["reopen"])?;
    vm.unplug()?;
    passes(&vm, &program, &["nodevice"])?;
    vm.plug()?;
    passes(&vm, &program, &["reopen"])?;
    nothing_has_leaked(kit, &vm)?;
    kernel_log_is_clean(kit, &vm)?;
    // The driver reports it in the log.
    passes(&vm, &program, &["broken"])?;
    vm.shut_down()
}

/// Compiles the self test into `folder`.
fn build(folder: &Path) -> Result<PathBuf> {
    let sources = Paths::discover()?.root.join(SOURCES);
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(sources).arg(format!("OUT={}", folder.display()));
    let output = make.env_remove("MAKEFLAGS").output().context("Cannot start make")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(folder.join("driver-test"))
}

fn passes(vm: &Vm, program: &Path, tests: &[&str]) -> Result<()> {
    let outcome = run(vm, &GuestCommand::new(program).arguments(tests.iter().copied()))?;
    outcome.expect_exit(0).with_context(|| format!("{tests:?}"))?;
    ensure!(outcome.stdout.contains("ok "), "no test ran\n{outcome}");
    Ok(())
}

/// One user does not keep the device from others.
fn several_users(vm: &Vm, program: &Path) -> Result<()> {
    passes(vm, program, &["user_sessions", "user_rings", "user_pins", "statistics", "unanswered_area"])?;
    // The program is static, so it needs no chroot, in which there are no user namespaces.
    let outside = |test: &str| -> Result<()> {
        let said = vm.shell(&format!("{HOST_ROOT}{} {test}", program.display()))?;
        ensure!(said.contains(&format!("ok {test}")) && !said.contains("not ok"), "{said}");
        Ok(())
    };
    outside("namespaces")?;
    outside("subordinate_users")?;
    vm.shell("rmmod virtio_cuda && insmod /virtio_cuda.ko memlock_strict=1 max_user_sessions=3")?;
    passes(vm, program, &["strict"])?;
    vm.shell("rmmod virtio_cuda && insmod /virtio_cuda.ko")?;
    Ok(())
}

/// The daemon dies while calls wait, memory is pinned, and files are open.
fn losing_the_daemon(vm: &Vm, program: &Path) -> Result<()> {
    let running = vm.start(&GuestCommand::new(program).arguments(["lost"]))?;
    let (seen, ready) = channel();
    let ended = thread::spawn(move || -> Result<Output> {
        let mut stdout = FirstLine::new(seen);
        let mut stderr = Vec::new();
        let status = running.wait(Some(LIMIT), &mut stdout, &mut stderr)?;
        Ok(Output { status, stdout: stdout.into_bytes(), stderr })
    });
    let is_ready = ready.recv_timeout(READY).is_ok();
    vm.daemon().kill()?;
    let Ok(output) = ended.join() else { bail!("A reader panicked") };
    let output = output?;
    ensure!(is_ready && output.status == 0, "{}", String::from_utf8_lossy(&output.stdout));
    vm.daemon().restart()?;
    passes(vm, program, &["reopen"])
}
