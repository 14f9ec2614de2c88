// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Machines that are configured wrongly: each has to boot, and an error has to be reported.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vhost_cuda_tests::daemon::workers_of;
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::transport::PROTOCOL_VERSION;
use xtask::paths::Paths;
use xtask::vm::{GuestCommand, Vm};

use crate::life::{Copying, expect_good, kernel_log_is_clean, wait_until};
use crate::{boot, boot_at, run};

/// The version of `other-version-daemon`.
const OTHER_VERSION: u32 = PROTOCOL_VERSION + 41;
/// The name of a worker that has a session (`vhost-cuda/worker/src/start.rs`).
const SESSION: &str = "cuda-session";
/// The maximum time that messages may take to appear.
const SETTLE: Duration = Duration::from_secs(10);

pub fn collect(suite: &mut Suite) {
    suite.test("alone::no_module", no_module);
    suite.test("alone::memory_that_is_not_shared", private_memory);
    suite.test("alone::other_protocol_version", other_protocol_version);
    suite.test("alone::limits_of_the_module", limits_of_the_module);
    suite.test("alone::reset_in_a_copy", reset_in_a_copy);
    suite.test("alone::one_queue_one_processor", one_queue);
    suite.test("alone::four_queues_four_processors", four_queues);
}

/// The program fails with "no device", and does not hang.
fn expect_no_device(kit: &Kit, vm: &Vm) -> Result<()> {
    let outcome = run(vm, &GuestCommand::new(kit.programs.get("add_one")?))?;
    outcome.expect_exit(1)?;
    ensure!(outcome.stderr.contains("error 100 (cudaErrorNoDevice)"), "{outcome}");
    Ok(())
}

fn wait_for_text(what: &str, texts: &[String], read: impl Fn() -> Result<String>) -> Result<()> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let log = read()?;
        if texts.iter().all(|text| log.contains(text)) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{what} does not say all of {texts:?}\n{log}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn no_module(kit: &Kit) -> Result<()> {
    let vm = boot("no-module", |config| config.load_module = false)?;
    expect_no_device(kit, &vm)?;
    vm.shell("insmod /not-loaded/virtio_cuda.ko")?;
    let outcome = run(&vm, &GuestCommand::new(kit.programs.get("add_one")?))?;
    outcome.expect_exit(0)?;
    vm.shut_down()
}

/// The limit of a file bounds page-locked memory, and nothing else: copies go through in pieces.
fn limits_of_the_module(kit: &Kit) -> Result<()> {
    let vm = boot("limits", |config| config.load_module = false)?;
    vm.shell("insmod /not-loaded/virtio_cuda.ko max_pinned_mib=16 max_outstanding=1")?;
    let copies = GuestCommand::new(kit.programs.get("copies")?).arguments(["8388611"]);
    run(&vm, &copies)?.expect_exit(0)?;
    run(&vm, &GuestCommand::new(kit.programs.get("four_threads")?))?.expect_exit(0)?;
    // Nearly all that the machine has: to populate it before it is refused would end the program.
    let pin = GuestCommand::new(kit.programs.get("pin_until_refused")?).arguments(["64", "960"]);
    let pinned = run(&vm, &pin)?;
    pinned.expect_exit(0)?;
    ensure!(pinned.stdout.contains("refused with 2"), "{pinned}");
    vm.shell("rmmod virtio_cuda && insmod /not-loaded/virtio_cuda.ko max_pinned_mib=4096")?;
    run(&vm, &pin)?.expect_exit(0)?;
    vm.shut_down()
}

/// The machine's reset button: a program's resources are released at once, not when the next kernel loads the module.
fn reset_in_a_copy(kit: &Kit) -> Result<()> {
    let vm = boot("reset", |_| {})?;
    for _ in 0..2 {
        // The program ends with its kernel, so its result is ignored.
        let _copying = Copying::start(kit, &vm)?;
        vm.pause()?;
        ensure!(sessions(&vm) == 1, "a pause ended the session\n{}", vm.daemon().log()?);
        vm.reset()?;
        wait_until("the session has ended", || Ok(sessions(&vm) == 0))?;
        vm.resume_reset()?;
        expect_good(kit, &vm, "add_one")?;
        wait_until("one warm worker is left", || Ok(sessions(&vm) == 0))?;
    }
    kernel_log_is_clean(kit, &vm)?;
    vm.shut_down()
}

/// Workers of the daemon that have a session.
fn sessions(vm: &Vm) -> usize {
    let workers = vm.daemon().id().map(workers_of).unwrap_or_default();
    let has_session = |worker: &&u32| {
        fs::read_to_string(format!("/proc/{worker}/comm")).is_ok_and(|name| name.trim() == SESSION)
    };
    workers.iter().filter(has_session).count()
}

fn private_memory(kit: &Kit) -> Result<()> {
    let vm = boot("private-memory", |config| {
        let object = format!("memory-backend-ram,id=private,size={}", config.memory);
        let more = ["-object", &object, "-machine", "memory-backend=private"];
        config.qemu_arguments.extend(more.map(String::from));
    })?;
    ensure!(
        run(&vm, &GuestCommand::new(kit.programs.get("add_one")?))?.expect_exit(0).is_err(),
        "it worked?"
    );
    let said = [String::from("share=on")];
    wait_for_text("the daemon", &said, || vm.daemon().log())
}

fn other_protocol_version(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let paths = with_daemon(folder.path(), &helper(env!("CARGO_BIN_EXE_other-version-daemon"))?)?;
    let vm = boot_at(&paths, "other-version", |_| {})?;
    let versions = [format!("{OTHER_VERSION}"), format!("{PROTOCOL_VERSION}"), String::from("version")];
    let line =
        |log: String| log.lines().filter(|line| line.contains("version")).collect::<Vec<_>>().join("\n");
    wait_for_text("the guest's kernel", &versions, || {
        Ok(line(vm.kernel_log()?.lines().filter(|line| line.contains("cuda")).collect::<Vec<_>>().join("\n")))
    })?;
    expect_no_device(kit, &vm)
}

/// The stack as `folder`, with another daemon.
pub fn with_daemon(folder: &Path, daemon: &Path) -> Result<Paths> {
    let real = Paths::discover()?;
    for entry in fs::read_dir(&real.stack)? {
        let entry = entry?;
        symlink(entry.path(), folder.join(entry.file_name()))?;
    }
    let bin = folder.join("bin");
    fs::remove_file(&bin)?;
    fs::create_dir(&bin)?;
    symlink(daemon, bin.join("vhost-user-cuda"))?;
    Ok(Paths { stack: folder.into(), ..real })
}

/// A program of this package: where Cargo built it, or beside this test program in a bundle.
pub fn helper(built: &str) -> Result<PathBuf> {
    let built = Path::new(built);
    if built.exists() {
        return Ok(built.to_path_buf());
    }
    let name = built.file_name().unwrap_or_default();
    let beside = std::env::current_exe()?.with_file_name(name);
    ensure!(beside.exists(), "neither {} nor {} exists", built.display(), beside.display());
    Ok(beside)
}

fn one_queue(kit: &Kit) -> Result<()> {
    queues(kit, 1)
}

fn four_queues(kit: &Kit) -> Result<()> {
    queues(kit, 4)
}

fn queues(kit: &Kit, number: u32) -> Result<()> {
    let vm = boot(&format!("{number}-queues"), |config| {
        config.cpus = number;
        config.daemon.queues = number;
    })?;
    let outcome = run(&vm, &GuestCommand::new(kit.programs.get("four_threads")?))?;
    outcome.expect_exit(0)?;
    vm.shut_down()
}
