// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Module, device, workers and daemon are removed and restored under a running guest. At the end nothing is leaked.

use std::io::{self, Write};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::cases::case;
use vhost_cuda_tests::daemon::workers_of;
use vhost_cuda_tests::running::{Ended, Outcome};
use vhost_cuda_tests::suite::{Kit, Suite};
use vhost_cuda_tests::verdict::{self, Answering};
use xtask::vm::{GuestCommand, Output, Vm};

use crate::{LIMIT, SharedVm, boot, outcome, run, shell_fails};

/// The time limit for a program to notice that the other side has ended.
const LOSS: Duration = Duration::from_secs(5);
/// The maximum time that the guest may take to get over a change.
const SETTLE: Duration = Duration::from_secs(20);

type Check = fn(&Kit, &Vm) -> Result<()>;

pub fn collect(suite: &mut Suite, shared: &SharedVm) {
    let checks: [(&str, Check); 10] = [
        ("processes_one_after_another", processes_one_after_another),
        ("killed_in_a_copy", killed_in_a_copy),
        ("interrupted_by_signals", interrupted_by_signals),
        ("worker_killed", worker_killed),
        ("daemon_killed_in_a_copy", daemon_killed_in_a_copy),
        ("rmmod_is_refused_while_open", rmmod_is_refused_while_open),
        ("insmod_and_rmmod_ten_times", insmod_and_rmmod_ten_times),
        ("afterwards_no_page_stays_pinned", no_page_stays_pinned),
        ("afterwards_nothing_has_leaked", nothing_has_leaked),
        ("afterwards_the_kernel_log_is_clean", kernel_log_is_clean),
    ];
    for (name, check) in checks {
        let vm = shared.clone();
        suite.test(format!("life::{name}"), move |kit| vm.with(|vm| check(kit, vm)));
    }
    suite.test("life::unplugged_with_calls_pending", unplugged_with_calls_pending);
    let vm = shared.clone();
    suite.test("life::shuts_down", move |_| vm.take().map_or(Ok(()), Vm::shut_down));
}

/// Runs a case, which must pass.
pub fn expect_good(kit: &Kit, vm: &Vm, name: &str) -> Result<()> {
    let case = case(name);
    let command = GuestCommand::new(kit.programs.get(case.program)?).arguments(case.args.iter().copied());
    verdict::check(case, &run(vm, &command)?, Answering::behind_daemons())
}

/// A program that copies until something stops it, running and past its first copy.
pub struct Copying {
    started: Instant,
    signal: Box<dyn Fn(i32) -> Result<()> + Send>,
    ended: thread::JoinHandle<Result<Output>>,
}

/// Stores output and notifies on its first line.
pub struct FirstLine {
    bytes: Vec<u8>,
    seen: Sender<()>,
}

impl FirstLine {
    /// Notifies `seen`.
    pub fn new(seen: Sender<()>) -> Self {
        Self { bytes: Vec::new(), seen }
    }

    /// All output.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Write for FirstLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.contains(&b'\n') {
            // There is no receiver after the first time.
            let _ = self.seen.send(());
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Copying {
    /// Returns when it has made its first copy.
    pub fn start(kit: &Kit, vm: &Vm) -> Result<Self> {
        Self::start_with(kit, vm, &[])
    }

    /// The same with arguments of the program.
    pub fn start_with(kit: &Kit, vm: &Vm, arguments: &[&str]) -> Result<Self> {
        let command = GuestCommand::new(kit.programs.get("copy_until_error")?).arguments(arguments);
        let running = vm.start(&command)?;
        let signal = Box::new(running.signals());
        let (seen, first_line) = channel();
        let ended = thread::spawn(move || {
            let mut stdout = FirstLine::new(seen);
            let mut stderr = Vec::new();
            let status = running.wait(Some(LIMIT), &mut stdout, &mut stderr)?;
            Ok(Output { status, stdout: stdout.into_bytes(), stderr })
        });
        let copying = Self { started: Instant::now(), signal, ended };
        if first_line.recv_timeout(LIMIT).is_err() {
            let outcome = copying.finish(Duration::from_secs(1))?;
            anyhow::bail!("no copy was made\n{outcome}");
        }
        Ok(copying)
    }

    /// Its result, if it ends within `limit`; else it is killed.
    fn finish(self, limit: Duration) -> Result<Outcome> {
        let deadline = Instant::now() + limit;
        while !self.ended.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let in_time = self.ended.is_finished();
        if !in_time {
            (self.signal)(libc::SIGKILL)?;
        }
        let output = self.ended.join().map_err(|_| anyhow::anyhow!("A reader panicked"))??;
        let outcome = outcome(output, self.started.elapsed());
        ensure!(in_time, "it did not end within {limit:?}\n{outcome}");
        Ok(outcome)
    }

    /// It must not have ended.
    pub fn expect_running(&self) -> Result<()> {
        ensure!(!self.ended.is_finished(), "the program has ended");
        Ok(())
    }

    /// Ends it by a signal.
    pub fn terminate(self) -> Result<()> {
        (self.signal)(libc::SIGTERM)?;
        let outcome = self.finish(SETTLE)?;
        ensure!(outcome.ended == Ended::Signal(libc::SIGTERM), "{outcome}");
        Ok(())
    }

    /// It must have seen an error, and no later call may have succeeded.
    fn finish_with_error(self) -> Result<Outcome> {
        let outcome = self.finish(LOSS)?;
        outcome.expect_exit(3)?;
        ensure!(!outcome.stdout.contains("then 0"), "a later call did not fail\n{outcome}");
        Ok(outcome)
    }
}

fn workers(vm: &Vm) -> Vec<u32> {
    vm.daemon().id().map(workers_of).unwrap_or_default()
}

/// Waits for at most [`SETTLE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + SETTLE;
    while !condition()? {
        ensure!(Instant::now() < deadline, "not within {SETTLE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn processes_one_after_another(kit: &Kit, vm: &Vm) -> Result<()> {
    for round in 0..20 {
        let name = if round % 5 == 4 { "exit_without_free" } else { "add_one" };
        expect_good(kit, vm, name).with_context(|| format!("process {round}"))?;
    }
    wait_until("one warm worker is left", || Ok(workers(vm).len() <= 1))
}

fn killed_in_a_copy(kit: &Kit, vm: &Vm) -> Result<()> {
    for _ in 0..3 {
        let copying = Copying::start(kit, vm)?;
        thread::sleep(Duration::from_millis(100));
        (copying.signal)(libc::SIGKILL)?;
        let outcome = copying.finish(SETTLE)?;
        ensure!(outcome.ended == Ended::Signal(libc::SIGKILL), "{outcome}");
    }
    wait_until("its worker has ended", || Ok(workers(vm).len() <= 1))?;
    expect_good(kit, vm, "add_one")
}

/// Signals that do not kill come in the middle of calls: the program must not notice.
fn interrupted_by_signals(kit: &Kit, vm: &Vm) -> Result<()> {
    let copying = Copying::start(kit, vm)?;
    for _ in 0..50 {
        (copying.signal)(libc::SIGSTOP)?;
        (copying.signal)(libc::SIGCONT)?;
        thread::sleep(Duration::from_millis(5));
    }
    ensure!(!copying.ended.is_finished(), "it ended\n{}", copying.finish(SETTLE)?);
    copying.terminate()
}

fn worker_killed(kit: &Kit, vm: &Vm) -> Result<()> {
    let copying = Copying::start(kit, vm)?;
    for worker in workers(vm) {
        // SAFETY: plain system call; the process was just seen as a child of our own daemon.
        unsafe { libc::kill(worker as libc::pid_t, libc::SIGKILL) };
    }
    copying.finish_with_error()?;
    expect_good(kit, vm, "add_one")
}

fn daemon_killed_in_a_copy(kit: &Kit, vm: &Vm) -> Result<()> {
    let copying = Copying::start(kit, vm)?;
    vm.daemon().kill()?;
    copying.finish_with_error()?;
    ensure!(vm.shell("echo up")?.trim() == "up", "the guest does not answer");
    // Without a daemon a program gets an error soon.
    let started = Instant::now();
    let outcome = run(vm, &GuestCommand::new(kit.programs.get("add_one")?))?;
    outcome.expect_exit(1)?;
    ensure!(started.elapsed() < SETTLE, "it took {:?}\n{outcome}", started.elapsed());
    vm.daemon().restart()?;
    good_again(kit, vm)?;
    expect_good(kit, vm, "vector_add")
}

fn rmmod_is_refused_while_open(kit: &Kit, vm: &Vm) -> Result<()> {
    let copying = Copying::start(kit, vm)?;
    let said = shell_fails(vm, "rmmod virtio_cuda")?;
    ensure!(said.to_lowercase().contains("unavailable") || said.to_lowercase().contains("in use"), "{said}");
    copying.expect_running().context("after rmmod")?;
    copying.terminate()
}

fn insmod_and_rmmod_ten_times(kit: &Kit, vm: &Vm) -> Result<()> {
    for round in 0..10 {
        let ended = vm.shell("rmmod virtio_cuda && ls /dev/virtio-cuda 2>&1 || true")?;
        ensure!(ended.contains("No such file"), "round {round}: the node is left: {ended}");
        vm.shell("insmod /virtio_cuda.ko").with_context(|| format!("round {round}"))?;
    }
    expect_good(kit, vm, "add_one")
}

fn unplugged_with_calls_pending(kit: &Kit) -> Result<()> {
    let vm = boot("unplugged", |config| config.plugs = true)?;
    for _ in 0..2 {
        let copying = Copying::start(kit, &vm)?;
        vm.unplug()?;
        copying.finish_with_error()?;
        let outcome = run(&vm, &GuestCommand::new(kit.programs.get("add_one")?))?;
        outcome.expect_exit(1)?;
        ensure!(outcome.stderr.contains("error 100 (cudaErrorNoDevice)"), "{outcome}");
        vm.plug()?;
        // The node belongs to the module: only a program can tell that the device is back.
        good_again(kit, &vm)?;
    }
    no_page_stays_pinned(kit, &vm)?;
    nothing_has_leaked(kit, &vm)?;
    kernel_log_is_clean(kit, &vm)?;
    vm.shut_down()
}

/// Waits until a new program works. An error contains the last failure, and the logs of daemon and kernel.
fn good_again(kit: &Kit, vm: &Vm) -> Result<()> {
    let mut last = Ok(());
    let waited = wait_until("a new program works", || {
        last = expect_good(kit, vm, "add_one");
        Ok(last.is_ok())
    });
    waited.or_else(|late| {
        let text = |log: Result<String>| log.unwrap_or_else(|error| format!("not readable: {error:#}"));
        let (daemon, kernel) = (text(vm.daemon().log()), text(vm.kernel_log()));
        last.context(format!("{late}\n--- the daemon's log\n{daemon}\n--- the kernel's log\n{kernel}"))
    })
}

fn no_page_stays_pinned(_: &Kit, vm: &Vm) -> Result<()> {
    // Closing a file does not wait for the device.
    let settled = || pinned_and_released(vm).map(|(pinned, released)| pinned == released);
    wait_until("no page is pinned", settled)
        .with_context(|| format!("pages pinned and released: {:?}", pinned_and_released(vm)))?;
    ensure!(pinned_and_released(vm)?.0 > 0, "no page was ever pinned");
    Ok(())
}

fn pinned_and_released(vm: &Vm) -> Result<(u64, u64)> {
    // The counters of the processors are added up now and then, or on request.
    let text = vm.shell("echo 1 > /proc/sys/vm/stat_refresh; cat /proc/vmstat")?;
    let count = |name: &str| {
        let number = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        number.with_context(|| format!("/proc/vmstat has no {name}"))
    };
    Ok((count("nr_foll_pin_acquired")?, count("nr_foll_pin_released")?))
}

/// On a kernel with the leak detector, which needs two looks some seconds apart.
pub fn nothing_has_leaked(_: &Kit, vm: &Vm) -> Result<()> {
    vm.shell("mount -t debugfs none /sys/kernel/debug 2>/dev/null || true")?;
    if vm.shell("test -e /sys/kernel/debug/kmemleak").is_err() {
        return Ok(());
    }
    for _ in 0..2 {
        vm.shell("echo scan > /sys/kernel/debug/kmemleak; sleep 6")?;
    }
    let leaks = vm.shell("cat /sys/kernel/debug/kmemleak")?;
    ensure!(!leaks.contains("virtio_cuda"), "{leaks}");
    Ok(())
}

pub fn kernel_log_is_clean(_: &Kit, vm: &Vm) -> Result<()> {
    const BAD: [&str; 13] = [
        "WARNING:",
        "BUG:",
        "BUG ",
        "Oops",
        "KASAN",
        "UBSAN",
        "suspected memory leaks",
        "possible recursive locking",
        "circular locking",
        "blocked for more than",
        "refcount_t:",
        "Call Trace",
        // A KUnit test of the module that failed.
        "not ok ",
    ];
    let log = vm.kernel_log()?;
    let bad: Vec<&str> = log.lines().filter(|line| BAD.iter().any(|word| line.contains(word))).collect();
    ensure!(bad.is_empty(), "{}\n--- the whole log\n{log}", bad.join("\n"));
    Ok(())
}
