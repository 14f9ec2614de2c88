// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Machines that are saved, loaded, and moved to another QEMU with a daemon of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::running;
use vhost_cuda_tests::suite::{Kit, Suite};
use xtask::paths::Paths;
use xtask::vm::{Destination, OWN_FILES, Vm, VmConfig};

use crate::life::{kernel_log_is_clean, wait_until};
use crate::{boot, configure, logs_of};

/// The program that changes its memory all the time, and compares it at the end.
const WORK: &str = "suspended";
/// The time limit for the list of a program's libraries.
const LIST: Duration = Duration::from_secs(20);

pub fn collect(suite: &mut Suite) {
    suite.test("moved::without_sessions", without_sessions);
    suite.test("moved::sessions_are_lost_if_allowed", sessions_are_lost);
}

/// A program among the guest's own files, as its output: both go along with the machine.
struct OwnProgram {
    /// The beginning of its files' names.
    files: String,
}

impl OwnProgram {
    /// Starts a program that [`own_machine`] has copied. It need not end before its machine is moved.
    fn start(vm: &Vm, name: &str, arguments: &str) -> Result<Self> {
        let files = format!("{OWN_FILES}/{name}-{}", arguments.replace(' ', "-"));
        let run = format!("LD_LIBRARY_PATH={OWN_FILES} {OWN_FILES}/{name} {arguments} > {files}.out 2>&1 &");
        let wait = format!("echo $! > {files}.pid; wait $!; echo $? > {files}.status");
        vm.shell(&format!("({run} {wait}) > /dev/null 2>&1 < /dev/null &"))?;
        Ok(Self { files })
    }

    /// What it has printed.
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

    /// Ends [`WORK`], which must find all that it has computed.
    fn end_work(&self, vm: &Vm) -> Result<()> {
        vm.shell(&format!("kill -TERM $(cat {}.pid)", self.files))?;
        let (status, output) = (self.status(vm)?, self.output(vm)?);
        ensure!(status == 0 && output.ends_with("right\n"), "it ended with {status}: {output}");
        Ok(())
    }
}

/// Gives a machine the programs of these tests, and takes the host's files away.
fn leave_host(kit: &Kit, vm: &Vm) -> Result<()> {
    let programs = [kit.programs.get(WORK)?, kit.programs.get("add_one")?];
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

fn expect_good(vm: &Vm) -> Result<()> {
    let program = OwnProgram::start(vm, "add_one", "")?;
    ensure!(program.status(vm)? == 0, "{}", program.output(vm)?);
    Ok(())
}

fn small(config: &mut VmConfig) {
    config.memory = "512M".into();
}

/// A machine with open sessions is not saved, and goes on. Without sessions it is saved, loaded and moved.
fn without_sessions(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let vm = boot("moved", small)?;
    leave_host(kit, &vm)?;
    vm.create_snapshots(&folder.path().join("snapshots"))?;
    let program = OwnProgram::start(&vm, WORK, "16 work")?;
    program.expect(&vm, "begun")?;
    let refused = vm.save_snapshot("refused");
    ensure!(refused.is_err(), "it was saved with a session");
    ensure!(vm.daemon().log()?.contains("1 sessions are open and would be lost"), "{}", vm.daemon().log()?);
    program.end_work(&vm)?;
    vm.save_snapshot("good")?;
    vm.shell(&format!("touch {OWN_FILES}/later"))?;
    expect_good(&vm)?;
    vm.load_snapshot("good")?;
    ensure!(vm.shell(&format!("test -e {OWN_FILES}/later")).is_err(), "it is not the saved machine");
    expect_good(&vm)?;
    let moved = move_to_another(&vm, folder.path(), small)?;
    drop(vm);
    expect_good(&moved)?;
    kernel_log_is_clean(kit, &moved)?;
    moved.shut_down()
}

/// A QEMU that waits for such a machine, with its logs beside those of others.
fn destination(name: &str, change: impl FnOnce(&mut VmConfig)) -> Result<Destination> {
    let paths = Paths::discover()?;
    Destination::start(&paths, configure(change)?, &logs_of(&paths, name))
}

/// Moves a machine while it runs.
fn move_to_another(vm: &Vm, folder: &Path, change: impl FnOnce(&mut VmConfig)) -> Result<Vm> {
    let mut destination = destination("moved-to", change)?;
    let address = format!("unix:{}", folder.join("migration").display());
    destination.listen(&address)?;
    vm.send(&address)?;
    destination.arrive(vm)
}

/// With `--lose-sessions` the saved machine goes on as it was, and programs of the one that is loaded get an error.
fn sessions_are_lost(kit: &Kit) -> Result<()> {
    let lose = |config: &mut VmConfig| {
        small(config);
        config.daemon.arguments.push("--lose-sessions".into());
    };
    let folder = tempfile::tempdir()?;
    let vm = boot("lost", lose)?;
    leave_host(kit, &vm)?;
    let program = OwnProgram::start(&vm, WORK, "16 work")?;
    program.expect(&vm, "begun")?;
    let address = format!("file:{}", folder.path().join("machine").display());
    vm.send(&address)?;
    let mut destination = destination("lost-to", lose)?;
    destination.listen(&address)?;
    let loaded = destination.arrive(&vm)?;
    ensure!(program.status(&loaded)? != 0, "{}", program.output(&loaded)?);
    let output = program.output(&loaded)?;
    ensure!(output.contains("cudaErrorDevicesUnavailable"), "{output}");
    expect_good(&loaded)?;
    kernel_log_is_clean(kit, &loaded)?;
    vm.resume()?;
    program.end_work(&vm)?;
    kernel_log_is_clean(kit, &vm)?;
    loaded.shut_down()?;
    vm.shut_down()
}
