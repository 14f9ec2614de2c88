// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The walls around workers and the daemon, as the host sees them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions, workers_of};
use vhost_cuda_tests::frontend::FakeFrontend;
use vhost_cuda_tests::suite::{Kit, Suite};

/// The maximum time that a daemon and its worker may take to be ready.
const READY: Duration = Duration::from_secs(30);
/// The namespaces of workers. An unprivileged daemon has a user namespace in which they are made.
const NAMESPACES: [&str; 4] = ["mnt", "pid", "net", "ipc"];
/// A user without privileges.
const NOBODY: u32 = 65534;

pub fn collect(suite: &mut Suite) {
    suite.test("walls::of_workers", of_workers);
    suite.test("walls::lost_namespaces_are_made_again", lost_namespaces);
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } == 0 {
        suite.test("walls::an_unprivileged_user_builds_them", unprivileged_user);
    } else {
        suite.skip("walls::an_unprivileged_user_builds_them", "the other tests run as one");
    }
}

fn start(kit: &Kit) -> Result<Daemon> {
    let arguments = ["--namespaces", "require"].map(String::from).to_vec();
    // Its folders are in the root of workers, and cargo's are not.
    let environment = vec![("LD_LIBRARY_PATH".into(), String::new())];
    let options =
        DaemonOptions { device: "emulated".into(), arguments, environment, ..DaemonOptions::default() };
    Daemon::start(&kit.stack, &options)
}

/// The first worker that waits for a session, once there is one.
fn worker_of(daemon: u32) -> Result<u32> {
    let deadline = Instant::now() + READY;
    loop {
        let warm = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "cuda-warm")
        };
        if let Some(worker) = workers_of(daemon).into_iter().find(warm) {
            return Ok(worker);
        }
        ensure!(Instant::now() < deadline, "no worker is ready within {READY:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn namespace(process: u32, kind: &str) -> Result<u64> {
    Ok(fs::metadata(format!("/proc/{process}/ns/{kind}"))?.ino())
}

fn has_walls(daemon: u32, worker: u32) -> Result<()> {
    for kind in NAMESPACES {
        ensure!(namespace(worker, kind)? != namespace(daemon, kind)?, "the worker has the daemon's {kind}");
    }
    let status = fs::read_to_string(format!("/proc/{worker}/status"))?;
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        let none = format!("{set}:\t0000000000000000");
        ensure!(status.contains(&none), "the worker has capabilities\n{status}");
    }
    let root = fs::read_dir(format!("/proc/{worker}/root"))?;
    for entry in root {
        let name = entry?.file_name();
        ensure!(!["home", "root", "run", "var"].iter().any(|known| name == *known), "{name:?}");
    }
    Ok(())
}

fn of_workers(kit: &Kit) -> Result<()> {
    let daemon = start(kit)?;
    has_walls(daemon.pid(), worker_of(daemon.pid())?)?;
    FakeFrontend::behave(&daemon.socket())?;
    daemon.wait_until("a worker's message names its session", READY, |daemon| {
        daemon.log().contains("session 1: worker: ")
    })
}

/// Kills the process that holds the workers' namespaces, as an administrator or the kernel may who needs memory.
fn lost_namespaces(kit: &Kit) -> Result<()> {
    let mut daemon = start(kit)?;
    let first = worker_of(daemon.pid())?;
    let before = namespace(first, "pid")?;
    let keeper = keeper_of(first)?;
    // SAFETY: plain system call on a process that the daemon has started and not waited for.
    ensure!(unsafe { libc::kill(keeper, libc::SIGKILL) } == 0, "the keeper is not there");
    daemon.wait_until("its worker has ended", READY, |daemon| !daemon.workers().contains(&first))?;
    let served = |daemon: &Daemon| FakeFrontend::behave(&daemon.socket()).is_ok();
    daemon.wait_until("sessions are served again", READY, served)?;
    let second = worker_of(daemon.pid())?;
    ensure!(namespace(second, "pid")? != before, "the workers have the old namespace");
    has_walls(daemon.pid(), second)?;
    ensure!(daemon.is_running(), "the daemon has ended");
    Ok(())
}

/// The other child of the daemon, in the same namespace.
fn keeper_of(worker: u32) -> Result<i32> {
    let space = namespace(worker, "pid")?;
    let processes =
        fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut keepers = processes
        .filter(|&pid| name(pid).trim() == "cuda-keeper" && namespace(pid, "pid").ok() == Some(space));
    Ok(keepers.next().context("no process holds the workers' namespaces")? as i32)
}

/// A daemon without any privilege, which is how it should run.
fn unprivileged_user(kit: &Kit) -> Result<()> {
    let arguments = ["--namespaces", "require"].map(String::from).to_vec();
    let environment = vec![("LD_LIBRARY_PATH".into(), String::new())];
    let user = Some(NOBODY);
    let options =
        DaemonOptions { device: "emulated".into(), arguments, environment, user, ..Default::default() };
    let daemon = Daemon::start(&kit.stack, &options)?;
    as_user(daemon.pid(), &daemon.socket()).with_context(|| daemon.log())
}

fn as_user(daemon: u32, socket: &Path) -> Result<()> {
    let worker = worker_of(daemon)?;
    has_walls(daemon, worker)?;
    ensure!(namespace(daemon, "user")? == namespace(worker, "user")?);
    ensure!(namespace(daemon, "user")? != namespace(std::process::id(), "user")?, "no user namespace");
    // The kernel gives root the files of a process that is not dumpable.
    for (process, name) in [(daemon, "daemon"), (worker, "worker")] {
        let owner = fs::metadata(format!("/proc/{process}/environ"))?.uid();
        ensure!(owner == 0, "other processes of user {owner} can read the {name}'s memory");
    }
    FakeFrontend::behave(socket)
}
