// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Machines that are saved, loaded, and moved to another QEMU with a daemon of its own.

mod killed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::effort;
use vhost_cuda_tests::running;
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::paths::Paths;
use xtask::vm::{Destination, OWN_FILES, Vm, VmConfig};

use crate::life::{kernel_log_is_clean, wait_until};
use crate::{boot, configure, logs_of};

/// Programs that compute until SIGTERM, and compare all that they have computed.
const WORK: &str = "suspended";
const MOVED: &str = "moved";
/// Moves of a machine.
const USUAL_ROUNDS: u64 = 3;
/// The maximum time in microseconds before a move.
const MAX_DELAY: u64 = 300_000;
/// The time limit for the list of a program's libraries.
const LIST: Duration = Duration::from_secs(20);

pub fn collect(suite: &mut Suite) {
    suite.test("moved::saved_and_loaded", saved_and_loaded);
    suite.test("moved::while_programs_compute", while_programs_compute);
    suite.test("moved::contents_go_ahead", contents_go_ahead);
    suite.test("moved::loaded_again_and_again", loaded_again_and_again);
    killed::collect(suite);
}

/// A program among the guest's own files, as its output: both go along with the machine.
struct OwnProgram {
    /// The beginning of its files' names.
    files: String,
}

impl OwnProgram {
    /// Starts a program that [`leave_host`] has copied. It need not end before its machine is moved.
    fn start(vm: &Vm, name: &str, arguments: &str) -> Result<Self> {
        let program = Self::of(name, arguments);
        let files = &program.files;
        let run = format!("LD_LIBRARY_PATH={OWN_FILES} {OWN_FILES}/{name} {arguments} > {files}.out 2>&1 &");
        let wait = format!("echo $! > {files}.pid; wait $!; echo $? > {files}.status");
        vm.shell(&format!("rm -f {files}.*; ({run} {wait}) > /dev/null 2>&1 < /dev/null &"))?;
        Ok(program)
    }

    /// The program that [`Self::start`] has started.
    fn of(name: &str, arguments: &str) -> Self {
        Self { files: format!("{OWN_FILES}/{name}-{}", arguments.replace(' ', "-")) }
    }

    /// The text that the program has printed.
    fn output(&self, vm: &Vm) -> Result<String> {
        vm.shell(&format!("cat {}.out", self.files))
    }

    /// Waits until it has printed `text`.
    fn expect(&self, vm: &Vm, text: &str) -> Result<()> {
        wait_until(text, || Ok(self.output(vm)?.contains(text)))
    }

    /// Its status, once it has ended.
    fn status(&self, vm: &Vm) -> Result<i32> {
        let file = format!("{}.status", self.files);
        wait_until("the program has ended", || Ok(vm.shell(&format!("test -s {file}")).is_ok()))
            .with_context(|| self.output(vm).unwrap_or_default())?;
        vm.shell(&format!("cat {file}"))?.trim().parse().context("no status")
    }

    /// Ends a program that computes. It must find all that it has computed.
    fn end(&self, vm: &Vm) -> Result<()> {
        vm.shell(&format!("kill -TERM $(cat {}.pid)", self.files))?;
        let (status, output) = (self.status(vm)?, self.output(vm)?);
        ensure!(status == 0 && output.contains("\nright"), "it ended with {status}: {output}");
        Ok(())
    }
}

/// Gives a machine the programs of these tests, and takes the host's files away.
fn leave_host(kit: &Kit, vm: &Vm) -> Result<()> {
    let programs = [kit.programs.get(WORK)?, kit.programs.get(MOVED)?, kit.programs.get("add_one")?];
    let libraries = programs.iter().map(|program| libraries_of(program, &kit.stack.guest_libraries()));
    let mut files: Vec<PathBuf> = libraries.collect::<Result<Vec<_>>>()?.concat();
    files.push(kit.stack.guest_libraries().join("libcuda.so.1"));
    files.extend(programs);
    files.sort();
    files.dedup();
    vm.leave_host(&files)
}

/// The libraries of a program, and the dynamic linker, by which it is listed.
fn libraries_of(program: &Path, first: &Path) -> Result<Vec<PathBuf>> {
    let mut list = Command::new(program);
    list.env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_LIBRARY_PATH", first);
    let outcome = running::run(&mut list, "", LIST)?;
    outcome.expect_exit(0)?;
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(outcome.stdout.lines().filter_map(path).collect())
}

/// A machine is saved and loaded with its programs, which go on each time. With a session that cannot go along it is not saved.
fn saved_and_loaded(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let vm = boot("saved", small)?;
    leave_host(kit, &vm)?;
    vm.create_snapshots(&folder.path().join("snapshots"))?;
    let programs = start_all(&vm)?;
    vm.save_snapshot("one")?;
    vm.shell(&format!("touch {OWN_FILES}/later"))?;
    end_all(&vm, &programs)?;
    for _ in 0..2 {
        vm.load_snapshot("one")?;
        ensure!(vm.shell(&format!("test -e {OWN_FILES}/later")).is_err(), "it is not the saved machine");
        expect_good(&vm)?;
        end_all(&vm, &programs)?;
    }
    let program = OwnProgram::start(&vm, MOVED, "1 offered")?;
    program.expect(&vm, "begun")?;
    ensure!(vm.save_snapshot("two").is_err(), "it was saved with a session that cannot go along");
    let log = vm.daemon().log()?;
    ensure!(log.contains("cannot go along: it shares memory or events with other processes"), "{log}");
    program.end(&vm)?;
    vm.save_snapshot("two")?;
    kernel_log_is_clean(kit, &vm)?;
    vm.shut_down()
}

/// A machine moves at random moments between daemons, and each source is killed then. Destinations that refuse it, or
/// are killed, change nothing.
fn while_programs_compute(kit: &Kit) -> Result<()> {
    let (rounds, seed) = (effort::rounds(USUAL_ROUNDS)?, effort::seed()?.unwrap_or(55));
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir()?;
    let mut vm = boot("moved", small)?;
    leave_host(kit, &vm)?;
    let programs = start_all(&vm)?;
    for round in 0..rounds {
        let name = format!("moved-{}", round % 2);
        thread::sleep(Duration::from_micros(random.u64(..MAX_DELAY)));
        let address = format!("unix:{}", folder.path().join(&name).display());
        if round == 0 {
            let mut full = destination("moved-full", without_room)?;
            full.listen(&address)?;
            ensure!(vm.send(&address).is_err(), "a destination without memory took it");
            wait_until("the reason is in the log", || Ok(full.daemon().log()?.contains(") cannot enter: ")))?;
            ensure!(full.arrive(&vm).is_err(), "a destination without memory has it");
        }
        lose_destination(&vm, &address, Duration::from_micros(random.u64(..MAX_DELAY)))
            .with_context(|| format!("before move {round} of seed {seed}"))?;
        let moved = || {
            let mut destination = destination(&name, small)?;
            destination.listen(&address)?;
            vm.send(&address)?;
            destination.arrive(&vm)
        };
        vm = moved().with_context(|| {
            format!("move {round} of seed {seed}: {}", vm.daemon().log().unwrap_or_default())
        })?;
        expect_good(&vm).with_context(|| format!("after move {round} of seed {seed}"))?;
    }
    end_all(&vm, &programs)?;
    kernel_log_is_clean(kit, &vm)?;
    vm.shut_down()
}

/// Contents go ahead of a machine at the rate that its migration has. One that is cancelled leaves all as it was.
fn contents_go_ahead(kit: &Kit) -> Result<()> {
    const MIB: u64 = 32;
    let folder = tempfile::tempdir()?;
    let address = format!("unix:{}", folder.path().join("ahead").display());
    let vm = boot("ahead", small)?;
    leave_host(kit, &vm)?;
    let program = OwnProgram::start(&vm, WORK, &format!("{MIB} idle"))?;
    program.expect(&vm, "begun")?;
    let mut lost = destination("ahead-lost", small)?;
    lost.listen(&address)?;
    vm.send_in_vain(&address, MIB << 18, MIB << 18)?;
    drop(lost);
    expect_good(&vm)?;
    let mut destination = destination("ahead-0", small)?;
    destination.listen(&address)?;
    vm.send_live(&address, 1)?;
    let vm = destination.arrive(&vm)?;
    let log = vm.daemon().log()?;
    let came = log
        .split_once(" MiB of contents have come ahead")
        .and_then(|(before, _)| before.split(' ').next_back());
    let came: u64 = came.and_then(|number| number.parse().ok()).with_context(|| log.clone())?;
    ensure!(came >= MIB, "{log}");
    program.end(&vm)?;
    kernel_log_is_clean(kit, &vm)?;
    vm.shut_down()
}

/// A destination is killed while the machine comes, or just when it is there. It goes on where it was: by itself, or when it is told so.
fn lose_destination(vm: &Vm, address: &str, delay: Duration) -> Result<()> {
    let mut lost = destination("moved-lost", small)?;
    lost.listen(address)?;
    let sent = thread::scope(|scope| {
        let sending = scope.spawn(|| vm.send(address));
        thread::sleep(delay);
        drop(lost);
        sending.join()
    });
    if sent.is_ok_and(|sent| sent.is_ok()) {
        vm.resume()?;
    }
    expect_good(vm)
}

/// Two machines go on from one file. A third one loses the session for which there is no room, because the operator allows that.
fn loaded_again_and_again(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let address = format!("file:{}", folder.path().join("machine").display());
    let vm = boot("origin", small)?;
    leave_host(kit, &vm)?;
    let programs = start_all(&vm)?;
    vm.send(&address)?;
    let load = |name: &str, change: fn(&mut VmConfig)| {
        let mut destination = destination(name, change)?;
        destination.listen(&address)?;
        destination.arrive(&vm)
    };
    let clones = [load("clone-0", small)?, load("clone-1", small)?];
    let loses = load("loses", |config| {
        without_room(config);
        config.daemon.arguments.push("--lose-sessions".into());
    })?;
    ensure!(programs[0].status(&loses)? != 0, "{}", programs[0].output(&loses)?);
    let output = programs[0].output(&loses)?;
    ensure!(output.contains("cudaErrorDevicesUnavailable"), "{output}");
    programs[1].end(&loses)?;
    expect_good(&loses)?;
    vm.resume()?;
    for vm in clones.into_iter().chain([vm]) {
        expect_good(&vm)?;
        end_all(&vm, &programs)?;
        kernel_log_is_clean(kit, &vm)?;
        vm.shut_down()?;
    }
    loses.shut_down()
}

fn small(config: &mut VmConfig) {
    config.memory = "512M".into();
}

/// The daemon allows less device memory than [`WORK`] has.
fn without_room(config: &mut VmConfig) {
    small(config);
    config.daemon.arguments.extend(["--memory", "12M"].map(String::from));
}

/// A QEMU that waits for a machine, with a daemon.
fn destination(name: &str, change: impl FnOnce(&mut VmConfig)) -> Result<Destination> {
    let paths = Paths::discover()?;
    Destination::start(&paths, configure(change)?, &logs_of(&paths, name), None)
}

/// Starts programs that compute until [`end_all`].
fn start_all(vm: &Vm) -> Result<[OwnProgram; 2]> {
    let programs = [OwnProgram::start(vm, WORK, "16 work")?, OwnProgram::start(vm, MOVED, "3 managed")?];
    programs.iter().try_for_each(|program| program.expect(vm, "begun"))?;
    Ok(programs)
}

fn end_all(vm: &Vm, programs: &[OwnProgram]) -> Result<()> {
    programs.iter().try_for_each(|program| program.end(vm))
}

fn expect_good(vm: &Vm) -> Result<()> {
    let program = OwnProgram::start(vm, "add_one", "")?;
    ensure!(program.status(vm)? == 0, "{}", program.output(vm)?);
    Ok(())
}
