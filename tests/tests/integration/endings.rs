// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Programs, workers and the daemon end, orderly or not: others continue, and nothing is leaked.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::DaemonOptions;
use vhost_cuda_tests::running::{Ended, run};
use vhost_cuda_tests::stack::SOCKET_VARIABLE;
use vhost_cuda_tests::suite::{Kit, Suite};

use crate::{LIMIT, LOSS, SETTLE, daemon, expect_good, names, route, start};

pub fn collect(suite: &mut Suite) {
    suite.test("sigterm_ends_everything", sigterm_ends_everything);
    suite.test("no_daemon", no_daemon);
    suite.test("worker_killed", worker_killed);
    suite.test("daemon_killed_in_a_copy", daemon_killed_in_a_copy);
    suite.test("program_killed_in_a_copy", program_killed_in_a_copy);
    suite.test("program_killed_in_a_host_function", program_killed_in_a_host_function);
    suite.test("illegal_address_harms_nobody_else", illegal_address_harms_nobody_else);
    suite.test("two_hundred_processes_leave_nothing", two_hundred_processes_leave_nothing);
    suite.test("abandoned_memory_is_freed", abandoned_memory_is_freed);
    suite.test("memory_without_end", |kit| without_end(kit, "memory", 9));
    suite.test("objects_without_end", |kit| without_end(kit, "objects", 13));
}

/// A program that makes and ends objects more often than there may be at once gets no error. `kinds` is the number of kinds of
/// objects that it makes.
fn without_end(kit: &Kit, group: &str, kinds: usize) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    expect_good(kit, &route, "add_one")?;
    let settled = daemon(&mut route)?;
    settled.wait_until("one warm worker is left", SETTLE, |daemon| names(daemon) == ["cuda-warm"])?;
    let before = settled.open_files();
    let outcome = start(kit, &route, "without_end", &[group])?.finish(LIMIT)?;
    outcome.expect_exit(0)?;
    ensure!(outcome.stdout.lines().count() == kinds, "{outcome}");
    let daemon = daemon(&mut route)?;
    daemon.wait_until("as few descriptors as before", SETTLE, |daemon| daemon.open_files() <= before)
}

fn sigterm_ends_everything(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    let running = start(kit, &route, "copy_until_error", &[])?;
    running.wait_for_stdout("copying", LIMIT)?;
    let daemon = daemon(&mut route)?;
    let workers = daemon.workers();
    ensure!(!workers.is_empty(), "no worker is running");
    let status = daemon.stop()?;
    ensure!(status.success(), "SIGTERM: {status}\n{}", daemon.log());
    ensure!(!daemon.socket().exists(), "the socket is left behind");
    for worker in workers {
        ensure!(!Path::new(&format!("/proc/{worker}")).exists(), "worker {worker} is left behind");
    }
    let outcome = running.finish(LOSS)?;
    outcome.expect_exit(3)
}

fn no_daemon(kit: &Kit) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(kit.programs.get("add_one")?);
    command.env("LD_LIBRARY_PATH", kit.stack.guest_libraries());
    command.env(SOCKET_VARIABLE, folder.path().join("nobody"));
    let outcome = run(&mut command, "", LOSS)?;
    outcome.expect_exit(1)?;
    ensure!(outcome.stderr.contains("error 100 (cudaErrorNoDevice)"), "{outcome}");
    let said = run(command.env("VIRTIO_CUDA_LOG", "error"), "", LOSS)?;
    ensure!(said.stderr.contains("nobody"), "the log does not name the socket\n{said}");
    Ok(())
}

fn worker_killed(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions { arguments: no_warm_workers(), ..Default::default() })?;
    let other = start(kit, &route, "copy_until_error", &[])?;
    other.wait_for_stdout("copying", LIMIT)?;
    let before = daemon(&mut route)?.workers();
    let victim = start(kit, &route, "copy_until_error", &[])?;
    victim.wait_for_stdout("copying", LIMIT)?;
    let workers = daemon(&mut route)?.workers();
    let new: Vec<_> = workers.iter().filter(|pid| !before.contains(pid)).collect();
    ensure!(new.len() == 1, "workers {before:?}, then {workers:?}");
    kill(*new[0]);
    let outcome = victim.finish(LOSS)?;
    outcome.expect_exit(3)?;
    ensure!(!outcome.stdout.contains("then 0"), "a later call did not fail\n{outcome}");
    expect_good(kit, &route, "add_one")?;
    other.signal(libc::SIGTERM);
    ensure!(other.finish(SETTLE)?.ended == Ended::Signal(libc::SIGTERM), "another process was harmed");
    Ok(())
}

fn daemon_killed_in_a_copy(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions::default())?;
    let running = start(kit, &route, "copy_until_error", &[])?;
    running.wait_for_stdout("copying", LIMIT)?;
    thread::sleep(Duration::from_millis(50));
    let workers = daemon(&mut route)?.workers();
    let killed = Instant::now();
    daemon(&mut route)?.kill();
    let outcome = running.finish(LOSS)?;
    outcome.expect_exit(3)?;
    ensure!(killed.elapsed() < LOSS, "it took {:?}", killed.elapsed());
    ensure!(!outcome.stdout.contains("then 0"), "a later call did not fail\n{outcome}");
    for worker in workers {
        wait_until_gone(worker)?;
    }
    daemon(&mut route)?.restart()?;
    expect_good(kit, &route, "add_one")
}

fn program_killed_in_a_copy(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions { arguments: no_warm_workers(), ..Default::default() })?;
    for _ in 0..3 {
        let running = start(kit, &route, "copy_until_error", &[])?;
        running.wait_for_stdout("copying", LIMIT)?;
        thread::sleep(Duration::from_millis(30));
        running.signal(libc::SIGKILL);
        ensure!(running.finish(SETTLE)?.ended == Ended::Signal(libc::SIGKILL), "not killed");
        daemon(&mut route)?
            .wait_until("its worker has ended", SETTLE, |daemon| daemon.workers().is_empty())?;
    }
    expect_good(kit, &route, "add_one")
}

fn program_killed_in_a_host_function(kit: &Kit) -> Result<()> {
    let mut route = route(kit, &DaemonOptions { arguments: no_warm_workers(), ..Default::default() })?;
    for _ in 0..2 {
        // The GPU waits for a function that never returns.
        let running = start(kit, &route, "host_functions", &["stuck"])?;
        running.wait_for_stdout("stuck", LIMIT)?;
        running.signal(libc::SIGKILL);
        ensure!(running.finish(SETTLE)?.ended == Ended::Signal(libc::SIGKILL), "not killed");
        daemon(&mut route)?
            .wait_until("its worker has ended", SETTLE, |daemon| daemon.workers().is_empty())?;
    }
    expect_good(kit, &route, "add_one")
}

fn illegal_address_harms_nobody_else(kit: &Kit) -> Result<()> {
    let route = route(kit, &DaemonOptions::default())?;
    let other = start(kit, &route, "copy_until_error", &[])?;
    other.wait_for_stdout("copying", LIMIT)?;
    expect_good(kit, &route, "illegal_address")?;
    expect_good(kit, &route, "vector_add")?;
    other.signal(libc::SIGTERM);
    ensure!(other.finish(SETTLE)?.ended == Ended::Signal(libc::SIGTERM), "another process was harmed");
    Ok(())
}

fn two_hundred_processes_leave_nothing(kit: &Kit) -> Result<()> {
    // With one arena the allocator's mappings do not depend on how many threads met.
    let options =
        DaemonOptions { environment: vec![("MALLOC_ARENA_MAX".into(), "1".into())], ..Default::default() };
    let mut route = route(kit, &options)?;
    for _ in 0..3 {
        expect_good(kit, &route, "add_one")?;
    }
    let settled = daemon(&mut route)?;
    // The last program's worker ends, and a while after it was taken another one is warmed.
    settled.wait_until("one warm worker is left", SETTLE, |daemon| names(daemon) == ["cuda-warm"])?;
    let (files, maps, threads) =
        (settled.open_files(), lines(&settled.mapped_files()), threads(settled.pid()));
    let sockets = sockets_named(&settled.socket());
    for round in 0..200 {
        let name = if round % 10 == 9 { "exit_without_free" } else { "add_one" };
        expect_good(kit, &route, name).with_context(|| format!("process {round}"))?;
    }
    let daemon = daemon(&mut route)?;
    daemon.wait_until("one warm worker is left", SETTLE, |daemon| daemon.workers().len() == 1)?;
    daemon.wait_until("descriptors are closed", SETTLE, |daemon| daemon.open_files() <= files)?;
    daemon.wait_until("threads have ended", SETTLE, |daemon| self::threads(daemon.pid()) <= threads)?;
    let left = lines(&daemon.mapped_files());
    // The allocator may have grown; a leak would be one for each process.
    ensure!(left <= maps + 20, "{maps} mappings before, {left} after");
    ensure!(sockets_named(&daemon.socket()) <= sockets, "sockets are left behind");
    Ok(())
}

/// Memory of processes that did not free it is available for the next.
fn abandoned_memory_is_freed(kit: &Kit) -> Result<()> {
    let options = DaemonOptions {
        environment: vec![("CUDA_EMULATOR_MEMORY".into(), "64M".into())],
        ..Default::default()
    };
    let mut route = route(kit, &options)?;
    for _ in 0..5 {
        let running = start(kit, &route, "copy_until_error", &["40000000"])?;
        running.wait_for_stdout("copying", LIMIT)?;
        running.signal(libc::SIGKILL);
        running.finish(SETTLE)?;
    }
    daemon(&mut route)?
        .wait_until("one warm worker is left", SETTLE, |daemon| daemon.workers().len() == 1)?;
    expect_good(kit, &route, "out_of_memory")
}

fn no_warm_workers() -> Vec<String> {
    vec!["--warm-workers".into(), "0".into()]
}

fn kill(pid: u32) {
    // SAFETY: plain system call; the caller has just seen the process as a child of its own daemon.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

fn wait_until_gone(pid: u32) -> Result<()> {
    let deadline = Instant::now() + SETTLE;
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    while !state().is_empty() && !state().contains(") Z ") {
        ensure!(Instant::now() < deadline, "worker {pid} outlives its daemon: {}", state());
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn lines(text: &str) -> usize {
    text.lines().count()
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Unix sockets of that name: the listening one and its connections.
fn sockets_named(path: &Path) -> usize {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = path.display().to_string();
    table.lines().filter(|line| line.ends_with(&name)).count()
}
